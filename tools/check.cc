// SPDX-License-Identifier: Apache-2.0
//
// `mxk check`: every backend against the fp32 reference, over token counts, activation sizes and routings.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>

#include "environment.h"
#include "reference/exact.h"
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

struct Candidate {
  std::unique_ptr<Engine> engine;
  bool gated;  // stock is shown for comparison only
};

// Named ones; else the one MXK_BACKEND forces; else all that could be chosen here.
std::vector<std::string> backends_to_check(const CheckOptions& o) {
  if (!o.backends.empty()) return o.backends;
  if (const char* forced = std::getenv("MXK_BACKEND"); forced && *forced) {
    if (std::string(forced) == "stock")
      usage("MXK_BACKEND=stock: stock is the baseline, not gated; unset it or use --backend");
    return {forced};
  }
  std::vector<std::string> names;
  for (const Backend* b : backends())
    if (b->automatic && b->supported().ok()) names.emplace_back(b->name);
  return names;
}

struct Result : Accuracy {
  bool pass = true;   // what is not gated passes
  bool ties = false;  // only once ties are set aside, see without_ties()
};

std::string cell(const Result& r) {
  return fmt::format("{:.2e} {:.2e}{}", r.rel_l2, r.worst, !r.pass ? "!" : r.ties ? "~" : " ");
}

Json to_json(const Result& r) {
  return {{"rel_l2", r.rel_l2}, {"worst_row", r.worst}, {"row", r.row}, {"only_ties", r.ties}};
}

class Check {
 public:
  explicit Check(const CheckOptions& o)
      : o_(o), source_(o.source), tokens_(o.tokens.empty() ? default_tokens(source_.variant()) : o.tokens) {
    for (const std::string& name : backends_to_check(o)) candidates_.push_back({make_engine(name), true});
    candidates_.push_back({make_engine("stock"), false});
    ref_ = make_engine("ref");
    if (!source_.mapped()) {
      copies_.emplace(source_, 1);
      for (int e = 0; e < source_.space().E; ++e) copies_->add(0, e);
      copies_->fill(ref_->pool());
    }
    weights_ = copies_ ? copies_->at(0) : *source_.mapped();
    reference_.resize(source_.rows(max_tokens()) * source_.K());
    y_.resize(reference_.size());
  }

  bool run() {
    if (!o_.json) print_head();
    for (const int T : tokens_)
      for (const float rms : {1.0f, 4.0f})
        for (const Routing routing : {Routing::random, Routing::local, Routing::hot}) run_case({T, rms, routing});
    if (not_finite_)
      warn(
          fmt::format("{} values of the reference are infinite or NaN (a scale of 0xFF, or an overflow); there only "
                      "sameness was checked",
                      not_finite_));
    if (o_.json)
      print_report();
    else
      print_verdict();
    return failures_ == 0;
  }

 private:
  int max_tokens() const { return *std::max_element(tokens_.begin(), tokens_.end()); }

  std::unique_ptr<Engine> make_engine(const std::string& backend) const {
    std::unique_ptr<Engine> engine;
    require(Engine::create(source_.variant(), source_.shape(max_tokens()), {backend, o_.threads}, &engine));
    return engine;
  }

  // The reference is the dear part: once for all backends.
  void run_case(const Case& c) {
    const Batch batch = make_batch(source_.space(), c.T, c.routing, c.rms, source_.seed(), 1000 + case_count_++);
    require(ref_->run(source_.call(weights_, batch, reference_.data(), Dtype::f32)));
    const Gate gate = bf16_gate(reference_.data(), source_.rows(c.T), source_.K());
    for (const Candidate& candidate : candidates_) {
      const Result bf16 = measure(c, batch, candidate, Dtype::bf16, gate);
      const Result f32 = measure(c, batch, candidate, Dtype::f32, Gate{kGateF32});
      const char* name = candidate.engine->backend().name;
      if (!o_.json) {
        fmt::print("{:>4} {:>4}  {:<7} {:>6}  {:<11} {:<19} {:<19}\n", c.T, c.rms, to_string(c.routing), batch.routes,
                   name, cell(bf16), cell(f32));
        std::fflush(stdout);
        continue;
      }
      cases_.push_back({{"T", c.T},
                        {"rms", c.rms},
                        {"routing", to_string(c.routing)},
                        {"routes", batch.routes},
                        {"backend", name},
                        {"bf16", to_json(bf16)},
                        {"f32", to_json(f32)},
                        {"pass", candidate.gated ? Json(bf16.pass && f32.pass) : Json(nullptr)}});
    }
  }

  Result measure(const Case& c, const Batch& batch, const Candidate& candidate, Dtype dtype, const Gate& gate) {
    std::memset(y_.data(), 0xAB, y_.size() * sizeof(float));  // what is not written must show
    const Call call = source_.call(weights_, batch, y_.data(), dtype);
    require(candidate.engine->run(call));
    Result r{compare(reference_.data(), y_.data(), dtype, source_.rows(c.T), source_.K())};
    if (&candidate == &candidates_.front() && dtype == Dtype::f32) not_finite_ += r.not_finite;
    if (candidate.gated) {
      ++gated_;
      r.pass = gate.passes(r);
      if (!r.pass && dtype == Dtype::f32 && gate.passes(without_ties(call))) r.pass = r.ties = true;
      ties_ |= r.ties;
      if (!r.pass && failures_++ == 0) first_failure_ = describe(c, batch, candidate, dtype, r, gate);
    }
    return r;
  }

