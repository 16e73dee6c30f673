// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "environment.h"
#include "plan.h"
#include "weights.h"

namespace mxk::cli {

// The report of `mxk bench --backend tpc-emu`, one row for each token count; printed as a table too if asked. Fails at
// the first result that is wrong.
Json count_slots(const Source& source, const std::vector<int>& tokens, const std::string& routing, int threads,
                 bool table);

}  // namespace mxk::cli
