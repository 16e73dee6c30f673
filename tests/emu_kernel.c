// SPDX-License-Identifier: Apache-2.0
//
// The kernel of emu_trap_test.cc, in the dialect that both the vendor's compiler and the emulation take: row r of y is
// scale times row r of x, through local memory. `fault` asks for a broken rule.

#define ROW_LOOP(row, first, last) for (int row = (first); row < (last); ++row)

void main(tensor x, tensor y, int fault, float scale) {
  const int5 start = get_index_space_offset();
  const int5 end = start + get_index_space_size();
  const float64 factor = scale;
  mxk_emu_local(2);
  ROW_LOOP(r, start[0], end[0]) {
    int5 at = {0, r, 0, 0, 0};
    float128 both = {0};
    mxk_emu_mark(1);
    both.v1 = v_f32_ld_tnsr_b(at, x);
    v_f32_st_l_v(0, both.v1);
    both = v_f32_mul_x2_b(both, factor, 0.0f);
    mxk_emu_mark(0);
    mxk_emu_units(2);
    if (fault == 1) at[1] = 0;
    v_f32_st_tnsr(at, y, both.v1);
  }
  if (fault == 2) v_f32_st_l_v(512, factor);
  if (fault == 3) mxk_emu_mark(1);
}
