// SPDX-License-Identifier: Apache-2.0
//
// `mxk bench --backend tpc-emu`: what the emulated kernels issue, and the time that this would take if nothing else
// did. Nothing is timed here: the time of an emulation says nothing about a card.
#include "slots.h"

#include <algorithm>
#include <cstdio>
#include <memory>

#include "tpc/host/backend.h"

namespace mxk::cli {
namespace {

constexpr double kHbmBytesPerSecond = 2.2e12;  // what a card reads at best, of a peak of 2.45e12
constexpr const char* kMeaning = "predicted, issue-bound, not measured";

Json slots_json(const tpc::RunStats& s) {
  const emu::Slots& n = s.total;
  return {{"load", n.load},
          {"spu", n.spu},
          {"vpu", n.vpu},
          {"store", n.store},
          {"total", n.load + n.spu + n.vpu + n.store},
          {"busiest_tpc", s.busiest}};
}

// Vector operations of the steady loop for one row of one chunk and one route.
double ops(const tpc::RunStats& s) {
  return s.marked_units ? static_cast<double>(s.marked.vpu) / static_cast<double>(s.marked_units) : 0;
}

class SlotReport {
 public:
  SlotReport(const Source& source, const std::vector<int>& tokens, const std::string& routing, int threads)
      : source_(source), tokens_(tokens), routing_(routing), copies_(source, 1) {
    const int most = *std::max_element(tokens.begin(), tokens.end());
    const auto make = [&](const char* name, std::unique_ptr<Engine>* out) {
      require(Engine::create(source.variant(), source.shape(most), {name, threads}, out));
    };
    make("tpc-emu", &engine_);
    make("ref", &ref_);
    for (const int T : tokens_) {
      uint64_t stream = first_stream(T);
      batches_.push_back(working_batch(source, T, routing_of(routing), &stream));
      for (const int e : batches_.back().experts) copies_.add(0, e);
    }
    copies_.fill(ref_->pool());
    reference_.resize(source.rows(most) * source.K());
    y_.resize(reference_.size());
  }

  Json row(const Batch& b) {
    const Weights w = copies_.at(0);
    require(ref_->run(source_.call(w, b, reference_.data(), Dtype::f32)));
    require(engine_->run(source_.call(w, b, y_.data(), Dtype::bf16)));
    const tpc::CallStats stats = tpc::last_call();
    const int64_t rows = source_.rows(b.T);
    const Accuracy a = compare(reference_.data(), y_.data(), Dtype::bf16, rows, source_.K());
    const Gate gate = bf16_gate(reference_.data(), rows, source_.K());
    if (a.not_finite)
      fail("T={}: {} values of the reference are infinite or NaN; what cannot be validated is not counted", b.T,
           a.not_finite);
    if (!gate.passes(a))
      fail(
          "tpc-emu T={}: rel_l2 {:.3g} (limit {:.3g}), worst row {} {:.3g} (limit {:.3g}): a wrong result is not "
          "counted",
          b.T, a.rel_l2, gate.rel_l2, a.row, a.worst, gate.row());
    const double us = stats.issue_seconds() * 1e6;
    const uint64_t bytes = b.experts.size() * source_.expert_bytes();
    return {{"T", b.T},
            {"routing", routing_},
            {"routes", b.routes},
            {"experts", b.experts.size()},
            {"bytes", bytes},
            {"slots", {{"w13", slots_json(stats.w13)}, {"w2", slots_json(stats.w2)}}},
            {"vector_ops_per_chunk_row_and_route", {{"w13", ops(stats.w13)}, {"w2", ops(stats.w2)}}},
            {"predicted_issue_us", us},
            {"predicted_issue_us_per_route", us / b.routes},
            {"predicted_hbm_read_us", static_cast<double>(bytes) / kHbmBytesPerSecond * 1e6},
            {"rel_l2", a.rel_l2}};
  }

  Json run(bool table) {
    if (table) print_head();
    Json rows = Json::array();
    for (const Batch& b : batches_) {
      rows.push_back(row(b));
      if (table) print_row(rows.back());
    }
    return {{"env", environment_json()},
            {"impl", "kernel"},
            {"backend", engine_->backend().name},
            {"meaning", kMeaning},
            {"predicted_clock_hz", tpc::kClockHz},
            {"predicted_hbm_bytes_per_second", kHbmBytesPerSecond},
            {"routing", routing_},
            {"problem", source_.to_json()},
            {"rows", rows}};
  }

 private:
  void print_head() const {
    const Space& s = source_.space();
    fmt::print("{}: K {}, I {}, {} experts of {}, top-{}, routing {}; {}\n", source_.variant().name, s.K, source_.I(),
               s.E, s.total, s.k, routing_, source_.describe());
    fmt::print("backend tpc-emu: {}\n", engine_->backend().description);
    fmt::print(
        "Nothing here was timed. Slots: issued by all TPCs of both kernels, in thousands. ops: vector operations of\n"
        "the steady loop per chunk-row and route. issue us: {}: the fullest slot\n"
        "of the busiest TPC at {:.1f} GHz, with no wait. HBM us: the same bytes at {:.1f} TB/s.\n\n",
        kMeaning, tpc::kClockHz / 1e9, kHbmBytesPerSecond / 1e12);
    fmt::print("{:>4}  {:<7} {:>6} {:>7}  {:>8} {:>7} {:>8} {:>7} {:>8}  {:>7} {:>7}  {:>9} {:>8} {:>7}  {:>8}\n", "T",
               "routing", "routes", "experts", "LOAD", "SPU", "VPU", "STORE", "total", "ops w13", "ops w2", "issue us",
               "a route", "HBM us", "rel_l2");
    std::fflush(stdout);
  }

  static void print_row(const Json& r) {
    const auto thousands = [&](const char* slot) {
      return (r["slots"]["w13"][slot].get<double>() + r["slots"]["w2"][slot].get<double>()) / 1e3;
    };
    const Json& n = r["vector_ops_per_chunk_row_and_route"];
    fmt::print(
        "{:>4}  {:<7} {:>6} {:>7}  {:>8.0f} {:>7.0f} {:>8.0f} {:>7.0f} {:>8.0f}  {:>7.2f} {:>7.2f}  {:>9.1f} "
        "{:>8.2f} {:>7.1f}  {:>8.2e}\n",
        r["T"].get<int>(), r["routing"].get<std::string>(), r["routes"].get<int>(), r["experts"].get<int>(),
        thousands("load"), thousands("spu"), thousands("vpu"), thousands("store"), thousands("total"),
        n["w13"].get<double>(), n["w2"].get<double>(), r["predicted_issue_us"].get<double>(),
        r["predicted_issue_us_per_route"].get<double>(), r["predicted_hbm_read_us"].get<double>(),
        r["rel_l2"].get<double>());
    std::fflush(stdout);
  }

  const Source& source_;
  const std::vector<int> tokens_;
  const std::string routing_;
  Copies copies_;
  std::vector<Batch> batches_;
  std::unique_ptr<Engine> engine_, ref_;
  std::vector<float> reference_, y_;
};

}  // namespace

Json count_slots(const Source& source, const std::vector<int>& tokens, const std::string& routing, int threads,
                 bool table) {
  return SlotReport(source, tokens, routing, threads).run(table);
}

}  // namespace mxk::cli
