// SPDX-License-Identifier: Apache-2.0
//
// Arithmetic of the machine once more, with integers of 128 bits: exact sums of exact products, rounded once.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace mxk::emu::test {

__extension__ typedef unsigned __int128 Wide;

constexpr uint32_t kOneNan = 0x7FFFFFFF;

// m * 2^e with a sign.
struct Exact {
  bool negative;
  Wide m;
  int e;
};

inline bool nan32(uint32_t u) { return (u << 1) > 0xFF000000u; }
inline bool inf32(uint32_t u) { return (u << 1) == 0xFF000000u; }

// Denormals are zeros.
inline Exact exact32(uint32_t u) {
  const uint32_t e = u >> 23 & 255;
  return {u >> 31 != 0, e == 0 ? Wide{0} : Wide{(u & 0x7FFFFF) + 0x800000}, static_cast<int>(e) - 150};
}

inline int top(const Exact& x) {
  int n = x.e;
  for (Wide m = x.m; m > 1; m >>= 1) ++n;
  return n;
}

inline Exact at_exponent(Exact x, int e) {
  for (; x.e > e; --x.e) x.m <<= 1;
  for (; x.e < e && x.m != 0; ++x.e) x.m = (x.m >> 1) | (x.m & 1);  // what falls off stays visible in the last bit
  x.e = e;
  return x;
}

inline Exact sum(const Exact& a, const Exact& b) {
  if (a.m == 0 && b.m == 0) return {a.negative && b.negative, 0, 0};
  if (a.m == 0) return b;
  if (b.m == 0) return a;
  const int high = top(a) > top(b) ? top(a) : top(b), low = a.e < b.e ? a.e : b.e;
  const int e = low > high - 100 ? low : high - 100;
  const Exact x = at_exponent(a, e), y = at_exponent(b, e);
  if (x.negative == y.negative) return {x.negative, x.m + y.m, e};
  if (x.m == y.m) return {false, 0, 0};
  return x.m > y.m ? Exact{x.negative, x.m - y.m, e} : Exact{y.negative, y.m - x.m, e};
}

// To `bits` bits, nearest even, then flushed below 2^-126. With `denormal` the rounding is that of a format that has
// denormals; else the exponent is unbounded while rounding. The result as bits of fp32.
inline uint32_t rounded(const Exact& x, int bits, bool denormal) {
  const uint32_t sign = x.negative ? 0x80000000u : 0;
  if (x.m == 0) return sign;
  int unit = top(x) - (bits - 1);
  if (denormal && unit < -126 - (bits - 1)) unit = -126 - (bits - 1);
  Exact wide = x;
  wide = at_exponent(wide, wide.e < unit - 2 ? unit - 2 : wide.e);  // two bits and what fell off
  Wide kept = wide.m;
  if (wide.e < unit) {
    const int drop = unit - wide.e;
    const Wide rest = wide.m & ((Wide{1} << drop) - 1), half = Wide{1} << (drop - 1);
    kept = wide.m >> drop;
    if (rest > half || (rest == half && (kept & 1))) ++kept;
  } else {
    kept <<= wide.e - unit;
  }
  if (kept == 0) return sign;
  const int exponent = top({false, kept, unit});
  if (exponent < -126) return sign;
  if (exponent > 127) return sign | 0x7F800000u;
  for (; kept >= Wide{1} << 24; ++unit) kept >>= 1;
  for (; kept < Wide{1} << 23; --unit) kept <<= 1;
  return sign | static_cast<uint32_t>(unit + 150) << 23 | (static_cast<uint32_t>(kept) & 0x7FFFFF);
}

inline uint32_t ref_fma(uint32_t a, uint32_t b, uint32_t c) {
  const Exact x = exact32(a), y = exact32(b), z = exact32(c);
  const bool sign = x.negative != y.negative;
  if (nan32(a) || nan32(b) || nan32(c)) return kOneNan;
  if ((inf32(a) && y.m == 0) || (inf32(b) && x.m == 0)) return kOneNan;
  if (inf32(a) || inf32(b)) {
    if (inf32(c) && (c >> 31 != 0) != sign) return kOneNan;
    return sign ? 0xFF800000u : 0x7F800000u;
  }
  if (inf32(c)) return c;
  return rounded(sum({sign, x.m * y.m, x.e + y.e}, z), 24, false);
}

inline uint32_t ref_add(uint32_t a, uint32_t b) { return ref_fma(a, 0x3F800000u, b); }

inline uint32_t ref_mul(uint32_t a, uint32_t b) { return ref_fma(a, b, (a ^ b) & 0x80000000u); }

// bf16 operands as the upper halves of fp32.
inline uint16_t ref_bf16_mul(uint32_t a, uint32_t b) {
  const uint32_t r = ref_mul(a, b);
  if (nan32(r)) return 0x7FFF;
  if (inf32(a) || inf32(b)) return static_cast<uint16_t>(r >> 16);
  const Exact x = exact32(a), y = exact32(b);
  return static_cast<uint16_t>(rounded({x.negative != y.negative, x.m * y.m, x.e + y.e}, 8, true) >> 16);
}

}  // namespace mxk::emu::test
