// SPDX-License-Identifier: Apache-2.0
//
// The rules of the TPC emulation: each is broken once, and the message says which rule, where, and by how much. And a
// whole kernel as a module would hold it.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "emu.h"

#define MXK_KERNEL_SOURCE "../tests/emu_kernel.c"  // from src/
#include "tpc/emu/kernel.cc"                       // NOLINT(bugprone-suspicious-include)

namespace mxk::emu::test {
namespace {

// The message of the trap that `f` trips; empty when it trips none.
template <class F>
std::string trapped(F f) {
  try {
    f();
  } catch (const Trap& t) {
    return t.message;
  }
  return "";
}

std::string hex(const void* p) {
  char text[32];
  std::snprintf(text, sizeof text, "%llx", static_cast<unsigned long long>(reinterpret_cast<uintptr_t>(p)));
  return text;
}

#define EXPECT_TRAP(statement, message) EXPECT_EQ(trapped([&] { statement; }), message)
#define EXPECT_NO_TRAP(statement) EXPECT_EQ(trapped([&] { statement; }), "")

class EmuTrap : public ::testing::Test {
 protected:
  EmuTrap() {
    u8 = static_cast<int8_t>(m.add(ElementType::u8, {100, 2}));
    bf = static_cast<int8_t>(m.add(ElementType::bf16, {200}));
    i32 = static_cast<int8_t>(m.add(ElementType::i32, {8, 2}));
    f32 = static_cast<int8_t>(m.add(ElementType::f32, {100, 3}));
    out = static_cast<int8_t>(m.add(ElementType::f32, {100, 3}, true));
    out_bf = static_cast<int8_t>(m.add(ElementType::bf16, {300}, true));
    m.start();
  }

