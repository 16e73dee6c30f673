// SPDX-License-Identifier: Apache-2.0
//
// The contract between the two-stage driver (driver.cc) and the kernels of one instruction set. Files that include this
// are compiled with flags of their own, so it pulls in no inline function of the standard library: the linker could
// pick their copy for code that must run on any CPU.
#pragma once

#include <stddef.h>
#include <stdint.h>

namespace mxk::cpu {

inline constexpr int kTileRows = 4;    // weight rows read side by side
inline constexpr int kMaxTokens = 32;  // tokens handed to one call of rows()
inline constexpr int kBlock = 32;      // activations handed to one call of activate() or pack()

// Rows of one expert's matrix that one thread walks: four streams side by side, `tiles` steps. The prefetch runs ahead
// of the loads by whole tiles and crosses over to the next matrix, so that the memory system never idles at an end.
struct RowStreams {
  const uint8_t* w[kTileRows];       // packed codes of the first tile, one row each; any alignment
  const uint8_t* s[kTileRows];       // scales of those rows
  int64_t w_step, s_step;            // bytes to the same stream's row in the next tile
  int tiles;                         // tiles to compute now
  int tiles_left;                    // tiles until the walk ends, these included
  const uint8_t* next_w[kTileRows];  // where the walk goes on; prefetched with the same steps
  const uint8_t* next_s[kTileRows];
  bool prefetch_to_l2;  // see cpu::Features
};

struct Kernels {
  int chunk;        // a packed row of activations is padded with zeros to a multiple of this,
  int chunk_bytes;  // and so many activations take these bytes

  // out[t * out_stride + 4 * tile + row] = row . x[t] for all tiles, rows and tokens t in [0, tokens), tokens <=
  // kMaxTokens. n: row length, a multiple of 32. x[t]: packed row of n activations. The value depends only on the row
  // and x[t], never on `tokens` or on what else is computed.
  void (*rows)(const RowStreams&, int n, int tokens, const void* const* x, float* out, int64_t out_stride);

  // h[i] = act(g, u) in fp32, rounded to bf16, written as elements [at, at + 32) of a packed row of n. gu holds g and u
  // of one h in turn; bias likewise, or null.
  void (*activate)(const float* gu, const float* bias, float limit, float alpha, float shift, void* packed, int64_t at,
                   int64_t n);

  // 32 bf16 values as elements [at, at + 32) of a packed row of n; at may run on to the end of the padding.
  void (*pack)(const uint16_t* values, void* packed, int64_t at, int64_t n);

  // The inverse of pack.
  void (*unpack)(const void* packed, uint16_t* values, int64_t at, int64_t n);

  // The two inner loops of the `stock` baseline: a weight row to bf16 in memory, and bf16 rows times bf16 tokens.
  void (*unpack_row)(const uint8_t* w, const uint8_t* s, int n, uint16_t* out);
  void (*gemm_rows)(const uint16_t* w, int64_t rows, int n, int tokens, const uint16_t* const* x, float* out,
                    int64_t out_stride);
};

}  // namespace mxk::cpu
