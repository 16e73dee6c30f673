// SPDX-License-Identifier: Apache-2.0
//
// The TPC emulation: every row of the list of intrinsics against scalar code that shares nothing with it.
#include "emu.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>
#include <set>

#include "emu_reference.h"

namespace mxk::emu::test {
namespace {

constexpr bool kYes = true, kNo = false;

// A result where predicate and polarity differ, income elsewhere. `f` takes (predicate, polarity).
template <class R, class F>
void predicated(const R& result, const R& income, F f) {
  EXPECT_TRUE(same(f(kYes, kNo), result));
  EXPECT_TRUE(same(f(kNo, kYes), result));
  EXPECT_TRUE(same(f(kNo, kNo), income));
  EXPECT_TRUE(same(f(kYes, kYes), income));
}

// name(a, b, switches, income, predicate, polarity) on random operands, against `want` on the bits of each lane.
template <class A, class B, class R, class Want>
void binary(R (*f)(const A&, const B&, int, const R&, bool, bool), const A& a, const B& b, Want want,
            int switches = 0) {
  const R income = Bits().vector<R>(), got = f(a, b, switches, income, true, false);
  for (int i = 0; i < R::kLanes; ++i)
    ASSERT_EQ(lane_bits(got, i), want(lane_bits(a, i), lane_bits(b, i)))
        << "lane " << i << std::hex << " a " << lane_bits(a, i) << " b " << lane_bits(b, i);
  predicated(got, income, [&](bool p, bool q) { return f(a, b, switches, income, p, q); });
}

template <class V>
V counts(Bits& bits, int low, int high) {
  V r;
  for (auto& n : r.lane)
    n = static_cast<typename V::Lane>(low + static_cast<int>(bits.word() % static_cast<uint32_t>(high - low + 1)));
  return r;
}

template <class V, class Want>
void bitwise(V (*f)(const V&, const V&, int, const V&, bool, bool), Bits& bits, Want want) {
  binary(f, bits.vector<V>(), bits.vector<V>(), want);
}

// Mixed counts, then every count for all lanes.
template <class V, class N, class Want>
void shift(V (*f)(const V&, const N&, int, const V&, bool, bool), Bits& bits, int width, Want want) {
  binary(f, bits.vector<V>(), counts<N>(bits, 0, width - 1), want);
  for (int n = 0; n < width; ++n) binary(f, bits.vector<V>(), N(n), want);
}

uint32_t shifted_left(uint32_t a, uint32_t n, int width) {
  for (; n > 0; --n) a += a;
  return width == 32 ? a : a & ((1u << width) - 1);
}

uint32_t shifted_right(uint32_t a, uint32_t n) {
  for (; n > 0; --n) a /= 2;
  return a;
}

// a * 2^n in doubles, which are exact here.
double scaled(int32_t a, int n, bool half_up, double low, double high) {
  const double r = std::ldexp(a, n), down = std::floor(half_up && n < 0 ? r + 0.5 : r);
  return std::min(std::max(down, low), high);
}

int rounded_half_even(double x) {
  const double down = std::floor(x), rest = x - down;
  if (rest == 0.5) return static_cast<int>(2 * std::floor((down + 1) / 2));
  return static_cast<int>(rest > 0.5 ? down + 1 : down);
}

double integer_by(int mode, double x) {
  if (mode == SW_RZ) return static_cast<double>(static_cast<long long>(x));
  if (mode == SW_RU) return -std::floor(-x);
  if (mode == SW_RD) return std::floor(x);
  if (mode == SW_RHAZ) return x < 0 ? -std::floor(-x + 0.5) : std::floor(x + 0.5);
  return rounded_half_even(x);
}

// bf16 from the two neighbours of an fp32 value, by the distance to them.
uint16_t ref_bf16(uint32_t u, int mode) {
  const float f = std::bit_cast<float>(u);
  if (std::isnan(f)) return 0x7FFF;
  const auto near_zero = static_cast<uint16_t>(u >> 16);
  const double value = f, down = std::bit_cast<float>(uint32_t{near_zero} << 16);
  if (value == down) return near_zero;
  const auto away = static_cast<uint16_t>(near_zero + 1);
  const double up = std::isinf(std::bit_cast<float>(uint32_t{away} << 16))
                        ? std::copysign(0x1p128, value)
                        : double{std::bit_cast<float>(uint32_t{away} << 16)};
  const double to_down = std::fabs(value - down), to_up = std::fabs(up - value);
  if (mode == SW_RZ) return near_zero;
  if (mode == SW_RU) return value > 0 ? away : near_zero;
  if (mode == SW_RD) return value < 0 ? away : near_zero;
  if (to_down != to_up) return to_down < to_up ? near_zero : away;
  return mode == SW_RHAZ || near_zero % 2 == 1 ? away : near_zero;
}

uint16_t ref_h8(int b) {
  const int e = b >> 2 & 31, m = b & 3;
  if (e == 31) return m != 0 ? 0x7FFF : b & 128 ? 0xFF80 : 0x7F80;
  const double v = e == 0 ? m * 0x1p-16 : std::ldexp(4 + m, e - 17);
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(b & 128 ? -v : v)) >> 16);
}

