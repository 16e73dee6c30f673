// SPDX-License-Identifier: Apache-2.0
//
// mxk on this machine: build, environment variables, backends and why one is chosen, and what may make it slow.
#pragma once

#include <string>
#include <vector>

#include "machine.h"

namespace mxk::cli {

// Which backend a call without a name gets, and why the others are not it.
struct BackendChoice {
  const Backend* chosen = nullptr;  // null: none, see error
  const Backend* best = nullptr;    // the one chosen if nothing were forced
  bool forced = false;              // by MXK_BACKEND
  std::string error;
};
BackendChoice choose_backend();

Json build_json();
Json backends_json(const BackendChoice& choice);
std::string compiler();
std::string build_type();

// What explains a slow model, most likely cause first; empty when nothing looks wrong.
std::vector<std::string> find_problems(const Machine& machine, const BackendChoice& choice);

// A warning on stderr for every MXK_ variable that has no meaning: misspelt, it would do nothing unnoticed.
void warn_unknown_variables();

// Everything one wants in a bug report.
Json environment_json();

}  // namespace mxk::cli
