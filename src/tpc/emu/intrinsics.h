// SPDX-License-Identifier: Apache-2.0
//
// What a TPC-C kernel sees in place of the vendor compiler's headers. Names, order of parameters and defaults are those
// of the public compiler (a vector goes by reference here: a call looks the same). The list of what there is, with how
// well each meaning is known, is intrinsics.inc; what traps is docs/emulator.md.
//
// predicate, polarity: an instruction has an effect where predicate != polarity; elsewhere its result is income (of a
// MAC, the accumulator). It fills its slot either way.
#pragma once

#include "tpc/emu/types.h"

// Switches. Those that are not emulated have a name only where a trap should be able to say it.
enum : int {
  SW_SAT = 1 << 0,
  SW_RHU = 1 << 1,
  SW_NO_NEG = 0,
  SW_NEG = 1 << 1,
  SW_RHNE = 0 << 16,
  SW_RZ = 1 << 16,
  SW_RU = 2 << 16,
  SW_RD = 3 << 16,
  SW_SR = 4 << 16,
  SW_CSR = 5 << 16,
  SW_RHAZ = 6 << 16,
  SW_UNPCK_16_TO_32 = 0 << 1,
  SW_UNPCK_8_TO_16 = 1 << 1,
  SW_UNPCK_8_TO_32 = 2 << 1,
  SW_UNPCK_4_TO_8 = 3 << 1,
  SW_UNPACK = 1 << 4,
  SW_L0CS = 1 << 5,
  SW_EV_HINT = 1 << 6,
  SW_PD = 1 << 15,
  SW_D = 1 << 1,
  SW_LU = 1 << 2,
  SW_SB = 1 << 0,
  SW_INC = 0 << 8,
  SW_DEC = 1 << 8,
  SW_SPU = 0 << 8,
  SW_VPU = 2 << 8,
  SW_MMIO = 1 << 0,
  SW_AUTO_INC_1_V = 1,
  SW_AUTO_INC_2_V = 2,
  SW_AUTO_INC_4_V = 3,
  SW_LUT_PTR = 1 << 3,
  SW_BV16 = 1 << 0,
  SW_DIV_MODE_DIV = 0,
  SW_DIV_MODE_MOD = 1,
  SW_DIV_MODE_BOTH = 2,
  SW_WR_LOWER_GROUP = 1 << 12,
  SW_WR_UPPER_GROUP = 1 << 13,
  SW_WR_LOWER_GROUP0 = 1 << 16,
  SW_WR_UPPER_GROUP0 = 1 << 17,
  SW_WR_LOWER_GROUP1 = 1 << 18,
  SW_WR_UPPER_GROUP1 = 1 << 19,
  SW_WR_LOWER_GROUP2 = 1 << 20,
  SW_WR_UPPER_GROUP2 = 1 << 21,
  SW_WR_LOWER_GROUP3 = 1 << 22,
  SW_WR_UPPER_GROUP3 = 1 << 23,
  SW_GROUP0_EN = 1 << 0,
  SW_GROUP1_EN = 1 << 1,
  SW_DUAL_GROUP0_EN = 1 << 2,
  SW_DUAL_GROUP1_EN = 1 << 3,
  SW_DUAL_GROUP2_EN = 1 << 4,
  SW_DUAL_GROUP3_EN = 1 << 5,
};

// Which groups of 32 bytes a move of dual groups writes, bit 0 the lower and bit 1 the upper one.
#define MkWrA(w0, w1, w2, w3) (((w0) << 16) | ((w1) << 18) | ((w2) << 20) | ((w3) << 22))
#define MkWr(lower, upper) (((lower) ? SW_WR_LOWER_GROUP : 0) | ((upper) ? SW_WR_UPPER_GROUP : 0))

#define V_LANE_ID_32 read_lane_id_4b_b()
#define V_LANE_ID_16 read_lane_id_2b_b()
#define V_LANE_ID_8 read_lane_id_1b_b()

#define MXK_IF bool predicate = true, bool polarity = false
#define MXK_INCOME(V) const V& income = mxk::emu::zero<V>
#define MXK_TAIL(V) int switches = 0, MXK_INCOME(V), MXK_IF

