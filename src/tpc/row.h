/* SPDX-License-Identifier: Apache-2.0
 *
 * One chunk of one row of weights against the activations of R routes, and a block of NB chunks. Macros, because the
 * vendor's compiler takes neither templates nor loops over a constant parameter of an inlined function.
 *
 * Registers of row X (A or B): wX0, wX1 packed bytes; rawX the scales of the next block; bitsX, spreadX those of this
 * one; accX<route> sums (for R = 4, where rows take turns, acc<route>). Packed bytes are loaded ahead: two chunks for R = 1 (57 vector ops), else one (38, 31), at the
 * end of a block those of the next one, which may be of the next pair, tile or visit.
 * Per chunk-row and route: 1/R LD_TNSR, 4 LD_L_V, (8.5 + 2/NB) / R + 5 vector ops (NB even).
 *
 * What was learnt from the public compiler's output, and keeps it from spilling:
 * - It loads all activations of a block first, where nothing holds a load back. FENCE does: no load moves over it, and it
 *   waits for a product (R = 1) or a sum (R > 1) of the row's chunk before, which is stored for that purpose alone.
 * - LD_TNSR is held by no fence, but by its coordinate: STEP() is a scalar load, which is.
 * - Coordinates that do not change in a loop are all computed before it and held in index registers, of which there are
 *   32, and which it cannot spill.
 */

/* The packed bytes of a chunk. */
#define PACKED(X, parity) PASTE(PACKED_, R)(X, parity)
#define PACKED_1(X, parity) w##X##parity
#define PACKED_2(X, parity) w##X##0
#define PACKED_4(X, parity) w##X##0
#define AHEAD (R == 1 ? 2 : 1)

/* Into their register the bytes that are AHEAD chunks ahead. */
#define RELOAD(X, c, parity)                            \
  if ((c) + AHEAD < NB) {                               \
    here##X[0] += STEP(1);                              \
    PACKED(X, parity) = v_u8_ld_tnsr_b(here##X, w);     \
  } else {                                              \
    int5 at_ = next##X;                                 \
    at_[0] += STEP(R == 1 ? (parity) : 0);              \
    PACKED(X, parity) = v_u8_ld_tnsr_b(at_, w);         \
  }
#define RELOAD_SCALES(X, c)             \
  if ((c) == (NB > 1 ? NB - 2 : 0)) {   \
    scales##X[0] += STEP(0);            \
    raw##X = LOAD_SCALES(scales##X, s); \
  }

#define FENCE(X, c)                      \
  if ((c) > 0) {                         \
    PUT_VECTOR(SLOT(PIN_SLOT), pin##X);  \
    __asm__ volatile("" ::: "memory");   \
  }

/* The first product of a row sets its sum, others are added. */
#define SET(acc, p) acc = v_f32_mul_x2_b(p, scale, scale, 0, none_)
#define ADD(acc, p) acc = v_f32_mac_x2_b(p, scale, scale, acc, 0)

#define PRODUCTS(X, acc, q, c, INTO, ACT)                                \
  {                                                                      \
    UNREAD(float128, none_)                                             \
    float128 p_ = v_bf16_mul_acc32_b(low.v1, ACT(X, q, c, 0), 0, none_); \
    p_ = v_bf16_mac_acc32_b(high.v1, ACT(X, q, c, 1), p_, 0);            \
    p_ = v_bf16_mac_acc32_b(low.v2, ACT(X, q, c, 2), p_, 0);             \
    p_ = v_bf16_mac_acc32_b(high.v2, ACT(X, q, c, 3), p_, 0);            \
    PIN_PRODUCT(X, c, p_.v1)                                             \
    INTO(acc, p_);                                                       \
    PIN_SUM(X, c, acc.v1)                                                \
  }

/* For R = 1 the first chunk of a block's row A is unpacked at the end of the block before, where the last products are
 * waited for. */
#define CHUNK_ROW(X, c, parity, INTO, ACT)                                  \
  {                                                                         \
    FENCE(X, c)                                                             \
    bfloat256 low, high;                                                    \
    if (AHEAD_##X && (c) == 0) {                                            \
      low = low_next;                                                       \
      high = high_next;                                                     \
    } else {                                                                \
      UNPACK(PACKED(X, parity), low, high);                                 \
    }                                                                       \
    RELOAD(X, c, parity)                                                    \
    RELOAD_SCALES(X, c)                                                     \
    if ((parity) == 0) spread##X = SPREAD(bits##X, (c) / 2, spread##X);     \
    scale = SCALE(spread##X, (parity) ? odd_chunk : even_chunk, scale);     \
    ROUTES(X, c, INTO, ACT)                                                 \
  }

/* The chunks of a block in order, as DO(c, parity, ...). */
#define BLOCK_1(DO, INTO, ACT) DO(0, 0, INTO, ACT)
#define BLOCK_2(DO, INTO, ACT) BLOCK_1(DO, INTO, ACT) DO(1, 1, ADD, ACT)
#define BLOCK_3(DO, INTO, ACT) BLOCK_2(DO, INTO, ACT) DO(2, 0, ADD, ACT)
#define BLOCK_4(DO, INTO, ACT) BLOCK_3(DO, INTO, ACT) DO(3, 1, ADD, ACT)
#define BLOCK_5(DO, INTO, ACT) BLOCK_4(DO, INTO, ACT) DO(4, 0, ADD, ACT)
#define BLOCK_6(DO, INTO, ACT) BLOCK_5(DO, INTO, ACT) DO(5, 1, ADD, ACT)
#define BLOCK_7(DO, INTO, ACT) BLOCK_6(DO, INTO, ACT) DO(6, 0, ADD, ACT)
#define BLOCK_8(DO, INTO, ACT) BLOCK_7(DO, INTO, ACT) DO(7, 1, ADD, ACT)
#define PASTE_(a, b) a##b
#define PASTE(a, b) PASTE_(a, b)
#define BLOCK(DO, INTO, ACT) PASTE(BLOCK_, NB)(DO, INTO, ACT)

/* What precedes the chunks of a block of row X that starts at chunk `first` of row `row`: its scales, the loads ahead. */
#define BEGIN_BLOCK(X, first, row)                         \
  PLACE(here##X, 256 * ((first) + AHEAD - 1), row, expert) \
  bits##X = SCALE_BITS(raw##X);

/* The block that follows: chunk `first` of `row` of expert `e`. */
#define NEXT_BLOCK(X, first, row, e)               \
  PLACE(next##X, 256 * (first), row, e)            \
  PLACE(scales##X, 16 * (first), row, e)

/* Activations: of the first block (R > 1) or of both (R = 1) in local memory, else in the tensor. */
#define ACT_LOCAL(X, q, c, plane) (bfloat128) GET_VECTOR(((q)*NB + (c)) * 4 + (plane))
#define ACT_LOCAL_2(X, q, c, plane) (bfloat128) GET_VECTOR((NB + (c)) * 4 + (plane))
#define ACT_TENSOR(X, q, c, plane) (act##X##q[0] += (plane) ? 128 : STEP(2), v_bf16_ld_tnsr_b(act##X##q, x))
#define BEGIN_TENSOR(X, q)       \
  act##X##q[0] = 512 * NB - 128; \
  act##X##q[1] = row##q;