// Operands that a fused sum rounds once and a product and a sum round twice; a sum that is wrong if it passes through
// double; one that is denormal only before it is rounded; and the ends of the range.
struct Triple {
  float a, b, c;
};
constexpr Triple kTriples[] = {
    {0x1.001p0f, 0x1.001p0f, -1},
    {0x1.0002p0f, 0x0.fffep-24f, 0x1.000002p0f},
    {0x1.8p-75f, -0x1p-76f, 0x1p-126f},
    {0x1p-75f, -0x1p-76f, 0x1p-126f},
    {0x1p-75f, -0x1.000002p-77f, 0x1p-126f},
    {0x1p-100f, 0x1p-100f, 0x1p-126f},
    {-0x1p-100f, 0x1p-100f, 0.0f},
    {0x1p100f, 0x1p100f, -INFINITY},
    {0x1p100f, 0x1p27f, 0x1p127f},
    {0x1p127f, 2, -0x1p127f},
    {0x1.fffffep127f, 1, 0x1p102f},
    {0x1.fffffep127f, 1, 0x1.fffffep102f},
    {INFINITY, 0, 1},
    {INFINITY, 1, -INFINITY},
    {-0.0f, 1, -0.0f},
    {1, -1, 1},
};

// Vectors with one lane of trouble among tame ones, so that each thing that can go wrong is noticed by itself. The tame
// lanes are exact products (`kind` 0), products with a scale (1), or rounded products (2), of 12 bits each (3).
struct Operands {
  float64 a, b, c;
};

Operands tame_with(Bits& bits, int kind, const Triple& trouble) {
  Operands o;
  for (int i = 0; i < 64; ++i) {
    o.a.lane[i] = static_cast<float>(static_cast<int>(bits.word() % 4001) - 2000) * (kind == 0 ? 0.5f : 0x1.234566p-9f);
    o.b.lane[i] = std::ldexp(kind == 2 ? 0x1.5b1aaap0f : 1.0f, static_cast<int>(bits.word() % 40) - 20);
    o.c.lane[i] = static_cast<float>(static_cast<int>(bits.word())) * 0x1p-20f;
    if (kind < 3) continue;
    o.a.lane[i] = std::bit_cast<float>(0x3F800000u | (bits.word() & 0x7FF800));
    o.b.lane[i] = std::bit_cast<float>(0x3F800000u | (bits.word() & 0x7FF000));
    o.c.lane[i] = static_cast<float>(static_cast<int>(bits.word())) * 0x1p-31f;
  }
  const auto at = bits.word() % 64;
  o.a.lane[at] = trouble.a;
  o.b.lane[at] = trouble.b;
  o.c.lane[at] = trouble.c;
  return o;
}

