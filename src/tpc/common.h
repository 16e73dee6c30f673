/* SPDX-License-Identifier: Apache-2.0
 *
 * What every kernel needs: the local memory and its map, the rows of the table tensor, splats, and the hooks that are
 * nothing on the card.
 *
 * Words. A chunk is 512 weights of one row: 256 packed bytes, 16 scale bytes. A pair is two rows that are worked on
 * together: gate and up of one column in w13, rows 2n and 2n+1 in w2. A unit is 4 pairs, a tile up to 8 units (64 rows).
 * A visit is R routes (1, 2 or 4) of one expert; the weights of a visit are unpacked once.
 */
#ifndef MXK_TPC_COMMON_H
#define MXK_TPC_COMMON_H

/* ---- seams between the card and the emulation ------------------------------------------------------------------ */

#ifdef MXK_TPC_EMULATION
#define LOCAL_MEMORY
#define GET_VECTOR(i) v_f32_ld_l_v_b(VECTOR_BYTES * (unsigned)(i))
#define PUT_VECTOR(i, v) v_f32_st_l_v(VECTOR_BYTES * (unsigned)(i), v)
#define GET_SCALAR(i) s_i32_ld_l(4 * (unsigned)(i))
#define PUT_SCALAR(i, v) s_i32_st_l(4 * (unsigned)(i), v)
#define BEGIN_KERNEL mxk_emu_local(LOCAL_VECTORS)
#define UNREAD(type, name) type name = {};
#define MARK(on) mxk_emu_mark(on)              /* what follows is, or is no longer, the steady loop */
#define COUNT_CHUNK_ROWS(n) mxk_emu_units(n) /* chunk-rows times routes of a pass */
#else
/* Arrays and not bare addresses: the compiler puts what it spills behind them, and takes what nobody stores into them
 * by name for zero. */
#define LOCAL_MEMORY                              \
  __local__ float64 local_vectors[LOCAL_VECTORS]; \
  __local__ int local_scalars[SCALAR_WORDS];
#define GET_VECTOR(i) local_vectors[i]
#define PUT_VECTOR(i, v) local_vectors[i] = v
#define GET_SCALAR(i) local_scalars[i]
#define PUT_SCALAR(i, v) local_scalars[i] = v
#define BEGIN_KERNEL
/* An income that nothing takes: no register has to be cleared for it. */
#define UNREAD(type, name)                                      \
  _Pragma("clang diagnostic push")                              \
  _Pragma("clang diagnostic ignored \"-Wuninitialized\"")     \
  type name = name;                                             \
  _Pragma("clang diagnostic pop")
#define MXK_NO_LIMIT as_float(0x7F800000)
#define MARK(on)
#define COUNT_CHUNK_ROWS(n)
#endif

#include "mxk/variants.inc"

/* ---- vector local memory: 16 KB, what the compiler spills included --------------------------------------------- */

/* From the bottom: activations of a visit, [route][chunk][4 planes]. From the top: SLOTS(R) vectors of the sums under
 * way. Between them, in w2: one vector of sums for each token. What the compiler spills would come on top. */
#ifndef LOCAL_VECTORS
#define LOCAL_VECTORS 64
#endif
#define VECTOR_BYTES 256
#define PAIR_SLOT 0 /* 4: pairs of a unit */
#define PIN_SLOT 4  /* see row.h */
#define UNIT_SLOT 5 /* 3, 2, 1 for R = 1, 2, 4: levels of units */
#define DONE_SLOT(r) ((r) == 1 ? PAIR_SLOT : (r) == 2 ? 7 : 6) /* R: finished; for R = 1 the pairs are gone by then */
#define SCALE_SLOT 10 /* 2, for R = 4 */
#define SLOTS_R1 8
#define SLOTS_R2 9
#define SLOTS_R4 12
#define SLOT(i) (LOCAL_VECTORS - 1 - (i))

/* ---- scalar local memory: 1 KB ---------------------------------------------------------------------------------- */

#define SCALAR_WORDS 163 /* the rest is the compiler's */
#define STEP_WORD 160    /* 3: 0; 256, bytes of a chunk; 128, lanes of a plane */

/* ---- rows of the table tensor, 256 bytes each; tables.cc fills it ----------------------------------------------- */

enum {
  TABLE_SCALE = 0,          /* 2: shuffle that spreads the scales of an even, an odd chunk */
  TABLE_UP = 2,             /* 3: combine_1, _2, _4: lanes of the second operand */
  TABLE_DOWN = 5,           /* 3: lanes of the first operand */
  TABLE_SORT_R2 = 8,        /* 2: by half of the tile */
  TABLE_SORT_R4 = 10,       /* 16: by quarter of the tile, row of the pair, route bit 0 */
  TABLE_PACK = 26,          /* gate lanes of converted activations to the front of each dual group */
  TABLE_LINEAR_BF16 = 27,   /* 4: by pair of the unit: sums in row order, bf16 */
  TABLE_LINEAR_F32 = 31,    /* 4: the same, fp32 */
  TABLE_CODES = 35,         /* E2M1 codes as int8, doubled */
  TABLE_WEAVE = 36,         /* 2: mxk_deq: packed bytes to even, to odd bytes */
  TABLE_NIBBLE = 38,        /* mxk_deq: 4 where a byte's low code is meant, 0 where its high code is */
  TABLE_SCALE_BF16 = 39,    /* 8: mxk_deq: by parity of the chunk and quarter of it */
  TABLE_ROWS = 47
};

/* ---- small things ------------------------------------------------------------------------------------------------ */

#define ALL_BYTES 0xFFFFFFFF
/* A coordinate is kept in a variable and set by element: compilers make constants of whole ones, hold them all at once
 * and run out of index registers. TABLE wants `int5 table_at = {0};` and stands once in an expression. */
#define PLACE(at, a, b, c) \
  {                        \
    at[0] = a;             \
    at[1] = b;             \
    at[2] = c;             \
  }
#define TABLE(row) (table_at[1] = (row), v_u8_ld_tnsr_b(table_at, tables))

static inline int5 at2(int a, int b) {
  int5 r = {a, b, 0, 0, 0};
  return r;
}
static inline int5 at3(int a, int b, int c) {
  int5 r = {a, b, c, 0, 0};
  return r;
}
static inline int min_int(int a, int b) { return a < b ? a : b; }

#endif