// Index space, descriptors, coordinates.
int5 get_index_space_offset();
int5 get_index_space_size();
uint32_t get_dim_size(int32_t a, uint32_t dim);
int5 i_i32_add(const int5& a, const int5& b, int dimmask, int switches, const int5& income, MXK_IF);
int5 set_indx(int value, const int5& ndx, int dimmask, int switches, MXK_IF);
int32_t mov_irf_dim(const int5& src, int8_t dim, int switches, int32_t income = 0, MXK_IF);
uint32_t_pair_t u32_udiv_both(uint32_t a, uint32_t b, int switches, const uint32_t_pair_t& income, MXK_IF);

// Tensors.
uchar256 v_u8_ld_tnsr_b(const int5& ndx, int8_t t, MXK_TAIL(uchar256));
ushort128 v_u16_ld_tnsr_b(const int5& ndx, int8_t t, MXK_TAIL(ushort128));
bfloat128 v_bf16_ld_tnsr_b(const int5& ndx, int8_t t, MXK_TAIL(bfloat128));
float64 v_f32_ld_tnsr_b(const int5& ndx, int8_t t, MXK_TAIL(float64));
int64 v_i32_ld_tnsr_b(const int5& ndx, int8_t t, MXK_TAIL(int64));
minihalf256 v_h8_ld_tnsr_b(const int5& ndx, int8_t t, MXK_TAIL(minihalf256));
float64 v_f32_ld_tnsr_partial_b(const int5& ndx, int8_t t, int8_t size, int8_t offset, MXK_TAIL(float64));
void v_bf16_st_tnsr(const int5& ndx, int8_t t, const bfloat128& value, int switches = 0, MXK_IF);
void v_f32_st_tnsr(const int5& ndx, int8_t t, const float64& value, int switches = 0, MXK_IF);
void v_bf16_st_tnsr_partial(const int5& ndx, int8_t t, const bfloat128& value, int8_t size, int8_t offset,
                            int switches = 0, MXK_IF);
void v_f32_st_tnsr_partial(const int5& ndx, int8_t t, const float64& value, int8_t size, int8_t offset,
                           int switches = 0, MXK_IF);

// Global memory by address.
__global void* gen_addr(const int5& inx, int8_t t, int switches = 0, __global void* income = nullptr, MXK_IF);
int32_t s_i32_ld_g(__global void* addr, int switches = 0, int32_t income = 0, MXK_IF);
uint32_t s_u32_ld_g(__global void* addr, int switches = 0, uint32_t income = 0, MXK_IF);
float s_f32_ld_g(__global void* addr, int switches = 0, float income = 0, MXK_IF);
uint8_t s_u8_ld_g(__global void* addr, int switches = 0, uint8_t income = 0, MXK_IF);
float64 v_f32_ld_g(__global void* addr, MXK_TAIL(float64));
void prefetch(__global void* a, int switches = 0, MXK_IF);
void aso(int switches = 0, MXK_IF);
void cache_flush(int switches = 0, MXK_IF);
void cache_invalidate(int switches = 0, MXK_IF);

// Local memory.
bfloat128 v_bf16_ld_l_v_b(uint32_t addr, MXK_TAIL(bfloat128));
float64 v_f32_ld_l_v_b(uint32_t addr, MXK_TAIL(float64));
uchar256 v_u8_ld_l_v_b(uint32_t addr, MXK_TAIL(uchar256));
void v_f32_st_l_v(uint32_t addr, const float64& value, int switches = 0, MXK_IF);
void v_bf16_st_l_v(uint32_t addr, const bfloat128& value, int switches = 0, MXK_IF);
void v_u8_st_l_v(uint32_t addr, const uchar256& value, int switches = 0, MXK_IF);
int32_t s_i32_ld_l(uint32_t addr, int switches = 0, int32_t income = 0, MXK_IF);
void s_i32_st_l(uint32_t addr, int32_t value, int switches = 0, MXK_IF);