std::vector<Operands> fma_operands(Bits& bits) {
  std::vector<Operands> r(40);
  for (Operands& o : r) o = {bits.floats(), bits.floats(), bits.floats()};
  for (int kind = 0; kind < 4; ++kind) {
    for (const Triple& t : kTriples) r.push_back(tame_with(bits, kind, t));
    for (int k = 0; k < 300; ++k)
      r.push_back(tame_with(
          bits, kind,
          {std::bit_cast<float>(bits.f32()), std::bit_cast<float>(bits.f32()), std::bit_cast<float>(bits.f32())}));
  }
  return r;
}

uint32_t negated(uint32_t u, int switches) { return switches & SW_NEG ? u ^ 0x80000000u : u; }

template <class F>
void fused(Bits& bits, F f) {
  for (const Operands& o : fma_operands(bits))
    for (const int sw : {0, +SW_NEG}) {
      const float64 got = f(o.a, o.b, o.c, sw, true, false);
      for (int i = 0; i < 64; ++i)
        ASSERT_EQ(lane_bits(got, i), ref_fma(negated(lane_bits(o.a, i), sw), lane_bits(o.b, i), lane_bits(o.c, i)))
            << std::hexfloat << o.a.lane[i] << " " << o.b.lane[i] << " " << o.c.lane[i];
    }
}

float128 pair_of(Bits& bits) { return {bits.floats(), bits.floats()}; }
bfloat256 bf16_pair_of(Bits& bits) { return {bits.bf16s(), bits.bf16s()}; }

// Lane i of a 16-bit vector as fp32 bits.
uint32_t wide(const bfloat128& v, int i) { return uint32_t{v.lane[i].bits} << 16; }

bfloat128 tame_bf16(Bits& bits) {
  bfloat128 r;
  for (bf16& x : r.lane) x = bf16(static_cast<int>(bits.word() % 33) - 16);
  return r;
}

// Tame but for one lane, which is small, big or special.
std::pair<bfloat128, bfloat128> bf16_operands(Bits& bits, int round) {
  if (round % 4 == 0) return {bits.bf16s(), bits.bf16s()};
  std::pair<bfloat128, bfloat128> r{tame_bf16(bits), tame_bf16(bits)};
  static constexpr uint16_t kPairs[][2] = {{0x0001, 0x7F00}, {0x8001, 0x6000}, {0x1A40, 0x9980}, {0x2000, 0x9F00},
                                           {0x7F00, 0x4000}, {0xFF00, 0x7F00}, {0x7F80, 0x0000}, {0x7F80, 0x3F80},
                                           {0xFFC0, 0x3F80}, {0x3F7F, 0x0080}, {0x0080, 0x3F00}, {0x0100, 0x3F00}};
  const size_t at = bits.word() % 128, k = bits.word() % std::size(kPairs);
  const bool other = bits.word() & 1;
  r.first.lane[at].bits = round % 4 == 1 ? static_cast<uint16_t>(bits.f32() >> 16) : kPairs[k][other];
  r.second.lane[at].bits = round % 4 == 1 ? static_cast<uint16_t>(bits.f32() >> 16) : kPairs[k][!other];
  return r;
}

// Sums that show what became of a small product: zeros and the smallest normal numbers among others.
float128 bf16_sums(Bits& bits, int round) {
  if (round % 2) return pair_of(bits);
  static constexpr float kSums[] = {0.0f, -0.0f, 0x1p-126f, -0x1p-126f, -0x1p127f, 0x1p127f, 1, 0x1p-100f};
  float128 r;
  for (float& x : r.v1.lane) x = kSums[bits.word() % 8];
  for (float& x : r.v2.lane) x = kSums[bits.word() % 8];
  return r;
}

const float64& half_of(const float128& v, int h) { return h == 0 ? v.v1 : v.v2; }

template <class V, class S>
void splat(V (*f)(const V&, int, const V&, bool, bool), S scalar, Bits& bits) {
  const V a = bits.vector<V>(), income = bits.vector<V>();
  EXPECT_TRUE(same(f(a, 0, income, true, false), a));
  const V s = f(scalar, 0, income, true, false);
  for (int i = 0; i < V::kLanes; ++i) EXPECT_EQ(lane_bits(s, i), lane_bits(s, 0));
  predicated(a, income, [&](bool p, bool q) { return f(a, 0, income, p, q); });
}

