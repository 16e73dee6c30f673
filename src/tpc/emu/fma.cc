// SPDX-License-Identifier: Apache-2.0
//
// A fused multiply-add without the host's: rounded once, the same on any processor, and fast where it matters.
//
// Where every product of a vector is exact in fp32 (bf16 operands, scales that are powers of two) and neither overflows
// nor underflows, a multiplication and an addition are the fused result. Else the sum is made in double, where products
// are exact, and is right unless it lies in the middle between two floats or near the end of the range; those lanes are
// made again with the error of the double sum in hand.
#include "tpc/emu/fma.h"

#include <cmath>
#include <cstring>

#include "tpc/emu/fp.h"

namespace mxk::emu {

namespace {

constexpr int kLanes = 64;
constexpr uint64_t kHalfway = uint64_t{1} << 28;  // the bits of a double that a float has no room for, at the middle
constexpr uint64_t kBeyond = (uint64_t{1} << 29) - 1;
constexpr uint64_t kNormalEnd = std::bit_cast<uint64_t>(0x1.000001p-126);

// Operands are flushed already.
uint32_t fma_lane(uint32_t a, uint32_t b, uint32_t c) {
  const double p = double{as_f32(a)} * double{as_f32(b)}, z = as_f32(c);
  double s = p + z;
  if (!std::isfinite(s)) return finish(bits_of(static_cast<float>(s)));
  // Rounded to odd, the sum keeps on which side of a middle the exact one lies, so that rounding it again is right.
  const double back = s - p, error = (p - (s - back)) + (z - back);
  if (error != 0) {
    auto u = std::bit_cast<uint64_t>(s);
    if (u % 2 == 0) u += (error > 0) == (s > 0) ? 1 : -1;
    s = std::bit_cast<double>(u);
  }
  // Flushed is what would be denormal after a rounding to 24 bits.
  const double size = std::fabs(s);
  if (size < 0x1p-126) {
    const uint32_t sign = std::signbit(s) ? kSign : 0;
    return size < 0x1p-126 - 0x1p-151 ? sign : sign | kMinNormal;
  }
  return bits_of(static_cast<float>(s));
}

// Whether a product in fp32 has no rounding and an exponent in range; or is a zero because an operand is.
uint32_t exact_product(uint32_t a, uint32_t b) {
  const uint32_t ea = magnitude(a) >> 23, eb = magnitude(b) >> 23;
  const uint32_t room = mask(ea + eb >= 128) & mask(ea + eb <= 380) & mask(ea != 255) & mask(eb != 255);
  const uint32_t null = (mask(ea == 0) & mask(eb != 255)) | (mask(eb == 0) & mask(ea != 255));
  const uint32_t few_bits = mask(((a | b) & 0xFFF) == 0) | mask((a & 0x7FFFFF) == 0) | mask((b & 0x7FFFFF) == 0);
  return (room & few_bits) | null;
}

}  // namespace

void fma64(const uint32_t* a, const uint32_t* b, const uint32_t* c, uint32_t flip, uint32_t* out) {
  alignas(16) uint32_t x[kLanes], y[kLanes], z[kLanes];
  uint32_t exact = ~0u;
  for (int i = 0; i < kLanes; ++i) {
    x[i] = flush(a[i] ^ flip);
    y[i] = flush(b[i]);
    z[i] = flush(c[i]);
    exact &= exact_product(x[i], y[i]);
  }
  if (exact != 0) {
    for (int i = 0; i < kLanes; ++i) out[i] = finish(bits_of(as_f32(x[i]) * as_f32(y[i]) + as_f32(z[i])));
    return;
  }
  alignas(16) double s[kLanes];
  uint64_t again = 0;  // the top bit says that some lane is in the middle, or not zero but below the smallest normal
  for (int i = 0; i < kLanes; ++i) {
    s[i] = double{as_f32(x[i])} * double{as_f32(y[i])} + double{as_f32(z[i])};
    const auto u = std::bit_cast<uint64_t>(s[i]), size = u & (~uint64_t{0} >> 1);
    again |= ((u ^ kHalfway) & kBeyond) - 1;
    again |= (size - kNormalEnd) & (0 - size);
  }
  for (int i = 0; i < kLanes; ++i) out[i] = finish(bits_of(static_cast<float>(s[i])));
  if (again >> 63 == 0) return;
  for (int i = 0; i < kLanes; ++i) out[i] = fma_lane(x[i], y[i], z[i]);
}

void mul64(const uint32_t* a, const uint32_t* b, uint32_t* out) {
  uint32_t edge = 0;
  for (int i = 0; i < kLanes; ++i) {
    const uint32_t x = flush(a[i]), y = flush(b[i]);
    const uint32_t r = bits_of(as_f32(x) * as_f32(y));
    edge |= mask(magnitude(r) <= kMinNormal) & mask(magnitude(x) != 0) & mask(magnitude(y) != 0);
    out[i] = finish(r);
  }
  if (edge == 0) return;
  for (int i = 0; i < kLanes; ++i) {
    const uint32_t x = flush(a[i]), y = flush(b[i]);
    out[i] = fma_lane(x, y, (x ^ y) & kSign);  // a zero of the product's sign changes nothing
  }
}

bool plain_products(const uint32_t* a, const uint32_t* b) {
  alignas(16) int16_t x[2 * kLanes], y[2 * kLanes];
  std::memcpy(x, a, sizeof x);
  std::memcpy(y, b, sizeof y);
  int16_t bad = 0;
  for (int i = 0; i < 2 * kLanes; ++i) {
    const auto mx = static_cast<int16_t>(x[i] & 0x7FFF), my = static_cast<int16_t>(y[i] & 0x7FFF);
    const auto ex = static_cast<int16_t>(mx >> 7), ey = static_cast<int16_t>(my >> 7);
    const auto sum = static_cast<int16_t>(ex + ey);
    const auto special =
        static_cast<int16_t>((ex == 255) | (ey == 255) | ((ex == 0) & (mx != 0)) | ((ey == 0) & (my != 0)));
    const auto range = static_cast<int16_t>((mx != 0) & (my != 0) & ((sum < 128) | (sum > 380)));
    bad = static_cast<int16_t>(bad | special | range);
  }
  return bad == 0;
}

namespace {

void widen(const uint32_t* words, uint32_t* even, uint32_t* odd) {
  for (int i = 0; i < kLanes; ++i) {
    even[i] = words[i] << 16;
    odd[i] = words[i] & 0xFFFF0000u;
  }
}

}  // namespace

void bf16_fma(const uint32_t* a, const uint32_t* b, const uint32_t* even_sum, const uint32_t* odd_sum, uint32_t flip,
              uint32_t* even, uint32_t* odd) {
  if (plain_products(a, b)) {
    for (int i = 0; i < kLanes; ++i) {
      const float p = as_f32((a[i] << 16) ^ flip) * as_f32(b[i] << 16);
      even[i] = finish(bits_of(p + as_f32(flush(even_sum[i]))));
    }
    for (int i = 0; i < kLanes; ++i) {
      const float p = as_f32((a[i] & 0xFFFF0000u) ^ flip) * as_f32(b[i] & 0xFFFF0000u);
      odd[i] = finish(bits_of(p + as_f32(flush(odd_sum[i]))));
    }
    return;
  }
  uint32_t a0[kLanes], a1[kLanes], b0[kLanes], b1[kLanes];
  widen(a, a0, a1);
  widen(b, b0, b1);
  fma64(a0, b0, even_sum, flip, even);
  fma64(a1, b1, odd_sum, flip, odd);
}

void bf16_mul(const uint32_t* a, const uint32_t* b, uint32_t* even, uint32_t* odd) {
  uint32_t a0[kLanes], a1[kLanes], b0[kLanes], b1[kLanes];
  widen(a, a0, a1);
  widen(b, b0, b1);
  mul64(a0, b0, even);
  mul64(a1, b1, odd);
}

}  // namespace mxk::emu
