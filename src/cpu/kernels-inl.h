// SPDX-License-Identifier: Apache-2.0
//
// The kernels of one instruction set, built from what its file provides. Included once per ISA file; everything is in
// an unnamed namespace. An `Isa` type gives:
//   V                       vector of fp32, `vector_size` extension; kLanes lanes
//   kChunk, kPlanes         weights decoded per step, as kPlanes vectors: kChunk == kPlanes * kLanes
//   kRows                   rows decoded together
//   pack(values, packed, at, n), activation(packed, i, n), Bits: Kernels::pack, its inverse, and the type of a packed
//                           activation's bits; PackedF32 gives them to those that define
//   place(i)                where activation i goes in a packed row, so that it meets weight i
//   decode(p, groups, w)    the codes of one row's chunk as fp32; groups < kChunk/32 only at the end of a row
//   lane_scales(s, groups)  V whose lane holds the scale of the group that lane belongs to, exact for 0x00..0xFE,
//                           infinity for 0xFF
//   fma(a, b, c), load(p), lane_sum(v)
#pragma once

#include "cpu/cpu.h"

#pragma GCC diagnostic ignored "-Wpsabi"  // vector types only pass between functions of this file
#if !defined(__clang__)  // g++ 12 sees its own intrinsics headers use uninitialised values (GCC bug 105593)
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

