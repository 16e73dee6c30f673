// SPDX-License-Identifier: Apache-2.0
//
// Portable kernels: any CPU, the compiler's 16-byte vectors (SSE2, NEON, ...), no intrinsics.
//
// Per 32 weights (16 bytes): 16 table loads of two fp32 each, 8 multiplies and adds, one scale.
// A byte indexes a table of its two weights, which no shuffle instruction is needed for; 2 KB of L1.
#include "cpu/kernels-inl.h"

namespace mxk::cpu {
namespace {

struct PairTable {
  float pair[256][2];
};
constexpr PairTable make_table() {
  constexpr float magnitude[8] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
  PairTable t{};
  for (int b = 0; b < 256; ++b)
    for (int half = 0; half < 2; ++half) {
      const int code = b >> (4 * half) & 15;
      t.pair[b][half] = code & 8 ? -magnitude[code & 7] : magnitude[code & 7];
    }
  return t;
}
alignas(64) constexpr PairTable kPairs = make_table();

struct Generic : PackedF32<Generic> {
  using V = float __attribute__((vector_size(16)));
  static constexpr int kLanes = 4, kPlanes = 8, kChunk = 32, kRows = 1;

  static constexpr int64_t place(int64_t i) { return i; }
  static void decode(const uint8_t* p, int, V* w) {
    float wide[32];
    for (int i = 0; i < 16; ++i) __builtin_memcpy(wide + 2 * i, kPairs.pair[p[i]], 8);
    __builtin_memcpy(w, wide, sizeof wide);
  }
  static V lane_scales(const uint8_t* s, int) { return V{} + e8m0(*s); }
  static V fma(V a, V b, V c) { return a * b + c; }  // two roundings: not every CPU has a fused one
  static V load(const float* p) {
    V v;
    __builtin_memcpy(&v, p, sizeof v);
    return v;
  }
  static float lane_sum(V v) { return (v[0] + v[2]) + (v[1] + v[3]); }
};

}  // namespace

extern const Kernels kernels_generic;
const Kernels kernels_generic{Generic::kChunk, Generic::kChunk * 4, rows<Tile<Generic>>, activate<Generic>,
                              Generic::pack,   unpack<Generic>,     unpack_row<Generic>, gemm_rows<Generic>};

}  // namespace mxk::cpu
