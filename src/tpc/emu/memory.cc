// SPDX-License-Identifier: Apache-2.0
//
// Tensor loads and stores.
#include <algorithm>
#include <atomic>

#include "tpc/emu/intrinsics.h"
#include "tpc/emu/runtime.h"
#include "tpc/emu/tensors.h"

using namespace mxk::emu;

namespace mxk::emu {

const char* name_of(ElementType t) {
  return t == ElementType::u8 ? "u8" : t == ElementType::bf16 ? "bf16" : t == ElementType::i32 ? "i32" : "f32";
}

const Tensor& tensor_at(int number) {
  const Launch& l = *current->launch;
  if (number < 0 || number >= l.tensor_count) trap("tensor %d of %d tensors", number, l.tensor_count);
  return l.tensors[number];
}

const Tensor& tensor_at(int number, ElementType want) {
  const Tensor& t = tensor_at(number);
  if (t.type != want) trap("tensor %d has elements of type %s, not %s", number, name_of(t.type), name_of(want));
  return t;
}

}  // namespace mxk::emu

namespace {

// Where the row of a coordinate begins, or null when a coordinate above dimension 0 is outside.
struct Row {
  bool inside;
  int64_t at;     // elements from the start of the tensor, by its strides
  int64_t dense;  // elements in a dense tensor of this size: the place in `written`
};

Row row_of(const Tensor& t, const int5& ndx) {
  Row r{true, 0, 0};
  for (int d = 4; d >= 1; --d) {
    if (ndx[d] < 0 || static_cast<uint64_t>(ndx[d]) >= t.size[d]) return {false, 0, 0};
    r.at += ndx[d] * static_cast<int64_t>(t.stride[d]);
    r.dense = (r.dense + ndx[d]) * static_cast<int64_t>(t.size[d - 1]);
  }
  return r;
}

// Lanes [first, last) of `lanes` lie inside dimension 0 when lane 0 is at coordinate `start`.
struct Lanes {
  int64_t first, last;
};

Lanes lanes_inside(const Tensor& t, int64_t start, int lanes) {
  const int64_t size = static_cast<int64_t>(t.size[0]);
  const int64_t first = std::clamp<int64_t>(-start, 0, lanes);
  return {first, std::clamp<int64_t>(size - start, first, lanes)};
}

template <class V>
V load(const int5& ndx, int number, ElementType type) {
  constexpr int kSize = sizeof(typename V::Lane);
  const Tensor& t = tensor_at(number, type);
  V r{};
  const Row row = row_of(t, ndx);
  if (!row.inside) return r;
  const Lanes in = lanes_inside(t, ndx[0], V::kLanes);
  if (in.first < in.last)
    std::memcpy(static_cast<void*>(r.lane + in.first),
                static_cast<const uint8_t*>(t.data) + (row.at + ndx[0] + in.first) * kSize,
                static_cast<size_t>((in.last - in.first) * kSize));
  return r;
}

void check_part(int size, int offset, int lanes) {
  if (size < 0 || offset < 0 || size + 1 + offset > lanes)
    trap("%d elements from lane %d on of a vector of %d lanes", size + 1, offset, lanes);
}

template <class V>
V load_if(Op op, const int5& ndx, int number, ElementType type, int switches, const V& income, bool execute) {
  issue(op, switches, SW_L0CS);
  return execute ? load<V>(ndx, number, type) : income;
}

// 128 bytes of a u8 tensor, each in the low half of a 16-bit lane.
template <class V>
V load_8_to_16(const int5& ndx, int number) {
  const Tensor& t = tensor_at(number, ElementType::u8);
  ushort128 r;
  const unsigned high = current->launch->unpack_high * 256u;
  const Row row = row_of(t, ndx);
  const Lanes in = row.inside ? lanes_inside(t, ndx[0], 128) : Lanes{0, 0};
  const auto* const data = static_cast<const uint8_t*>(t.data);
  for (int i = 0; i < 128; ++i)
    r.lane[i] = static_cast<uint16_t>(high | (i >= in.first && i < in.last ? data[row.at + ndx[0] + i] : 0u));
  return astype<V>(r);
}

template <class V>
V load_bytes(Op op, const int5& ndx, int number, int switches, const V& income, bool execute) {
  issue(op, switches, SW_L0CS | SW_UNPACK | SW_UNPCK_8_TO_16);
  const int how = switches & (SW_UNPACK | SW_UNPCK_8_TO_16);
  if (how != 0 && how != (SW_UNPACK | SW_UNPCK_8_TO_16)) trap_switches(switches);
  if (!execute) return income;
  return how != 0 ? load_8_to_16<V>(ndx, number) : load<V>(ndx, number, ElementType::u8);
}

// Claims an element for this TPC before it is written, so that of two TPCs the later one stops.
void claim(const Tensor& t, int number, int64_t element) {
  const int tpc = current->launch->tpc;
  const auto mine = static_cast<uint8_t>(1 + tpc);
  uint8_t before = 0;
  if (!std::atomic_ref<uint8_t>(t.written[element]).compare_exchange_strong(before, mine, std::memory_order_relaxed) &&
      before != mine)
    trap("tensor %d: element %lld was written by TPC %d and again by TPC %d", number, static_cast<long long>(element),
         before - 1, tpc);
}

// Lanes [offset, offset + count) of `value` to the coordinates from ndx on; what lies outside is dropped.
template <class V>
void store(const int5& ndx, int number, ElementType type, const V& value, int offset, int count) {
  const Tensor& t = tensor_at(number, type);
  if (!t.is_output) trap("tensor %d is an input", number);
  if (current->launch->tpc < 0 || current->launch->tpc > 254) trap("TPC number %d", current->launch->tpc);
  const Row row = row_of(t, ndx);
  if (!row.inside) return;
  const Lanes in = lanes_inside(t, ndx[0], count);
  constexpr int kSize = sizeof(typename V::Lane);
  auto* const data = static_cast<uint8_t*>(t.data);
  for (int64_t i = in.first; i < in.last; ++i) {
    claim(t, number, row.dense + ndx[0] + i);
    std::memcpy(data + (row.at + ndx[0] + i) * kSize, &value.lane[offset + i], kSize);
  }
}

template <class V>
void store_full(Op op, const int5& ndx, int number, ElementType type, const V& value, int switches, bool execute) {
  State& s = issue(op, switches);
  if (!execute) return;
  s.after_partial = false;
  store(ndx, number, type, value, 0, V::kLanes);
}

template <class V>
void store_partial(Op op, const int5& ndx, int number, ElementType type, const V& value, int size, int offset,
                   int switches, bool execute) {
  State& s = issue(op, switches);
  if (!execute) return;
  check_part(size, offset, V::kLanes);
  if (s.after_partial && s.partial_size == size && s.partial_offset == offset)
    trap("two partial stores of %d elements from lane %d on, one right after the other: the card loses the second",
         size + 1, offset);
  s.after_partial = true;
  s.partial_size = size;
  s.partial_offset = offset;
  store(ndx, number, type, value, offset, size + 1);
}

}  // namespace

