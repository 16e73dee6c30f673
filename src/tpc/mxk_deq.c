/* SPDX-License-Identifier: Apache-2.0
 *
 * Prefill: packed weights to bf16, in order. out[e, n, c] = code * 2^(e8m0 - 127).
 *
 * Tensors, fastest dimension first: w u8 [C/2, N, E], s u8 [C/32, N, E], out bf16 [C, N, E], tables u8 [256, TABLE_ROWS].
 * rows_each, rows_more: as units_each and units_more of w13.h, in rows of all E N.
 *
 * Vector ops per chunk-row (4 vectors stored, about 16 cycles of the store port): 36.
 *   order      8   MOV_DUAL_GROUP, SHUFFLE for each quarter: each weight's byte under the weight's place
 *   unpack     8   SHL, ASH, AND, CONVERT for two quarters
 *   scale     20   2 x SHUFFLE, 2 x MUL for each quarter; 8 for two chunks
 *
 * Codes leave the unpack as w 2^-14, so the factor is 2^(e - 113), beyond bf16 from e = 241 on: it is applied as two.
 * Exact where the result is a normal number; smaller ones become zero, larger ones infinity; e = 255 counts as 2^128.
 */
#define LOCAL_VECTORS 1
#include "common.h"
#include "unpack.h"

LOCAL_MEMORY

/* Every byte is moved: the income is not read. */
#define SHUFFLE(v, direction) v_u8_shuffle_b((uchar256)(v), direction, 0, none)
#define QUARTER(m, packed) v_u8_mov_dual_group_all_b(packed, ALL_BYTES, m, m, m, m, MkWrA(3, 3, 3, 3), none)
#define SCALED(values, direction) \
  v_bf16_mul_b(v_bf16_mul_b(values, (bfloat128)SHUFFLE(most, direction)), (bfloat128)SHUFFLE(rest, direction))
#define STORE(values)               \
  v_bf16_st_tnsr(to, out, values);  \
  to[0] += 128;

/* Two quarters of a chunk: m in the even bytes, m + 1 in the odd. */
#define HALF(packed, m, direction_0, direction_1)                                                          \
  {                                                                                                        \
    const uchar256 even = v_u8_shuffle_b(QUARTER(m, packed), weave_even, 0, none);                         \
    const uchar256 order = v_u8_shuffle_b(QUARTER((m) + 1, packed), weave_odd, 0, even);                   \
    const bfloat256 v = v_convert_h8_to_bf16_all_b(                                                        \
        (minihalf256)v_u32_and_b((uint64)v_i8_ash_b((char256)v_u8_shl_b(order, nibble), -3), 0x8E8E8E8E), 0, \
        none_pair);                                                                                        \
    STORE(SCALED(v.v1, direction_0))                                                                       \
    STORE(SCALED(v.v2, direction_1))                                                                       \
  }

void main(tensor w, tensor s, tensor out, tensor tables, int rows_each, int rows_more) {
  BEGIN_KERNEL;
  int5 table_at = {0};
  UNREAD(uchar256, none)
  UNREAD(bfloat256, none_pair)
  const int chunks = (get_dim_size(out, 0) + 511) >> 9, rows = get_dim_size(out, 1);
  const uchar256 weave_even = TABLE(TABLE_WEAVE);
  const uchar256 weave_odd = TABLE(TABLE_WEAVE + 1);
  const char256 nibble = (char256)TABLE(TABLE_NIBBLE);
  /* Where the scales of the quarters of an even and of an odd chunk stand. */
  const uchar256 e0 = TABLE(TABLE_SCALE_BF16);
  const uchar256 e1 = TABLE(TABLE_SCALE_BF16 + 1);
  const uchar256 e2 = TABLE(TABLE_SCALE_BF16 + 2);
  const uchar256 e3 = TABLE(TABLE_SCALE_BF16 + 3);
  const uchar256 o0 = TABLE(TABLE_SCALE_BF16 + 4);
  const uchar256 o1 = TABLE(TABLE_SCALE_BF16 + 5);
  const uchar256 o2 = TABLE(TABLE_SCALE_BF16 + 6);
  const uchar256 o3 = TABLE(TABLE_SCALE_BF16 + 7);

  const int5 points_begin = get_index_space_offset(), points = get_index_space_size();
  for (int point = points_begin[0]; point < points_begin[0] + points[0]; point++) {
    const int begin = point * rows_each + min_int(point, rows_more);
    const int end = begin + rows_each + (point < rows_more ? 1 : 0);
    int expert = 0, row = begin;
    while (row >= rows) {
      row -= rows;
      expert++;
    }
    int5 from = {0}, scales = {0}, to = {0};
    for (int i = begin; i < end; i++) {
      PLACE(from, 0, row, expert)
      PLACE(scales, 0, row, expert)
      PLACE(to, 0, row, expert)
      uchar256 packed_0 = v_u8_ld_tnsr_b(from, w);
      from[0] += 256;
      uchar256 packed_1 = v_u8_ld_tnsr_b(from, w);
      ushort128 raw = LOAD_SCALES(scales, s);
      /* Two chunks at a time, and the next two under way. Of a chunk that the row does not have nothing is stored. */
      for (int chunk = 0; chunk < chunks; chunk += 2) {
        const ushort128 spread = v_u16_mov_dual_group_all_b(raw, ALL_BYTES, 0, 0, 0, 0, MkWrA(3, 3, 3, 3), (ushort128)none);
        const ushort128 exponent = v_u16_add_b(v_u16_and_b(spread, 0xFF), 14), capped = v_u16_min_b(exponent, 254);
        const ushort128 most = v_u16_shl_b(capped, 7);
        const ushort128 rest = v_u16_shl_b(v_u16_add_b(v_u16_sub_b(exponent, capped), 127), 7);
        const uchar256 even_chunk = packed_0, odd_chunk = packed_1;
        from[0] += 256;
        packed_0 = v_u8_ld_tnsr_b(from, w);
        from[0] += 256;
        packed_1 = v_u8_ld_tnsr_b(from, w);
        scales[0] += 32;
        raw = LOAD_SCALES(scales, s);
        HALF(even_chunk, 0, e0, e1)
        HALF(even_chunk, 2, e2, e3)
        HALF(odd_chunk, 0, o0, o1)
        HALF(odd_chunk, 2, o2, o3)
      }
      row++;
      if (row == rows) {
        row = 0;
        expert++;
      }
    }
  }
}
