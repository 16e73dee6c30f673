// SPDX-License-Identifier: Apache-2.0
//
// Scalar number formats: E2M1 codes, E8M0 scales, bfloat16. The values are those of the OCP Microscaling
// specification v1.0. Everything is exact and constexpr; vector code has its own versions, tested against these.
#pragma once

#include <bit>
#include <cstdint>

namespace mxk {

inline constexpr int kGroup = 32;  // elements that share one E8M0 scale, consecutive along the input dimension

// E2M1: sign, two exponent bits, one mantissa bit.
inline constexpr float kE2M1[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                    -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

// Element i of a packed row: two codes a byte, the even element in the low nibble.
constexpr float e2m1_at(const uint8_t* row, int64_t i) { return kE2M1[(row[i / 2] >> (4 * (i % 2))) & 15]; }

// E8M0 byte e is 2^(e-127): 0x00 is the subnormal 2^-127, 0xFF is NaN.
constexpr float e8m0(uint8_t e) {
  if (e == 0) return std::bit_cast<float>(0x00400000u);
  if (e == 255) return std::bit_cast<float>(0x7FC00000u);
  return std::bit_cast<float>(uint32_t{e} << 23);
}

constexpr float bf16_to_f32(uint16_t b) { return std::bit_cast<float>(uint32_t{b} << 16); }

// Round to nearest even; NaN stays NaN (quiet), overflow goes to infinity.
constexpr uint16_t f32_to_bf16(float f) {
  const uint32_t u = std::bit_cast<uint32_t>(f);
  if ((u & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>((u >> 16) | 0x40u);
  return static_cast<uint16_t>((u + 0x7FFFu + ((u >> 16) & 1u)) >> 16);
}

}  // namespace mxk
