// SPDX-License-Identifier: Apache-2.0
//
// The floating-point rules of the machine on bit patterns, so that neither the host's flush modes nor its NaNs matter:
// arithmetic reads denormals as signed zeros, flushes denormal results to signed zeros and has one NaN.
#pragma once

#include <bit>
#include <cstdint>

namespace mxk::emu {

static_assert(std::endian::native == std::endian::little, "the even 16-bit lane is the low half of a 32-bit lane");

inline constexpr uint32_t kSign = 0x80000000u, kInf = 0x7F800000u, kMinNormal = 0x00800000u, kNan = 0x7FFFFFFFu;
inline constexpr uint16_t kBf16Nan = 0x7FFF;

inline float as_f32(uint32_t u) { return std::bit_cast<float>(u); }
inline uint32_t bits_of(float f) { return std::bit_cast<uint32_t>(f); }
inline uint32_t magnitude(uint32_t u) { return u & ~kSign; }
inline bool is_nan(uint32_t u) { return magnitude(u) > kInf; }

// All ones where the condition holds: selects that every compiler turns into vector code.
inline uint32_t mask(bool b) { return 0u - static_cast<uint32_t>(b); }

inline uint32_t flush(uint32_t u) { return u & (kSign | ~mask(magnitude(u) < kMinNormal)); }
inline uint32_t finish(uint32_t u) {
  const uint32_t nan = mask(is_nan(u));
  return (flush(u) & ~nan) | (kNan & nan);
}

// To bf16 and to the nearest: denormals stay denormal and round like any number, and there is one NaN.
inline uint32_t bf16_of(uint32_t u) {
  const uint32_t nan = mask(is_nan(u));
  return (((u + 0x7FFF + (u >> 16 & 1)) >> 16) & ~nan) | (kBf16Nan & nan);
}

// Comparisons as numbers, denormals included; false when either is NaN.
inline int32_t order(uint32_t u) {
  const auto m = static_cast<int32_t>(magnitude(u));
  return u & kSign ? -m : m;
}
inline uint32_t numbers(uint32_t a, uint32_t b) { return ~mask(is_nan(a)) & ~mask(is_nan(b)); }
inline bool less(uint32_t a, uint32_t b) { return (numbers(a, b) & mask(order(a) < order(b))) != 0; }
inline bool equal(uint32_t a, uint32_t b) { return (numbers(a, b) & mask(order(a) == order(b))) != 0; }
inline bool less_or_equal(uint32_t a, uint32_t b) { return (numbers(a, b) & mask(order(a) <= order(b))) != 0; }

}  // namespace mxk::emu
