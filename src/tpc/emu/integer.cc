// SPDX-License-Identifier: Apache-2.0
//
// Bits, shifts, integer arithmetic and comparisons.
#include <limits>

#include "tpc/emu/intrinsics.h"
#include "tpc/emu/runtime.h"

using namespace mxk::emu;

namespace {

template <class V, class F>
V each(const V& a, const V& b, F f) {
  V r;
  for (int i = 0; i < V::kLanes; ++i) r.lane[i] = static_cast<typename V::Lane>(f(a.lane[i], b.lane[i]));
  return r;
}

// A count outside [low, width) means nothing that a public source says. Returns whether all lanes have the same.
template <class N>
bool check_counts(const N& counts, int low, int width) {
  const auto first = counts.lane[0];
  typename N::Lane differ = 0;
  for (const auto n : counts.lane) differ = static_cast<typename N::Lane>(differ | (n ^ first));
  for (int i = 0; i < (differ == 0 ? 1 : N::kLanes); ++i)
    if (counts.lane[i] < low || counts.lane[i] >= width)
      trap("lane %d is shifted by %d, which is outside [%d, %d]", i, static_cast<int>(counts.lane[i]), low, width - 1);
  return differ == 0;
}

// Bytes shifted by one count, four at a time.
uchar256 shift_bytes(const uchar256& a, int left, int right) {
  const uint32_t kept = 0x01010101u * ((0xFFu << left >> right) & 0xFF);  // without what came from the neighbour
  uint64 words = astype<uint64>(a);
  for (uint32_t& w : words.lane) w = (w << left >> right) & kept;
  return astype<uchar256>(words);
}

template <class V, class N>
V shl(const V& a, const N& n) {
  using Lane = typename V::Lane;
  using U = std::make_unsigned_t<Lane>;
  V r;
  if (check_counts(n, 0, 8 * sizeof(U))) {
    const auto factor = static_cast<U>(1u << n.lane[0]);
    for (int i = 0; i < V::kLanes; ++i)
      r.lane[i] = static_cast<Lane>(static_cast<U>(static_cast<U>(a.lane[i]) * uint32_t{factor}));
  } else {
    for (int i = 0; i < V::kLanes; ++i) r.lane[i] = static_cast<Lane>(uint32_t{static_cast<U>(a.lane[i])} << n.lane[i]);
  }
  return r;
}

uchar256 shl(const uchar256& a, const char256& n) {
  if (check_counts(n, 0, 8)) return shift_bytes(a, n.lane[0], 0);
  uchar256 r;
  for (int i = 0; i < 256; ++i) r.lane[i] = static_cast<uint8_t>(a.lane[i] << n.lane[i]);
  return r;
}

template <class V, class N>
V shr(const V& a, const N& n) {
  using Lane = typename V::Lane;
  V r;
  if (check_counts(n, 0, 8 * sizeof(Lane))) {
    if constexpr (sizeof(Lane) == 1) return shift_bytes(a, 0, n.lane[0]);
    const int count{n.lane[0]};
    for (int i = 0; i < V::kLanes; ++i) r.lane[i] = static_cast<Lane>(uint32_t{a.lane[i]} >> count);
  } else {
    for (int i = 0; i < V::kLanes; ++i) r.lane[i] = static_cast<Lane>(uint32_t{a.lane[i]} >> n.lane[i]);
  }
  return r;
}

// a * 2^n: to the left it saturates, to the right it rounds down, or half up.
template <class Lane, class Wide>
Lane ash(Lane a, int n, bool half_up) {
  constexpr Wide kMax{std::numeric_limits<Lane>::max()}, kMin{std::numeric_limits<Lane>::min()};
  if (n >= 0) {
    const Wide r = Wide{a} * (Wide{1} << n);
    return static_cast<Lane>(r > kMax ? kMax : r < kMin ? kMin : r);
  }
  const Wide half = half_up ? Wide{1} << (-n - 1) : 0;
  return static_cast<Lane>((Wide{a} + half) >> -n);
}

// All lanes by one count to the right and down, which is what kernels do.
char256 ash_right(const char256& a, int n) {
  const auto sign = static_cast<uint8_t>(0x80 >> n);
  uchar256 r = shift_bytes(astype<uchar256>(a), 0, n);
  for (uint8_t& b : r.lane) b = static_cast<uint8_t>((b ^ sign) - sign);
  return astype<char256>(r);
}

}  // namespace

#define MXK_BINARY(name, V, value)                                                               \
  V name(const V& a, const V& b, int switches, const V& income, bool predicate, bool polarity) { \
    issue(Op::name, switches);                                                                   \
    return predicate != polarity ? each(a, b, [](auto x, auto y) { return value; }) : income;    \
  }

