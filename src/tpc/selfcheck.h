// SPDX-License-Identifier: Apache-2.0
//
// What mxk_selfcheck has to give on a machine that the kernels are right on.
#pragma once

#include "tpc/tables.h"

namespace mxk::tpc {

// [kSelfcheckRows, 64]. Written from what the rows mean, not from how kernels make them.
void expected_selfcheck(float* out);

// Relative difference allowed in row n: 0 but for functions that are approximated.
constexpr double selfcheck_tolerance(int row) { return row >= 46 && row <= 48 ? 1e-6 : 0; }

}  // namespace mxk::tpc
