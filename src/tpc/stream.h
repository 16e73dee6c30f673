/* SPDX-License-Identifier: Apache-2.0
 *
 * The registers of the stream of weights, which goes on through all pairs, tiles and visits of a TPC. w13.h and w2.h
 * define ROW_A(n), ROW_B(n), the rows of pair n, before.
 */

#define NOTHING v_f32_mov_b(0.0f)
#define STEP(i) GET_SCALAR(STEP_WORD + (i))
#define DECLARE_STREAM                                                                          \
  PUT_SCALAR(STEP_WORD, tokens >> 16);                                                          \
  PUT_SCALAR(STEP_WORD + 1, (tokens >> 16) + 256);                                              \
  PUT_SCALAR(STEP_WORD + 2, (tokens >> 16) + 128);                                              \
  UNPACK_DECLARE                                                                                \
  UNPACK_INIT;                                                                                  \
  int pair = 0, units = 0, run_end = 0, next_pair = 0, next_expert = 0, expert = 0;             \
  int routes = 1, nb = 1, blocks = 1, row0 = 0, row1 = 0, row2 = 0, row3 = 0;                   \
  int5 hereA = {0}, hereB = {0}, nextA = {0}, nextB = {0}, scalesA = {0}, scalesB = {0};        \
  int5 actA0 = {0}, actA1 = {0}, actA2 = {0}, actA3 = {0};                                      \
  int5 actB0 = {0}, actB1 = {0}, actB2 = {0}, actB3 = {0};                                      \
  uchar256 wA0, wA1, wB0, wB1;                                                                  \
  ushort128 rawA, rawB;                                                                         \
  bfloat256 low_next, high_next;

/* What passes.h finds loaded: the first two chunks and the scales of the first pair of all. A second chunk that the row
 * does not have reads as zeros. */
#define START_STREAM(n, e)                                                       \
  PLACE(nextA, 0, ROW_A(n), e)                                                   \
  PLACE(nextB, 0, ROW_B(n), e)                                                   \
  rawA = LOAD_SCALES(nextA, s);                                                  \
  rawB = LOAD_SCALES(nextB, s);                                                  \
  wA0 = v_u8_ld_tnsr_b(nextA, w);                                                \
  wB0 = v_u8_ld_tnsr_b(nextB, w);                                                \
  nextA[0] += 256;                                                               \
  nextB[0] += 256;                                                               \
  wA1 = v_u8_ld_tnsr_b(nextA, w);                                                \
  wB1 = v_u8_ld_tnsr_b(nextB, w);                                                \
  UNPACK(wA0, low_next, high_next);

