// SPDX-License-Identifier: Apache-2.0
//
// AVX2 and FMA: fp32 arithmetic on 256-bit vectors.
//
// Per 64 weights of a row (32 bytes, one group in each 128-bit half), in instructions:
//   vmovdqu              1   load
//   vpand, vpsrlw      2+1   low and high nibbles, a byte each
//   vpshufb              4   the upper 16 bits of an fp32 are all that an E2M1 value needs: a table for each byte
//   vpunpck{l,h}bw       4   the two bytes side by side: two values in every 32-bit lane
//   vpslld, vpand      4+4   the lower value moved up, the upper one masked
//   vfmadd231ps        8+1   per token: eight planes, then the scale
// All of it stays inside 128-bit halves, so a lane never mixes groups and the scale is one multiply.
#include <immintrin.h>

#include "cpu/kernels-inl.h"

namespace mxk::cpu {
namespace {

struct Avx2 : PackedF32<Avx2> {
  using V = float __attribute__((vector_size(32)));
  static constexpr int kLanes = 8, kPlanes = 8, kChunk = 64, kRows = 1;

  // Element i of group b: high nibble if i is odd, upper half of the unpacked bytes from 16 on, upper 16 bits of the
  // lane for every second byte.
  static constexpr int64_t place(int64_t i) {
    const int64_t b = i % 64 / 32, j = i % 32;
    return i / 64 * 64 + (j % 2 * 4 + j / 16 * 2 + j % 4 / 2) * 8 + b * 4 + j % 16 / 4;
  }

  static void planes(__m256i nibbles, V* w) {
    const __m256i upper = _mm256_broadcastsi128_si256(_mm_setr_epi8(
        0x00, 0x3F, 0x3F, 0x3F, 0x40, 0x40, 0x40, 0x40, -0x80, -0x41, -0x41, -0x41, -0x40, -0x40, -0x40, -0x40));
    const __m256i lower = _mm256_broadcastsi128_si256(_mm_setr_epi8(
        0x00, 0x00, -0x80, -0x40, 0x00, 0x40, -0x80, -0x40, 0x00, 0x00, -0x80, -0x40, 0x00, 0x40, -0x80, -0x40));
    const __m256i mask = _mm256_set1_epi32(static_cast<int>(0xFFFF0000));
    const __m256i u = _mm256_shuffle_epi8(upper, nibbles), l = _mm256_shuffle_epi8(lower, nibbles);
    const __m256i first = _mm256_unpacklo_epi8(l, u), second = _mm256_unpackhi_epi8(l, u);
    w[0] = _mm256_castsi256_ps(_mm256_slli_epi32(first, 16));
    w[1] = _mm256_castsi256_ps(_mm256_and_si256(first, mask));
    w[2] = _mm256_castsi256_ps(_mm256_slli_epi32(second, 16));
    w[3] = _mm256_castsi256_ps(_mm256_and_si256(second, mask));
  }
  static void decode(const uint8_t* p, int groups, V* w) {
    const __m256i low = _mm256_set1_epi8(15);
    const __m256i v = groups == 2 ? _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))
                                  : _mm256_zextsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    planes(_mm256_and_si256(v, low), w);
    planes(_mm256_and_si256(_mm256_srli_epi16(v, 4), low), w + 4);
  }
  // Bytes to the top of each lane, one a half, and down by one. 0x00 has no exponent bits and the maximum puts the
  // subnormal 2^-127 there.
  static V lane_scales(const uint8_t* s, int groups) {
    const __m256i order = _mm256_setr_epi32(0x00808080, 0x00808080, 0x00808080, 0x00808080, 0x01808080, 0x01808080,
                                            0x01808080, 0x01808080);
    uint16_t both = *s;
    if (groups == 2) __builtin_memcpy(&both, s, 2);
    const __m256i top = _mm256_shuffle_epi8(_mm256_set1_epi16(static_cast<short>(both)), order);
    return _mm256_castsi256_ps(_mm256_max_epu32(_mm256_srli_epi32(top, 1), _mm256_set1_epi32(0x00400000)));
  }
  static V fma(V a, V b, V c) { return _mm256_fmadd_ps(a, b, c); }
  static V load(const float* p) { return _mm256_loadu_ps(p); }
  static float lane_sum(V v) {
    __m128 q = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    q = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
  }
};

}  // namespace

extern const Kernels kernels_avx2;
const Kernels kernels_avx2{Avx2::kChunk, Avx2::kChunk * 4, rows<Tile<Avx2>>, activate<Avx2>,
                           Avx2::pack,   unpack<Avx2>,     unpack_row<Avx2>, gemm_rows<Avx2>};

}  // namespace mxk::cpu
