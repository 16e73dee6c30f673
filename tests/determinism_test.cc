// SPDX-License-Identifier: Apache-2.0
//
// A token's row has the same bits alone and in any batch, at any place, for any thread count, whatever the other tokens
// do, in a fresh engine and in one that has been used. Every backend that this machine has, in fp32 output, since
// rounding to bf16 could hide a difference.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "layer.h"

namespace mxk::test {
namespace {

struct Param {
  const Backend* backend;
  const Variant* variant;
};
std::vector<Param> params() {
  std::vector<Param> all;
  for (const Backend* b : backends())
    for (const Variant& v : variants())
      if (b->supported().ok()) all.push_back({b, &v});
  return all;
}

class Determinism : public testing::TestWithParam<Param> {
 protected:
  const Backend& backend = *GetParam().backend;
  const Variant& variant = *GetParam().variant;
  Random random{2000};

  // Two shapes that leave remainders everywhere: half groups of rows, chunks that are not full, odd numbers of experts.
  std::vector<Shape> shapes() const {
    if (small()) return {{9, 3, 3, 96, 64}};
    return {{33, 3, 3, 544, 160}, {33, 4, 5, 160, 608}};
  }
  // Limits of the table, where the backend is bound to them, hold for none of these shapes.
  void SetUp() override {
    if (backend.table_limits) GTEST_SKIP() << "shapes of these tests are beyond " << backend.name;
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, Determinism, testing::ValuesIn(params()), [](const auto& info) {
  std::string name = std::string(info.param.backend->name) + "_" + info.param.variant->name;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

// Products of short numbers of one size add up without rounding, in any order. Here scales and activations differ by
// many binades, so that a sum in another order has other bits.
constexpr int kSpread = 16;
Batch wide_batch(const Shape& s, Routing routing, Random& random) {
  Batch batch(s, routing, 1, Dtype::f32, random);
  batch.x.unseal();
  for (int i = 0; i < s.T * s.K; ++i)
    batch.x.as<uint16_t>()[i] = to_bf16(std::ldexp(random.normal(), random.below(16) - 12));
  batch.x.seal();
  return batch;
}

// The tokens `which` of a call, as a call of their own.
struct Subset {
  std::vector<uint16_t> x;
  std::vector<int32_t> ids;
  std::vector<float> weights;
  Call call;

  Subset(const Call& from, const std::vector<int>& which) : call(from) {
    const int64_t K = from.shape.K, k = from.shape.k;
    const float* w = static_cast<const float*>(from.topk_weights);
    for (int t : which) {
      x.insert(x.end(), from.x + t * K, from.x + (t + 1) * K);
      ids.insert(ids.end(), from.topk_ids + t * k, from.topk_ids + (t + 1) * k);
      weights.insert(weights.end(), w + t * k, w + (t + 1) * k);
    }
    call.shape.T = static_cast<int>(which.size());
    call.x = x.data();
    call.topk_ids = ids.data();
    call.topk_weights = weights.data();
  }
};

// The output of token `from` in `a` and of token `to` in `b`.
bool same_token(const Call& c, const std::vector<float>& a, int from, const std::vector<float>& b, int to) {
  const size_t n = static_cast<size_t>(c.shape.K) * static_cast<size_t>(c.variant->per_route ? c.shape.k : 1);
  return std::memcmp(&a[static_cast<size_t>(from) * n], &b[static_cast<size_t>(to) * n], n * sizeof(float)) == 0;
}
bool same(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST_P(Determinism, RowIsTheSameAloneAndInAnyBatch) {
  for (const Shape& s : shapes()) {
    const Layer layer(variant, s, random, 0, kSpread);
    const Batch batch = wide_batch(s, Routing::random, random);
    const Call call = make_call(variant, s, layer, batch);
    auto engine = make_engine(variant, s, backend.name);

    const std::vector<float> all = run(*engine, call, Dtype::f32);
    std::vector<std::vector<float>> alone;
    for (int t = 0; t < s.T; ++t) {
      alone.push_back(run(*engine, Subset(call, {t}).call, Dtype::f32));
      ASSERT_TRUE(same_token(call, alone.back(), 0, all, t)) << "token " << t << " in a batch of " << s.T;
    }
    // Other companions in another order, so that every token meets every place.
    std::vector<int> order(static_cast<size_t>(s.T));
    std::iota(order.begin(), order.end(), 0);
    for (int size : {2, 3, 4, 5, 6, 7, 8, 9, s.T}) {
      for (size_t i = order.size() - 1; i > 0; --i)
        std::swap(order[i], order[static_cast<size_t>(random.below(static_cast<int>(i) + 1))]);
      const std::vector<int> which(order.begin(), order.begin() + size);
      const std::vector<float> y = run(*engine, Subset(call, which).call, Dtype::f32);
      for (int i = 0; i < size; ++i)
        ASSERT_TRUE(same_token(call, alone[static_cast<size_t>(which[static_cast<size_t>(i)])], 0, y, i))
            << "token " << which[static_cast<size_t>(i)] << " at place " << i << " of " << size;
    }
  }
}

// The two projections as calls of their own: w13 writes the activations, w2 reads them from a copy.
TEST_P(Determinism, TwoStagesAreTheLayer) {
  for (const Shape& s : shapes()) {
    const Layer layer(variant, s, random, 0, kSpread);
    const Batch batch = wide_batch(s, Routing::random, random);
    const Call whole = make_call(variant, s, layer, batch);
    auto engine = make_engine(variant, s, backend.name);
    const std::vector<float> want = run(*engine, whole, Dtype::f32);
    std::vector<uint16_t> a(static_cast<size_t>(s.T) * s.k * s.I, 0xFFFF);
    Call half = whole;
    half.stage = Stage::w13;
    half.a = a.data();
    half.weights.w2 = half.weights.s2 = nullptr;
    half.topk_weights = nullptr;
    if (!backend.stages) {
      EXPECT_EQ(engine->run(half).code, Code::bad_argument);
      continue;
    }
    ASSERT_TRUE(engine->run(half).ok());
    for (int r = 0; r < s.T * s.k; ++r) {
      const int expert = whole.topk_ids[r] - whole.first_expert;
      const uint16_t* row = &a[static_cast<size_t>(r) * s.I];
      const bool zero = std::all_of(row, row + s.I, [](uint16_t v) { return v == 0; });
      EXPECT_EQ(zero, expert < 0 || expert >= s.E) << "activations of route " << r;
    }
    half = whole;
    half.stage = Stage::w2;
    half.a = a.data();
    half.weights.w13 = half.weights.s13 = nullptr;
    half.x = nullptr;
    EXPECT_TRUE(same(run(*engine, half, Dtype::f32), want));
    half.a = nullptr;
    EXPECT_EQ(engine->run(half).code, Code::bad_argument);
  }
}

TEST_P(Determinism, RowDoesNotDependOnTheRoutesOfOthers) {
  for (const Shape& s : shapes()) {
    const Layer layer(variant, s, random, 0, kSpread);
    const Batch batch = wide_batch(s, Routing::all_local, random);
    const Call call = make_call(variant, s, layer, batch);
    auto engine = make_engine(variant, s, backend.name);
    const std::vector<float> before = run(*engine, call, Dtype::f32);
    const int kept = s.T / 2;
    for (Routing routing : kRoutings) {
      const Batch other = wide_batch(s, routing, random);
      Subset changed(call, {});
      changed.x.assign(other.x.as<uint16_t>(), other.x.as<uint16_t>() + s.T * s.K);
      changed.ids.assign(other.ids.as<int32_t>(), other.ids.as<int32_t>() + s.T * s.k);
      changed.weights.assign(other.weights.as<float>(), other.weights.as<float>() + s.T * s.k);
      const Subset own(call, {kept});
      std::copy(own.x.begin(), own.x.end(), changed.x.begin() + kept * s.K);
      std::copy(own.ids.begin(), own.ids.end(), changed.ids.begin() + kept * s.k);
      std::copy(own.weights.begin(), own.weights.end(), changed.weights.begin() + kept * s.k);
      changed.call.shape.T = s.T;
      changed.call.x = changed.x.data();
      changed.call.topk_ids = changed.ids.data();
      changed.call.topk_weights = changed.weights.data();
      ASSERT_TRUE(same_token(call, before, kept, run(*engine, changed.call, Dtype::f32), kept)) << to_string(routing);
    }
  }
}

TEST_P(Determinism, ThreadsChangeNothing) {
  for (Shape s : shapes()) {
    s.T = 9;
    const Layer layer(variant, s, random, 0, kSpread);
    const Batch batch = wide_batch(s, Routing::random, random);
    const Call call = make_call(variant, s, layer, batch);
    const std::vector<float> want = run(*make_engine(variant, s, backend.name, 1), call, Dtype::f32);
    for (int threads : {2, 3, 5, 8}) {
      auto engine = make_engine(variant, s, backend.name, threads);
      ASSERT_EQ(engine->threads(), threads);
      for (int repeat = 0; repeat < 3; ++repeat)
        ASSERT_TRUE(same(want, run(*engine, call, Dtype::f32))) << threads << " threads, call " << repeat;
    }
  }
}

TEST_P(Determinism, UsedEngineIsLikeAFreshOne) {
  // The largest shape dirties the scratch; then smaller ones in every direction, and the largest again.
  const Shape max = small() ? Shape{9, 3, 3, 160, 96} : Shape{33, 4, 5, 544, 608};
  auto used = make_engine(variant, max, backend.name);
  const Shape turns[] = {
      max, {1, 1, 1, 32, 32}, {5, 2, 3, 160, 64}, {max.T, 1, 2, 32, max.I}, {2, max.k, max.E, max.K, 32}, max};
  for (const Shape& s : turns) {
    const Layer layer(variant, s, random, 0, kSpread);
    const Batch batch = wide_batch(s, Routing::random, random);
    const Call call = make_call(variant, s, layer, batch);
    const std::vector<float> want = run(*make_engine(variant, s, backend.name), call, Dtype::f32);
    ASSERT_TRUE(same(want, run(*used, call, Dtype::f32))) << "T=" << s.T << " K=" << s.K << " I=" << s.I;
    ASSERT_TRUE(same(want, run(*used, call, Dtype::f32))) << "repeated, T=" << s.T << " K=" << s.K << " I=" << s.I;
  }
}

}  // namespace
}  // namespace mxk::test
