// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace mxk::cli {

// Prints two files that `mxk bench --json` wrote side by side, the baseline first. Refuses what cannot be compared.
// json: empty for a table, "-" or a file for JSON.
void compare_benches(const std::string& a, const std::string& b, const std::string& json);

}  // namespace mxk::cli
