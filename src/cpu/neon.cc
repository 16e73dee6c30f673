// SPDX-License-Identifier: Apache-2.0
//
// Arm Advanced SIMD (every AArch64 CPU): fp32 arithmetic on 128-bit vectors.
//
// Per 32 weights of a row (16 bytes, one group), in instructions:
//   ldr                  1
//   and, ushr          1+1   low and high nibbles, a byte each
//   tbl                  4   the upper 16 bits of an fp32 are all that an E2M1 value needs: a table for each byte
//   zip1, zip2           4   the two bytes side by side
//   shll, shll2          8   sixteen bits moved up: fp32
//   fmla               8+1   per token: eight planes, then the scale
#include <arm_neon.h>

#include "cpu/kernels-inl.h"

namespace mxk::cpu {
namespace {

struct Neon : PackedF32<Neon> {
  using V = float __attribute__((vector_size(16)));
  static constexpr int kLanes = 4, kPlanes = 8, kChunk = 32, kRows = 2;

  // Even elements are the low nibbles: planes 0 to 3; odd ones planes 4 to 7.
  static constexpr int64_t place(int64_t i) { return i / 32 * 32 + i % 2 * 16 + i % 32 / 2; }

  static void planes(uint8x16_t nibbles, V* w) {
    static constexpr uint8_t kUpper[16] = {0x00, 0x3F, 0x3F, 0x3F, 0x40, 0x40, 0x40, 0x40,
                                           0x80, 0xBF, 0xBF, 0xBF, 0xC0, 0xC0, 0xC0, 0xC0};
    static constexpr uint8_t kLower[16] = {0x00, 0x00, 0x80, 0xC0, 0x00, 0x40, 0x80, 0xC0,
                                           0x00, 0x00, 0x80, 0xC0, 0x00, 0x40, 0x80, 0xC0};
    const uint8x16_t u = vqtbl1q_u8(vld1q_u8(kUpper), nibbles), l = vqtbl1q_u8(vld1q_u8(kLower), nibbles);
    const uint16x8_t first = vreinterpretq_u16_u8(vzip1q_u8(l, u)), second = vreinterpretq_u16_u8(vzip2q_u8(l, u));
    w[0] = V(vshll_n_u16(vget_low_u16(first), 16));
    w[1] = V(vshll_high_n_u16(first, 16));
    w[2] = V(vshll_n_u16(vget_low_u16(second), 16));
    w[3] = V(vshll_high_n_u16(second, 16));
  }
  static void decode(const uint8_t* p, int, V* w) {
    const uint8x16_t v = vld1q_u8(p);
    planes(vandq_u8(v, vdupq_n_u8(15)), w);
    planes(vshrq_n_u8(v, 4), w + 4);
  }
  static V lane_scales(const uint8_t* s, int) { return V{} + e8m0(*s); }
  static V fma(V a, V b, V c) { return V(vfmaq_f32(float32x4_t(c), float32x4_t(a), float32x4_t(b))); }
  static V load(const float* p) { return V(vld1q_f32(p)); }
  static float lane_sum(V v) { return (v[0] + v[2]) + (v[1] + v[3]); }
};

}  // namespace

extern const Kernels kernels_neon;
const Kernels kernels_neon{Neon::kChunk, Neon::kChunk * 4, rows<Tile<Neon>>, activate<Neon>,
                           Neon::pack,   unpack<Neon>,     unpack_row<Neon>, gemm_rows<Neon>};

}  // namespace mxk::cpu
