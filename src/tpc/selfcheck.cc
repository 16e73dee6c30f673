// SPDX-License-Identifier: Apache-2.0
#include "tpc/selfcheck.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/formats.h"

namespace mxk::tpc {
namespace {

constexpr int kLanes = 64;

// A bf16 vector of 128 lanes takes two rows: its even lanes, then its odd ones.
template <class F>
void put_bf16(float* rows, F&& lane) {
  for (int i = 0; i < 2 * kLanes; ++i) rows[i % 2 * kLanes + i / 2] = lane(i);
}

// All byte values through an unpack that gives code * factor: planes of codes 4i, 4i + 1, 4i + 2, 4i + 3.
void unpacked(float* rows, float factor, bool negative_zero) {
  for (int plane = 0; plane < 4; ++plane)
    put_bf16(rows + 2 * plane * kLanes, [&](int i) {
      const int byte = 2 * i + plane / 2, code = plane % 2 ? byte >> 4 : byte & 15;
      const float v = kE2M1[code] * factor;
      return code == 8 && !negative_zero ? 0.0f : v;
    });
}

// The sum of lanes that are d apart, of 0, 1, 2, ... where the lane's bit d is clear, else of 100, 101, ...
float combined(int lane, int d) {
  const int low = lane & ~d;
  return static_cast<float>(2 * low + d + (lane & d ? 200 : 0));
}

}  // namespace

void expected_selfcheck(float* out) {
  const auto row = [out](int n) { return out + n * kLanes; };
  unpacked(row(0), 0x1p-14f, true);
  unpacked(row(8), 2, false);
  for (int i = 0; i < kLanes; ++i) {
    const float x = static_cast<float>(i), other = x + 100;
    for (int chunk = 0; chunk < 16; ++chunk) {
      const int e = 16 * chunk + i / 4;
      row(16 + chunk)[i] = e == 0 ? 0.0f : e == 255 ? INFINITY : std::ldexp(1.0f, e - 127);
    }
    static constexpr int kDistances[] = {8, 16, 32, 1, 2, 4};
    for (int level = 0; level < 6; ++level) row(32 + level)[i] = combined(i, kDistances[level]);
    // bf16 lane 2i is x, lane 2i + 1 is other (rounded, but whole numbers below 256 are exact).
    row(38)[i] = 2 * x * x;
    row(39)[i] = 2 * other * other;
    row(40)[i] = x * x + x * x;
    row(41)[i] = other * other + other * other;
    row(42)[i] = row(43)[i] = bf16_to_f32(f32_to_bf16(1 + x / 256));
    row(44)[i] = 2 * x;
    row(45)[i] = 2 * other;
    row(46)[i] = static_cast<float>(std::exp(double{x} - 32.25));
    row(47)[i] = static_cast<float>(1 / (1 + double{x}));
    const double g = std::min(double{x} / 4 - 8, 7.0), u = std::min(double{x}, 7.0);
    row(48)[i] = static_cast<float>(g / (1 + std::exp(-1.702f * g)) * (u + 1));
    // Bytes 128 .. 255 as 32-bit numbers in the lower half, zeros above.
    const int at = 128 + 4 * i;
    row(49)[i] = i < 32 ? std::bit_cast<float>(uint32_t(at) | uint32_t(at + 1) << 8 | uint32_t(at + 2) << 16 |
                                               uint32_t(at + 3) << 24)
                        : 0.0f;
    row(50)[i] = i < 4 ? 0.0f : x * 0x1p-128f;
    row(51)[i] = other;
    row(52)[i] = static_cast<float>(i ^ 8);
    row(53)[i] = i >= 24 && i < 32 ? x - 16 : x;
    row(54)[i] = x;
    row(55)[i] = 55;
  }
}

}  // namespace mxk::tpc
