// SPDX-License-Identifier: Apache-2.0
//
// How far from the reference a backend may be: docs/semantics.md, "What is exact and what is bounded".
#pragma once

namespace mxk {

inline constexpr double kGateF32 = 2e-4;      // rel_l2 of a whole fp32 output
inline constexpr double kGateBf16 = 1.75e-3;  // of a bf16 output: rounding alone makes 1.66e-3
inline constexpr double kGateStock = 2e-2;    // of the stock baseline, which rounds to bf16 between all steps
inline constexpr double kGateRow = 3;         // times the gate, for any single row

}  // namespace mxk
