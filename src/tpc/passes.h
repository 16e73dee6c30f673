/* SPDX-License-Identifier: Apache-2.0
 *
 * The steady loop: `count` pairs of rows, NB chunks to a block, for R routes. tile.h includes it for each NB.
 *
 * The sums of a pair are reduced at the top of the pair after it, among loads and unpacks that do not wait for them.
 */

/* The pair after this one: the next of the run, or the first of the next run. */
#define FOLLOWING_PAIR                    \
  int then_n = pair + 1, then_e = expert; \
  if (then_n == run_end) {                \
    then_n = next_pair;                   \
    then_e = next_expert;                 \
  }
#define FOLLOWING_BLOCK(X, ROW)                  \
  if (blocks == 2) {                             \
    NEXT_BLOCK(X, NB, ROW(pair), expert)         \
  } else {                                       \
    NEXT_BLOCK(X, 0, ROW(then_n), then_e)        \
  }

/* What FENCE waits for; now and then for the sum in long blocks, where loads run ahead else. */
#if R == 1
#define PIN_PRODUCT(X, c, value) pin##X = value;
#define PIN_SUM(X, c, value) \
  if (NB > 6 && (c) % 4 == 3) pin##X = value;
#else
#define PIN_PRODUCT(X, c, value)
#define PIN_SUM(X, c, value) pin##X = value;
#endif

#define AHEAD_A (R == 1)
#define AHEAD_B 0
#if R == 4
/* Rows one after the other: the sums of four routes take the registers that a second row would. */
#define ROUTES(X, c, INTO, ACT)      \
  PRODUCTS(X, acc0, 0, c, INTO, ACT) \
  PRODUCTS(X, acc1, 1, c, INTO, ACT) \
  PRODUCTS(X, acc2, 2, c, INTO, ACT) \
  PRODUCTS(X, acc3, 3, c, INTO, ACT)
#define BEGIN_TENSORS(X) BEGIN_TENSOR(X, 0) BEGIN_TENSOR(X, 1) BEGIN_TENSOR(X, 2) BEGIN_TENSOR(X, 3)
/* Loaded again for each row: they and the sums of four routes do not fit into the registers together. */
#define DIRECTIONS                                                      \
  const uchar256 even_chunk = (uchar256)GET_VECTOR(SLOT(SCALE_SLOT));   \
  const uchar256 odd_chunk = (uchar256)GET_VECTOR(SLOT(SCALE_SLOT + 1));
#define CHUNK_A(c, parity, INTO, ACT) CHUNK_ROW(A, c, parity, INTO, ACT)
#define CHUNK_B(c, parity, INTO, ACT) CHUNK_ROW(B, c, parity, INTO, ACT)
for (int i = 0; i < count; i++) {
  FOLLOWING_PAIR
  const float64 row_b = REDUCE;
  PUT_VECTOR(SLOT(PAIR_SLOT) - slot, combine_32(row_a, row_b));
  slot = (slot + 1) & 3;
  FOLLOWING_BLOCK(A, ROW_A)
  BEGIN_BLOCK(A, 0, ROW_A(pair))
  {
    DIRECTIONS
    BLOCK(CHUNK_A, SET, ACT_LOCAL)
  }
  if (blocks == 2) {
    NEXT_BLOCK(A, 0, ROW_A(then_n), then_e)
    BEGIN_BLOCK(A, NB, ROW_A(pair))
    BEGIN_TENSORS(A)
    DIRECTIONS
    BLOCK(CHUNK_A, ADD, ACT_TENSOR)
  }
  row_a = REDUCE;
  FOLLOWING_BLOCK(B, ROW_B)
  BEGIN_BLOCK(B, 0, ROW_B(pair))
  {
    DIRECTIONS
    BLOCK(CHUNK_B, SET, ACT_LOCAL)
  }
  if (blocks == 2) {
    NEXT_BLOCK(B, 0, ROW_B(then_n), then_e)
    BEGIN_BLOCK(B, NB, ROW_B(pair))
    BEGIN_TENSORS(B)
    DIRECTIONS
    BLOCK(CHUNK_B, ADD, ACT_TENSOR)
  }
  pair++;
  COUNT_CHUNK_ROWS(2 * R * chunks);
}
#undef DIRECTIONS
#undef CHUNK_A
#undef CHUNK_B

#else

#if R == 1
#define UNPACK_AHEAD UNPACK(wA0, low_next, high_next)
#define ROUTES(X, c, INTO, ACT) PRODUCTS(X, acc##X##0, 0, c, INTO, ACT)
#define ACT_SECOND ACT_LOCAL_2
#define BEGIN_TENSORS(X) BEGIN_TENSOR(X, 0)
#else
#define UNPACK_AHEAD
#define ROUTES(X, c, INTO, ACT)           \
  PRODUCTS(X, acc##X##0, 0, c, INTO, ACT) \
  PRODUCTS(X, acc##X##1, 1, c, INTO, ACT)
#define ACT_SECOND ACT_TENSOR
#define BEGIN_TENSORS(X) BEGIN_TENSOR(X, 0) BEGIN_TENSOR(X, 1)
#endif
#define CHUNK(c, parity, INTO, ACT)          \
  CHUNK_ROW(A, c, parity, INTO, ACT)         \
  CHUNK_ROW(B, c, parity, INTO, ACT)
for (int i = 0; i < count; i++) {
  FOLLOWING_PAIR
  PUT_VECTOR(SLOT(PAIR_SLOT) - slot, REDUCE);
  slot = (slot + 1) & 3;
  FOLLOWING_BLOCK(A, ROW_A)
  FOLLOWING_BLOCK(B, ROW_B)
  BEGIN_BLOCK(A, 0, ROW_A(pair))
  BEGIN_BLOCK(B, 0, ROW_B(pair))
  BLOCK(CHUNK, SET, ACT_LOCAL)
  UNPACK_AHEAD
  if (blocks == 2) {
    NEXT_BLOCK(A, 0, ROW_A(then_n), then_e)
    NEXT_BLOCK(B, 0, ROW_B(then_n), then_e)
    BEGIN_BLOCK(A, NB, ROW_A(pair))
    BEGIN_BLOCK(B, NB, ROW_B(pair))
    BEGIN_TENSORS(A)
    BEGIN_TENSORS(B)
#if R == 1 && MXK_X_TAIL
    if (second_in_tensor) {
      BLOCK(CHUNK, ADD, ACT_TENSOR)
    } else {
      BLOCK(CHUNK, ADD, ACT_SECOND)
    }
#else
    BLOCK(CHUNK, ADD, ACT_SECOND)
#endif
    UNPACK_AHEAD
  }
  pair++;
  COUNT_CHUNK_ROWS(2 * R * chunks);
}
#undef CHUNK
#undef ACT_SECOND
#endif

#undef FOLLOWING_PAIR
#undef FOLLOWING_BLOCK
#undef ROUTES
#undef AHEAD_A
#undef UNPACK_AHEAD
#undef AHEAD_B
#undef PIN_PRODUCT
#undef PIN_SUM
#undef BEGIN_TENSORS