uchar256 v_u8_ld_tnsr_b(const int5& ndx, int8_t t, int switches, const uchar256& income, bool predicate,
                        bool polarity) {
  return load_bytes(Op::v_u8_ld_tnsr_b, ndx, t, switches, income, predicate != polarity);
}

// Sixteen bits are sixteen bits: the only tensors with such elements here are of bf16.
ushort128 v_u16_ld_tnsr_b(const int5& ndx, int8_t t, int switches, const ushort128& income, bool predicate,
                          bool polarity) {
  return load_if(Op::v_u16_ld_tnsr_b, ndx, t, ElementType::bf16, switches, income, predicate != polarity);
}

bfloat128 v_bf16_ld_tnsr_b(const int5& ndx, int8_t t, int switches, const bfloat128& income, bool predicate,
                           bool polarity) {
  return load_if(Op::v_bf16_ld_tnsr_b, ndx, t, ElementType::bf16, switches, income, predicate != polarity);
}

float64 v_f32_ld_tnsr_b(const int5& ndx, int8_t t, int switches, const float64& income, bool predicate, bool polarity) {
  return load_if(Op::v_f32_ld_tnsr_b, ndx, t, ElementType::f32, switches, income, predicate != polarity);
}

// The element of the coordinate goes to lane `offset`; lanes outside the part keep income, those outside the tensor are
// 0.
float64 v_f32_ld_tnsr_partial_b(const int5& ndx, int8_t t, int8_t size, int8_t offset, int switches,
                                const float64& income, bool predicate, bool polarity) {
  issue(Op::v_f32_ld_tnsr_partial_b, switches, SW_L0CS);
  if (predicate == polarity) return income;
  check_part(size, offset, 64);
  const float64 from = load<float64>(ndx, t, ElementType::f32);
  float64 r = income;
  std::memcpy(r.lane + offset, from.lane, sizeof(float) * static_cast<size_t>(size + 1));
  return r;
}

int64 v_i32_ld_tnsr_b(const int5& ndx, int8_t t, int switches, const int64& income, bool predicate, bool polarity) {
  return load_if(Op::v_i32_ld_tnsr_b, ndx, t, ElementType::i32, switches, income, predicate != polarity);
}

minihalf256 v_h8_ld_tnsr_b(const int5& ndx, int8_t t, int switches, const minihalf256& income, bool predicate,
                           bool polarity) {
  return load_if(Op::v_h8_ld_tnsr_b, ndx, t, ElementType::u8, switches, income, predicate != polarity);
}

void v_bf16_st_tnsr(const int5& ndx, int8_t t, const bfloat128& value, int switches, bool predicate, bool polarity) {
  store_full(Op::v_bf16_st_tnsr, ndx, t, ElementType::bf16, value, switches, predicate != polarity);
}

void v_f32_st_tnsr(const int5& ndx, int8_t t, const float64& value, int switches, bool predicate, bool polarity) {
  store_full(Op::v_f32_st_tnsr, ndx, t, ElementType::f32, value, switches, predicate != polarity);
}

void v_bf16_st_tnsr_partial(const int5& ndx, int8_t t, const bfloat128& value, int8_t size, int8_t offset, int switches,
                            bool predicate, bool polarity) {
  store_partial(Op::v_bf16_st_tnsr_partial, ndx, t, ElementType::bf16, value, size, offset, switches,
                predicate != polarity);
}

void v_f32_st_tnsr_partial(const int5& ndx, int8_t t, const float64& value, int8_t size, int8_t offset, int switches,
                           bool predicate, bool polarity) {
  store_partial(Op::v_f32_st_tnsr_partial, ndx, t, ElementType::f32, value, size, offset, switches,
                predicate != polarity);
}
