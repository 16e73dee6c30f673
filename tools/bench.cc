// SPDX-License-Identifier: Apache-2.0
//
// `mxk bench`: time of a layer on cold weights, beside the time of only reading the same bytes. Emulated kernels are
// counted instead: slots.cc.
#include "bench.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <memory>

#include "ckpt/file.h"
#include "environment.h"
#include "floor.h"
#include "plan.h"
#include "slots.h"
#include "weights.h"

namespace mxk::cli {
namespace {

constexpr int kWarmRounds = 2;
constexpr uint64_t kUnknownCache = 64 << 20;

struct BenchOptions {
  SourceOptions source;
  std::string impl = "kernel", backend, routing = "local", json;
  std::vector<int> tokens;
  std::vector<std::string> compare;
  int threads = 0, min_runs = 30;
};

std::vector<Span> spans_of(const Source& source, const Weights& w, const Batch& batch) {
  const uint64_t weights = uint64_t{1} * source.K() * source.I();  // of w13, packed; the others follow from it
  std::vector<Span> spans;
  const auto add = [&](const uint8_t* base, uint64_t bytes) {
    for (const int e : batch.experts) spans.push_back({base + e * bytes, bytes});
  };
  add(w.w13, weights);
  add(w.s13, weights / 16);
  add(w.w2, weights / 2);
  add(w.s2, weights / 32);
  return spans;
}

double percentile(std::vector<double> v, double p) {
  std::sort(v.begin(), v.end());
  return v[std::lround(p * static_cast<double>(v.size() - 1))];
}

std::string date() {
  char text[32];
  const std::time_t now = std::time(nullptr);
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now));
  return text;
}

// To standard output, to the file that was opened for it, or nowhere, as --json asks.
void write_report(const Json& report, const std::string& json, ckpt::OutputFile& file) {
  if (json.empty()) return;
  if (json == "-") return print(report);
  const std::string text = report.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  require(file.write({reinterpret_cast<const uint8_t*>(text.data()), text.size()}));
  require(file.commit());
}

class Bench {
 public:
  explicit Bench(const BenchOptions& o) : o_(o), source_(o.source), routing_(routing_of(o.routing)) {
    const std::vector<int> tokens = o.tokens.empty() ? default_tokens(source_.variant()) : o.tokens;
    engine_ = make_engine(backend_name(), *std::max_element(tokens.begin(), tokens.end()));
    if (o.impl == "kernel" && !engine_->backend().automatic)
      usage("--impl kernel: MXK_BACKEND names '{}', which is no kernel; use --impl {}", engine_->backend().name,
            engine_->backend().name);
    machine_ = read_machine();
    llc_ = machine_.llc_bytes ? machine_.llc_bytes : kUnknownCache;
    int copies = 0;
    for (const int T : tokens) {
      plans_.push_back(make_plan(source_, T, routing_, llc_));
      copies = std::max(copies, plans_.back().copies);
    }
    copies_ = std::make_unique<Copies>(source_, copies);
    for (const Plan& plan : plans_)
      for (size_t r = 0; r < plan.batches.size(); ++r)
        for (const int e : plan.batches[r].experts) {
          copies_->add(plan.call_copy(r), e);
          copies_->add(plan.floor_copy(r), e);
        }
    copies_->fill(engine_->pool());
    y_.resize(source_.rows(*std::max_element(tokens.begin(), tokens.end())) * source_.K());
  }

  // All token counts, before anything is timed.
  void validate() {
    const auto largest = std::max_element(plans_.begin(), plans_.end(),
                                          [](const Plan& a, const Plan& b) { return a.batches[0].T < b.batches[0].T; });
    const auto ref = make_engine("ref", largest->batches[0].T);
    std::vector<float> reference(y_.size());
    for (Plan& plan : plans_) {
      const Batch& b = plan.batches[0];
      const Weights w = copies_->at(plan.call_copy(0));
      require(ref->run(source_.call(w, b, reference.data(), Dtype::f32)));
      require(engine_->run(source_.call(w, b, y_.data(), Dtype::bf16)));
      const Gate gate =
          o_.impl == "kernel" ? bf16_gate(reference.data(), source_.rows(b.T), source_.K()) : Gate{kGateStock};
      const Accuracy a = compare(reference.data(), y_.data(), Dtype::bf16, source_.rows(b.T), source_.K());
      if (a.not_finite)
        fail(
            "T={}: {} values of the reference are infinite or NaN (a scale of 0xFF, or an overflow); what cannot be "
            "validated is not timed",
            b.T, a.not_finite);
      if (!gate.passes(a))
        fail("{} T={}: rel_l2 {:.3g} (limit {:.3g}), worst row {} {:.3g} (limit {:.3g}): a wrong result is not timed",
             engine_->backend().name, b.T, a.rel_l2, gate.rel_l2, a.row, a.worst, gate.row());
      plan.rel_l2 = a.rel_l2;
    }
  }