// Bits.
uchar256 v_u8_and_b(const uchar256& a, const uchar256& b, MXK_TAIL(uchar256));
ushort128 v_u16_and_b(const ushort128& a, const ushort128& b, MXK_TAIL(ushort128));
uint64 v_u32_and_b(const uint64& a, const uint64& b, MXK_TAIL(uint64));
uchar256 v_u8_or_b(const uchar256& a, const uchar256& b, MXK_TAIL(uchar256));
ushort128 v_u16_or_b(const ushort128& a, const ushort128& b, MXK_TAIL(ushort128));
uint64 v_u32_or_b(const uint64& a, const uint64& b, MXK_TAIL(uint64));
uchar256 v_u8_xor_b(const uchar256& a, const uchar256& b, MXK_TAIL(uchar256));
uint64 v_u32_xor_b(const uint64& a, const uint64& b, MXK_TAIL(uint64));
uchar256 v_u8_shl_b(const uchar256& a, const char256& b, MXK_TAIL(uchar256));
ushort128 v_u16_shl_b(const ushort128& a, const short128& b, MXK_TAIL(ushort128));
uint64 v_u32_shl_b(const uint64& a, const int64& b, MXK_TAIL(uint64));
int64 v_i32_shl_b(const int64& a, const int64& b, MXK_TAIL(int64));
uchar256 v_u8_shr_b(const uchar256& a, const char256& b, MXK_TAIL(uchar256));
ushort128 v_u16_shr_b(const ushort128& a, const short128& b, MXK_TAIL(ushort128));
uint64 v_u32_shr_b(const uint64& a, const int64& b, MXK_TAIL(uint64));
char256 v_i8_ash_b(const char256& a, const char256& b, MXK_TAIL(char256));
int64 v_i32_ash_b(const int64& a, const char256& b, MXK_TAIL(int64));

// Integer arithmetic.
ushort128 v_u16_add_b(const ushort128& a, const ushort128& b, MXK_TAIL(ushort128));
ushort128 v_u16_sub_b(const ushort128& a, const ushort128& b, MXK_TAIL(ushort128));
ushort128 v_u16_min_b(const ushort128& a, const ushort128& b, MXK_TAIL(ushort128));
int64 v_i32_add_b(const int64& a, const int64& b, MXK_TAIL(int64));
uint64 v_u32_add_b(const uint64& a, const uint64& b, MXK_TAIL(uint64));
int64 v_i32_sub_b(const int64& a, const int64& b, MXK_TAIL(int64));

// Conversions.
bfloat256 v_convert_h8_to_bf16_all_b(const minihalf256& src, MXK_TAIL(bfloat256));
bfloat256 v_convert_i8_to_bf16_all_b(const char256& src, MXK_TAIL(bfloat256));
bfloat128 v_convert_f32_to_bf16_all_b(const float128& src, MXK_TAIL(bfloat128));
float128 v_convert_bf16_to_f32_all_b(const bfloat128& src, MXK_TAIL(float128));
int64 v_convert_f32_to_i32_b(const float64& src, MXK_TAIL(int64));
float64 v_convert_i32_to_f32_b(const int64& src, MXK_TAIL(float64));
float64 v_f32_nearbyint_b(const float64& a, MXK_TAIL(float64));

// Floating point.
bfloat128 v_bf16_mul_b(const bfloat128& a, const bfloat128& b, MXK_TAIL(bfloat128));
float128 v_bf16_mul_acc32_b(const bfloat128& a, const bfloat128& b, MXK_TAIL(float128));
float128 v_bf16_mac_acc32_b(const bfloat128& a, const bfloat128& b, const float128& accumulator, int switches = 0,
                            MXK_IF);
float64 v_f32_mul_b(const float64& a, const float64& b, MXK_TAIL(float64));
float64 v_f32_mac_b(const float64& a, const float64& b, const float64& accumulator, int switches = 0, MXK_IF);
float64 v_f32_madd_b(const float64& a, const float64& b, const float64& c, MXK_TAIL(float64));
float128 v_f32_mac_x2_b(const float128& a, const float64& b, const float64& c, const float128& accumulator,
                        int switches = 0, MXK_IF);
float128 v_f32_mul_x2_b(const float128& a, const float64& b, const float64& c, MXK_TAIL(float128));
float128 v_f32_add_x2_b(const float128& a, const float64& b, const float64& c, MXK_TAIL(float128));
float64 v_f32_add_b(const float64& a, const float64& b, MXK_TAIL(float64));
float64 v_f32_sub_b(const float64& a, const float64& b, MXK_TAIL(float64));
float64 v_f32_min_b(const float64& a, const float64& b, MXK_TAIL(float64));
float64 v_f32_max_b(const float64& a, const float64& b, MXK_TAIL(float64));
float64 v_f32_abs_b(const float64& a, MXK_TAIL(float64));
float64 v_f32_add_vb(const float64& a, const float64& b, int switches, const float64& income, const bool64& predicate,
                     bool polarity = false);