  Machine m;
  int8_t u8, bf, i32, f32, out, out_bf;
  const int5 origin = {0, 0, 0, 0, 0};
  const float64 v = 1.0f;
  const bfloat128 b = 1.0f;
  const uchar256 bytes = 0x80;
};

TEST_F(EmuTrap, VectorLocalMemory) {
  EXPECT_TRAP(v_f32_st_l_v(0, v), "v_f32_st_l_v: local address 0: the kernel has declared 0 vectors (mxk_emu_local)");
  mxk_emu_local(3);
  EXPECT_TRAP(v_f32_st_l_v(260, v), "v_f32_st_l_v: local address 260 is not a multiple of 256");
  EXPECT_TRAP(v_bf16_ld_l_v_b(768),
              "v_bf16_ld_l_v_b: local address 768: the kernel has declared 3 vectors (mxk_emu_local)");
  EXPECT_TRAP(v_u8_ld_l_v_b(512), "v_u8_ld_l_v_b: local address 512 was never written in this launch");
  EXPECT_NO_TRAP(v_f32_st_l_v(512, v));
  EXPECT_NO_TRAP(v_u8_ld_l_v_b(512));
  EXPECT_TRAP(mxk_emu_local(65), "mxk_emu_local: local memory is 64 vectors (16 KB), the kernel asks for 65");
  EXPECT_TRAP(v_f32_st_l_v(0, v, SW_AUTO_INC_2_V), "v_f32_st_l_v: switches 0x2 are not emulated");
}

TEST_F(EmuTrap, LocalMemoryIsNanUntilWritten) {
  for (int i = 0; i < 64; ++i) {
    float f;
    std::memcpy(&f, m.state->vectors + 4 * i, sizeof f);
    EXPECT_TRUE(f != f);
  }
}

TEST_F(EmuTrap, ScalarLocalMemory) {
  EXPECT_TRAP(s_i32_st_l(1024, 1), "s_i32_st_l: scalar local address 1024 of 1024 bytes");
  EXPECT_TRAP(s_i32_ld_l(2), "s_i32_ld_l: scalar local address 2 is not a multiple of 4");
  EXPECT_TRAP(s_i32_ld_l(8), "s_i32_ld_l: scalar local address 8 was never written in this launch");
  EXPECT_TRAP(s_i32_ld_l(8, SW_MMIO), "s_i32_ld_l: switches 0x1 are not emulated");
}

TEST_F(EmuTrap, GlobalMemoryByAddress) {
  auto* const p = static_cast<int32_t*>(gen_addr({7, 1}, i32));
  EXPECT_NO_TRAP(s_i32_ld_g(p));
  EXPECT_TRAP(s_i32_ld_g(p + 1), "s_i32_ld_g: byte 64 of tensor 2, which has 64");
  EXPECT_TRAP(s_u32_ld_g(p - 16), "s_u32_ld_g: byte -4 of tensor 2, which has 64");
  EXPECT_TRAP(s_i32_ld_g(reinterpret_cast<char*>(p) - 2),
              "s_i32_ld_g: byte 58 of tensor 2 is not the start of an element");
  EXPECT_TRAP(s_f32_ld_g(p), "s_f32_ld_g: tensor 2 has elements of type i32, not f32");
  EXPECT_TRAP(s_u8_ld_g(p), "s_u8_ld_g: tensor 2 has elements of type i32, not u8");
  EXPECT_TRAP(v_f32_ld_g(&m), "v_f32_ld_g: 0x" + hex(&m) + " is not an address from gen_addr");
  void* beyond = nullptr;
  EXPECT_NO_TRAP(beyond = gen_addr({8, 0}, i32)) << "an address may be made outside";
  EXPECT_TRAP(s_i32_ld_g(beyond), "s_i32_ld_g: the address is that of a coordinate outside tensor 2 (byte 32)");
  EXPECT_TRAP(prefetch(gen_addr({-1, 0}, i32)),
              "prefetch: the address is that of a coordinate outside tensor 2 (byte -4)");
  EXPECT_TRAP(prefetch(p + 1), "prefetch: byte 64 of tensor 2, which has 64");
  EXPECT_TRAP(gen_addr(origin, 6), "gen_addr: tensor 6 of 6 tensors");
  EXPECT_TRAP(gen_addr(origin, f32, 1 << 4), "gen_addr: switches 0x10 are not emulated");
}

TEST_F(EmuTrap, TensorNumbersAndTypes) {
  EXPECT_TRAP(v_f32_ld_tnsr_b(origin, 6), "v_f32_ld_tnsr_b: tensor 6 of 6 tensors");
  EXPECT_TRAP(v_f32_ld_tnsr_b(origin, -1), "v_f32_ld_tnsr_b: tensor -1 of 6 tensors");
  EXPECT_TRAP(v_f32_ld_tnsr_b(origin, u8), "v_f32_ld_tnsr_b: tensor 0 has elements of type u8, not f32");
  EXPECT_TRAP(v_bf16_ld_tnsr_b(origin, f32), "v_bf16_ld_tnsr_b: tensor 3 has elements of type f32, not bf16");
  EXPECT_TRAP(v_u16_ld_tnsr_b(origin, i32), "v_u16_ld_tnsr_b: tensor 2 has elements of type i32, not bf16");
  EXPECT_TRAP(v_i32_ld_tnsr_b(origin, f32), "v_i32_ld_tnsr_b: tensor 3 has elements of type f32, not i32");
  EXPECT_TRAP(v_u8_ld_tnsr_b(origin, bf), "v_u8_ld_tnsr_b: tensor 1 has elements of type bf16, not u8");
  EXPECT_TRAP(v_u8_ld_tnsr_b(origin, bf, SW_UNPACK | SW_UNPCK_8_TO_16),
              "v_u8_ld_tnsr_b: tensor 1 has elements of type bf16, not u8");
  EXPECT_TRAP(v_u8_ld_tnsr_b(origin, u8, SW_UNPACK | SW_UNPCK_4_TO_8),
              "v_u8_ld_tnsr_b: switches 0x16 are not emulated");
  EXPECT_TRAP(v_u8_ld_tnsr_b(origin, u8, SW_UNPCK_8_TO_16), "v_u8_ld_tnsr_b: switches 0x2 are not emulated");
  EXPECT_TRAP(v_bf16_ld_tnsr_b(origin, bf, +SW_UNPACK), "v_bf16_ld_tnsr_b: switches 0x10 are not emulated");
  EXPECT_TRAP(get_dim_size(6, 0), "get_dim_size: tensor 6 of 6 tensors");
  EXPECT_TRAP(get_dim_size(0, 5), "get_dim_size: dimension 5 is not one of 0..4");
}

TEST_F(EmuTrap, StoresGoToOutputsOfTheirType) {
  EXPECT_TRAP(v_f32_st_tnsr(origin, f32, v), "v_f32_st_tnsr: tensor 3 is an input");
  EXPECT_TRAP(v_bf16_st_tnsr_partial(origin, bf, b, 0, 0), "v_bf16_st_tnsr_partial: tensor 1 is an input");
  EXPECT_TRAP(v_bf16_st_tnsr(origin, out, b), "v_bf16_st_tnsr: tensor 4 has elements of type f32, not bf16");
  EXPECT_TRAP(v_f32_st_tnsr(origin, out_bf, v), "v_f32_st_tnsr: tensor 5 has elements of type bf16, not f32");
  EXPECT_TRAP(v_f32_st_tnsr(origin, out, v, 1 << 2), "v_f32_st_tnsr: switches 0x4 are not emulated");
}

TEST_F(EmuTrap, AnElementBelongsToOneTpc) {
  v_f32_st_tnsr(origin, out, v);
  EXPECT_NO_TRAP(v_f32_st_tnsr(origin, out, v)) << "one TPC may write an element again";
  m.start(7);
  EXPECT_NO_TRAP(v_f32_st_tnsr({64}, out, v));
  EXPECT_TRAP(v_f32_st_tnsr({63}, out, v),
              "v_f32_st_tnsr: tensor 4: element 63 was written by TPC 0 and again by TPC 7");
  m.start(255);
  EXPECT_TRAP(v_f32_st_tnsr(origin, out, v), "v_f32_st_tnsr: TPC number 255");
}

TEST_F(EmuTrap, PartialStores) {
  EXPECT_TRAP(v_f32_st_tnsr_partial(origin, out, v, 60, 4),
              "v_f32_st_tnsr_partial: 61 elements from lane 4 on of a vector of 64 lanes");
  EXPECT_TRAP(v_bf16_st_tnsr_partial(origin, out_bf, b, 127, 1),
              "v_bf16_st_tnsr_partial: 128 elements from lane 1 on of a vector of 128 lanes");
  EXPECT_TRAP(v_f32_ld_tnsr_partial_b(origin, f32, 60, 4),
              "v_f32_ld_tnsr_partial_b: 61 elements from lane 4 on of a vector of 64 lanes");
  EXPECT_TRAP(v_f32_ld_tnsr_partial_b(origin, bf, 1, 4),
              "v_f32_ld_tnsr_partial_b: tensor 1 has elements of type bf16, not f32");
  EXPECT_TRAP(v_f32_st_tnsr_partial(origin, out, v, -1, 0),
              "v_f32_st_tnsr_partial: 0 elements from lane 0 on of a vector of 64 lanes");

  const char* lost =
      "v_f32_st_tnsr_partial: two partial stores of 10 elements from lane 2 on, one right after the other: the card "
      "loses "
      "the second";
  v_f32_st_tnsr_partial(origin, out, v, 9, 2);
  EXPECT_TRAP(v_f32_st_tnsr_partial({50}, out, v, 9, 2), lost);
  m.start();
  v_f32_st_tnsr_partial(origin, out, v, 9, 2);
  EXPECT_NO_TRAP(v_f32_st_tnsr_partial(origin, out, v, 9, 3));
  EXPECT_NO_TRAP(v_f32_st_tnsr_partial(origin, out, v, 8, 3));
  EXPECT_NO_TRAP(v_f32_st_tnsr_partial(origin, out, v, 9, 2));
  EXPECT_NO_TRAP(v_bf16_st_tnsr(origin, out_bf, b)) << "a whole store comes between";
  EXPECT_NO_TRAP(v_f32_st_tnsr_partial(origin, out, v, 9, 2));
  EXPECT_NO_TRAP(v_bf16_st_tnsr(origin, out_bf, b, 0, false)) << "a store that is not executed does not";
  EXPECT_TRAP(v_f32_st_tnsr_partial(origin, out, v, 9, 2), lost);
}

TEST_F(EmuTrap, Shuffles) {
  uchar256 way = 0x80;
  way.lane[77] = 0xC1;
  EXPECT_TRAP(v_u8_shuffle_b(bytes, way, 0, bytes), "v_u8_shuffle_b: direction 0xc1 of byte 77 has reserved bit 6");
  way.lane[77] = 0x41;
  EXPECT_TRAP(v_f32_shuffle_b(v, way, 0, v), "v_f32_shuffle_b: direction 0x41 of byte 77 has reserved bit 6");
  way.lane[77] = 0xA0;
  EXPECT_TRAP(v_bf16_shuffle_b(b, way, 0, b),
              "v_bf16_shuffle_b: bytes 0 and 1 of lane 38 have directions 0x80 and 0xa0");
  EXPECT_TRAP(v_f32_shuffle_b(v, way, 0, v), "v_f32_shuffle_b: bytes 0 and 1 of lane 19 have directions 0x80 and 0xa0");
  EXPECT_TRAP(v_u16_shuffle_b((ushort128)bytes, 0x90, 0, 0),
              "v_u16_shuffle_b: direction 0x90 of lane 0: a group has 16 elements");
  EXPECT_TRAP(v_f32_shuffle_b(v, 0xA8, 0, v), "v_f32_shuffle_b: direction 0xa8 of lane 0: a group has 8 elements");
  EXPECT_TRAP(v_u8_shuffle_b(bytes, bytes, 1, bytes), "v_u8_shuffle_b: switches 0x1 are not emulated");
  EXPECT_TRAP(v_u8_shuffle_vb(bytes, 0x40, 0, bytes, bool256{}),
              "v_u8_shuffle_vb: direction 0x40 of byte 0 has reserved bit 6");
}

TEST_F(EmuTrap, ShiftCounts) {
  EXPECT_TRAP(v_u8_shl_b(bytes, 8), "v_u8_shl_b: lane 0 is shifted by 8, which is outside [0, 7]");
  EXPECT_TRAP(v_u8_shr_b(bytes, -1), "v_u8_shr_b: lane 0 is shifted by -1, which is outside [0, 7]");
  short128 n = 3;
  n.lane[5] = 16;
  EXPECT_TRAP(v_u16_shl_b((ushort128)bytes, n), "v_u16_shl_b: lane 5 is shifted by 16, which is outside [0, 15]");
  EXPECT_TRAP(v_u16_shr_b((ushort128)bytes, n), "v_u16_shr_b: lane 5 is shifted by 16, which is outside [0, 15]");
  EXPECT_TRAP(v_u32_shl_b((uint64)bytes, 32), "v_u32_shl_b: lane 0 is shifted by 32, which is outside [0, 31]");
  EXPECT_TRAP(v_i32_shl_b((int64)bytes, -3), "v_i32_shl_b: lane 0 is shifted by -3, which is outside [0, 31]");
  EXPECT_TRAP(v_u32_shr_b((uint64)bytes, 99), "v_u32_shr_b: lane 0 is shifted by 99, which is outside [0, 31]");
  EXPECT_TRAP(v_i8_ash_b((char256)bytes, -8), "v_i8_ash_b: lane 0 is shifted by -8, which is outside [-7, 7]");
  EXPECT_TRAP(v_i32_ash_b((int64)bytes, 32), "v_i32_ash_b: lane 0 is shifted by 32, which is outside [-31, 31]");
  char256 c = -3;
  c.lane[10] = -4;
  EXPECT_TRAP(v_i32_ash_b((int64)bytes, c), "v_i32_ash_b: the four count bytes of lane 2 differ");
}

TEST_F(EmuTrap, DualGroups) {
  EXPECT_TRAP(v_u8_mov_dual_group_all_b(bytes, ~0u, 0, 1, 4, 3, MkWrA(3, 3, 3, 3), bytes),
              "v_u8_mov_dual_group_all_b: dual group 4 is not one of 0..3");
  EXPECT_TRAP(v_u16_mov_dual_group_all_b((ushort128)bytes, ~0u, 0, 1, 2, -1, MkWrA(3, 3, 3, 3), 0),
              "v_u16_mov_dual_group_all_b: dual group -1 is not one of 0..3");
  EXPECT_TRAP(v_f32_mov_dual_group_all_b(v, ~0u, 9, 1, 2, 3, MkWrA(3, 3, 3, 3), v),
              "v_f32_mov_dual_group_all_b: dual group 9 is not one of 0..3");
  EXPECT_TRAP(v_f32_mov_dual_group_b(v, ~0u, 0, 4, MkWr(1, 1), v),
              "v_f32_mov_dual_group_b: dual group 4 is not one of 0..3");
  EXPECT_TRAP(v_f32_mov_dual_group_b(v, ~0u, 0, 1, MkWrA(3, 3, 3, 3), v),
              "v_f32_mov_dual_group_b: switches 0xff0000 are not emulated");
  EXPECT_TRAP(v_u8_mov_dual_group_all_b(bytes, ~0u, 0, 1, 2, 3, MkWr(1, 1), bytes),
              "v_u8_mov_dual_group_all_b: switches 0x3000 are not emulated");
  EXPECT_TRAP(v_u8_mov_group_b(bytes, ~0u, 64, bytes), "v_u8_mov_group_b: switches 0x40 are not emulated");
}

TEST_F(EmuTrap, SwitchesThatAreNotEmulated) {
  EXPECT_TRAP(v_convert_f32_to_bf16_all_b({v, v}, SW_SR),
              "v_convert_f32_to_bf16_all_b: switches 0x40000 are not emulated");
  EXPECT_TRAP(v_convert_f32_to_i32_b(v, SW_CSR), "v_convert_f32_to_i32_b: switches 0x50000 are not emulated");
  EXPECT_TRAP(v_f32_nearbyint_b(v, SW_RHAZ), "v_f32_nearbyint_b: switches 0x60000 are not emulated");
  EXPECT_TRAP(v_convert_h8_to_bf16_all_b((minihalf256)bytes, 1 << 24),
              "v_convert_h8_to_bf16_all_b: switches 0x1000000 are not emulated");
  EXPECT_TRAP(v_i32_add_b(1, 1, SW_SAT), "v_i32_add_b: switches 0x1 are not emulated");
  EXPECT_TRAP(v_f32_sub_b(v, v, SW_NEG), "v_f32_sub_b: switches 0x2 are not emulated");
  EXPECT_TRAP(v_f32_mac_b(v, v, v, 1), "v_f32_mac_b: switches 0x1 are not emulated");
  EXPECT_TRAP(v_f32_mul_b(v, v, SW_NEG), "v_f32_mul_b: switches 0x2 are not emulated");
}

TEST_F(EmuTrap, Coordinates) {
  EXPECT_TRAP(i_i32_add(origin, 1, 32, 0, origin), "i_i32_add: dimension mask 0x20 has bits beyond dimension 4");
  EXPECT_TRAP(set_indx(1, origin, 64, 0), "set_indx: dimension mask 0x40 has bits beyond dimension 4");
  EXPECT_TRAP(mov_irf_dim(origin, 5, 0), "mov_irf_dim: dimension 5 is not one of 0..4");
  EXPECT_TRAP(u32_udiv_both(7, 0, 0, {0, 0}), "u32_udiv_both: division of 7 by zero");
}

TEST_F(EmuTrap, LookupTable) {
  EXPECT_TRAP(v_bf16_lookup_2c(0, 0, SW_LUT_PTR, {0, 0}), "v_bf16_lookup_2c: no table: set_lut_256 was not called");
  EXPECT_TRAP(set_lut_256(bf), "set_lut_256: tensor 1 has 200 elements in dimension 0, a table has 512");
  EXPECT_TRAP(set_lut_256(f32), "set_lut_256: tensor 3 has elements of type f32, not bf16");
  const int table = m.add(ElementType::bf16, {512});
  m.start();
  set_lut_256(table);
  EXPECT_TRAP(v_bf16_lookup_2c(256, 0, SW_LUT_PTR, {0, 0}), "v_bf16_lookup_2c: lane 0 asks for entry 256 of 256");
  EXPECT_TRAP(v_bf16_lookup_2c(0, 4, SW_LUT_PTR, {0, 0}),
              "v_bf16_lookup_2c: function 4: only table 0 of set_lut_256 is emulated");
  EXPECT_TRAP(v_bf16_lookup_2c(0, 0, 0, {0, 0}), "v_bf16_lookup_2c: switches 0x0 are not emulated");
}

TEST_F(EmuTrap, MarkedPart) {
  EXPECT_TRAP(mxk_emu_mark(0), "mxk_emu_mark: no marked part to end");
  mxk_emu_mark(1);
  EXPECT_TRAP(mxk_emu_mark(1), "mxk_emu_mark: the marked part began twice");
}

TEST(EmuOutside, NothingRunsOutsideALaunch) {
  EXPECT_TRAP(v_f32_add_b(1.0f, 1.0f), "v_f32_add_b: called outside a launch");
  EXPECT_TRAP(mxk_emu_units(1), "mxk_emu_units: called outside a launch");
}

// ---- a kernel ------------------------------------------------------------------------------------------------------

class EmuKernel : public ::testing::Test {
 protected:
  static constexpr int kRows = 6;