template <class V>
void dual_groups(V (*f)(const V&, uint32_t, int, int, int, int, int, const V&, bool, bool), Bits& bits) {
  const uchar256 a = bits.vector<uchar256>(), income = bits.vector<uchar256>();
  for (int round = 0; round < 40; ++round) {
    const uint32_t r = bits.word(), write = round % 2 ? ~0u : bits.word();
    const int from[4] = {static_cast<int>(r & 3), static_cast<int>(r >> 2 & 3), static_cast<int>(r >> 4 & 3),
                         static_cast<int>(r >> 6 & 3)};
    const int w[4] = {static_cast<int>(r >> 8 & 3), static_cast<int>(r >> 10 & 3), 3, static_cast<int>(r >> 12 & 3)};
    const auto got = (uchar256)f((V)a, write, from[0], from[1], from[2], from[3], MkWrA(w[0], w[1], w[2], w[3]),
                                 (V)income, true, false);
    for (int i = 0; i < 256; ++i) {
      const bool upper = i % 64 >= 32, written = (w[i / 64] & (upper ? 2 : 1)) && (write >> i % 32 & 1);
      ASSERT_EQ(got.lane[i], written ? a.lane[from[i / 64] * 64 + i % 64] : income.lane[i]) << i;
    }
  }
  const V all = f((V)a, ~0u, 1, 0, 3, 2, MkWrA(3, 3, 3, 3), (V)income, true, false);
  predicated(all, (V)income,
             [&](bool p, bool q) { return f((V)a, ~0u, 1, 0, 3, 2, MkWrA(3, 3, 3, 3), (V)income, p, q); });
}

template <class V>
uchar256 as_bytes(const V& v) {
  return (uchar256)v;
}

template <class V>
void group_swap(V (*f)(const V&, uint32_t, int, const V&, bool, bool), Bits& bits) {
  const V a = bits.vector<V>(), income = bits.vector<V>();
  const uchar256 x = as_bytes(a), keep = as_bytes(income);
  for (int round = 0; round < 40; ++round) {
    const int sw = round == 0 ? 63 : static_cast<int>(bits.word() & 63);
    const uint32_t write = round % 2 ? bits.word() : ~0u;
    const uchar256 got = as_bytes(f(a, write, sw, income, true, false));
    for (int i = 0; i < 256; ++i) {
      const int g = i / 32;
      const bool written = (sw >> (2 + g / 2) & 1) && (sw >> (g & 1) & 1) && (write >> i % 32 & 1);
      ASSERT_EQ(got.lane[i], written ? x.lane[(i / 64) * 64 + (i + 32) % 64] : keep.lane[i]) << i;
    }
  }
  predicated(f(a, ~0u, 63, income, true, false), income, [&](bool p, bool q) { return f(a, ~0u, 63, income, p, q); });
}

// Directions of lanes of `size` bytes, all bytes of a lane alike.
uchar256 directions(Bits& bits, int size) {
  uchar256 r;
  for (int i = 0; i < 256; i += size) {
    const uint32_t w = bits.word();
    const auto d = static_cast<uint8_t>((w & 0xA0) | (w >> 8) % static_cast<uint32_t>(32 / size));
    for (int b = 0; b < size; ++b) r.lane[i + b] = d;
  }
  return r;
}

template <class V>
void shuffled(V (*f)(const V&, const uchar256&, int, const V&, bool, bool), Bits& bits) {
  const int size = sizeof(typename V::Lane), per = 32 / size;
  for (int round = 0; round < 8; ++round) {
    const V a = bits.vector<V>(), income = bits.vector<V>();
    const uchar256 d = directions(bits, size);
    const V got = f(a, d, 0, income, true, false);
    for (int i = 0; i < V::kLanes; ++i) {
      const int way = d.lane[i * size], from = i - i % (2 * per) + (way & 0x20 ? per : 0) + way % 32;
      ASSERT_EQ(lane_bits(got, i), way >= 128 ? lane_bits(a, from) : lane_bits(income, i)) << "lane " << i;
    }
    predicated(got, income, [&](bool p, bool q) { return f(a, d, 0, income, p, q); });
  }
}

