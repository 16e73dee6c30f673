// SPDX-License-Identifier: Apache-2.0
//
// Conversions between formats. Those that change the size of a lane interleave: .v1 is made of the even, .v2 of the odd
// lanes.
#include <algorithm>
#include <cmath>

#include "tpc/emu/fp.h"
#include "tpc/emu/intrinsics.h"
#include "tpc/emu/runtime.h"

using namespace mxk::emu;

namespace {

constexpr int kRoundings = 7 << 16;

int rounding(int switches) {
  const int mode = switches & kRoundings;
  if (mode != SW_RHNE && mode != SW_RZ && mode != SW_RU && mode != SW_RD && mode != SW_RHAZ) trap_switches(switches);
  return mode;
}

// Whether a magnitude cut off at `half` units below goes up: `rest` of 2 * half, `odd` the last bit kept.
bool rounds_up(int mode, bool negative, bool odd, uint32_t rest, uint32_t half) {
  if (mode == SW_RU) return rest != 0 && !negative;
  if (mode == SW_RD) return rest != 0 && negative;
  if (mode == SW_RZ) return false;
  if (mode == SW_RHAZ) return rest >= half;
  return rest > half || (rest == half && odd);
}

// Denormals stay denormal and are rounded like any number.
uint16_t to_bf16(uint32_t u, int mode) {
  if (is_nan(u)) return kBf16Nan;
  if (magnitude(u) == kInf) return static_cast<uint16_t>(u >> 16);
  const bool up = rounds_up(mode, u & kSign, u >> 16 & 1, u & 0xFFFF, 0x8000);
  return static_cast<uint16_t>((u >> 16) + up);
}

// The integer nearest to a double that is a float, an integer or between.
double to_integer(double x, int mode) {
  switch (mode) {
    case SW_RZ: return std::trunc(x);
    case SW_RU: return std::ceil(x);
    case SW_RD: return std::floor(x);
    case SW_RHAZ: return std::round(x);
    default: break;
  }
  const double down = std::floor(x), rest = x - down;
  const bool odd = down != 2 * std::floor(down / 2);
  return std::copysign(rest > 0.5 || (rest == 0.5 && odd) ? down + 1 : down, x);
}

// Five exponent bits with bias 15, two mantissa bits, widened exactly. A denormal m is m * 2^-16.
constexpr uint16_t h8_to_bf16(unsigned b) {
  const unsigned sign = (b & 0x80) << 8, e = b >> 2 & 31, m = b & 3;
  unsigned value = (e + 112) << 7 | m << 5;
  if (e == 31) value = m == 0 ? 0x7F80 : kBf16Nan;
  if (e == 0) value = m == 0 ? 0 : m == 1 ? 111 << 7 : 112 << 7 | (m & 1) << 6;
  return static_cast<uint16_t>(e == 31 && m != 0 ? kBf16Nan : sign | value);
}

struct H8Table {
  uint16_t at[256];
};

constexpr H8Table kH8 = [] {
  H8Table t{};
  for (unsigned b = 0; b < 256; ++b) t.at[b] = h8_to_bf16(b);
  return t;
}();

struct Words {
  alignas(16) uint32_t at[64];
};

// To the nearest for numbers below 2^22: added to 1.5 * 2^23, a number loses its fraction to the rounding of the sum.
constexpr float kShift = 0x1.8p23f;

bool nearest_and_small(const Words& w, int mode) {
  uint32_t big = 0;
  for (const uint32_t u : w.at) big |= mask(magnitude(u) >= 0x4A800000u);
  return mode == SW_RHNE && big == 0;
}

}  // namespace

bfloat256 v_convert_h8_to_bf16_all_b(const minihalf256& src, int switches, const bfloat256& income, bool predicate,
                                     bool polarity) {
  issue(Op::v_convert_h8_to_bf16_all_b, switches);
  if (predicate == polarity) return income;
  bfloat256 r;
  for (int i = 0; i < 128; ++i) {
    r.v1.lane[i].bits = kH8.at[src.lane[2 * i].bits];
    r.v2.lane[i].bits = kH8.at[src.lane[2 * i + 1].bits];
  }
  return r;
}

bfloat256 v_convert_i8_to_bf16_all_b(const char256& src, int switches, const bfloat256& income, bool predicate,
                                     bool polarity) {
  issue(Op::v_convert_i8_to_bf16_all_b, switches);
  if (predicate == polarity) return income;
  bfloat256 r;  // eight bits fit the mantissa of bf16: no rounding
  for (int i = 0; i < 128; ++i) {
    r.v1.lane[i].bits = static_cast<uint16_t>(bits_of(static_cast<float>(src.lane[2 * i])) >> 16);
    r.v2.lane[i].bits = static_cast<uint16_t>(bits_of(static_cast<float>(src.lane[2 * i + 1])) >> 16);
  }
  return r;
}

