// SPDX-License-Identifier: Apache-2.0
//
// AVX-512 with BF16 dot products: bf16 weights and activations, fp32 sums.
//
// Per 128 weights of a row (64 bytes), in instructions, and the cycles one takes of a Zen 4 core by itself (measured).
// Zen 4 splits a 512-bit instruction into two halves for its four vector pipes; the dot product takes four.
//   vmovdqu64            1   load
//   vpblendmd        1 1/4   the span transpose of avx512-inl.h                                              1/2
//   vpermt2d           3/4                                                                                     1
//   vpsrlw               3   brings nibble j of each word to the bottom                                        1
//   vpermw               4   code to bf16                                                                      1
//   vdpbf16ps            4   per token: the products                                                           1
//   vfmadd231ps        1/4   per token: the scales                                                             1
// 4 vpermw + 4 vdpbf16ps + 3 vpsrlw overlap to 7.6 cycles. The whole loop takes 11, 14, 18 and 23 cycles for one to
// four tokens, weights in cache. vpmulhuw in place of the shifts is slower here: it shares pipes with the dot product.
#include "cpu/avx512-inl.h"

namespace mxk::cpu {
namespace {

struct Bf16 {
  using V = float __attribute__((vector_size(64)));
  using Bits = uint16_t;
  static constexpr int kRows = 2, kChunk = 128;

  static void pack(const uint16_t* values, void* packed, int64_t at, int64_t n) {
    uint32_t* row = static_cast<uint32_t*>(packed);
    place_block(values, at, n, [row](int64_t plane, int lane, uint32_t lower, uint32_t upper) {
      row[plane * 16 + lane] = lower | upper << 16;
    });
  }

  static float activation(const void* packed, int i, int n) {
    const Place p = place_of(i, n);
    const uint32_t u = uint32_t{static_cast<const uint16_t*>(packed)[p.plane * kPlane + 2 * p.lane + p.half]} << 16;
    float f;
    __builtin_memcpy(&f, &u, sizeof f);
    return f;
  }

  static __m512i load(const void* x, int64_t at) { return _mm512_loadu_si512(static_cast<const uint16_t*>(x) + at); }
  static __m512 mac(__m512 sum, __m512i codes, __m512i x) {
    return _mm512_dpbf16_ps(sum, (__m512bh)codes, (__m512bh)x);
  }

  template <int kTokens>
  static void run(const Stream* rows, int n, const void* const* x, float* out, int64_t out_stride) {
    dot_rows_512<Bf16, kTokens>(rows, n, x, out, out_stride);
  }
};

// Stock baseline: bf16 rows times bf16 tokens, both in their natural order.
template <int kTokens>
void stock_row(const uint16_t* w, int n, const uint16_t* const* x, float* out, int64_t out_stride) {
  __m512 sum[kTokens] = {};
  for (int i = 0; i < n; i += 32) {
    const __m512i wi = _mm512_loadu_si512(w + i);
    for (int t = 0; t < kTokens; ++t) sum[t] = Bf16::mac(sum[t], wi, Bf16::load(x[t], i));
  }
  for (int t = 0; t < kTokens; ++t) out[t * out_stride] = lane_sum_512(sum[t]);
}

void stock_rows(const uint16_t* w, int64_t rows, int n, int tokens, const uint16_t* const* x, float* out,
                int64_t out_stride) {
  using Row = void (*)(const uint16_t*, int, const uint16_t* const*, float*, int64_t);
  static constexpr Row kRow[] = {stock_row<1>, stock_row<2>, stock_row<3>, stock_row<4>};
  for (int64_t row = 0; row < rows; ++row, w += n)
    for (int t = 0; t < tokens;) {
      const int pass = pass_size(tokens - t, 4);
      kRow[pass - 1](w, n, x + t, out + t * out_stride + row, out_stride);
      t += pass;
    }
}

}  // namespace

extern const Kernels kernels_avx512bf16;
const Kernels kernels_avx512bf16{128,        128 * 2,      rows<Bf16>,       activate<Bf16>,
                                 Bf16::pack, unpack<Bf16>, unpack_row<Bf16>, stock_rows};

}  // namespace mxk::cpu
