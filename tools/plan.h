// SPDX-License-Identifier: Apache-2.0
//
// How the calls of a measurement rotate over weights so that none of them is in a cache.
#pragma once

#include <cstdint>
#include <vector>

#include "weights.h"

namespace mxk::cli {

// One token count. Step s of the run works on copy s % copies, so that between two uses of an expert at least the
// smallest `copies - 1` calls go by, all of them on other bytes. Round r is two steps with the same routing: a call,
// then the read floor.
struct Plan {
  std::vector<Batch> batches;
  int copies;
  uint64_t cold_bytes;  // that much is read between two uses of an expert, at least
  double rel_l2 = 0;
  int call_copy(size_t r) const { return static_cast<int>(2 * r % copies); }
  int floor_copy(size_t r) const { return static_cast<int>((2 * r + 1) % copies); }
  const Batch& batch(size_t r) const { return batches[r % batches.size()]; }
};

// A batch of the first stream from `*stream` on that has a route to this rank: a call without one is no work. `*stream`
// ends behind it.
Batch working_batch(const Source& source, int T, Routing routing, uint64_t* stream);
uint64_t first_stream(int T);  // of the batches of T tokens

// Enough copies for 4x `llc` bytes between two uses, and 16 routings or more.
Plan make_plan(const Source& source, int T, Routing routing, uint64_t llc);

}  // namespace mxk::cli
