// SPDX-License-Identifier: Apache-2.0
#include "plan.h"

#include <algorithm>

namespace mxk::cli {
namespace {

constexpr int kRoutings = 16;        // different ones in a cycle, at least
constexpr uint64_t kColdFactor = 4;  // bytes between two uses of an expert, in last-level caches

}  // namespace

uint64_t first_stream(int T) { return 1000000 * static_cast<uint64_t>(T); }

Batch working_batch(const Source& source, int T, Routing routing, uint64_t* stream) {
  for (;;) {
    Batch b = make_batch(source.space(), T, routing, 1.0f, source.seed(), (*stream)++);
    if (!b.experts.empty()) return b;
  }
}

Plan make_plan(const Source& source, int T, Routing routing, uint64_t llc) {
  Plan plan;
  uint64_t stream = first_stream(T), smallest = 0;
  const auto add = [&] {
    Batch b = working_batch(source, T, routing, &stream);
    const uint64_t bytes = b.experts.size() * source.expert_bytes();
    smallest = plan.batches.empty() ? bytes : std::min(smallest, bytes);
    plan.batches.push_back(std::move(b));
  };
  while (plan.batches.size() < kRoutings) add();
  // A whole number of cycles over the copies: each routing then always meets the same two copies. Batches added for
  // that may be smaller than any before, so the number of copies may grow again.
  for (;;) {
    plan.copies = static_cast<int>(kColdFactor * llc / smallest) + 2;
    if (plan.batches.size() % plan.copies == 0) break;
    add();
  }
  plan.cold_bytes = (plan.copies - 1) * smallest;
  return plan;
}

}  // namespace mxk::cli