  EmuKernel() {
    m.add(ElementType::f32, {64, kRows});
    m.add(ElementType::f32, {64, kRows}, true);
    for (uint64_t i = 0; i < 64 * kRows; ++i) m[0].set(i, static_cast<float>(i));
    tensors = {m[0].tensor, m[1].tensor};
  }

  Launch launch(int tpc, int first, int rows) const {
    Launch l{};
    l.tensors = tensors.data();
    l.tensor_count = 2;
    l.scalars = scalars;
    l.scalar_count = 2;
    l.tpc = tpc;
    l.offset[0] = first;
    l.size[0] = rows;
    return l;
  }

  Machine m;
  std::vector<Tensor> tensors;
  int32_t scalars[2] = {0, std::bit_cast<int32_t>(0.5f)};
};

TEST_F(EmuKernel, RunsOnSeveralTpcsAndCounts) {
  std::vector<std::thread> tpcs;
  std::atomic<int> failed = 0;
  Launch l[3] = {launch(0, 0, 2), launch(1, 2, 3), launch(2, 5, 1)};
  for (Launch& one : l) tpcs.emplace_back([&] { failed += mxk_emu_run(&one); });
  for (std::thread& t : tpcs) t.join();
  EXPECT_EQ(failed, 0) << l[0].message << l[1].message << l[2].message;
  for (uint64_t i = 0; i < 64 * kRows; ++i) EXPECT_EQ(m[1].at<float>(i), 0.5f * static_cast<float>(i));
  uint64_t first = 0;
  EXPECT_EQ(unwritten(m[1].tensor, &first), 0u);
  EXPECT_EQ(l[1].slots.load, 3u);
  EXPECT_EQ(l[1].slots.spu, 2u);
  EXPECT_EQ(l[1].slots.vpu, 3u);
  EXPECT_EQ(l[1].slots.store, 6u);
  EXPECT_EQ(l[1].marked.load, 3u);
  EXPECT_EQ(l[1].marked.spu, 0u);
  EXPECT_EQ(l[1].marked.vpu, 3u);
  EXPECT_EQ(l[1].marked.store, 3u);
  EXPECT_EQ(l[1].marked_units, 6u);
}

TEST_F(EmuKernel, MissingRowsAreFound) {
  Launch l = launch(0, 0, 5);
  EXPECT_EQ(mxk_emu_run(&l), 0);
  uint64_t first = 0;
  EXPECT_EQ(unwritten(m[1].tensor, &first), 64u);
  EXPECT_EQ(first, 320u);
}

TEST_F(EmuKernel, StopsAtABrokenRule) {
  Launch one = launch(0, 0, 1), two = launch(1, 1, 1);
  scalars[0] = 1;
  EXPECT_EQ(mxk_emu_run(&one), 0);
  EXPECT_EQ(mxk_emu_run(&two), 1);
  EXPECT_STREQ(two.message, "v_f32_st_tnsr: tensor 1: element 0 was written by TPC 0 and again by TPC 1");
  EXPECT_EQ(two.slots.store, 2u) << "what was issued before the trap is counted";
  scalars[0] = 2;
  EXPECT_EQ(mxk_emu_run(&one), 1);
  EXPECT_STREQ(one.message, "v_f32_st_l_v: local address 512: the kernel has declared 2 vectors (mxk_emu_local)");
  scalars[0] = 3;
  EXPECT_EQ(mxk_emu_run(&one), 1);
  EXPECT_STREQ(one.message, "mxk_emu_mark: the kernel ended inside its marked part");
}

TEST_F(EmuKernel, ArgumentsMustFitTheParameters) {
  Launch l = launch(0, 0, 1);
  l.scalar_count = 1;
  EXPECT_EQ(mxk_emu_run(&l), 1);
  EXPECT_STREQ(l.message, "launch: 2 tensors and 1 scalars for a kernel of 4 parameters");
  l.tensor_count = 4;
  l.scalar_count = 0;
  EXPECT_EQ(mxk_emu_run(&l), 1);
  EXPECT_STREQ(l.message, "launch: a tensor is passed for a parameter that is not an integer");
}

}  // namespace
}  // namespace mxk::emu::test