  // The accuracy of an fp32 output against double precision, where activations that lie at the middle of two bf16 may
  // have become either. In a call of few routes one of them is more than the gate allows, though nothing is wrong.
  static Accuracy without_ties(const Call& call) {
    const Exact exact = reference_f64(call);
    const auto* got = static_cast<const float*>(call.y);
    std::vector<float> want(exact.y.size()), near(exact.y.size());
    for (size_t i = 0; i < want.size(); ++i) {
      const double off = double{got[i]} - exact.y[i];
      want[i] = static_cast<float>(exact.y[i]);
      near[i] =
          std::abs(off) <= exact.slack[i] ? want[i] : static_cast<float>(got[i] - std::copysign(exact.slack[i], off));
    }
    const int64_t K = call.shape.K;
    return compare(want.data(), near.data(), Dtype::f32, static_cast<int64_t>(want.size()) / K, K);
  }

  std::string describe(const Case& c, const Batch& batch, const Candidate& candidate, Dtype dtype, const Accuracy& a,
                       const Gate& gate) const {
    const std::string row = source_.variant().per_route ? fmt::format("token {} slot {} expert {}", a.row / batch.k,
                                                                      a.row % batch.k, batch.ids[a.row])
                                                        : fmt::format("token {}", a.row);
    return fmt::format("{} T={} rms={} {} {} output: rel_l2 {:.3g} (limit {:.3g}), worst row {}: {:.3g} (limit {:.3g})",
                       candidate.engine->backend().name, c.T, c.rms, to_string(c.routing),
                       dtype == Dtype::f32 ? "f32" : "bf16", a.rel_l2, gate.rel_l2, row, a.worst, gate.row());
  }

  void print_head() const {
    const Space& s = source_.space();
    fmt::print("{}: K {}, I {}, experts {}-{} of {}, top-{}; {}; {} threads\n", source_.variant().name, s.K,
               source_.I(), s.first, s.first + s.E - 1, s.total, s.k, source_.describe(), ref_->threads());
    fmt::print(
        "rel_l2 against fp32 `ref`: whole output, then worst row. Limits: bf16 {:.3g} {:.3g}, f32 {:.3g} {:.3g}, stock "
        "none\n\n",
        kGateBf16, kGateRow * kGateBf16, kGateF32, kGateRow * kGateF32);
    fmt::print("{:>4} {:>4}  {:<7} {:>6}  {:<11} {:<19} {:<19}\n", "T", "rms", "routing", "routes", "backend",
               "bf16 output", "f32 output");
  }

  void print_verdict() const {
    fmt::print("\n");
    if (ties_)
      fmt::print("~ within the limit but for activations at the middle of two bf16, which may become either\n");
    if (failures_) fmt::print("{} of {} results over their limit, first: {}\n", failures_, gated_, first_failure_);
    fmt::print("[{}] PARITY {}\n", source_.variant().name, failures_ ? "FAIL" : "PASS");
  }

  void print_report() const {
    Json j = {{"env", environment_json()},
              {"problem", source_.to_json()},
              {"threads", ref_->threads()},
              {"gates", {{"bf16", kGateBf16}, {"f32", kGateF32}, {"row_factor", kGateRow}}},
              {"cases", cases_},
              {"verdict", failures_ ? "FAIL" : "PASS"}};
    if (failures_) j["first_failure"] = first_failure_;
    print(j);
  }

  const CheckOptions& o_;
  const Source source_;
  const std::vector<int> tokens_;
  std::vector<Candidate> candidates_;
  std::unique_ptr<Engine> ref_;
  std::optional<Copies> copies_;  // of random weights; a checkpoint's are used where they are
  Weights weights_;
  std::vector<float> reference_, y_;
  int case_count_ = 0, gated_ = 0, failures_ = 0;
  int64_t not_finite_ = 0;
  bool ties_ = false;
  std::string first_failure_;
  Json cases_ = Json::array();
};

}  // namespace

void add_check_command(CLI::App& app) {
  CLI::App* sub =
      app.add_subcommand("check", "Compare backends with the fp32 reference; ends with PARITY PASS or FAIL");
  auto o = std::make_shared<CheckOptions>();
  add_source(sub, &o->source);
  std::vector<std::string> names = backend_names();
  names.erase(std::find(names.begin(), names.end(), "stock"));  // always shown, never gated
  sub->add_option("--backend", o->backends,
                  "Backends, comma separated or repeated; default: MXK_BACKEND, else all that run here")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::IsMember(names));
  add_threads(sub, &o->threads);
  add_tokens(sub, &o->tokens);
  sub->add_flag("--json", o->json, "Print JSON");
  sub->footer("Example:\n  mxk check --variant gptoss --checkpoint /models/gpt-oss-20b --layer 3");
  sub->callback([o] {
    warn_unknown_variables();
    if (!Check(*o).run()) throw Failure{kExitFailure, ""};  // the report said it
  });
}

}  // namespace mxk::cli