namespace mxk::cpu {
namespace {

// Vectors with as many lanes as V: 32-bit integers, and bytes. Spelled out, since g++ takes no vector_size that depends
// on a template parameter.
template <class V>
struct Ints;
template <>
struct Ints<float __attribute__((vector_size(16)))> {
  using type = int32_t __attribute__((vector_size(16)));
  using bytes = uint8_t __attribute__((vector_size(4)));
};
template <>
struct Ints<float __attribute__((vector_size(32)))> {
  using type = int32_t __attribute__((vector_size(32)));
  using bytes = uint8_t __attribute__((vector_size(8)));
};
template <>
struct Ints<float __attribute__((vector_size(64)))> {
  using type = int32_t __attribute__((vector_size(64)));
  using bytes = uint8_t __attribute__((vector_size(16)));
};

// One scale, 0x00..0xFE (0xFF gives infinity): as e8m0() of core/formats.h, which this file must not include (see
// cpu.h).
inline float e8m0(uint8_t e) {
  const uint32_t u = e == 0 ? 0x00400000u : uint32_t{e} << 23;
  float f;
  __builtin_memcpy(&f, &u, 4);
  return f;
}

// ---- rows(): packed weights times packed activations ----------------------------------------------------------------

// One row of a tile: codes, scales, and how far ahead of the codes to prefetch (0: the lines were asked for already).
struct Stream {
  const uint8_t* w;
  const uint8_t* s;
  int64_t ahead;
  bool to_l2;
};

template <int kLines>
inline void prefetch_lines(const Stream& row, int64_t at) {
  if (row.ahead == 0) return;
  const uint8_t* p = row.w + row.ahead + at;
  for (int line = 0; line < kLines; ++line) {
    if (row.to_l2)
      __builtin_prefetch(p + 64 * line, 0, 2);
    else
      __builtin_prefetch(p + 64 * line, 0, 3);
  }
}

// kRows rows times kTokens tokens. The codes of a chunk are summed in fp32 and then scaled, so every E8M0 byte is
// exact.
template <class Isa, int kRows, int kTokens>
inline void dot_rows(const Stream* rows, int n, const void* const* x, float* out, int64_t out_stride) {
  using V = typename Isa::V;
  constexpr int kGroups = Isa::kChunk / 32, kBytes = Isa::kChunk / 2;
  V sum[kRows][kTokens] = {};
  for (int c = 0; c * Isa::kChunk < n; ++c) {
    const int left = n / 32 - c * kGroups, groups = left < kGroups ? left : kGroups;
    V code[kRows][Isa::kPlanes], scale[kRows];
    for (int r = 0; r < kRows; ++r) {
      prefetch_lines<1>(rows[r], c * kBytes);
      Isa::decode(rows[r].w + c * kBytes, groups, code[r]);
      scale[r] = Isa::lane_scales(rows[r].s + c * kGroups, groups);
    }
    for (int t = 0; t < kTokens; ++t) {
      const float* xt = static_cast<const float*>(x[t]) + c * Isa::kChunk;
      V part[kRows][2] = {};  // two chains: one would be bound by the latency of the multiply-add
      for (int p = 0; p < Isa::kPlanes; ++p) {
        const V xp = Isa::load(xt + p * Isa::kLanes);
        for (int r = 0; r < kRows; ++r) part[r][p % 2] = Isa::fma(code[r][p], xp, part[r][p % 2]);
      }
      for (int r = 0; r < kRows; ++r) sum[r][t] = Isa::fma(scale[r], part[r][0] + part[r][1], sum[r][t]);
    }
  }
  for (int t = 0; t < kTokens; ++t)
    for (int r = 0; r < kRows; ++r) out[t * out_stride + r] = Isa::lane_sum(sum[r][t]);
}

// A register tile of an Isa for 1 to 4 tokens, and activation i of a packed row of n. AVX-512 files have their own.
template <class Isa>
struct Tile : Isa {
  static constexpr int kRows = Isa::kRows;
  template <int kTokens>
  static void run(const Stream* rows, int n, const void* const* x, float* out, int64_t out_stride) {
    dot_rows<Isa, kRows, kTokens>(rows, n, x, out, out_stride);
  }
};

template <class Tile, int kTokens>
void dot_tile(const Stream* rows, int n, const void* const* x, float* out, int64_t out_stride) {
  for (int r = 0; r < kTileRows; r += Tile::kRows) Tile::template run<kTokens>(rows + r, n, x, out + r, out_stride);
}

// Whole tiles nearest to 8 KB: far enough to hide DRAM latency, near enough to stay in L1.
inline int tiles_ahead(int64_t tile_bytes) {
  const int64_t n = (8192 + tile_bytes / 2) / tile_bytes;
  return n < 1 ? 1 : static_cast<int>(n);
}

// Tokens in passes of nearly equal size, so that no pass is left with one token where that can be helped.
inline int pass_size(int tokens, int max) {
  const int passes = (tokens + max - 1) / max;
  return (tokens + passes - 1) / passes;
}

inline bool is_finite(float f) {
  uint32_t u;
  __builtin_memcpy(&u, &f, 4);
  return (u & 0x7F800000u) != 0x7F800000u;
}

// One row without NaN scales times one token in the order of the reference: the codes of a group are summed whole, then
// scaled.
template <class Tile>
inline float exact_row(const Stream& row, int n, const void* x) {
  constexpr float kMagnitude[8] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
  float sum = 0;
  for (int g = 0; g < n / 32; ++g) {
    float part = 0;
    for (int i = 32 * g; i < 32 * (g + 1); ++i) {
      const int code = row.w[i / 2] >> (4 * (i % 2)) & 15;
      part += (code & 8 ? -kMagnitude[code & 7] : kMagnitude[code & 7]) * Tile::activation(x, i, n);
    }
    sum += e8m0(row.s[g]) * part;
  }
  return sum;
}

inline bool has_nan_scale(const uint8_t* s, int groups) {
  for (int g = 0; g < groups; ++g)
    if (s[g] == 255) return true;
  return false;
}

// Which of up to kMaxTokens tokens have only finite activations, found out when first asked.
template <class Tile>
class FiniteTokens {
 public:
  FiniteTokens(const void* const* x, int n) : x_(x), n_(n) {}
  bool operator[](int t) {
    const uint32_t bit = uint32_t{1} << t;
    if (!(known_ & bit)) {
      known_ |= bit;
      using Bits = typename Tile::Bits;  // in whatever order, padding included
      constexpr Bits kExponent = sizeof(Bits) == 2 ? Bits{0x7F80} : static_cast<Bits>(0x7F800000u);
      const Bits* packed = static_cast<const Bits*>(x_[t]);
      bool finite = true;
      for (int i = 0; i < (n_ + Tile::kChunk - 1) / Tile::kChunk * Tile::kChunk; ++i)
        finite &= (packed[i] & kExponent) != kExponent;
      finite_ |= finite ? bit : 0;
    }
    return finite_ & bit;
  }