MXK_BINARY(v_u8_and_b, uchar256, x& y)
MXK_BINARY(v_u16_and_b, ushort128, x& y)
MXK_BINARY(v_u32_and_b, uint64, x& y)
MXK_BINARY(v_u8_or_b, uchar256, x | y)
MXK_BINARY(v_u16_or_b, ushort128, x | y)
MXK_BINARY(v_u32_or_b, uint64, x | y)
MXK_BINARY(v_u8_xor_b, uchar256, x ^ y)
MXK_BINARY(v_u32_xor_b, uint64, x ^ y)
MXK_BINARY(v_u16_add_b, ushort128, x + y)
MXK_BINARY(v_u16_sub_b, ushort128, x - y)
MXK_BINARY(v_u16_min_b, ushort128, x < y ? x : y)
MXK_BINARY(v_u32_add_b, uint64, x + y)
MXK_BINARY(v_i32_add_b, int64, static_cast<uint32_t>(x) + static_cast<uint32_t>(y))
MXK_BINARY(v_i32_sub_b, int64, static_cast<uint32_t>(x) - static_cast<uint32_t>(y))

#define MXK_SHIFT(name, V, N, shift)                                                             \
  V name(const V& a, const N& b, int switches, const V& income, bool predicate, bool polarity) { \
    issue(Op::name, switches);                                                                   \
    return predicate != polarity ? shift(a, b) : income;                                         \
  }

MXK_SHIFT(v_u8_shl_b, uchar256, char256, shl)
MXK_SHIFT(v_u16_shl_b, ushort128, short128, shl)
MXK_SHIFT(v_u32_shl_b, uint64, int64, shl)
MXK_SHIFT(v_i32_shl_b, int64, int64, shl)
MXK_SHIFT(v_u8_shr_b, uchar256, char256, shr)
MXK_SHIFT(v_u16_shr_b, ushort128, short128, shr)
MXK_SHIFT(v_u32_shr_b, uint64, int64, shr)

char256 v_i8_ash_b(const char256& a, const char256& b, int switches, const char256& income, bool predicate,
                   bool polarity) {
  issue(Op::v_i8_ash_b, switches, SW_SAT | SW_RHU);
  if (predicate == polarity) return income;
  const bool half_up = switches & SW_RHU, same = check_counts(b, -7, 8);
  if (same && b.lane[0] <= 0 && !half_up) return ash_right(a, -b.lane[0]);
  char256 r;
  for (int i = 0; i < 256; ++i) r.lane[i] = ash<int8_t, int32_t>(a.lane[i], b.lane[i], half_up);
  return r;
}

// One count a lane, in a vector of bytes: which byte of the lane counts is said nowhere, so all four must agree.
int64 v_i32_ash_b(const int64& a, const char256& b, int switches, const int64& income, bool predicate, bool polarity) {
  issue(Op::v_i32_ash_b, switches, SW_SAT | SW_RHU);
  if (predicate == polarity) return income;
  check_counts(b, -31, 32);
  int64 r;
  for (int i = 0; i < 64; ++i) {
    const int8_t* n = b.lane + 4 * i;
    if (n[0] != n[1] || n[0] != n[2] || n[0] != n[3]) trap("the four count bytes of lane %d differ", i);
    r.lane[i] = ash<int32_t, int64_t>(a.lane[i], n[0], switches & SW_RHU);
  }
  return r;
}

#define MXK_SEL_LESS(name, V)                                                                           \
  V name(const V& a, const V& b, const V& c, const V& d, int switches, const V& income, bool predicate, \
         bool polarity) {                                                                               \
    issue(Op::name, switches);                                                                          \
    if (predicate == polarity) return income;                                                           \
    V r;                                                                                                \
    for (int i = 0; i < V::kLanes; ++i) r.lane[i] = a.lane[i] < b.lane[i] ? c.lane[i] : d.lane[i];      \
    return r;                                                                                           \
  }

MXK_SEL_LESS(v_u32_sel_less_u32_b, uint64)
MXK_SEL_LESS(v_i32_sel_less_i32_b, int64)

#define MXK_CMP_LESS(name, V, M)                                                                 \
  M name(const V& a, const V& b, int switches, const M& income, bool predicate, bool polarity) { \
    issue(Op::name, switches);                                                                   \
    if (predicate == polarity) return income;                                                    \
    M r;                                                                                         \
    for (int i = 0; i < V::kLanes; ++i) r.lane[i] = a.lane[i] < b.lane[i];                       \
    return r;                                                                                    \
  }

MXK_CMP_LESS(v_u32_cmp_less_b, uint64, bool64)
MXK_CMP_LESS(v_u8_cmp_less_b, uchar256, bool256)
