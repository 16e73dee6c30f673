/* SPDX-License-Identifier: Apache-2.0
 *
 * From packed bytes and scale bytes to what the MACs take, and the MACs of one row of one chunk.
 *
 * Vector ops of a chunk-row, R routes:
 *   unpack     7        2 x (AND of shifted bytes, 5 in all), 2 x CONVERT
 *   scale      1 + 1/2  SHUFFLE; MOV_DUAL_GROUP for two chunks; SHL, AND for the row
 *   multiply   5 R      MUL, 3 MAC, then the scale on the sums: MAC X2
 *
 * Unpack. A code s eem of E2M1, shifted to s000 eem0, is the same number times 2^-14 in the 1-5-2 format: exponent
 * ee with bias 15, mantissa m0. That includes the code 1/2, which is a denormal there (0 01 0 = 2^-15): CONVERT
 * normalises it, while a MAC would take a denormal bf16 for zero, so placing the bits in a bf16 directly is no way.
 *
 * Planes. CONVERT puts the even bytes into .v1 and the odd into .v2: of the 512 weights of a chunk, low.v1 holds
 * elements 4i, high.v1 4i+1, low.v2 4i+2 and high.v2 4i+3 in lane i, which is why the activations come in the order
 * "lane i of plane p holds element 4i + p". Lane j of an fp32 accumulator, .v1 and .v2, then belongs to block j / 4.
 */
#ifndef MXK_TPC_UNPACK_H
#define MXK_TPC_UNPACK_H

/* MXK_UNPACK: 0 as above; 1 through a byte table to int8 (twice the code), which needs no denormal at all, for 1 op
 * more. MXK_LUT: a 256-entry table of the lookup unit, 5 ops less, but only compilers of the vendor's SDK know it. */
#ifndef MXK_UNPACK
#define MXK_UNPACK 0
#endif

/* What a sum of products has to be multiplied by. */
#if defined(MXK_LUT)
#define UNPACK_FACTOR 1.0f
#elif MXK_UNPACK == 1
#define UNPACK_FACTOR 0.5f
#else
#define UNPACK_FACTOR 16384.0f
#endif

/* The AND is one of 32 bits because compilers cannot reinterpret 256 x 8 bits as 1-5-2 numbers, but 64 x 32 bits. */
#define MINIHALF(shifted) ((minihalf256)v_u32_and_b((uint64)(shifted), 0x8E8E8E8E))
#define UNPACK_BITS(w, low, high)                                                                     \
  {                                                                                                   \
    UNREAD(bfloat256, none_)                                                                         \
    low = v_convert_h8_to_bf16_all_b(MINIHALF(v_i8_ash_b((char256)v_u8_shl_b(w, 4), -3)), 0, none_);  \
    high = v_convert_h8_to_bf16_all_b(MINIHALF(v_i8_ash_b((char256)(w), -3)), 0, none_);              \
  }

/* `codes`: TABLE(TABLE_CODES). */
#define TWICE_CODE(index) (char256) v_u8_shuffle_b(codes, v_u8_or_b(index, 0x80), 0, (uchar256)none_.v1)
#define UNPACK_CODES(w, low, high)                                                \
  {                                                                               \
    UNREAD(bfloat256, none_)                                                     \
    low = v_convert_i8_to_bf16_all_b(TWICE_CODE(v_u8_and_b(w, 0x0F)), 0, none_);  \
    high = v_convert_i8_to_bf16_all_b(TWICE_CODE(v_u8_shr_b(w, 4)), 0, none_);    \
  }

#if defined(MXK_LUT)
/* One lookup by byte gives both codes: .v1 the low one, .v2 the high one. */
#define UNPACK(w, low, high)                                                                            \
  {                                                                                                     \
    const bfloat256 even_ = v_bf16_lookup_2c(v_u16_and_b((ushort128)(w), 0x00FF), 0, SW_LUT_PTR, low);  \
    const bfloat256 odd_ = v_bf16_lookup_2c(v_u16_shr_b((ushort128)(w), 8), 0, SW_LUT_PTR, high);       \
    low.v1 = even_.v1;                                                                                  \
    high.v1 = even_.v2;                                                                                 \
    low.v2 = odd_.v1;                                                                                   \
    high.v2 = odd_.v2;                                                                                  \
  }
#define UNPACK_DECLARE
#define UNPACK_INIT set_lut_256(lut)
#define LUT_TENSOR , tensor lut
#elif MXK_UNPACK == 1
#define UNPACK UNPACK_CODES
#define UNPACK_DECLARE uchar256 codes;
#define UNPACK_INIT codes = TABLE(TABLE_CODES)
#else
#define UNPACK UNPACK_BITS
#define UNPACK_DECLARE
#define UNPACK_INIT
#endif

#ifndef LUT_TENSOR
#define LUT_TENSOR
#endif

/* The scales of a row, one in the low byte of each 16-bit lane as LD_TNSR unpacks them, become the upper halves of
 * fp32 numbers 2^(e-127): e = 0 is zero and e = 255 infinity here (docs/gaudi-kernels.md). The AND is there because it is
 * said nowhere that LD_TNSR clears the upper bytes; MXK_UPPER_BYTES_CLEAR saves it, 1 op a row, where a card does. */
#define LOAD_SCALES(at, tensor) ((ushort128)v_u8_ld_tnsr_b(at, tensor, SW_UNPACK | SW_UNPCK_8_TO_16))
#ifdef MXK_UPPER_BYTES_CLEAR
#define SCALE_BITS(raw) v_u16_shl_b(raw, 7)
#else
#define SCALE_BITS(raw) v_u16_and_b(v_u16_shl_b(raw, 7), 0x7F80)
#endif

/* A dual group of 32 scales, those of chunks 2q and 2q+1, to all four dual groups. */
#define SPREAD(bits, q, income) v_u16_mov_dual_group_all_b(bits, ALL_BYTES, q, q, q, q, MkWrA(3, 3, 3, 3), income)

/* fp32 lane j = the scale of block j / 4 of the chunk. `income` is a scale vector before: its low halves are zero. */
#define SCALE(spread, direction, income) \
  ((float64)v_u8_shuffle_b((uchar256)(spread), direction, 0, (uchar256)(income)))

#endif
