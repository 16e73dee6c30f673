// SPDX-License-Identifier: Apache-2.0
//
// A direction of a byte SHUFFLE: bits 0-4 the byte inside of a group of 32, bit 5 the group inside of the dual group of
// 64, bit 7 "move"; without it the byte keeps its income. Below, a byte is written by its place in the dual group.
#include "tpc/tables.h"

#include <cstring>

#include "core/formats.h"

namespace mxk::tpc {
namespace {

enum {  // as in common.h
  kScale = 0,
  kUp = 2,
  kDown = 5,
  kSortR2 = 8,
  kSortR4 = 10,
  kPack = 26,
  kLinearBf16 = 27,
  kLinearF32 = 31,
  kCodes = 35,
  kWeave = 36,
  kNibble = 38,
  kScaleBf16 = 39
};
static_assert(kScaleBf16 + 8 == kTableRows);

struct Row {
  uint8_t* bytes;
  // Element `to` of `size` bytes of dual group `dual` comes from element `from` of its source's dual group.
  void move(int size, int dual, int to, int from) const {
    for (int b = 0; b < size; ++b) bytes[64 * dual + size * to + b] = static_cast<uint8_t>(0x80 | (size * from + b));
  }
};

}  // namespace

void fill_tables(uint8_t* out) {
  std::memset(out, 0, kTableRows * 256);
  const auto row = [out](int n) { return Row{out + n * 256}; };

  // Lane 16 d + u of 32 bits: its upper half is the scale of block 4 d + u / 4 of the chunk.
  for (int odd = 0; odd < 2; ++odd)
    for (int lane = 0; lane < 64; ++lane)
      row(kScale + odd).move(2, lane / 16, 2 * (lane % 16) + 1, 16 * odd + lane / 4);

  for (int level = 0; level < 3; ++level)
    for (int lane = 0; lane < 64; ++lane) {
      const int d = 1 << level, l = lane % 16;
      if (lane & d)
        row(kUp + level).move(4, lane / 16, l, l - d);
      else
        row(kDown + level).move(4, lane / 16, l, l + d);
    }

  // Lanes of tile.h, by dual group = pair p and lane 8 g + j of it.
  for (int p = 0; p < 4; ++p)
    for (int g = 0; g < 2; ++g)
      for (int j = 0; j < 8; ++j) {
        const int lane = 8 * g + j;
        row(kSortR2 + j / 4).move(4, p, lane, 8 * g + 2 * (j % 4) + p / 2);
        for (int q0 = 0; q0 < 2; ++q0) row(kSortR4 + j / 2 * 4 + 2 * g + q0).move(4, p, lane, 8 * q0 + 4 * (j % 2) + p);
        // Converted to bf16, lane l of 32 bits holds its number twice.
        if (g == 0) row(kPack).move(2, p, j, 2 * j);
        const int order = 8 * j + 2 * p + g;  // the row inside of the tile
        for (int copy = 0; copy < 2; ++copy) row(kLinearBf16 + p).move(2, 2 * copy + order / 32, order % 32, 2 * lane);
        row(kLinearF32 + p).move(4, order / 16, order % 16, lane);
      }

  static constexpr int8_t kTwice[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  for (int dual = 0; dual < 4; ++dual) std::memcpy(row(kCodes).bytes + 64 * dual, kTwice, 16);

  // Weights 32 d .. 32 d + 31 of a quarter of a chunk, two to a byte of its 64.
  for (int d = 0; d < 4; ++d)
    for (int l = 0; l < 32; ++l)
      for (int odd = 0; odd < 2; ++odd) {
        row(kWeave + odd).move(1, d, 2 * l + odd, 16 * d + l / 2);
        row(kNibble).bytes[64 * d + 2 * l + odd] = l % 2 ? 0 : 4;
        for (int quarter = 0; quarter < 4; ++quarter)
          row(kScaleBf16 + 4 * odd + quarter).move(2, d, l, 16 * odd + 4 * quarter + d);
      }
}

void fill_lut(uint16_t* out) {
  for (int byte = 0; byte < 256; ++byte) {
    out[2 * byte] = f32_to_bf16(kE2M1[byte & 15]);
    out[2 * byte + 1] = f32_to_bf16(kE2M1[byte >> 4]);
  }
}

}  // namespace mxk::tpc