template <class V>
void lane_numbers(V (*f)(const V&, bool, bool), Bits& bits) {
  const V income = bits.vector<V>(), got = f(income, true, false);
  for (int i = 0; i < V::kLanes; ++i) EXPECT_EQ(lane_bits(got, i), static_cast<uint32_t>(i));
  predicated(got, income, [&](bool p, bool q) { return f(income, p, q); });
}

template <class V, class Take>
void select(V (*f)(const V&, const V&, const V&, const V&, int, const V&, bool, bool), const V& a, const V& b,
            Bits& bits, Take take) {
  const V c = bits.vector<V>(), d = bits.vector<V>(), income = bits.vector<V>();
  const V got = f(a, b, c, d, 0, income, true, false);
  for (int i = 0; i < V::kLanes; ++i)
    EXPECT_EQ(lane_bits(got, i), lane_bits(take(lane_bits(a, i), lane_bits(b, i)) ? c : d, i));
  predicated(got, income, [&](bool p, bool q) { return f(a, b, c, d, 0, income, p, q); });
}

template <class V, class M, class Take>
void compare(M (*f)(const V&, const V&, int, const M&, bool, bool), const V& a, const V& b, Take take) {
  M income;
  for (int i = 0; i < M::kLanes; ++i) income.lane[i] = i & 1;
  const M got = f(a, b, 0, income, true, false);
  for (int i = 0; i < M::kLanes; ++i) EXPECT_EQ(got.lane[i], take(lane_bits(a, i), lane_bits(b, i)));
  predicated(got, income, [&](bool p, bool q) { return f(a, b, 0, income, p, q); });
}

struct Case {
  const char* name;
  Op op;
  void (*run)(Machine& m, Bits& bits);
};

#define CASE(name) #name, Op::name, []([[maybe_unused]] Machine & m, [[maybe_unused]] Bits & bits)

float f32(uint32_t u) { return std::bit_cast<float>(u); }

#include "emu_lane_cases.h"
#include "emu_memory_cases.h"

std::vector<Case> all_cases() {
  std::vector<Case> r(std::begin(kLaneCases), std::end(kLaneCases));
  r.insert(r.end(), std::begin(kMemoryCases), std::end(kMemoryCases));
  return r;
}

class EmuCase : public ::testing::TestWithParam<Case> {};

TEST_P(EmuCase, MatchesReference) {
  Machine m;
  Bits bits;
  m.start();
  GetParam().run(m, bits);
  if (HasFatalFailure()) return;
  // The case has really called it, last, and it filled its slot.
  EXPECT_EQ(m.state->op, GetParam().op);
  EXPECT_GT(m.state->slots[kSlotOf[static_cast<int>(GetParam().op)]], 0u);
}

INSTANTIATE_TEST_SUITE_P(, EmuCase, ::testing::ValuesIn(all_cases()), [](const auto& info) { return info.param.name; });

TEST(EmuList, EveryRowHasACaseAndEveryCaseARow) {
  std::multiset<std::string> cases;
  for (const Case& c : all_cases()) cases.insert(c.name);
  const std::multiset<std::string> rows = {
#define X(name, slot, status, source) #name,
#include "tpc/emu/intrinsics.inc"
#undef X
  };
  EXPECT_EQ(cases, rows);
}

TEST(EmuList, AStatusIsOneOfThree) {
  const std::set<std::string> known = {"public", "inferred", "assumed"};
#define X(name, slot, status, source)           \
  EXPECT_EQ(known.count(#status), 1u) << #name; \
  EXPECT_GT(std::string(source).size(), 2u) << #name;
#include "tpc/emu/intrinsics.inc"
#undef X
}

}  // namespace
}  // namespace mxk::emu::test
