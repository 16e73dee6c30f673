// SPDX-License-Identifier: Apache-2.0
//
// AVX-512 F/BW/DQ/VL: fp32 arithmetic, for CPUs without BF16 dot products.
//
// Per 128 weights of a row (64 bytes), in instructions:
//   vmovdqu64            1   load
//   vpblendmd, vpermt2d  2   the span transpose of avx512-inl.h
//   vpsrlw               3   brings nibble j of each word to the bottom
//   vpermw               4   code to bf16
//   vpslld, vpandd     4+4   the two bf16 of a 32-bit lane as two fp32
//   vfmadd231ps    8 + 1/4   per token: the products, then the scales
// Zen 4 takes 18, 28, 38 and 48 cycles for one to four tokens, weights in cache: about one 512-bit instruction a cycle.
#include "cpu/avx512-inl.h"

namespace mxk::cpu {
namespace {

struct Fp32 {
  using V = float __attribute__((vector_size(64)));
  using Bits = uint32_t;
  static constexpr int kRows = 2, kChunk = 128;

  static void pack(const uint16_t* values, void* packed, int64_t at, int64_t n) {
    uint32_t* row = static_cast<uint32_t*>(packed);
    place_block(values, at, n, [row](int64_t plane, int lane, uint32_t lower, uint32_t upper) {
      row[plane * kPlane + lane] = lower << 16;
      row[plane * kPlane + 16 + lane] = upper << 16;
    });
  }

  static float activation(const void* packed, int i, int n) {
    const Place p = place_of(i, n);
    return static_cast<const float*>(packed)[p.plane * kPlane + 16 * p.half + p.lane];
  }

  struct Pair {
    __m512 lower, upper;
  };
  static Pair load(const void* x, int64_t at) {
    const float* p = static_cast<const float*>(x) + at;
    return {_mm512_loadu_ps(p), _mm512_loadu_ps(p + 16)};
  }
  static __m512 mac(__m512 sum, __m512i codes, Pair x) {
    const __m512i upper = _mm512_and_si512(codes, _mm512_set1_epi32(static_cast<int>(0xFFFF0000)));
    sum = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_slli_epi32(codes, 16)), x.lower, sum);
    return _mm512_fmadd_ps(_mm512_castsi512_ps(upper), x.upper, sum);
  }

  template <int kTokens>
  static void run(const Stream* rows, int n, const void* const* x, float* out, int64_t out_stride) {
    dot_rows_512<Fp32, kTokens>(rows, n, x, out, out_stride);
  }

  static V fma(V a, V b, V c) { return _mm512_fmadd_ps(a, b, c); }
  static float lane_sum(V v) { return lane_sum_512(v); }
};

}  // namespace

extern const Kernels kernels_avx512;
const Kernels kernels_avx512{128,        128 * 4,      rows<Fp32>,       activate<Fp32>,
                             Fp32::pack, unpack<Fp32>, unpack_row<Fp32>, gemm_rows<Fp32>};

}  // namespace mxk::cpu
