// SPDX-License-Identifier: Apache-2.0
//
// What goes by address: global memory through gen_addr, vector and scalar local memory, the lookup table.
#include "tpc/emu/intrinsics.h"
#include "tpc/emu/runtime.h"
#include "tpc/emu/tensors.h"

using namespace mxk::emu;

namespace {

// ---- global memory -------------------------------------------------------------------------------------------------

// An address here is no pointer. It says which tensor, whether the coordinate was inside, and how many bytes from the
// start, so that arithmetic on it works and a use of it outside the tensor is noticed. From the top: 4 bits that no
// pointer has, 4 bits of tensor, 1 bit outside, 55 bits of offset with a bias.
constexpr uint64_t kTag = 0x5, kBias = uint64_t{1} << 54;

void* make_address(int number, bool outside, int64_t offset) {
  const uint64_t bits = kTag << 60 | static_cast<uint64_t>(number) << 56 | static_cast<uint64_t>(outside) << 55 |
                        (static_cast<uint64_t>(offset) + kBias);
  return std::bit_cast<void*>(bits);
}

struct Place {
  const Tensor* tensor;
  int number;
  int64_t offset;
};

Place place_of(const void* address) {
  const auto bits = std::bit_cast<uint64_t>(address);
  if (bits >> 60 != kTag) trap("0x%llx is not an address from gen_addr", static_cast<unsigned long long>(bits));
  const int number = bits >> 56 & 15;
  const Tensor& t = tensor_at(number);
  const int64_t offset = static_cast<int64_t>(bits & (kBias * 2 - 1)) - static_cast<int64_t>(kBias);
  if (bits >> 55 & 1)
    trap("the address is that of a coordinate outside tensor %d (byte %lld)", number, static_cast<long long>(offset));
  uint64_t elements = 1;
  for (int d = 0; d < 5; ++d) elements += (t.size[d] - 1) * t.stride[d];
  const auto bytes = static_cast<int64_t>(elements) * size_of(t.type);
  if (offset < 0 || offset >= bytes)
    trap("byte %lld of tensor %d, which has %lld", static_cast<long long>(offset), number,
         static_cast<long long>(bytes));
  return {&t, number, offset};
}

template <class T>
T load_scalar(const void* address, ElementType type) {
  const Place p = place_of(address);
  tensor_at(p.number, type);
  if (p.offset % static_cast<int64_t>(sizeof(T)) != 0)
    trap("byte %lld of tensor %d is not the start of an element", static_cast<long long>(p.offset), p.number);
  T value;
  std::memcpy(&value, static_cast<const uint8_t*>(p.tensor->data) + p.offset, sizeof value);
  return value;
}

constexpr int kHints = SW_L0CS | SW_EV_HINT | SW_PD;

template <class T>
T load_global(Op op, const void* address, ElementType type, int switches, T income, bool execute) {
  issue(op, switches, kHints);
  return execute ? load_scalar<T>(address, type) : income;
}

// ---- vector local memory -------------------------------------------------------------------------------------------

uint32_t vector_at(const State& s, uint32_t address) {
  if (address % kVector != 0) trap("local address %u is not a multiple of %d", address, kVector);
  const uint32_t v = address / kVector;
  if (v >= s.declared)
    trap("local address %u: the kernel has declared %u vectors (mxk_emu_local)", address, s.declared);
  return v;
}

template <class V>
V load_local(Op op, uint32_t address, int switches, const V& income, bool execute) {
  const State& s = issue(op, switches);
  if (!execute) return income;
  const uint32_t v = vector_at(s, address);
  if (!s.vector_written[v]) trap("local address %u was never written in this launch", address);
  V r;
  std::memcpy(static_cast<void*>(&r), s.vectors + address, kVector);
  return r;
}

template <class V>
void store_local(Op op, uint32_t address, const V& value, int switches, bool execute) {
  State& s = issue(op, switches);
  if (!execute) return;
  s.vector_written[vector_at(s, address)] = true;
  std::memcpy(s.vectors + address, &value, kVector);
}

// ---- scalar local memory -------------------------------------------------------------------------------------------

void check_scalar_address(uint32_t address) {
  if (address % 4 != 0) trap("scalar local address %u is not a multiple of 4", address);
  if (address >= kScalarLocal) trap("scalar local address %u of %u bytes", address, kScalarLocal);
}

}  // namespace

void* gen_addr(const int5& inx, int8_t t, int switches, void* income, bool predicate, bool polarity) {
  issue(Op::gen_addr, switches);
  if (predicate == polarity) return income;
  const Tensor& tensor = tensor_at(t);
  if (t > 15) trap("tensor %d: only 16 have addresses", t);
  bool outside = false;
  int64_t at = 0;
  for (int d = 0; d < 5; ++d) {
    outside |= inx[d] < 0 || static_cast<uint64_t>(inx[d]) >= tensor.size[d];
    at += inx[d] * static_cast<int64_t>(tensor.stride[d]);
  }
  return make_address(t, outside, at * size_of(tensor.type));
}

int32_t s_i32_ld_g(void* addr, int switches, int32_t income, bool predicate, bool polarity) {
  return load_global(Op::s_i32_ld_g, addr, ElementType::i32, switches, income, predicate != polarity);
}

