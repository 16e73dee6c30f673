// SPDX-License-Identifier: Apache-2.0
//
// The calls that check and bench make, from a seed, and the error of an answer.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli.h"
#include "reference/gate.h"

namespace mxk::cli {

// random: top-k over all experts of the layer, of which one rank holds some; local: top-k over the rank's experts;
// hot: every token goes to the same expert and to others of the rank.
enum class Routing { random, local, hot };
const char* to_string(Routing routing);
std::vector<std::string> routing_names();
Routing routing_of(const std::string& name);

// The rank's experts are [first, first + E) of `total`.
struct Space {
  int k, first, E, total, K;
};

struct Batch {
  int T, k;
  std::vector<uint16_t> x;     // bf16 [T, K]
  std::vector<int32_t> ids;    // [T, k], distinct in a row; -1 where there are not enough experts
  std::vector<float> weights;  // [T, k], positive, each row sums to 1
  int routes;                  // local ones
  std::vector<int> experts;    // local experts with at least one route, ascending
};

// Same arguments, same batch, on every machine. `stream` tells batches of one seed apart.
Batch make_batch(const Space& space, int T, Routing routing, float rms, uint64_t seed, uint64_t stream);

// What the accuracy gate looks at. A row that is zero in the reference and not in the answer counts as an infinite
// error.
struct Accuracy {
  double rel_l2 = 0;       // |y - ref| / |ref| over everything
  double worst = 0;        // the same of the worst row
  int64_t row = 0;         // which that is
  int64_t not_finite = 0;  // values that are infinite or NaN in both alike, and count for nothing
};
Accuracy compare(const float* reference, const void* y, Dtype dtype, int64_t rows, int64_t width);

struct Gate {
  double rel_l2;
  double row() const { return kGateRow * rel_l2; }
  bool passes(const Accuracy& a) const { return a.rel_l2 <= rel_l2 && a.worst <= row(); }  // false for NaN
};
// The gate of bf16 output, or the rounding of this very reference where that alone is worse: an output of a few hundred
// values can be unlucky. Of no effect at serving shapes.
Gate bf16_gate(const float* reference, int64_t rows, int64_t width);

}  // namespace mxk::cli
