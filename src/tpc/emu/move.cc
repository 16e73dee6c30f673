// SPDX-License-Identifier: Apache-2.0
//
// Moves of whole vectors and between lanes. A group is 32 bytes, a dual group is two of them, a vector four dual
// groups.
#include "tpc/emu/intrinsics.h"
#include "tpc/emu/runtime.h"

using namespace mxk::emu;

namespace {

constexpr int kGroup = 32, kDual = 64;

struct Bytes {
  alignas(16) uint8_t at[256];
};

template <class V>
Bytes bytes(const V& v) {
  return astype<Bytes>(v);
}

template <class V>
V move_if(Op op, const V& a, int switches, const V& income, bool execute) {
  issue(op, switches);
  return execute ? a : income;
}

// Bit i of `write` says whether byte i of a group is written; bit 0 of `groups` the lower group, bit 1 the upper one.
void move_dual(uint8_t* to, const uint8_t* from, uint32_t write, int groups) {
  for (int g = 0; g < 2; ++g) {
    if (!(groups >> g & 1)) continue;
    if (write == ~0u) {
      std::memcpy(to + g * kGroup, from + g * kGroup, kGroup);
      continue;
    }
    for (int i = 0; i < kGroup; ++i)
      if (write >> i & 1) to[g * kGroup + i] = from[g * kGroup + i];
  }
}

void check_dual(int number) {
  if (number < 0 || number > 3) trap("dual group %d is not one of 0..3", number);
}

template <class V>
V move_all(Op op, const V& a, uint32_t write, const int (&from)[4], int switches, const V& income, bool execute) {
  issue(op, switches, 0xFF << 16);
  for (const int d : from) check_dual(d);
  if (!execute) return income;
  const Bytes x = bytes(a);
  Bytes r = bytes(income);
  for (int d = 0; d < 4; ++d) move_dual(r.at + d * kDual, x.at + from[d] * kDual, write, switches >> (16 + 2 * d) & 3);
  return astype<V>(r);
}

// Swaps the two groups of each dual group that is enabled; bits 0 and 1 of the switches enable the lower and the upper
// group of the result.
template <class V>
V swap_groups(Op op, const V& a, uint32_t write, int switches, const V& income, bool execute) {
  issue(op, switches, 63);
  if (!execute) return income;
  const Bytes x = bytes(a);
  Bytes swapped, r = bytes(income);
  for (int g = 0; g < 8; ++g) std::memcpy(swapped.at + g * kGroup, x.at + (g ^ 1) * kGroup, kGroup);
  for (int d = 0; d < 4; ++d)
    if (switches >> (2 + d) & 1) move_dual(r.at + d * kDual, swapped.at + d * kDual, write, switches & 3);
  return astype<V>(r);
}

// The direction of a lane: bit 7 moves, bit 5 is the group it comes from within the dual group, the low bits are the
// element in that group.
constexpr uint8_t kMove = 0x80, kReserved = 0x40, kFromUpper = 0x20, kElement = 0x1F;

void check_reserved(const uchar256& direction) {
  uint8_t any = 0;
  for (const uint8_t d : direction.lane) any = static_cast<uint8_t>(any | d);
  if (!(any & kReserved)) return;
  for (int i = 0; i < 256; ++i)
    if (direction.lane[i] & kReserved) trap("direction 0x%02x of byte %d has reserved bit 6", direction.lane[i], i);
}

uchar256 shuffle_bytes(const uchar256& a, const uchar256& direction, const uchar256& income) {
  check_reserved(direction);
  uchar256 r;
  for (int d = 0; d < 4; ++d) {
    const uint8_t *from = a.lane + d * kDual, *way = direction.lane + d * kDual, *keep = income.lane + d * kDual;
    uint8_t* to = r.lane + d * kDual;
    for (int i = 0; i < kDual; ++i) {
      const uint8_t moved = from[way[i] & (kFromUpper | kElement)];
      const auto m = static_cast<uint8_t>(static_cast<int8_t>(way[i]) >> 7);
      to[i] = static_cast<uint8_t>((moved & m) | (keep[i] & ~m));
    }
  }
  return r;
}

// Lanes of several bytes: every byte of a lane carries the direction of the lane, an element is a lane.
template <class V>
V shuffle_lanes(Op op, const V& a, const uchar256& direction, int switches, const V& income, bool execute) {
  issue(op, switches);
  if (!execute) return income;
  check_reserved(direction);
  constexpr int kSize = sizeof(typename V::Lane), kPerGroup = kGroup / kSize;
  V r;
  for (int i = 0; i < V::kLanes; ++i) {
    const uint8_t* way = direction.lane + i * kSize;
    for (int b = 1; b < kSize; ++b)
      if (way[b] != way[0]) trap("bytes 0 and %d of lane %d have directions 0x%02x and 0x%02x", b, i, way[0], way[b]);
    const int element = way[0] & kElement;
    if ((way[0] & kMove) && element >= kPerGroup)
      trap("direction 0x%02x of lane %d: a group has %d elements", way[0], i, kPerGroup);
    const int dual = i / (2 * kPerGroup) * 2 * kPerGroup;
    r.lane[i] = way[0] & kMove ? a.lane[dual + (way[0] & kFromUpper ? kPerGroup : 0) + element] : income.lane[i];
  }
  return r;
}

template <class V>
V lane_numbers(Op op, const V& income, bool execute) {
  issue(op);
  if (!execute) return income;
  V r;
  for (int i = 0; i < V::kLanes; ++i) r.lane[i] = static_cast<typename V::Lane>(i);
  return r;
}

}  // namespace