uint32_t s_u32_ld_g(void* addr, int switches, uint32_t income, bool predicate, bool polarity) {
  return load_global(Op::s_u32_ld_g, addr, ElementType::i32, switches, income, predicate != polarity);
}

float s_f32_ld_g(void* addr, int switches, float income, bool predicate, bool polarity) {
  return load_global(Op::s_f32_ld_g, addr, ElementType::f32, switches, income, predicate != polarity);
}

uint8_t s_u8_ld_g(void* addr, int switches, uint8_t income, bool predicate, bool polarity) {
  return load_global(Op::s_u8_ld_g, addr, ElementType::u8, switches, income, predicate != polarity);
}

float64 v_f32_ld_g(void* addr, int switches, const float64& income, bool predicate, bool polarity) {
  issue(Op::v_f32_ld_g, switches, kHints);
  return predicate != polarity ? float64(load_scalar<float>(addr, ElementType::f32)) : income;
}

// A hint. Whether one outside the tensor is harmless on the card is unknown, so the address must be good.
void prefetch(void* a, int switches, bool predicate, bool polarity) {
  issue(Op::prefetch, switches);
  if (predicate != polarity) place_of(a);
}

bfloat128 v_bf16_ld_l_v_b(uint32_t addr, int switches, const bfloat128& income, bool predicate, bool polarity) {
  return load_local(Op::v_bf16_ld_l_v_b, addr, switches, income, predicate != polarity);
}

float64 v_f32_ld_l_v_b(uint32_t addr, int switches, const float64& income, bool predicate, bool polarity) {
  return load_local(Op::v_f32_ld_l_v_b, addr, switches, income, predicate != polarity);
}

uchar256 v_u8_ld_l_v_b(uint32_t addr, int switches, const uchar256& income, bool predicate, bool polarity) {
  return load_local(Op::v_u8_ld_l_v_b, addr, switches, income, predicate != polarity);
}

void v_f32_st_l_v(uint32_t addr, const float64& value, int switches, bool predicate, bool polarity) {
  store_local(Op::v_f32_st_l_v, addr, value, switches, predicate != polarity);
}

void v_bf16_st_l_v(uint32_t addr, const bfloat128& value, int switches, bool predicate, bool polarity) {
  store_local(Op::v_bf16_st_l_v, addr, value, switches, predicate != polarity);
}

void v_u8_st_l_v(uint32_t addr, const uchar256& value, int switches, bool predicate, bool polarity) {
  store_local(Op::v_u8_st_l_v, addr, value, switches, predicate != polarity);
}

int32_t s_i32_ld_l(uint32_t addr, int switches, int32_t income, bool predicate, bool polarity) {
  const State& s = issue(Op::s_i32_ld_l, switches);
  if (predicate == polarity) return income;
  check_scalar_address(addr);
  if (!s.scalar_written[addr / 4]) trap("scalar local address %u was never written in this launch", addr);
  int32_t value;
  std::memcpy(&value, s.scalars + addr, sizeof value);
  return value;
}

void s_i32_st_l(uint32_t addr, int32_t value, int switches, bool predicate, bool polarity) {
  State& s = issue(Op::s_i32_st_l, switches);
  if (predicate == polarity) return;
  check_scalar_address(addr);
  s.scalar_written[addr / 4] = true;
  std::memcpy(s.scalars + addr, &value, sizeof value);
}

uint32_t get_dim_size(int32_t a, uint32_t dim) {
  issue(Op::get_dim_size);
  if (dim > 4) trap("dimension %u is not one of 0..4", dim);
  return static_cast<uint32_t>(tensor_at(a).size[dim]);
}

// ---- the lookup table ----------------------------------------------------------------------------------------------

void set_lut_256(int t) {
  State& s = issue(Op::set_lut_256);
  const Tensor& table = tensor_at(t, ElementType::bf16);
  if (table.size[0] < 512)
    trap("tensor %d has %llu elements in dimension 0, a table has 512", t,
         static_cast<unsigned long long>(table.size[0]));
  s.table = t;
}

// Entry i of the table is its elements 2i and 2i + 1. Takes the LOAD slot of the next instruction too.
bfloat256 v_bf16_lookup_2c(const ushort128& a, int fid, int switches, const bfloat256& income, bool predicate,
                           bool polarity) {
  State& s = issue(Op::v_bf16_lookup_2c, switches, SW_LUT_PTR);
  ++s.slots[LOAD];
  if (!(switches & SW_LUT_PTR)) trap_switches(switches);
  if (fid != 0) trap("function %d: only table 0 of set_lut_256 is emulated", fid);
  if (predicate == polarity) return income;
  if (s.table == kNoTensor) trap("no table: set_lut_256 was not called");
  const auto* const table = static_cast<const bf16*>(tensor_at(s.table).data);
  bfloat256 r;
  for (int i = 0; i < 128; ++i) {
    if (a.lane[i] > 255) trap("lane %d asks for entry %d of 256", i, a.lane[i]);
    r.v1.lane[i] = table[2 * a.lane[i]];
    r.v2.lane[i] = table[2 * a.lane[i] + 1];
  }
  return r;
}
