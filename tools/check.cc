// SPDX-License-Identifier: Apache-2.0
//
// `mxk check`: every backend against the fp32 reference, over token counts, activation sizes and routings.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>

#include "environment.h"
#include "weights.h"

namespace mxk::cli {
namespace {

struct CheckOptions {
  SourceOptions source;
  std::vector<std::string> backends;
  std::vector<int> tokens;
  int threads = 0;
  bool json = false;
};

struct Case {
  int T;
  float rms;
  Routing routing;
};

struct Result {
  Accuracy bf16, f32;
};

struct Candidate {
  std::unique_ptr<Engine> engine;
  bool gated;  // stock is shown for comparison only
};

// Named ones; else the one MXK_BACKEND forces; else all that could be chosen here.
std::vector<std::string> backends_to_check(const CheckOptions& o) {
  if (!o.backends.empty()) return o.backends;
  if (const char* forced = std::getenv("MXK_BACKEND"); forced && *forced) {
    if (std::string(forced) == "stock") usage("MXK_BACKEND=stock: stock is the baseline, not gated; unset it or use --backend");
    return {forced};
  }
  std::vector<std::string> names;
  for (const Backend* b : backends())
    if (b->automatic && b->supported().ok()) names.emplace_back(b->name);
  return names;
}

std::unique_ptr<Engine> make_engine(const Source& source, int T, const std::string& backend, int threads) {
  std::unique_ptr<Engine> engine;
  require(Engine::create(source.variant(), source.shape(T), {backend, threads}, &engine));
  return engine;
}

std::string failure_text(const Source& source, const Case& c, const Batch& batch, const std::string& backend, const char* out,
                         const Accuracy& a, const Gate& gate) {
  std::string at = fmt::format("{} T={} rms={} {} {}: rel_l2 {:.3g} (limit {:.3g}), worst row ", backend, c.T, c.rms,
                               to_string(c.routing), out, a.rel_l2, gate.rel_l2);
  if (source.variant().per_route)
    at += fmt::format("token {} slot {} expert {}", a.row / batch.k, a.row % batch.k, batch.ids[a.row]);
  else
    at += fmt::format("token {}", a.row);
  return fmt::format("{}: {:.3g} (limit {:.3g})", at, a.worst, gate.row());
}

std::string cell(const Accuracy& a, const Gate& gate, bool gated) {
  return fmt::format("{:.2e} {:.2e}{}", a.rel_l2, a.worst, gated && !gate.passes(a) ? "!" : " ");
}

Json to_json(const Accuracy& a) { return {{"rel_l2", a.rel_l2}, {"worst_row", a.worst}, {"row", a.row}}; }

void check(const CheckOptions& o) {
  const Source source(o.source);
  const Variant& variant = source.variant();
  const std::vector<int> tokens = o.tokens.empty() ? default_tokens(variant) : o.tokens;
  const int T_max = *std::max_element(tokens.begin(), tokens.end());

  std::vector<Candidate> candidates;
  for (const std::string& name : backends_to_check(o)) candidates.push_back({make_engine(source, T_max, name, o.threads), true});
  candidates.push_back({make_engine(source, T_max, "stock", o.threads), false});
  const auto ref = make_engine(source, T_max, "ref", o.threads);

  std::optional<Copies> copies;
  if (!source.mapped()) {
    copies.emplace(source, 1);
    for (int e = 0; e < source.space().E; ++e) copies->add(0, e);
    copies->fill(ref->pool());
  }
  const Weights weights = copies ? copies->at(0) : *source.mapped();

  const Space& s = source.space();
  const std::string title =
      fmt::format("{}: K {}, I {}, experts {}-{} of {}, top-{}, {}, {} threads", variant.name, s.K, source.I(), s.first,
                  s.first + s.E - 1, s.total, s.k, source.describe(), ref->threads());
  if (!o.json) {
    fmt::print("{}\nrel_l2 against fp32 `ref`, whole output then worst row; limits bf16 {:.3g} {:.3g}, f32 {:.3g} {:.3g}; "
               "stock has none\n\n{:>4} {:>4}  {:<7} {:>6}  {:<11} {:<19} {:<19}\n",
               title, kGateBf16.rel_l2, kGateBf16.row(), kGateF32.rel_l2, kGateF32.row(), "T", "rms", "routing", "routes",
               "backend", "bf16 output", "f32 output");
  }

  std::string first_failure;
  Json cases = Json::array();
  int count = 0, failures = 0;
  std::vector<float> reference(source.rows(T_max) * s.K), y(reference.size());
  for (const int T : tokens) {
    for (const float rms : {1.0f, 4.0f}) {
      for (const Routing routing : {Routing::random, Routing::local, Routing::hot}) {
        const Case c{T, rms, routing};
        const Batch batch = make_batch(s, T, routing, rms, source.seed(), 1000 + count++);
        require(ref->run(source.call(weights, batch, reference.data(), Dtype::f32)));
        const Gate gate_bf16 = bf16_gate(reference.data(), source.rows(T), s.K);
        for (Candidate& candidate : candidates) {
          const std::string name = candidate.engine->backend().name;
          const auto measure = [&](Dtype dtype, const Gate& gate, const char* out) {
            std::memset(y.data(), 0xAB, y.size() * sizeof(float));  // what is not written must show
            require(candidate.engine->run(source.call(weights, batch, y.data(), dtype)));
            const Accuracy a = compare(reference.data(), y.data(), dtype, source.rows(T), s.K);
            if (candidate.gated && !gate.passes(a)) {
              ++failures;
              if (first_failure.empty()) first_failure = failure_text(source, c, batch, name, out, a, gate);
            }
            return a;
          };
          const Result r{measure(Dtype::bf16, gate_bf16, "bf16"), measure(Dtype::f32, kGateF32, "f32")};
          const bool pass = gate_bf16.passes(r.bf16) && kGateF32.passes(r.f32);
          if (o.json)
            cases.push_back({{"T", T}, {"rms", rms}, {"routing", to_string(routing)}, {"routes", batch.routes},
                             {"backend", name}, {"bf16", to_json(r.bf16)}, {"f32", to_json(r.f32)},
                             {"pass", candidate.gated ? Json(pass) : Json(nullptr)}});
          else
            fmt::print("{:>4} {:>4}  {:<7} {:>6}  {:<11} {:<19} {:<19}\n", T, rms, to_string(routing), batch.routes, name,
                       cell(r.bf16, gate_bf16, candidate.gated), cell(r.f32, kGateF32, candidate.gated));
          std::fflush(stdout);
        }
      }
    }
  }

  const std::string verdict = failures ? "FAIL" : "PASS";
  if (o.json) {
    Json j = {{"env", environment_json()}, {"problem", source.to_json()}, {"threads", ref->threads()},
              {"gates", {{"bf16", kGateBf16.rel_l2}, {"f32", kGateF32.rel_l2}, {"row_factor", 3}}},
              {"cases", cases}, {"verdict", verdict}};
    if (failures) j["first_failure"] = first_failure;
    print(j);
  } else {
    fmt::print("\n");
    if (failures) fmt::print("{} of {} results over their limit, first: {}\n", failures, count * 2 * (candidates.size() - 1), first_failure);
    fmt::print("[{}] PARITY {}\n", variant.name, verdict);
  }
  if (failures) throw Failure{kExitFailure, ""};
}

}  // namespace

void add_check_command(CLI::App& app) {
  CLI::App* sub = app.add_subcommand("check", "Compare backends with the fp32 reference; ends with PARITY PASS or FAIL");
  auto o = std::make_shared<CheckOptions>();
  add_source(sub, &o->source);
  std::vector<std::string> names = backend_names();
  names.erase(std::find(names.begin(), names.end(), "stock"));  // always shown, never gated
  sub->add_option("--backend", o->backends, "Backends, comma separated or repeated; default: MXK_BACKEND, else all that run here")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::IsMember(names));
  add_threads(sub, &o->threads);
  add_tokens(sub, &o->tokens);
  sub->add_flag("--json", o->json, "Print JSON");
  sub->footer("Example:\n  mxk check --variant gptoss --checkpoint /models/gpt-oss-20b --layer 3");
  sub->callback([o] { check(*o); });
}

}  // namespace mxk::cli