bfloat128 v_convert_f32_to_bf16_all_b(const float128& src, int switches, const bfloat128& income, bool predicate,
                                      bool polarity) {
  issue(Op::v_convert_f32_to_bf16_all_b, switches, kRoundings);
  const int mode = rounding(switches);
  if (predicate == polarity) return income;
  const Words even = astype<Words>(src.v1), odd = astype<Words>(src.v2);
  Words r;
  if (mode == SW_RHNE)
    for (int i = 0; i < 64; ++i) r.at[i] = bf16_of(even.at[i]) | bf16_of(odd.at[i]) << 16;
  else
    for (int i = 0; i < 64; ++i) r.at[i] = to_bf16(even.at[i], mode) | uint32_t{to_bf16(odd.at[i], mode)} << 16;
  return astype<bfloat128>(r);
}

float128 v_convert_bf16_to_f32_all_b(const bfloat128& src, int switches, const float128& income, bool predicate,
                                     bool polarity) {
  issue(Op::v_convert_bf16_to_f32_all_b, switches);
  if (predicate == polarity) return income;
  const Words w = astype<Words>(src);
  Words even, odd;
  for (int i = 0; i < 64; ++i) {
    even.at[i] = w.at[i] << 16;
    odd.at[i] = w.at[i] & 0xFFFF0000u;
  }
  return {astype<float64>(even), astype<float64>(odd)};
}

// Beyond the range of int32 it saturates, and NaN is 0: assumed.
int64 v_convert_f32_to_i32_b(const float64& src, int switches, const int64& income, bool predicate, bool polarity) {
  issue(Op::v_convert_f32_to_i32_b, switches, kRoundings);
  const int mode = rounding(switches);
  if (predicate == polarity) return income;
  const Words w = astype<Words>(src);
  int64 r;
  if (nearest_and_small(w, mode)) {
    for (int i = 0; i < 64; ++i)
      r.lane[i] = static_cast<int32_t>(bits_of(as_f32(w.at[i]) + kShift)) - static_cast<int32_t>(bits_of(kShift));
    return r;
  }
  for (int i = 0; i < 64; ++i) {
    const double x = is_nan(w.at[i]) ? 0 : to_integer(as_f32(w.at[i]), mode);
    r.lane[i] = x >= 0x1p31 ? INT32_MAX : x <= -0x1p31 ? INT32_MIN : static_cast<int32_t>(x);
  }
  return r;
}

float64 v_convert_i32_to_f32_b(const int64& src, int switches, const float64& income, bool predicate, bool polarity) {
  issue(Op::v_convert_i32_to_f32_b, switches, kRoundings);
  const int mode = rounding(switches);
  if (predicate == polarity) return income;
  Words r;
  for (int i = 0; i < 64; ++i) {
    const int32_t v = src.lane[i];
    const uint32_t size = v < 0 ? 0u - static_cast<uint32_t>(v) : static_cast<uint32_t>(v);
    const int extra = size == 0 ? 0 : std::max(0, 8 - std::countl_zero(size));  // bits beyond 24
    uint32_t kept = size >> extra;
    if (extra > 0) kept += rounds_up(mode, v < 0, kept & 1, size & ((1u << extra) - 1), 1u << (extra - 1));
    r.at[i] = bits_of(std::ldexp(static_cast<float>(kept), extra)) | (v < 0 ? kSign : 0);
  }
  return astype<float64>(r);
}

// NaN becomes the one NaN; a denormal rounds like any number: assumed.
float64 v_f32_nearbyint_b(const float64& a, int switches, const float64& income, bool predicate, bool polarity) {
  issue(Op::v_f32_nearbyint_b, switches, kRoundings);
  const int mode = rounding(switches);
  if (mode == SW_RHAZ) trap_switches(switches);
  if (predicate == polarity) return income;
  const Words w = astype<Words>(a);
  Words r;
  if (nearest_and_small(w, mode)) {
    for (int i = 0; i < 64; ++i) r.at[i] = magnitude(bits_of((as_f32(w.at[i]) + kShift) - kShift)) | (w.at[i] & kSign);
    return astype<float64>(r);
  }
  for (int i = 0; i < 64; ++i) {
    if (is_nan(w.at[i]))
      r.at[i] = kNan;
    else if (magnitude(w.at[i]) >= 0x4B000000u)  // 2^23 and above, infinity: integers already
      r.at[i] = w.at[i];
    else
      r.at[i] = bits_of(static_cast<float>(to_integer(as_f32(w.at[i]), mode))) | (w.at[i] & kSign);
  }
  return astype<float64>(r);
}
