// SPDX-License-Identifier: Apache-2.0
//
// What the two AVX-512 files share: bringing the codes of a row into registers so that scales are cheap.
//
// A load of 64 bytes holds four groups of 32 weights, so applied per load the scale would cost one multiply-add for
// four dot products. Instead four loads (a span of 16 groups, 512 weights) are transposed, so that each 32-bit lane
// holds one whole group over all the products of the span, and one multiply-add with 16 scales follows. The transpose
// need not keep an order inside a group, because the packed activations can follow any: two rounds of two-source
// moves put group 4L + b of load L into lane 4b + L, as its 32-bit words L, L-1, L-2, L-3 (mod 4) for Q = 0..3.
// What is left of a row after whole spans goes load by load, lane i holding group i / 4.
//
// A 32-bit lane has eight nibbles; plane j of it is nibble j of its lower and of its upper half. vpermw looks up 32
// bf16 at once by the low five bits of each half; its table holds the sixteen codes twice, so that the fifth bit does
// not matter and nothing is masked, widened or unpacked.
//
// An Arith type gives load(x, at), one plane of activations, and mac(sum, codes, plane).
#pragma once

#include <immintrin.h>

#include "cpu/kernels-inl.h"

namespace mxk::cpu {
namespace {

constexpr int kSpan = 512;
constexpr int kPlane = 32;  // activations of one plane

// A block of activations into its planes: calls put(plane, lane, activation of the lower half, of the upper half). Word
// w of a group holds activations 8w to 8w + 7, of which plane j takes 8w + j and 8w + 4 + j.
template <class Put>
inline void place_block(const uint16_t* values, int64_t at, int64_t n, Put&& put) {
  const int64_t span = at / kSpan * kSpan;
  const bool whole = span + kSpan <= n;  // else what is left of the row, load by load
  const int load = static_cast<int>(at % kSpan / 128), group = static_cast<int>(at % 128 / 32);
  for (int w = 0; w < 4; ++w) {
    const int64_t plane = whole ? span / kPlane + ((load - w) & 3) * 4 : at / 128 * 4;
    const int lane = 4 * group + (whole ? load : w);
    for (int j = 0; j < 4; ++j) put(plane + j, lane, values[8 * w + j], values[8 * w + 4 + j]);
  }
}

// Where place_block() puts activation i.
struct Place {
  int plane, lane, half;
};
inline Place place_of(int i, int n) {
  const int span = i / kSpan * kSpan, group = i % 128 / 32, word = i % 32 / 8, half = i % 8 / 4;
  if (span + kSpan > n) return {i / 128 * 4 + i % 4, 4 * group + word, half};
  const int load = i % kSpan / 128;
  return {span / kPlane + ((load - word) & 3) * 4 + i % 4, 4 * group + load, half};
}

inline __m512i code_table() {
  return _mm512_broadcast_i64x4(_mm256_setr_epi16(0x0000, 0x3F00, 0x3F80, 0x3FC0, 0x4000, 0x4040, 0x4080, 0x40C0,
                                                  short(0x8000), short(0xBF00), short(0xBF80), short(0xBFC0),
                                                  short(0xC000), short(0xC040), short(0xC080), short(0xC0C0)));
}
template <int j>
inline __m512i plane(__m512i v, __m512i table) {
  return _mm512_permutexvar_epi16(j == 0 ? v : _mm512_srli_epi16(v, 4 * j), table);
}

inline void transpose(__m512i v0, __m512i v1, __m512i v2, __m512i v3, __m512i* v) {
  const __mmask16 odd = 0xAAAA, high = 0xCCCC;
  const __m512i v01 = _mm512_mask_blend_epi32(odd, v0, v1), v10 = _mm512_mask_blend_epi32(odd, v1, v0);
  const __m512i v23 = _mm512_mask_blend_epi32(odd, v2, v3), v32 = _mm512_mask_blend_epi32(odd, v3, v2);
  // Blend the two halves of each 128 bits and rotate by Q lanes, in one step: index 16 + i is lane i of the second.
  const __m512i by1 = _mm512_setr_epi32(3, 0, 17, 18, 7, 4, 21, 22, 11, 8, 25, 26, 15, 12, 29, 30);
  const __m512i by2 = _mm512_setr_epi32(18, 19, 0, 1, 22, 23, 4, 5, 26, 27, 8, 9, 30, 31, 12, 13);
  const __m512i by3 = _mm512_setr_epi32(1, 2, 19, 16, 5, 6, 23, 20, 9, 10, 27, 24, 13, 14, 31, 28);
  v[0] = _mm512_mask_blend_epi32(high, v01, v23);
  v[1] = _mm512_permutex2var_epi32(v10, by1, v32);
  v[2] = _mm512_permutex2var_epi32(v23, by2, v01);
  v[3] = _mm512_permutex2var_epi32(v10, by3, v32);
}

inline void transpose_span(const uint8_t* p, __m512i* v) {
  transpose(_mm512_loadu_si512(p), _mm512_loadu_si512(p + 64), _mm512_loadu_si512(p + 128), _mm512_loadu_si512(p + 192),
            v);
}

// E8M0 bytes in the top byte of each lane to fp32, exact for 0x00..0xFE, infinity for 0xFF. 0x00 has no exponent bits
// and the maximum puts the subnormal 2^-127 there.
inline __m512 to_scales(__m512i bytes_on_top) {
  return _mm512_castsi512_ps(_mm512_max_epu32(_mm512_srli_epi32(bytes_on_top, 1), _mm512_set1_epi32(0x00400000)));
}
inline __m512 span_scales(__m128i bytes) {
  const __m512i order = _mm512_set_epi32(  // lane 4b + L: byte 4L + b on top, zeros below
      0x0F808080, 0x0B808080, 0x07808080, 0x03808080, 0x0E808080, 0x0A808080, 0x06808080, 0x02808080, 0x0D808080,
      0x09808080, 0x05808080, 0x01808080, 0x0C808080, 0x08808080, 0x04808080, 0x00808080);
  return to_scales(_mm512_shuffle_epi8(_mm512_broadcast_i32x4(bytes), order));
}
inline __m512 load_scales(const uint8_t* s, int groups) {
  const __m512i order = _mm512_set_epi32(  // lane i: byte i / 4 on top
      0x03808080, 0x03808080, 0x03808080, 0x03808080, 0x02808080, 0x02808080, 0x02808080, 0x02808080, 0x01808080,
      0x01808080, 0x01808080, 0x01808080, 0x00808080, 0x00808080, 0x00808080, 0x00808080);
  const __m128i bytes = _mm_maskz_loadu_epi8(static_cast<__mmask16>((1 << groups) - 1), s);
  return to_scales(_mm512_shuffle_epi8(_mm512_broadcast_i32x4(bytes), order));
}

inline float lane_sum_512(__m512 v) {
  const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  __m128 q = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  q = _mm_add_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}
inline void store_two_sums(__m512 a, __m512 b, float* out) {
  const __m512 ab = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
  const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(ab), _mm512_extractf32x8_ps(ab, 1));
  __m128 q = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  q = _mm_add_ps(q, _mm_movehl_ps(q, q));
  _mm_storel_pi(reinterpret_cast<__m64*>(out), q);
}

// Two rows times kTokens tokens.
template <class Arith, int kTokens>
inline void dot_rows_512(const Stream* rows, int n, const void* const* x, float* out, int64_t out_stride) {
  constexpr int kRows = 2;
  const __m512i table = code_table();
  __m512 sum[kRows][kTokens] = {};
  int i = 0;
  for (; i + kSpan <= n; i += kSpan) {
    __m512i v[kRows][4];
    for (int r = 0; r < kRows; ++r) {
      prefetch_lines<4>(rows[r], i / 2);
      transpose_span(rows[r].w + i / 2, v[r]);
    }
    __m512 part[kRows][kTokens][2] = {};  // two chains: one would be bound by the latency of the product
    const auto step = [&]<int j>(int q) {
      __m512i codes[kRows];
      for (int r = 0; r < kRows; ++r) codes[r] = plane<j>(v[r][q], table);
      for (int t = 0; t < kTokens; ++t) {
        const auto pair = Arith::load(x[t], i + (q * 4 + j) * kPlane);
        for (int r = 0; r < kRows; ++r) part[r][t][j % 2] = Arith::mac(part[r][t][j % 2], codes[r], pair);
      }
    };
    for (int q = 0; q < 4; ++q) {
      step.template operator()<0>(q);
      step.template operator()<1>(q);
      step.template operator()<2>(q);
      step.template operator()<3>(q);
    }
    for (int r = 0; r < kRows; ++r) {
      const __m512 scale = span_scales(_mm_loadu_si128(reinterpret_cast<const __m128i*>(rows[r].s + i / 32)));
      for (int t = 0; t < kTokens; ++t)
        sum[r][t] = _mm512_fmadd_ps(scale, _mm512_add_ps(part[r][t][0], part[r][t][1]), sum[r][t]);
    }
  }
  for (; i < n; i += 128) {
    const int groups = n - i >= 128 ? 4 : (n - i) / 32;
    for (int r = 0; r < kRows; ++r) {
      prefetch_lines<1>(rows[r], i / 2);
      const __m512i v = _mm512_maskz_loadu_epi32(static_cast<__mmask16>((1 << 4 * groups) - 1), rows[r].w + i / 2);
      const __m512i codes[4] = {plane<0>(v, table), plane<1>(v, table), plane<2>(v, table), plane<3>(v, table)};
      const __m512 scale = load_scales(rows[r].s + i / 32, groups);
      for (int t = 0; t < kTokens; ++t) {
        __m512 part = _mm512_setzero_ps();
        for (int j = 0; j < 4; ++j) part = Arith::mac(part, codes[j], Arith::load(x[t], i + j * kPlane));
        sum[r][t] = _mm512_fmadd_ps(scale, part, sum[r][t]);
      }
    }
  }
  for (int t = 0; t < kTokens; ++t) store_two_sums(sum[0][t], sum[1][t], out + t * out_stride);
}

}  // namespace
}  // namespace mxk::cpu