 private:
  static_assert(kMaxTokens <= 32);
  const void* const* x_;
  int n_;
  uint32_t known_ = 0, finite_ = 0;
};

// Kernels sum a group in several lanes and scale those, which is the same unless a lane overflows and its group does
// not, and they take the NaN scale 0xFF for infinity. Both leave a result that is not finite, so those are looked at
// again. Activations that are not finite explain it by themselves, and must not make a call slow.
template <class Tile>
inline void mend_infinities(const Stream* rows, int n, int tokens, const void* const* x, FiniteTokens<Tile>& finite,
                            float* out, int64_t out_stride) {
  for (int t = 0; t < tokens; ++t)
    for (int r = 0; r < kTileRows; ++r) {
      float& y = out[t * out_stride + r];
      if (is_finite(y)) [[likely]]
        continue;
      const bool nan_already = y != y;
      if (!finite[t] && nan_already) continue;
      if (has_nan_scale(rows[r].s, n / 32))
        y = __builtin_nanf("");
      else if (finite[t])
        y = exact_row<Tile>(rows[r], n, x[t]);
    }
}

template <class Tile>
void rows(const RowStreams& rs, int n, int tokens, const void* const* x, float* out, int64_t out_stride) {
  using Run = void (*)(const Stream*, int, const void* const*, float*, int64_t);
  static constexpr Run kRun[] = {dot_tile<Tile, 1>, dot_tile<Tile, 2>, dot_tile<Tile, 3>, dot_tile<Tile, 4>};
  const int ahead = tiles_ahead(int64_t{kTileRows} * (n / 2));
  FiniteTokens<Tile> finite(x, n);
  for (int tile = 0; tile < rs.tiles; ++tile) {
    Stream row[kTileRows];
    const int there = tile + ahead;  // what is prefetched: a tile of this walk, or of the next
    for (int r = 0; r < kTileRows; ++r) {
      const bool here = there < rs.tiles_left;
      const uint8_t* w = here ? rs.w[r] + there * rs.w_step : rs.next_w[r] + (there - rs.tiles_left) * rs.w_step;
      const uint8_t* s = here ? rs.s[r] + there * rs.s_step : rs.next_s[r] + (there - rs.tiles_left) * rs.s_step;
      row[r] = {rs.w[r] + tile * rs.w_step, rs.s[r] + tile * rs.s_step, 0, rs.prefetch_to_l2};
      row[r].ahead = w - row[r].w;
      for (int i = 0; i < n / 32; i += 64) __builtin_prefetch(s + i, 0, 3);
    }
    for (int t = 0; t < tokens;) {
      const int pass = pass_size(tokens - t, 4);
      kRun[pass - 1](row, n, x + t, out + t * out_stride + tile * kTileRows, out_stride);
      for (int r = 0; r < kTileRows; ++r) row[r].ahead = 0;
      t += pass;
    }
    mend_infinities<Tile>(row, n, tokens, x, finite, out + tile * kTileRows, out_stride);
  }
}

// ---- activate() and pack(): 32 activations into the packed row ----------------------------------------------------

// Packed rows of fp32 whose order has the same shape in every block: place(i) - place(0) for i < 32 is added to
// place(at).
template <class Isa>
struct PackedF32 {
  using Bits = uint32_t;  // of a packed activation
  static void pack(const uint16_t* values, void* packed, int64_t at, int64_t) {
    float* block = static_cast<float*>(packed) + Isa::place(at);
    for (int i = 0; i < kBlock; ++i) {
      const uint32_t u = uint32_t{values[i]} << 16;
      __builtin_memcpy(block + Isa::place(i), &u, 4);
    }
  }
  static float activation(const void* packed, int i, int) { return static_cast<const float*>(packed)[Isa::place(i)]; }
};

// exp(x) to about 1 ulp for results in the normal range; 0 and infinity beyond it, NaN for NaN. 2^n * e^r with r in
// [-ln2/2, ln2/2] and the Taylor polynomial of e^r to r^7; ln2 is split so that n * ln2_hi is exact.
template <class V>
inline V exp(V x) {
  using I = typename Ints<V>::type;
  const V high = V{} + 88.8f, low = V{} - 104.0f,
          magic = V{} + 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  x = x > high ? high : x;
  x = x < low ? low : x;
  const V shifted = x * 1.44269504f + magic;
  const V n = shifted - magic;
  const V r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
  V p = V{} + 1.0f / 5040;
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  // 2^n in two factors, so that both are normal numbers for every n in [-151, 128].
  const I whole = (I)shifted - (I)magic, half = whole >> 1;
  const V first = (V)((half + 127) << 23), second = (V)((whole - half + 127) << 23);
  return p * first * second;
}

// Round to nearest even; NaN stays NaN. The same as f32_to_bf16 of core/formats.h.
template <class V>
inline typename Ints<V>::type bf16_bits(V v) {
  using I = typename Ints<V>::type;
  const I u = (I)v;
  const I rounded = ((u + 0x7FFF + ((u >> 16) & 1)) >> 16) & 0xFFFF;
  return v == v ? rounded : ((u >> 16) | 0x40) & 0xFFFF;
}

template <class Isa>
void activate(const float* gu, const float* bias, float limit, float alpha, float shift, void* packed, int64_t at,
              int64_t n) {
  using V = typename Isa::V;
  constexpr int kLanes = sizeof(V) / sizeof(float);
  float g[kBlock], u[kBlock];
  for (int i = 0; i < kBlock; ++i) {
    g[i] = gu[2 * i] + (bias ? bias[2 * i] : 0.0f);
    u[i] = gu[2 * i + 1] + (bias ? bias[2 * i + 1] : 0.0f);
  }
  uint16_t h[kBlock];
  const V top = V{} + limit;
  for (int i = 0; i < kBlock; i += kLanes) {
    V gv, uv;
    __builtin_memcpy(&gv, g + i, sizeof gv);
    __builtin_memcpy(&uv, u + i, sizeof uv);
    gv = gv > top ? top : gv;
    uv = uv > top ? top : uv;
    uv = uv < -top ? -top : uv;
    const auto b = bf16_bits<V>(gv / (exp<V>(-alpha * gv) + 1.0f) * (uv + shift));
    for (int j = 0; j < kLanes; ++j) h[i + j] = static_cast<uint16_t>(b[j]);
  }
  Isa::pack(h, packed, at, n);
}

template <class Isa>
void unpack(const void* packed, uint16_t* values, int64_t at, int64_t n) {
  for (int i = 0; i < kBlock; ++i) {
    const float f = Isa::activation(packed, static_cast<int>(at) + i, static_cast<int>(n));
    uint32_t u;
    __builtin_memcpy(&u, &f, sizeof u);
    values[i] = static_cast<uint16_t>(u >> 16);
  }
}

// ---- the inner loops of the stock baseline -------------------------------------------------------------------------

// E2M1 codes to fp32: 0x3F000000 + (m << 22) has the exponent and mantissa of every magnitude m but 0 and 1/2.
template <class V, class I>
inline V codes_to_f32(I code) {
  const I m = code & 7, sign = (code & 8) << 28;
  I bits = m >= 2 ? 0x3F000000 + (m << 22) : I{} + 0x3F000000;
  bits = m == 0 ? I{} : bits;
  return (V)(bits | sign);
}

// The product of a code and a power of two always fits bf16, so the lower half of its fp32 is zero. A packed byte in a
// 32-bit lane becomes its two weights, in order.
template <class Isa>
void unpack_row(const uint8_t* w, const uint8_t* s, int n, uint16_t* out) {
  using V = typename Isa::V;
  using I = typename Ints<V>::type;
  constexpr int kLanes = sizeof(V) / 4;
  for (int i = 0; i < n; i += 2 * kLanes) {
    const uint8_t e = s[i / 32];
    const V scale = V{} + (e == 255 ? __builtin_nanf("") : e8m0(e));
    typename Ints<V>::bytes bytes;
    __builtin_memcpy(&bytes, w + i / 2, sizeof bytes);
    const I b = __builtin_convertvector(bytes, I);
    const I even = (I)(codes_to_f32<V>(I(b & 15)) * scale), odd = (I)(codes_to_f32<V>(I(b >> 4)) * scale);
    const I pair = (even >> 16 & 0xFFFF) | (odd & static_cast<int32_t>(0xFFFF0000u));
    __builtin_memcpy(out + i, &pair, sizeof pair);
  }
}

// bf16 rows times bf16 tokens with fp32 sums. A pair of bf16 in a 32-bit lane is two fp32: shifted up, and masked.
template <class Isa, int kTokens>
inline void gemm_row(const uint16_t* w, int n, const uint16_t* const* x, float* out, int64_t out_stride) {
  using V = typename Isa::V;
  using I = typename Ints<V>::type;
  constexpr int kStep = 2 * sizeof(V) / sizeof(float);
  const auto pairs = [](const uint16_t* p, V* even, V* odd) {
    I u;
    __builtin_memcpy(&u, p, sizeof u);
    *even = (V)(u << 16);
    *odd = (V)(u & static_cast<int32_t>(0xFFFF0000u));
  };
  V sum[kTokens] = {};
  for (int i = 0; i < n; i += kStep) {  // n is a multiple of 32, kStep divides it
    V we, wo, xe, xo;
    pairs(w + i, &we, &wo);
    for (int t = 0; t < kTokens; ++t) {
      pairs(x[t] + i, &xe, &xo);
      sum[t] = Isa::fma(we, xe, sum[t]);
      sum[t] = Isa::fma(wo, xo, sum[t]);
    }
  }
  for (int t = 0; t < kTokens; ++t) out[t * out_stride] = Isa::lane_sum(sum[t]);
}

template <class Isa>
void gemm_rows(const uint16_t* w, int64_t rows, int n, int tokens, const uint16_t* const* x, float* out,
               int64_t out_stride) {
  for (int64_t row = 0; row < rows; ++row, w += n)
    for (int t = 0; t < tokens;) {
      float* o = out + t * out_stride + row;
      switch (pass_size(tokens - t, 4)) {
        case 1:
          gemm_row<Isa, 1>(w, n, x + t, o, out_stride);
          t += 1;
          break;
        case 2:
          gemm_row<Isa, 2>(w, n, x + t, o, out_stride);
          t += 2;
          break;
        case 3:
          gemm_row<Isa, 3>(w, n, x + t, o, out_stride);
          t += 3;
          break;
        default: gemm_row<Isa, 4>(w, n, x + t, o, out_stride); t += 4;
      }
    }
}

}  // namespace
}  // namespace mxk::cpu
