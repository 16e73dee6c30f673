// SPDX-License-Identifier: Apache-2.0
//
// Which routes run on which local expert, in the one order that every backend sums in.
#pragma once

#include <cstdint>

#include "mxk/types.h"

namespace mxk {

// Route r = t*k + slot. `order` holds the local routes sorted by local expert, ties by r (a stable counting sort);
// the routes of active expert a are order[begin[a] .. begin[a+1]). Remote ids and -1 are not in it.
struct RoutePlan {
  int32_t active;   // experts with at least one route, ascending
  int32_t routes;   // local routes
  int32_t* expert;  // [active]
  int32_t* begin;   // [active + 1]
  int32_t* order;   // [routes]
};

// int32 words of storage that plan_routes needs for up to R routes and E experts.
constexpr int64_t route_plan_words(int64_t R, int64_t E) { return R + 3 * E + 1; }

RoutePlan plan_routes(const int32_t* topk_ids, int R, int first_expert, int E, int32_t* storage);

}  // namespace mxk
