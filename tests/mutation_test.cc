// SPDX-License-Identifier: Apache-2.0
//
// The gate catches faults. A fault is planted in the inputs: the backend gets a layer that is wrong in the way a
// faulty kernel would read it, ref gets the right one, and gate() of parity_test must say no. Without a fault it must
// say yes.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "gate.h"
#include "layer.h"

namespace mxk::test {
namespace {

// A small layer whose every part can be changed.
struct Case {
  Variant variant;
  Shape shape{5, 3, 3, 160, 96};
  std::vector<uint8_t> w13, s13, w2, s2;
  std::vector<float> b13, b2, weights;
  std::vector<uint16_t> x;
  std::vector<int32_t> ids;
  int first_expert = kFirstExpert;

  explicit Case(const Variant& v) : variant(v) {
    Random random(3000);
    const Layer layer(v, shape, random);
    const Batch batch(shape, Routing::random, 4, Dtype::f32, random);
    const auto copy = [](const Buffer& b, auto& to) {
      using T = typename std::decay_t<decltype(to)>::value_type;
      if (b.size()) to.assign(b.as<T>(), b.as<T>() + b.size() / sizeof(T));
    };
    copy(layer.w13, w13);
    copy(layer.s13, s13);
    copy(layer.w2, w2);
    copy(layer.s2, s2);
    copy(layer.b13, b13);
    copy(layer.b2, b2);
    copy(batch.x, x);
    for (int r = 0; r < shape.T * shape.k; ++r) {
      ids.push_back(r % 4 == 1 ? kFirstExpert + shape.E + 1 : kFirstExpert + r % shape.E);  // every fourth is remote
      weights.push_back(static_cast<float>(random.uniform(0.2, 0.9)));
    }
  }
  Call call() const {
    Call c;
    c.variant = &variant;
    c.shape = shape;
    c.weights = {w13.data(),
                 s13.data(),
                 w2.data(),
                 s2.data(),
                 b13.empty() ? nullptr : b13.data(),
                 b2.empty() ? nullptr : b2.data()};
    c.x = x.data();
    c.topk_ids = ids.data();
    c.topk_weights = weights.data();
    c.first_expert = first_expert;
    return c;
  }
  std::vector<float> outputs(std::string_view backend, Dtype dtype) const {
    return run(*make_engine(variant, shape, backend), call(), dtype);
  }
  // Row i of w13 of every expert: is it gate or up?
  bool is_gate(int i) const { return variant.rows == Rows::interleaved ? i % 2 == 0 : i < shape.I; }
  // Makes what the clamps act on large in the gate or in the up rows, and small in the others, which stay within.
  void enlarge(bool gate) {
    const int groups = shape.K / 32;
    for (size_t i = 0; i < s13.size(); ++i) {
      const int row = static_cast<int>(i) / groups % (2 * shape.I);
      s13[i] = static_cast<uint8_t>(s13[i] + (is_gate(row) == gate ? 2 : -3));
    }
  }
};

// Exchanges the elements of the gate and up rows of an array with `n` elements in a row.
template <class T>
void swap_gate_up(const Case& c, std::vector<T>& a, int n) {
  if (a.empty()) return;
  const int I = c.shape.I;
  for (int e = 0; e < c.shape.E; ++e)
    for (int i = 0; i < I; ++i) {
      const bool interleaved = c.variant.rows == Rows::interleaved;
      const int gate = e * 2 * I + (interleaved ? 2 * i : i), up = e * 2 * I + (interleaved ? 2 * i + 1 : I + i);
      std::swap_ranges(a.begin() + gate * n, a.begin() + (gate + 1) * n, a.begin() + up * n);
    }
}

// Every scale is taken from its neighbour.
void shift(std::vector<uint8_t>& scales) { std::rotate(scales.begin(), scales.begin() + 1, scales.end()); }

void swap_nibbles(std::vector<uint8_t>& codes) {
  for (uint8_t& b : codes) b = static_cast<uint8_t>(b << 4 | b >> 4);
}

struct Fault {
  const char* name;
  std::function<bool(const Variant&)> applies;
  std::function<void(Case&)> prepare;  // what both get
  std::function<void(Case&)> plant;    // what only the backend gets
  bool in_bf16 = true;                 // large enough to be told from rounding to bf16
};

bool always(const Variant&) { return true; }
bool has_bias(const Variant& v) { return v.bias; }
bool has_clamp(const Variant& v) { return v.act != Act::silu; }
bool is_weighted(const Variant& v) { return !v.per_route; }
void nothing(Case&) {}

const std::vector<Fault>& faults() {
  static const std::vector<Fault> list = {
      {"gate and up swapped", always, nothing,
       [](Case& c) {
         swap_gate_up(c, c.w13, c.shape.K / 2);
         swap_gate_up(c, c.s13, c.shape.K / 32);
         swap_gate_up(c, c.b13, 1);
       }},
      {"interleaved rows taken for stacked or the reverse", always, nothing,
       [](Case& c) { c.variant.rows = c.variant.rows == Rows::stacked ? Rows::interleaved : Rows::stacked; }},
      {"b13 dropped", has_bias, nothing, [](Case& c) { c.b13.clear(); }},
      {"b2 dropped", has_bias, nothing, [](Case& c) { c.b2.clear(); }},
      {"s13 off by one block", always, nothing, [](Case& c) { shift(c.s13); }},
      {"s2 off by one block", always, nothing, [](Case& c) { shift(c.s2); }},
      {"one scale of s2 off by one", always, nothing, [](Case& c) { ++c.s2[7]; }, false},
      {"nibble order of w13", always, nothing, [](Case& c) { swap_nibbles(c.w13); }},
      {"nibble order of w2", always, nothing, [](Case& c) { swap_nibbles(c.w2); }},
      {"one row of w2 read for another", always, nothing,
       [](Case& c) { std::copy_n(c.w2.begin(), c.shape.I / 2, c.w2.begin() + c.shape.I / 2); }},
      {"last route skipped", always, nothing, [](Case& c) { c.ids.back() = -1; }},
      {"remote expert computed", always, nothing, [](Case& c) { c.ids[1] = kFirstExpert; }},
      {"wrong first expert", always, nothing, [](Case& c) { ++c.first_expert; }},
      {"routing weights ignored", is_weighted, nothing,
       [](Case& c) { std::fill(c.weights.begin(), c.weights.end(), 1.0f); }},
      {"routing weights of a neighbour", is_weighted, nothing,
       [](Case& c) { std::rotate(c.weights.begin(), c.weights.begin() + 1, c.weights.end()); }},
      {"token of a neighbour", always, nothing,
       [](Case& c) { std::rotate(c.x.begin(), c.x.begin() + c.shape.K, c.x.end()); }},
      {"last 32 activations not read", always, nothing,
       [](Case& c) { std::fill(c.x.end() - 32, c.x.end(), uint16_t{0}); }},
      {"clamp of up missing", has_clamp, [](Case& c) { c.enlarge(false); },
       [](Case& c) { c.variant.act_params.limit = __builtin_inff(); }},
      {"clamp of gate missing", has_clamp, [](Case& c) { c.enlarge(true); },
       [](Case& c) { c.variant.act_params.limit = __builtin_inff(); }},
      {"alpha of another activation", always, nothing,
       [](Case& c) { c.variant.act_params.alpha = c.variant.act_params.alpha == 1 ? 1.702f : 1; }},
      {"shift of up wrong", always, nothing,
       [](Case& c) { c.variant.act_params.shift = 1 - c.variant.act_params.shift; }},
  };
  return list;
}

class Mutation : public testing::TestWithParam<const Variant*> {
 protected:
  static std::vector<std::string_view> names() {
    std::vector<std::string_view> list;
    for (const Backend* b : backends())
      if (b->supported().ok() && !b->table_limits && std::string_view(b->name) != "stock") list.push_back(b->name);
    return list;
  }
};
std::vector<const Variant*> all_variants() {
  std::vector<const Variant*> list;
  for (const Variant& v : variants()) list.push_back(&v);
  return list;
}
INSTANTIATE_TEST_SUITE_P(Variants, Mutation, testing::ValuesIn(all_variants()),
                         [](const auto& info) { return std::string(info.param->name); });

// One row of bf16 is gated to three times the limit of all: see parity_test.
constexpr double kGateBf16Small = kGateRow * kGateBf16;

TEST_P(Mutation, PlantedFaultsAreCaught) {
  for (const Fault& fault : faults()) {
    if (!fault.applies(*GetParam())) continue;
    Case right(*GetParam());
    fault.prepare(right);
    Case wrong = right;
    fault.plant(wrong);
    const std::vector<float> want = right.outputs("ref", Dtype::f32);
    for (std::string_view name : names()) {
      SCOPED_TRACE(std::string(fault.name) + " on " + std::string(name));
      const Verdict control = gate(right.call(), right.outputs(name, Dtype::f32), want, kGateF32);
      EXPECT_TRUE(control.ok) << "without the fault: " << control.why;
      const Verdict rounded = gate(right.call(), right.outputs(name, Dtype::bf16), want, kGateBf16Small);
      EXPECT_TRUE(rounded.ok) << "without the fault, bf16: " << rounded.why;
      EXPECT_FALSE(gate(right.call(), wrong.outputs(name, Dtype::f32), want, kGateF32).ok);
      EXPECT_TRUE(!fault.in_bf16 || !gate(right.call(), wrong.outputs(name, Dtype::bf16), want, kGateBf16Small).ok);
    }
  }
}

// A backend that rounds to bf16 between the steps is what the baseline is: fp32 gates tell it from the others.
TEST_P(Mutation, RoundingBetweenTheStepsIsCaught) {
  const Case c(*GetParam());
  const std::vector<float> want = c.outputs("ref", Dtype::f32), stock = c.outputs("stock", Dtype::f32);
  EXPECT_FALSE(gate(c.call(), stock, want, kGateF32).ok);
  EXPECT_TRUE(gate(c.call(), stock, want, kGateStock).ok);
}

// The gate itself, on outputs made by hand.
TEST(Gate, EachRuleCanFail) {
  const std::vector<double> want = {3, 4, 0, 0, 30, 40};  // rows of two; the second is zero
  EXPECT_TRUE(compare({3, 4, 0, -0.0f, 30, 40}, want, 2, 1e-3).ok);
  EXPECT_TRUE(compare({3.01f, 4, 0, 0, 30, 40}, want, 2, 1e-3).ok) << "row 2e-3 is within three times the limit";
  EXPECT_FALSE(compare({3.02f, 4, 0, 0, 30, 40}, want, 2, 1e-3).ok) << "row 4e-3";
  EXPECT_FALSE(compare({3, 4, 0, 0, 30, 40.1f}, want, 2, 1e-3).ok) << "2e-3 of all";
  EXPECT_FALSE(compare({3, 4, 1e-30f, 0, 30, 40}, want, 2, 1e-3).ok) << "a row that should be zero";
  EXPECT_FALSE(compare({3, 4, 0, 0, 30}, want, 2, 1e-3).ok) << "too short";
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  EXPECT_FALSE(compare({nan, 4, 0, 0, 30, 40}, want, 2, 1e-3).ok);
  EXPECT_FALSE(compare({3, inf, 0, 0, 30, 40}, want, 2, 1e-3).ok);
  EXPECT_TRUE(compare({nan, inf}, {nan, inf}, 2, 1e-3).ok);
  EXPECT_FALSE(compare({nan, -inf}, {nan, inf}, 2, 1e-3).ok);
  EXPECT_FALSE(compare({3, 4}, {nan, 4}, 2, 1e-3).ok);
  EXPECT_TRUE(compare({3.5f, 4}, {3, 4}, 2, 1e-3, {0.5, 0}).ok) << "slack";
  EXPECT_FALSE(compare({3.6f, 4}, {3, 4}, 2, 1e-3, {0.5, 0}).ok) << "more than slack";
}

}  // namespace
}  // namespace mxk::test