  Json time(const Plan& plan) {
    std::vector<std::vector<Span>> spans(plan.batches.size());
    for (size_t r = 0; r < spans.size(); ++r)
      spans[r] = spans_of(source_, copies_->at(plan.floor_copy(r)), plan.batch(r));
    const Ahead ahead = fastest_read(engine_->pool(), spans);
    std::vector<double> us, floor_us, ratio, gbps;
    double routes = 0, experts = 0;
    uint64_t sink = 0;
    const size_t cycle = plan.batches.size(), runs = (o_.min_runs + cycle - 1) / cycle * cycle;
    for (size_t r = 0; r < runs + kWarmRounds; ++r) {
      // Counted from the end of the cycle, so that warm-up and timed rounds are one sequence.
      const size_t i = (r + cycle - kWarmRounds % cycle) % cycle;
      const Batch& b = plan.batch(i);
      const Call call = source_.call(copies_->at(plan.call_copy(i)), b, y_.data(), Dtype::bf16);
      Status status;
      const double call_us = microseconds([&] { status = engine_->run(call); });
      require(status);
      const double read_us = microseconds([&] { sink |= read_all(engine_->pool(), spans[i], ahead); });
      if (r < kWarmRounds) continue;
      us.push_back(call_us);
      floor_us.push_back(read_us);
      ratio.push_back(100 * read_us / call_us);
      gbps.push_back(static_cast<double>(b.experts.size() * source_.expert_bytes()) / call_us / 1e3);
      routes += b.routes;
      experts += static_cast<double>(b.experts.size());
    }
    sink_ = sink;
    const double n = static_cast<double>(runs);
    return {{"T", plan.batches[0].T},
            {"routing", o_.routing},
            {"routes", routes / n},
            {"experts", experts / n},
            {"bytes", experts / n * static_cast<double>(source_.expert_bytes())},
            {"us", percentile(us, 0.5)},
            {"p10", percentile(us, 0.1)},
            {"p90", percentile(us, 0.9)},
            {"gbps", percentile(gbps, 0.5)},
            {"floor_us", percentile(floor_us, 0.5)},
            {"floor_percent", percentile(ratio, 0.5)},
            {"rel_l2", plan.rel_l2},
            {"runs", runs},
            {"routings", cycle},
            {"copies", plan.copies},
            {"cold_bytes", plan.cold_bytes}};
  }

  void run() {
    const bool table = o_.json != "-";
    ckpt::OutputFile file;  // opened before the work, which would be lost; under its name only when complete
    if (table && !o_.json.empty()) require(file.create(o_.json));
    validate();
    if (table) print_head();
    Json rows = Json::array();
    for (const Plan& plan : plans_) {
      rows.push_back(time(plan));
      if (table) print_row(rows.back());
    }
    const Json report = {{"env", environment_json()},
                         {"date", date()},
                         {"impl", o_.impl},
                         {"backend", engine_->backend().name},
                         {"threads", engine_->threads()},
                         {"routing", o_.routing},
                         {"problem", source_.to_json()},
                         {"llc_bytes", llc_},
                         {"rows", rows}};
    write_report(report, o_.json, file);
  }

 private:
  std::string backend_name() const { return o_.impl == "kernel" ? o_.backend : o_.impl; }

  std::unique_ptr<Engine> make_engine(const std::string& backend, int T) const {
    std::unique_ptr<Engine> engine;
    require(Engine::create(source_.variant(), source_.shape(T), {backend, o_.threads}, &engine));
    return engine;
  }

  void print_head() const {
    const Space& s = source_.space();
    int copies = 0;
    uint64_t cold = UINT64_MAX;
    for (const Plan& p : plans_) {
      copies = std::max(copies, p.copies);
      cold = std::min(cold, p.cold_bytes);
    }
    fmt::print("{}: K {}, I {}, {} experts of {}, top-{}, routing {}; {}\n", source_.variant().name, s.K, source_.I(),
               s.E, s.total, s.k, o_.routing, source_.describe());
    fmt::print("{}: backend {}, {} threads, {}, {} last-level cache{}, huge pages {}\n", o_.impl,
               engine_->backend().name, engine_->threads(), machine_.cpu, binary_text(llc_),
               machine_.llc_bytes ? "" : " (assumed: unknown)",
               machine_.huge_pages.empty() ? "unknown" : machine_.huge_pages);
    fmt::print(
        "weights: up to {} copies, {} in use; at least {} read between two uses of an expert ({:.1f}x the cache)\n",
        copies, bytes_text(copies_->bytes()), bytes_text(cold), static_cast<double>(cold) / static_cast<double>(llc_));
    fmt::print(
        "floor: the same threads only read the same bytes, in turn with the calls; medians, [p10, p90] of {} or more "
        "calls\n\n",
        o_.min_runs);
    fmt::print("{:>4}  {:<7} {:>7} {:>8}  {:>10} {:<19} {:>7} {:>8}  {:>8}\n", "T", "routing", "routes", "experts",
               "us", "[p10, p90]", "GB/s", "% floor", "rel_l2");
    std::fflush(stdout);
  }

