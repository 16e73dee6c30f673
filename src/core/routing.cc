// SPDX-License-Identifier: Apache-2.0
#include "core/routing.h"

namespace mxk {

RoutePlan plan_routes(const int32_t* topk_ids, int R, int first_expert, int E, int32_t* storage) {
  RoutePlan plan{};
  plan.expert = storage;
  plan.begin = plan.expert + E;
  plan.order = plan.begin + E + 1;
  int32_t* next = plan.order + R;  // [E] first a count, then where the expert's next route goes
  for (int e = 0; e < E; ++e) next[e] = 0;

  // 64-bit difference: any int32 id is legal, INT32_MIN included.
  const auto local = [&](int r) { return int64_t{topk_ids[r]} - first_expert; };
  for (int r = 0; r < R; ++r)
    if (const int64_t e = local(r); e >= 0 && e < E) ++next[e];

  for (int e = 0; e < E; ++e) {
    if (next[e] == 0) continue;
    const int32_t count = next[e];
    plan.expert[plan.active] = e;
    plan.begin[plan.active++] = plan.routes;
    next[e] = plan.routes;
    plan.routes += count;
  }
  plan.begin[plan.active] = plan.routes;

  for (int r = 0; r < R; ++r)
    if (const int64_t e = local(r); e >= 0 && e < E) plan.order[next[e]++] = r;
  return plan;
}

}  // namespace mxk
