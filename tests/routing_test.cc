// SPDX-License-Identifier: Apache-2.0
//
// plan_routes against a sort by expert and route, over every kind of routing.
#include "core/routing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <climits>
#include <string>
#include <utility>
#include <vector>

#include "layer.h"

namespace mxk {
namespace {

// The plan as the comment of RoutePlan defines it: the local routes sorted by expert, ties by route.
struct Expected {
  std::vector<int32_t> expert, begin, order;

  Expected(const std::vector<int32_t>& ids, int first, int E) {
    const auto local = [&](int32_t r) { return int64_t{ids[static_cast<size_t>(r)]} - first; };
    for (size_t r = 0; r < ids.size(); ++r)
      if (const int64_t e = local(static_cast<int32_t>(r)); e >= 0 && e < E) order.push_back(static_cast<int32_t>(r));
    std::sort(order.begin(), order.end(),
              [&](int32_t a, int32_t b) { return std::pair(local(a), a) < std::pair(local(b), b); });
    for (size_t p = 0; p < order.size(); ++p)
      if (p == 0 || local(order[p]) != local(order[p - 1])) {
        expert.push_back(static_cast<int32_t>(local(order[p])));
        begin.push_back(static_cast<int32_t>(p));
      }
    begin.push_back(static_cast<int32_t>(order.size()));
  }
};

void expect_plan(const std::vector<int32_t>& ids, int first, int E) {
  SCOPED_TRACE("R=" + std::to_string(ids.size()) + " first=" + std::to_string(first) + " E=" + std::to_string(E));
  const int R = static_cast<int>(ids.size());
  // The storage is dirty and exactly as large as announced, and so is what is read: a word beyond either is a crash.
  const test::Buffer storage(static_cast<size_t>(route_plan_words(R, E)) * sizeof(int32_t));
  test::Buffer sealed(ids.size() * sizeof(int32_t));
  if (R > 0) std::memcpy(sealed.data(), ids.data(), sealed.size());
  sealed.seal();
  const RoutePlan plan = plan_routes(sealed.as<int32_t>(), R, first, E, storage.as<int32_t>());
  ASSERT_TRUE(storage.canary_intact());

  const Expected want(ids, first, E);
  ASSERT_EQ(plan.active, static_cast<int32_t>(want.expert.size()));
  ASSERT_EQ(plan.routes, static_cast<int32_t>(want.order.size()));
  EXPECT_EQ(std::vector<int32_t>(plan.expert, plan.expert + plan.active), want.expert);
  EXPECT_EQ(std::vector<int32_t>(plan.begin, plan.begin + plan.active + 1), want.begin);
  EXPECT_EQ(std::vector<int32_t>(plan.order, plan.order + plan.routes), want.order);
}

TEST(Routing, Examples) {
  // Two local experts, 10 and 11; token 1 names 11 twice.
  const std::vector<int32_t> ids = {11, 10, 9, 11, 11, 12, -1, 10, INT32_MIN};
  int32_t storage[64];
  const RoutePlan plan = plan_routes(ids.data(), 9, 10, 2, storage);
  EXPECT_EQ(plan.active, 2);
  EXPECT_EQ(plan.routes, 5);
  EXPECT_EQ(std::vector<int32_t>(plan.expert, plan.expert + 2), (std::vector<int32_t>{0, 1}));
  EXPECT_EQ(std::vector<int32_t>(plan.begin, plan.begin + 3), (std::vector<int32_t>{0, 2, 5}));
  EXPECT_EQ(std::vector<int32_t>(plan.order, plan.order + 5), (std::vector<int32_t>{1, 7, 0, 3, 4}));
}

TEST(Routing, Extremes) {
  expect_plan({}, 0, 1);
  expect_plan({}, 7, 128);
  expect_plan({0}, 0, 1);
  expect_plan({-1}, 0, 1);
  expect_plan({1}, 0, 1);
  expect_plan({5, 5, 5, 5}, 5, 1);                   // one expert, every route
  expect_plan({4, 6, -1, 0}, 5, 1);                  // none
  expect_plan({0, 1, 2, 3, 4, 5, 6, 7}, 0, 8);       // one each
  expect_plan({7, 6, 5, 4, 3, 2, 1, 0}, 0, 8);       // in reverse
  expect_plan({INT32_MIN, INT32_MAX, 0, -1}, 0, 4);  // differences that do not fit 32 bits
  expect_plan({INT32_MIN, INT32_MAX, 0, -1}, INT32_MAX, 3);
  expect_plan({INT32_MIN, INT32_MIN + 1, INT32_MAX, -1}, INT32_MIN, 2);
  expect_plan({INT32_MAX - 1, INT32_MAX, INT32_MIN}, INT32_MAX - 1, 2);
  expect_plan({-1, -2, -3}, -3, 3);  // -1 is remote only because it is below `first`
}

TEST(Routing, RandomAgainstSort) {
  test::Random random(5000);
  const int rounds = test::small() ? 300 : 5000;
  for (int round = 0; round < rounds; ++round) {
    const int E = 1 + random.below(round % 3 == 0 ? 4 : 128), R = random.below(round % 5 == 0 ? 4 : 320);
    const int first = random.below(4) == 0 ? 0 : random.below(1000) - 200;
    const int kind = random.below(5);
    std::vector<int32_t> ids;
    for (int r = 0; r < R; ++r) {
      switch (kind) {
        case 0: ids.push_back(first + random.below(E)); break;                               // all local
        case 1: ids.push_back(first - 1 - random.below(3)); break;                           // none
        case 2: ids.push_back(first + random.below(2 * E + 2) - E / 2); break;               // around the ends
        case 3: ids.push_back(random.below(3) ? first + E / 2 : -1); break;                  // one hot expert
        default: ids.push_back(static_cast<int32_t>(static_cast<uint32_t>(random.next())));  // anything
      }
      if (random.below(20) == 0) ids.back() = random.below(2) ? INT32_MIN : INT32_MAX;
      if (r > 0 && random.below(10) == 0) ids.back() = ids[ids.size() - 2];  // repeated in a row
    }
    expect_plan(ids, first, E);
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace mxk