  static void print_row(const Json& r) {
    const auto d = [&](const char* name) { return r[name].get<double>(); };
    fmt::print("{:>4}  {:<7} {:>7.1f} {:>8.1f}  {:>10.0f} {:<19} {:>7.1f} {:>6.0f} %  {:>8.2e}\n", r["T"].get<int>(),
               r["routing"].get<std::string>(), d("routes"), d("experts"), d("us"),
               fmt::format("[{:.0f}, {:.0f}]", d("p10"), d("p90")), d("gbps"), d("floor_percent"), d("rel_l2"));
    std::fflush(stdout);
  }

  const BenchOptions& o_;
  const Source source_;
  const Routing routing_;
  Machine machine_;
  uint64_t llc_ = 0;
  std::unique_ptr<Engine> engine_;
  std::vector<Plan> plans_;
  std::unique_ptr<Copies> copies_;
  std::vector<float> y_;        // room for either output type
  volatile uint64_t sink_ = 0;  // what the floor read: it cannot be left out
};

constexpr const char* kEmulation = "tpc-emu";

#ifdef MXK_TPC_EMU
// Does this ask for the emulated kernels, whose slots are counted and whose time means nothing?
bool emulated(const BenchOptions& o) {
  if (o.impl != "kernel") return false;
  if (!o.backend.empty()) return o.backend == kEmulation;
  const char* variable = std::getenv("MXK_BACKEND");
  return variable && std::string(variable) == kEmulation;
}

void count(const BenchOptions& o) {
  ckpt::OutputFile file;  // as in Bench::run
  if (!o.json.empty() && o.json != "-") require(file.create(o.json));
  const Source source(o.source);
  const std::vector<int> tokens = o.tokens.empty() ? default_tokens(source.variant()) : o.tokens;
  write_report(count_slots(source, tokens, o.routing, o.threads, o.json != "-"), o.json, file);
}
#else
bool emulated(const BenchOptions&) { return false; }
void count(const BenchOptions&) {}
#endif

void bench(const BenchOptions& o) {
  if (!o.compare.empty()) return compare_benches(o.compare[0], o.compare[1], o.json);
  if (o.source.variant.empty()) usage("--variant is required (or --compare A.json B.json)");
  if (!o.backend.empty() && o.impl != "kernel") usage("--backend {} contradicts --impl {}", o.backend, o.impl);
  if (emulated(o)) return count(o);
  Bench(o).run();
}

}  // namespace

void add_bench_command(CLI::App& app) {
  CLI::App* sub = app.add_subcommand("bench", "Time a layer on cold weights, or compare two such measurements");
  auto o = std::make_shared<BenchOptions>();
  add_source(sub, &o->source);
  sub->get_option("--variant")->required(false);  // not for --compare
  sub->add_option("--impl", o->impl, "What to time: our kernel, the stock baseline, or the reference")
      ->check(CLI::IsMember({"kernel", "stock", "ref"}))
      ->capture_default_str();
  std::vector<std::string> kernels;
  for (const Backend* b : backends())
    if (b->automatic || std::string(b->name) == kEmulation) kernels.emplace_back(b->name);
  sub->add_option("--backend", o->backend,
                  "Kernel backend; default: MXK_BACKEND, else the first that runs here. tpc-emu: count, time nothing")
      ->check(CLI::IsMember(kernels));
  add_threads(sub, &o->threads);
  add_tokens(sub, &o->tokens);
  sub->add_option("--routing", o->routing,
                  "random: over all experts of the layer; local: over this rank's; hot: all to one and others")
      ->check(CLI::IsMember(routing_names()))
      ->capture_default_str();
  sub->add_option("--min-runs", o->min_runs, "Timed calls of each row, at least")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  sub->add_option("--json", o->json, "Also write the result to this file; - for standard output instead of the table");
  sub->add_option("--compare", o->compare, "Two files of --json: print them side by side and time nothing")
      ->expected(2);
  sub->footer(
      "Example:\n  mxk bench --variant gptoss --json kernel.json\n"
      "  mxk bench --variant gptoss --impl stock --json stock.json\n"
      "  mxk bench --compare stock.json kernel.json");
  sub->callback([o] {
    warn_unknown_variables();
    bench(*o);
  });
}

}  // namespace mxk::cli