// Moves between lanes.
uchar256 v_u8_shuffle_b(const uchar256& a, const uchar256& b, int switches, const uchar256& income, MXK_IF);
ushort128 v_u16_shuffle_b(const ushort128& a, const uchar256& b, int switches, const ushort128& income, MXK_IF);
bfloat128 v_bf16_shuffle_b(const bfloat128& a, const uchar256& b, int switches, const bfloat128& income, MXK_IF);
float64 v_f32_shuffle_b(const float64& a, const uchar256& b, int switches, const float64& income, MXK_IF);
uchar256 v_u8_shuffle_vb(const uchar256& a, const uchar256& b, int switches, const uchar256& income,
                         const bool256& predicate, bool polarity = false);
uchar256 v_u8_mov_dual_group_all_b(const uchar256& a, uint32_t b, int sdg0, int sdg1, int sdg2, int sdg3, int switches,
                                   const uchar256& income, MXK_IF);
ushort128 v_u16_mov_dual_group_all_b(const ushort128& a, uint32_t b, int sdg0, int sdg1, int sdg2, int sdg3,
                                     int switches, const ushort128& income, MXK_IF);
float64 v_f32_mov_dual_group_all_b(const float64& a, uint32_t b, int sdg0, int sdg1, int sdg2, int sdg3, int switches,
                                   const float64& income, MXK_IF);
float64 v_f32_mov_dual_group_b(const float64& a, uint32_t b, int src_dg, int dest_dg, int switches,
                               const float64& income, MXK_IF);
float64 v_f32_mov_group_b(const float64& a, uint32_t b, int switches, const float64& income, MXK_IF);
uchar256 v_u8_mov_group_b(const uchar256& a, uint32_t b, int switches, const uchar256& income, MXK_IF);
float64 v_f32_mov_b(const float64& a, MXK_TAIL(float64));
uchar256 v_u8_mov_b(const uchar256& a, MXK_TAIL(uchar256));
bfloat128 v_bf16_mov_b(const bfloat128& a, MXK_TAIL(bfloat128));
int64 v_i32_mov_b(const int64& a, MXK_TAIL(int64));
float64 v_f32_mov_vb(const float64& a, int switches, const float64& income, const bool64& predicate,
                     bool polarity = false);
uint64 read_lane_id_4b_b(MXK_INCOME(uint64), MXK_IF);
ushort128 read_lane_id_2b_b(MXK_INCOME(ushort128), MXK_IF);
uchar256 read_lane_id_1b_b(MXK_INCOME(uchar256), MXK_IF);

// Comparisons.
float64 v_f32_sel_less_f32_b(const float64& a, const float64& b, const float64& c, const float64& d, MXK_TAIL(float64));
float64 v_f32_sel_eq_f32_b(const float64& a, const float64& b, const float64& c, const float64& d, MXK_TAIL(float64));
uint64 v_u32_sel_less_u32_b(const uint64& a, const uint64& b, const uint64& c, const uint64& d, MXK_TAIL(uint64));
int64 v_i32_sel_less_i32_b(const int64& a, const int64& b, const int64& c, const int64& d, MXK_TAIL(int64));
bool64 v_f32_cmp_less_b(const float64& a, const float64& b, MXK_TAIL(bool64));
bool64 v_u32_cmp_less_b(const uint64& a, const uint64& b, MXK_TAIL(bool64));
bool256 v_u8_cmp_less_b(const uchar256& a, const uchar256& b, MXK_TAIL(bool256));

// The table of the vendor's own compiler; two LOAD cycles.
void set_lut_256(int t);
bfloat256 v_bf16_lookup_2c(const ushort128& a, int fid, int switches, const bfloat256& income, MXK_IF);

#undef MXK_TAIL
#undef MXK_INCOME
#undef MXK_IF

// Not intrinsics: what a kernel tells the emulation, through macros that are empty on the card.
void mxk_emu_local(uint32_t vectors);  // it uses this many vectors of local memory, from address 0
void mxk_emu_mark(int on);             // the instructions from 1 to 0 are counted apart: its steady loop
void mxk_emu_units(uint32_t n);        // it has done n units of work in the marked part
