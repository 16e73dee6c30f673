/* SPDX-License-Identifier: Apache-2.0
 *
 * The first thing to run on a card: every step of the kernels whose meaning the public sources leave open, alone, with
 * its raw result stored for the host to compare (selfcheck.h says what each row has to be). If a row differs, the
 * kernels are wrong on that machine, and the row says where.
 *
 * Tensors: codes u8 [256, 1], all byte values in order; numbers f32 [64, 1], 0, 1, 2, ...; out f32 [64, SELFCHECK_ROWS]; tables u8 [256, TABLE_ROWS].
 */
#define LOCAL_VECTORS 8
#include "common.h"
#include "unpack.h"
#include "tree.h"
#include "act.h"

LOCAL_MEMORY

#define PUT(v)                                \
  {                                           \
    v_f32_st_tnsr(at2(0, row), out, v);       \
    row++;                                    \
  }
#define PUT_PAIR(v)                           \
  {                                           \
    const float128 pair_ = v;                 \
    PUT(pair_.v1) PUT(pair_.v2)               \
  }
#define PUT_BF16(v) PUT_PAIR(v_convert_bf16_to_f32_all_b(v))

void main(tensor codes_in, tensor numbers, tensor out, tensor tables) {
  BEGIN_KERNEL;
  int5 table_at = {0};
  int row = 0;
  const uchar256 bytes = v_u8_ld_tnsr_b(at2(0, 0), codes_in);
  const uchar256 codes = TABLE(TABLE_CODES);

  /* 0-15: all bytes through both unpacks. */
  bfloat256 low, high;
  UNPACK_BITS(bytes, low, high)
  PUT_BF16(low.v1) PUT_BF16(high.v1) PUT_BF16(low.v2) PUT_BF16(high.v2)
  UNPACK_CODES(bytes, low, high)
  PUT_BF16(low.v1) PUT_BF16(high.v1) PUT_BF16(low.v2) PUT_BF16(high.v2)

  /* 16-31: all bytes as scales, 16 at a time, as CHUNK_ROW makes them. */
  const uchar256 even_chunk = TABLE(TABLE_SCALE), odd_chunk = TABLE(TABLE_SCALE + 1);
  float64 scale = v_f32_mov_b(0.0f);
  for (int part = 0; part < 2; part++) {
    const ushort128 bits = SCALE_BITS(LOAD_SCALES(at2(128 * part, 0), codes_in));
#define SCALES(q)                                                     \
  {                                                                   \
    const ushort128 spread = SPREAD(bits, q, bits);                   \
    scale = SCALE(spread, even_chunk, scale);                         \
    PUT(scale)                                                        \
    scale = SCALE(spread, odd_chunk, scale);                          \
    PUT(scale)                                                        \
  }
    SCALES(0) SCALES(1) SCALES(2) SCALES(3)
  }

  /* 32-37: lanes 0, 1, 2, ... combined with 100, 101, ... at each distance. */
  const float64 lane = v_convert_i32_to_f32_b((int64)read_lane_id_4b_b(), SW_RHNE);
  const float64 other = v_f32_add_b(lane, 100.0f);
  PUT(combine_8(lane, other))
  PUT(combine_16(lane, other))
  PUT(combine_32(lane, other))
  float64 combined;
  COMBINE_IN_GROUP(combined, 0, lane, other)
  PUT(combined)
  COMBINE_IN_GROUP(combined, 1, lane, other)
  PUT(combined)
  COMBINE_IN_GROUP(combined, 2, lane, other)
  PUT(combined)

  /* 38-41: which lanes of a bf16 product go to which half; the X2 forms. */
  const float128 pair = {lane, other};
  const bfloat128 halves = v_convert_f32_to_bf16_all_b(pair, SW_RHNE);
  const float128 product = v_bf16_mul_acc32_b(halves, halves);
  PUT_PAIR(v_bf16_mac_acc32_b(halves, halves, product, 0))
  PUT_PAIR(v_f32_mac_x2_b(pair, lane, other, product, 0))

  /* 42-45: conversion to bf16 rounds ties to even: 1 + lane / 256, and back; the sum of pairs. */
  const float64 ties = v_f32_mac_b(lane, 1.0f / 256, v_f32_mov_b(1.0f), 0);
  const float128 tie_pair = {ties, ties};
  PUT_BF16(v_convert_f32_to_bf16_all_b(tie_pair, SW_RHNE))
  PUT_PAIR(v_f32_add_x2_b(pair, lane, other))

  /* 46-48: e^(lane - 32.25), 1 / (1 + lane), the gate of lane / 4 - 8. */
  PUT(exp_f32(v_f32_add_b(lane, -32.25f)))
  PUT(reciprocal_f32(v_f32_add_b(lane, 1.0f)))
  PUT(gated(v_f32_mac_b(lane, 0.25f, v_f32_mov_b(-8.0f), 0), lane, 7.0f, 1.702f, 1.0f))

  /* 49: a load beyond dimension 0 gives zeros there; here in the upper half of the vector. */
  PUT((float64)v_u8_ld_tnsr_b(at2(128, 0), codes_in))
  /* 50: products that are too small for a normal number become zero, and so do small operands. */
  PUT(v_f32_mul_b(v_f32_mul_b(lane, 0x1p-126f), 0.25f))
  /* 51: local memory gives back what was stored. */
  PUT_VECTOR(LOCAL_VECTORS - 1, other);
  PUT(GET_VECTOR(LOCAL_VECTORS - 1))
  /* 52: groups swapped. */
  PUT(v_f32_mov_group_b(lane, ALL_BYTES, SW_GROUP0_EN | SW_GROUP1_EN | ALL_DUAL_GROUPS, lane))
  /* 53: a partial load: numbers 8 .. 15 in lanes 24 .. 31. */
  PUT(v_f32_ld_tnsr_partial_b(at2(8, 0), numbers, 7, 24, 0, lane))
  /* 54: partial stores of the same size at offsets 0 and 32. */
  v_f32_st_tnsr_partial(at2(0, row), out, lane, 31, 0);
  v_f32_st_tnsr_partial(at2(32, row), out, lane, 31, 32);
  row++;
  /* 55: scalar local memory. */
  PUT_SCALAR(SCALAR_WORDS - 1, row);
  PUT(v_f32_mov_b((float)GET_SCALAR(SCALAR_WORDS - 1)))
}
