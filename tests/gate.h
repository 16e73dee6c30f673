// SPDX-License-Identifier: Apache-2.0
//
// The accuracy gate that every backend has to pass, in one place: parity_test holds backends to it, mutation_test shows
// that it catches faults.
#pragma once

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "reference/exact.h"
#include "reference/gate.h"

namespace mxk::test {

inline constexpr double kGateTight =
    1e-5;  // rel_l2 of fp32 output against double precision, flips set aside (see Exact)

struct Verdict {
  bool ok = true;
  double rel_l2 = 0, worst_row = 0;
  std::string why;  // the first thing that is wrong
};

// got against want in rows of K, less the slack. NaN and infinity must be matched exactly, and rows that are zero.
inline Verdict compare(const std::vector<float>& got, const std::vector<double>& want, int64_t K, double limit,
                       const std::vector<double>& slack = {}) {
  Verdict v;
  const auto fail = [&v](std::string why) {
    if (v.ok) v.why = std::move(why);
    v.ok = false;
  };
  if (got.size() != want.size() || want.size() % static_cast<size_t>(K) != 0) fail("sizes differ");
  double all_error = 0, all = 0;
  for (size_t begin = 0; v.ok && begin < want.size(); begin += static_cast<size_t>(K)) {
    const std::string row = "row " + std::to_string(begin / static_cast<size_t>(K));
    double row_error = 0, row_all = 0;
    bool zero = true, got_zero = true;
    for (size_t i = begin; i < begin + static_cast<size_t>(K); ++i) {
      const double g = double{got[i]}, w = want[i];
      zero &= w == 0;
      got_zero &= g == 0;
      if (!std::isfinite(w) || !std::isfinite(g)) {
        if (!(std::isnan(w) && std::isnan(g)) && g != w)
          fail(row + " element " + std::to_string(i - begin) + " is " + std::to_string(g) + ", not " +
               std::to_string(w));
        continue;
      }
      const double error = std::max(0.0, std::abs(g - w) - (slack.empty() ? 0 : slack[i]));
      row_error += error * error;
      row_all += w * w;
    }
    if (zero && !got_zero) fail(row + " should be zero");
    if (row_error > 0) {
      const double rel = row_all > 0 ? std::sqrt(row_error / row_all) : std::numeric_limits<double>::infinity();
      v.worst_row = std::max(v.worst_row, rel);
      if (!(rel <= kGateRow * limit)) fail(row + " has rel_l2 " + std::to_string(rel));
    }
    all_error += row_error;
    all += row_all;
  }
  v.rel_l2 = all_error > 0 ? std::sqrt(all_error / all) : 0;
  if (!(v.rel_l2 <= limit)) fail("rel_l2 is " + std::to_string(v.rel_l2));
  return v;
}

// `got`, what a backend made of `call`, against `want`, what ref made of it. A failure is looked into: where
// activations at the middle of two bf16 explain all of it, it is none.
inline Verdict gate(const Call& call, const std::vector<float>& got, const std::vector<float>& want, double limit) {
  const Verdict v = compare(got, {want.begin(), want.end()}, call.shape.K, limit);
  if (v.ok) return v;
  const Exact exact = reference_f64(call);
  const Verdict again = compare(got, exact.y, call.shape.K, limit, exact.slack);
  return again.ok ? again : v;
}

}  // namespace mxk::test