#define MXK_MOV(name, V)                                                             \
  V name(const V& a, int switches, const V& income, bool predicate, bool polarity) { \
    return move_if(Op::name, a, switches, income, predicate != polarity);            \
  }

MXK_MOV(v_f32_mov_b, float64)
MXK_MOV(v_u8_mov_b, uchar256)
MXK_MOV(v_bf16_mov_b, bfloat128)
MXK_MOV(v_i32_mov_b, int64)

float64 v_f32_mov_vb(const float64& a, int switches, const float64& income, const bool64& predicate, bool polarity) {
  issue(Op::v_f32_mov_vb, switches);
  float64 r = income;
  for (int i = 0; i < 64; ++i)
    if ((predicate.lane[i] != 0) != polarity) r.lane[i] = a.lane[i];
  return r;
}

#define MXK_MOV_DUAL_GROUP_ALL(name, V)                                                                 \
  V name(const V& a, uint32_t b, int sdg0, int sdg1, int sdg2, int sdg3, int switches, const V& income, \
         bool predicate, bool polarity) {                                                               \
    return move_all(Op::name, a, b, {sdg0, sdg1, sdg2, sdg3}, switches, income, predicate != polarity); \
  }

MXK_MOV_DUAL_GROUP_ALL(v_u8_mov_dual_group_all_b, uchar256)
MXK_MOV_DUAL_GROUP_ALL(v_u16_mov_dual_group_all_b, ushort128)
MXK_MOV_DUAL_GROUP_ALL(v_f32_mov_dual_group_all_b, float64)

float64 v_f32_mov_dual_group_b(const float64& a, uint32_t b, int src_dg, int dest_dg, int switches,
                               const float64& income, bool predicate, bool polarity) {
  issue(Op::v_f32_mov_dual_group_b, switches, SW_WR_LOWER_GROUP | SW_WR_UPPER_GROUP);
  check_dual(src_dg);
  check_dual(dest_dg);
  if (predicate == polarity) return income;
  const Bytes x = bytes(a);
  Bytes r = bytes(income);
  move_dual(r.at + dest_dg * kDual, x.at + src_dg * kDual, b, switches >> 12 & 3);
  return astype<float64>(r);
}

float64 v_f32_mov_group_b(const float64& a, uint32_t b, int switches, const float64& income, bool predicate,
                          bool polarity) {
  return swap_groups(Op::v_f32_mov_group_b, a, b, switches, income, predicate != polarity);
}

uchar256 v_u8_mov_group_b(const uchar256& a, uint32_t b, int switches, const uchar256& income, bool predicate,
                          bool polarity) {
  return swap_groups(Op::v_u8_mov_group_b, a, b, switches, income, predicate != polarity);
}

uchar256 v_u8_shuffle_b(const uchar256& a, const uchar256& b, int switches, const uchar256& income, bool predicate,
                        bool polarity) {
  issue(Op::v_u8_shuffle_b, switches);
  return predicate != polarity ? shuffle_bytes(a, b, income) : income;
}

uchar256 v_u8_shuffle_vb(const uchar256& a, const uchar256& b, int switches, const uchar256& income,
                         const bool256& predicate, bool polarity) {
  issue(Op::v_u8_shuffle_vb, switches);
  uchar256 r = shuffle_bytes(a, b, income);
  for (int i = 0; i < 256; ++i)
    if ((predicate.lane[i] != 0) == polarity) r.lane[i] = income.lane[i];
  return r;
}

#define MXK_SHUFFLE(name, V)                                                                            \
  V name(const V& a, const uchar256& b, int switches, const V& income, bool predicate, bool polarity) { \
    return shuffle_lanes(Op::name, a, b, switches, income, predicate != polarity);                      \
  }

MXK_SHUFFLE(v_u16_shuffle_b, ushort128)
MXK_SHUFFLE(v_bf16_shuffle_b, bfloat128)
MXK_SHUFFLE(v_f32_shuffle_b, float64)

uint64 read_lane_id_4b_b(const uint64& income, bool predicate, bool polarity) {
  return lane_numbers(Op::read_lane_id_4b_b, income, predicate != polarity);
}

ushort128 read_lane_id_2b_b(const ushort128& income, bool predicate, bool polarity) {
  return lane_numbers(Op::read_lane_id_2b_b, income, predicate != polarity);
}

uchar256 read_lane_id_1b_b(const uchar256& income, bool predicate, bool polarity) {
  return lane_numbers(Op::read_lane_id_1b_b, income, predicate != polarity);
}
