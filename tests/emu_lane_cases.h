// SPDX-License-Identifier: Apache-2.0
//
// The cases of emu_test.cc that compute on lanes. Included there.
#pragma once

const Case kLaneCases[] = {
    // ---- bits
    {CASE(v_u8_and_b){bitwise(v_u8_and_b, bits, [](uint32_t x, uint32_t y) { return ~(~x | ~y); });
}  // namespace
}  // namespace mxk::emu::test
, {CASE(v_u16_and_b){bitwise(v_u16_and_b, bits, [](uint32_t x, uint32_t y) { return ~(~x | ~y); });
}
}
, {CASE(v_u32_and_b){bitwise(v_u32_and_b, bits, [](uint32_t x, uint32_t y) { return ~(~x | ~y); });
}
}
, {CASE(v_u8_or_b){bitwise(v_u8_or_b, bits, [](uint32_t x, uint32_t y) { return ~(~x & ~y); });
}
}
, {CASE(v_u16_or_b){bitwise(v_u16_or_b, bits, [](uint32_t x, uint32_t y) { return ~(~x & ~y); });
}
}
, {CASE(v_u32_or_b){bitwise(v_u32_or_b, bits, [](uint32_t x, uint32_t y) { return ~(~x & ~y); });
}
}
, {CASE(v_u8_xor_b){bitwise(v_u8_xor_b, bits, [](uint32_t x, uint32_t y) { return (x | y) - (x & y); });
}
}
, {CASE(v_u32_xor_b){bitwise(v_u32_xor_b, bits, [](uint32_t x, uint32_t y) { return (x | y) - (x & y); });
}
}
, {CASE(v_u8_shl_b){
      shift<uchar256, char256>(v_u8_shl_b, bits, 8, [](uint32_t x, uint32_t n) { return shifted_left(x, n, 8); });
}
}
, {CASE(v_u16_shl_b){
      shift<ushort128, short128>(v_u16_shl_b, bits, 16, [](uint32_t x, uint32_t n) { return shifted_left(x, n, 16); });
}
}
, {CASE(v_u32_shl_b){
      shift<uint64, int64>(v_u32_shl_b, bits, 32, [](uint32_t x, uint32_t n) { return shifted_left(x, n, 32); });
}
}
, {CASE(v_i32_shl_b){
      shift<int64, int64>(v_i32_shl_b, bits, 32, [](uint32_t x, uint32_t n) { return shifted_left(x, n, 32); });
}
}
, {CASE(v_u8_shr_b){shift<uchar256, char256>(v_u8_shr_b, bits, 8, shifted_right);
}
}
, {CASE(v_u16_shr_b){shift<ushort128, short128>(v_u16_shr_b, bits, 16, shifted_right);
}
}
, {CASE(v_u32_shr_b){shift<uint64, int64>(v_u32_shr_b, bits, 32, shifted_right);
}
}
, {CASE(v_i8_ash_b){for (const int sw : {0, +SW_RHU, SW_SAT | SW_RHU}){const auto want = [sw](uint32_t x, uint32_t n) {
  return static_cast<uint32_t>(
             static_cast<int>(scaled(static_cast<int8_t>(x), static_cast<int8_t>(n), sw & SW_RHU, -128, 127))) &
         0xFF;
};
for (int n = -7; n < 8; ++n) binary(v_i8_ash_b, bits.vector<char256>(), char256(n), want, sw);
binary(v_i8_ash_b, bits.vector<char256>(), counts<char256>(bits, -7, 7), want, sw);
}
}
}
, {CASE(v_i32_ash_b){const int64 a = bits.vector<int64>(), income = bits.vector<int64>();
for (const int sw : {0, +SW_RHU})
  for (int n = -31; n < 32; ++n) {
    const int64 got = v_i32_ash_b(a, n, sw);
    for (int i = 0; i < 64; ++i)
      ASSERT_EQ(got.lane[i], scaled(a.lane[i], n, sw != 0, -0x1p31, 0x1p31 - 1)) << a.lane[i] << " " << n;
  }
predicated(v_i32_ash_b(a, -3), income, [&](bool p, bool q) { return v_i32_ash_b(a, -3, 0, income, p, q); });
}
}
, {CASE(v_u16_add_b){bitwise(v_u16_add_b, bits, [](uint32_t x, uint32_t y) { return (x - (0u - y)) & 0xFFFF; });
}
}
, {CASE(v_u16_sub_b){bitwise(v_u16_sub_b, bits, [](uint32_t x, uint32_t y) { return (x + ~y + 1) & 0xFFFF; });
}
}
, {CASE(v_u16_min_b){bitwise(v_u16_min_b, bits, [](uint32_t x, uint32_t y) { return x - y > 0xFFFF ? x : y; });
}
}
, {CASE(v_i32_add_b){bitwise(v_i32_add_b, bits, [](uint32_t x, uint32_t y) { return x - (0u - y); });
}
}
, {CASE(v_u32_add_b){bitwise(v_u32_add_b, bits, [](uint32_t x, uint32_t y) { return x - (0u - y); });
}
}
, {CASE(v_i32_sub_b){bitwise(v_i32_sub_b, bits, [](uint32_t x, uint32_t y) { return x + ~y + 1; });
}
}
,

    // ---- conversions
    {CASE(v_convert_h8_to_bf16_all_b){uchar256 all;
for (int i = 0; i < 256; ++i) all.lane[i] = static_cast<uint8_t>(i);
const bfloat256 got = v_convert_h8_to_bf16_all_b((minihalf256)all), income = bf16_pair_of(bits);
for (int b = 0; b < 256; ++b) EXPECT_EQ((b % 2 ? got.v2 : got.v1).lane[b / 2].bits, ref_h8(b)) << "byte " << b;
// The four values that E2M1 below 2 becomes, by their names.
EXPECT_EQ(got.v1.lane[0x00 / 2].bits, 0x0000);
EXPECT_EQ(got.v1.lane[0x02 / 2].bits, 0x3800) << "0.5 * 2^-14, a denormal of h8";
EXPECT_EQ(got.v1.lane[0x04 / 2].bits, 0x3880);
EXPECT_EQ(got.v1.lane[0x80 / 2].bits, 0x8000);
predicated(got, income, [&](bool p, bool q) { return v_convert_h8_to_bf16_all_b((minihalf256)all, 0, income, p, q); });
}
}
, {CASE(v_convert_i8_to_bf16_all_b){char256 all;
for (int i = 0; i < 256; ++i) all.lane[i] = static_cast<int8_t>(i - 128);
const bfloat256 got = v_convert_i8_to_bf16_all_b(all), income = bf16_pair_of(bits);
for (int i = 0; i < 256; ++i) EXPECT_EQ(bf16_to_f32((i % 2 ? got.v2 : got.v1).lane[i / 2].bits), i - 128);
predicated(got, income, [&](bool p, bool q) { return v_convert_i8_to_bf16_all_b(all, 0, income, p, q); });
}
}
, {CASE(v_convert_f32_to_bf16_all_b){const bfloat128 income = bits.bf16s();
for (const int mode : {+SW_RHNE, +SW_RZ, +SW_RU, +SW_RD, +SW_RHAZ})
  for (int round = 0; round < 40; ++round) {
    float128 a = pair_of(bits);
    for (int i = 0; i < 64; i += 3) a.v2.lane[i] = f32((bits.f32() & 0xFFFF0000u) | 0x8000);  // in the middle
    a.v1.lane[0] = f32(0x00018000), a.v1.lane[1] = f32(0x807F8001), a.v1.lane[2] = f32(0x7F7FFFFF);
    const bfloat128 got = v_convert_f32_to_bf16_all_b(a, mode, income);
    for (int i = 0; i < 128; ++i)
      ASSERT_EQ(got.lane[i].bits, ref_bf16(lane_bits(half_of(a, i % 2), i / 2), mode))
          << std::hex << lane_bits(half_of(a, i % 2), i / 2) << " mode " << mode;
    predicated(got, income, [&](bool p, bool q) { return v_convert_f32_to_bf16_all_b(a, mode, income, p, q); });
  }
const float128 denormal = {f32(0x00012345), f32(0x80700000)};
const bfloat128 kept = v_convert_f32_to_bf16_all_b(denormal);
EXPECT_EQ(kept.lane[0].bits, 0x0001) << "denormals are kept by a conversion";
EXPECT_EQ(kept.lane[1].bits, 0x8070);
}
}
, {CASE(v_convert_bf16_to_f32_all_b){const bfloat128 a = bits.vector<bfloat128>();
const float128 got = v_convert_bf16_to_f32_all_b(a), income = pair_of(bits);
for (int i = 0; i < 128; ++i) EXPECT_EQ(lane_bits(half_of(got, i % 2), i / 2), wide(a, i));
predicated(got, income, [&](bool p, bool q) { return v_convert_bf16_to_f32_all_b(a, 0, income, p, q); });
}
}
, {CASE(v_convert_f32_to_i32_b){const int64 income = bits.vector<int64>();
for (const int mode : {+SW_RHNE, +SW_RZ, +SW_RU, +SW_RD, +SW_RHAZ})
  for (int round = 0; round < 20; ++round) {
    float64 a = bits.floats();
    for (int i = 0; i < 64; ++i)
      if (round % 2) a.lane[i] = static_cast<float>(static_cast<int>(bits.word() % 4001) - 2000) * 0.25f;
    if (round % 4 == 3) a.lane[round] = 0x1.000002p23f * static_cast<float>(round % 3 - 1);
    if (round % 4 == 1) a.lane[round] = 0x1.000006p22f;
    const int64 got = v_convert_f32_to_i32_b(a, mode, income);
    for (int i = 0; i < 64; ++i) {
      const double x = a.lane[i];
      const int want = std::isnan(x)            ? 0
                       : x >= 0x1p31            ? INT32_MAX
                       : x <= -0x1p31           ? INT32_MIN
                       : std::fabs(x) >= 0x1p24 ? static_cast<int>(x)
                                                : static_cast<int>(integer_by(mode, x));
      ASSERT_EQ(got.lane[i], want) << x << " mode " << mode;
    }
    predicated(got, income, [&](bool p, bool q) { return v_convert_f32_to_i32_b(a, mode, income, p, q); });
  }
}
}
, {CASE(v_convert_i32_to_f32_b){const float64 income = bits.floats();
for (const int mode : {+SW_RHNE, +SW_RZ, +SW_RU, +SW_RD, +SW_RHAZ})
  for (int round = 0; round < 20; ++round) {
    int64 a = bits.vector<int64>();
    a.lane[0] = 0, a.lane[1] = INT32_MIN, a.lane[2] = INT32_MAX, a.lane[3] = (1 << 24) + 1, a.lane[4] = -a.lane[3];
    const float64 got = v_convert_i32_to_f32_b(a, mode, income);
    for (int i = 0; i < 64; ++i) {
      // The value in units of its last place, rounded as an integer.
      const double x = a.lane[i], unit = std::ldexp(1, x == 0 ? 0 : std::max(0, std::ilogb(x) - 23));
      const double q = x / unit, down = std::floor(q), rest = q - down;
      const bool up = mode == SW_RU     ? rest > 0
                      : mode == SW_RD   ? false
                      : mode == SW_RZ   ? rest > 0 && x < 0
                      : rest != 0.5     ? rest > 0.5
                      : mode == SW_RHAZ ? x > 0
                                        : std::fmod(down, 2) != 0;
      ASSERT_EQ(double{got.lane[i]}, (down + up) * unit) << a.lane[i] << " mode " << mode;
    }
    predicated(got, income, [&](bool p, bool q) { return v_convert_i32_to_f32_b(a, mode, income, p, q); });
  }
}
}
, {CASE(v_f32_nearbyint_b){const float64 income = bits.floats();
for (const int mode : {+SW_RHNE, +SW_RZ, +SW_RU, +SW_RD})
  for (int round = 0; round < 20; ++round) {
    float64 a = bits.floats();
    for (int i = 0; i < 64; ++i)
      if (round % 2) a.lane[i] = static_cast<float>(static_cast<int>(bits.word() % 4001) - 2000) * 0.25f;
    if (round % 4 == 3) a.lane[round] = 0x1.000002p23f * static_cast<float>(round % 3 - 1);
    if (round % 4 == 1) a.lane[round] = 0x1.000006p22f;
    const float64 got = v_f32_nearbyint_b(a, mode, income);
    for (int i = 0; i < 64; ++i) {
      const float x = a.lane[i];
      if (std::isnan(x)) {
        ASSERT_EQ(lane_bits(got, i), kOneNan);
        continue;
      }
      ASSERT_EQ(double{got.lane[i]}, std::fabs(x) >= 0x1p23f ? double{x} : integer_by(mode, x)) << x;
      ASSERT_EQ(std::signbit(got.lane[i]), std::signbit(x)) << x;
    }
    predicated(got, income, [&](bool p, bool q) { return v_f32_nearbyint_b(a, mode, income, p, q); });
  }
}
}
,

    // ---- floating point
    {CASE(v_f32_add_b){for (int i = 0; i < 99; ++i) binary(v_f32_add_b, bits.floats(), bits.floats(), ref_add);
}
}
, {CASE(v_f32_sub_b){for (int i = 0; i < 99; ++i) binary(
      v_f32_sub_b, bits.floats(), bits.floats(), [](uint32_t x, uint32_t y) { return ref_add(x, y ^ 0x80000000u); });
}
}
, {CASE(v_f32_mul_b){for (const Operands& o : fma_operands(bits)) binary(v_f32_mul_b, o.a, o.b, ref_mul);
binary(v_f32_mul_b, float64(0x1.fffffep-1f), float64(0x1p-126f), ref_mul);
EXPECT_EQ(lane_bits(v_f32_mul_b(0x1.fffffep-1f, 0x1p-126f), 0), 0u) << "flushed though it rounds up as a denormal";
}
}
, {CASE(v_f32_min_b){for (int i = 0; i < 9; ++i) binary(
      v_f32_min_b, bits.floats(), bits.floats(), [](uint32_t x, uint32_t y) { return f32(x) <= f32(y) ? x : y; });
}
}
, {CASE(v_f32_max_b){for (int i = 0; i < 9; ++i) binary(
      v_f32_max_b, bits.floats(), bits.floats(), [](uint32_t x, uint32_t y) { return f32(x) >= f32(y) ? x : y; });
}
}
, {CASE(v_f32_abs_b){const float64 a = bits.floats(), income = bits.floats(), got = v_f32_abs_b(a);
for (int i = 0; i < 64; ++i) EXPECT_EQ(lane_bits(got, i), lane_bits(a, i) << 1 >> 1);
predicated(got, income, [&](bool p, bool q) { return v_f32_abs_b(a, 0, income, p, q); });
}
}
, {CASE(v_f32_mac_b){fused(bits, v_f32_mac_b);
const float64 a = bits.floats(), b = bits.floats(), c = bits.floats();
predicated(v_f32_mac_b(a, b, c), c, [&](bool p, bool q) { return v_f32_mac_b(a, b, c, 0, p, q); });
}
}
, {CASE(v_f32_madd_b){const float64 a = bits.floats(), b = bits.floats(), c = bits.floats(), income = bits.floats();
fused(bits, [&](const float64& x, const float64& y, const float64& z, int sw, bool p, bool q) {
  return v_f32_madd_b(x, y, z, sw, income, p, q);
});
predicated(v_f32_madd_b(a, b, c), income, [&](bool p, bool q) { return v_f32_madd_b(a, b, c, 0, income, p, q); });
}
}
, {CASE(v_f32_mac_x2_b){for (const int sw : {0, +SW_NEG}) for (int round = 0; round < 20; ++round){
      const float128 a = pair_of(bits), acc = pair_of(bits);
const float64 b = round % 2 ? bits.floats() : float64(0x1p-7f), c = bits.floats();
const float128 got = v_f32_mac_x2_b(a, b, c, acc, sw);
for (int i = 0; i < 128; ++i)
  ASSERT_EQ(lane_bits(half_of(got, i / 64), i % 64),
            ref_fma(negated(lane_bits(half_of(a, i / 64), i % 64), sw), lane_bits(i < 64 ? b : c, i % 64),
                    lane_bits(half_of(acc, i / 64), i % 64)));
predicated(got, acc, [&](bool p, bool q) { return v_f32_mac_x2_b(a, b, c, acc, sw, p, q); });
}
}
}
, {CASE(v_f32_mul_x2_b){const float128 a = pair_of(bits), income = pair_of(bits);
const float64 b = bits.floats(), c = bits.floats();
const float128 got = v_f32_mul_x2_b(a, b, c);
for (int i = 0; i < 64; ++i) {
  EXPECT_EQ(lane_bits(got.v1, i), ref_mul(lane_bits(a.v1, i), lane_bits(b, i)));
  EXPECT_EQ(lane_bits(got.v2, i), ref_mul(lane_bits(a.v2, i), lane_bits(c, i)));
}
predicated(got, income, [&](bool p, bool q) { return v_f32_mul_x2_b(a, b, c, 0, income, p, q); });
}
}
, {CASE(v_f32_add_x2_b){const float128 a = pair_of(bits), income = pair_of(bits);
const float64 b = bits.floats(), c = bits.floats();
const float128 got = v_f32_add_x2_b(a, b, c);
for (int i = 0; i < 64; ++i) {
  EXPECT_EQ(lane_bits(got.v1, i), ref_add(lane_bits(a.v1, i), lane_bits(b, i)));
  EXPECT_EQ(lane_bits(got.v2, i), ref_add(lane_bits(a.v2, i), lane_bits(c, i)));
}
predicated(got, income, [&](bool p, bool q) { return v_f32_add_x2_b(a, b, c, 0, income, p, q); });
}
}
, {CASE(v_f32_add_vb){const float64 a = bits.floats(), b = bits.floats(), income = bits.floats();
bool64 p;
for (uint8_t& x : p.lane) x = bits.word() & 1;
for (const bool polarity : {false, true}) {
  const float64 got = v_f32_add_vb(a, b, 0, income, p, polarity);
  for (int i = 0; i < 64; ++i)
    EXPECT_EQ(lane_bits(got, i),
              p.lane[i] != polarity ? ref_add(lane_bits(a, i), lane_bits(b, i)) : lane_bits(income, i));
}
}
}
, {CASE(v_bf16_mul_b){const bfloat128 income = bits.bf16s();
for (int round = 0; round < 400; ++round) {
  const auto [a, b] = bf16_operands(bits, round);
  const bfloat128 got = v_bf16_mul_b(a, b);
  for (int i = 0; i < 128; ++i)
    ASSERT_EQ(got.lane[i].bits, ref_bf16_mul(wide(a, i), wide(b, i))) << std::hex << wide(a, i) << " " << wide(b, i);
  predicated(got, income, [&](bool p, bool q) { return v_bf16_mul_b(a, b, 0, income, p, q); });
}
}
}
, {CASE(v_bf16_mul_acc32_b){const float128 income = pair_of(bits);
for (int round = 0; round < 400; ++round) {
  const auto [a, b] = bf16_operands(bits, round);
  const float128 got = v_bf16_mul_acc32_b(a, b);
  for (int i = 0; i < 128; ++i) ASSERT_EQ(lane_bits(half_of(got, i % 2), i / 2), ref_mul(wide(a, i), wide(b, i)));
  predicated(got, income, [&](bool p, bool q) { return v_bf16_mul_acc32_b(a, b, 0, income, p, q); });
}
}
}
, {CASE(v_bf16_mac_acc32_b){for (int round = 0; round < 2000; ++round){const auto [a, b] = bf16_operands(bits, round);
const float128 acc = bf16_sums(bits, round / 4);
const int sw = round / 8 % 2 ? SW_NEG : 0;
const float128 got = v_bf16_mac_acc32_b(a, b, acc, sw);
for (int i = 0; i < 128; ++i)
  ASSERT_EQ(lane_bits(half_of(got, i % 2), i / 2),
            ref_fma(negated(wide(a, i), sw), wide(b, i), lane_bits(half_of(acc, i % 2), i / 2)))
      << std::hex << wide(a, i) << " " << wide(b, i) << " lane " << i;
predicated(got, acc, [&](bool p, bool q) { return v_bf16_mac_acc32_b(a, b, acc, sw, p, q); });
}
}
}
,

    // ---- moves
    {CASE(v_u8_shuffle_b){shuffled(v_u8_shuffle_b, bits);
uchar256 table, nibbles;  // as a table of 16 bytes, one in every dual group
for (int i = 0; i < 256; ++i) table.lane[i] = static_cast<uint8_t>(3 * (i % 64)), nibbles.lane[i] = bits.word() & 15;
const uchar256 got = v_u8_shuffle_b(table, v_u8_or_b(nibbles, 0x80), 0, table);
for (int i = 0; i < 256; ++i) EXPECT_EQ(got.lane[i], 3 * nibbles.lane[i]);
}
}
, {CASE(v_u16_shuffle_b){shuffled(v_u16_shuffle_b, bits);
}
}
, {CASE(v_bf16_shuffle_b){shuffled(v_bf16_shuffle_b, bits);
}
}
, {CASE(v_f32_shuffle_b){shuffled(v_f32_shuffle_b, bits);
}
}
, {CASE(v_u8_shuffle_vb){const uchar256 a = bits.vector<uchar256>(), income = bits.vector<uchar256>(),
                         d = directions(bits, 1);
bool256 p;
for (uint8_t& x : p.lane) x = bits.word() & 1;
for (const bool polarity : {false, true}) {
  const uchar256 all = v_u8_shuffle_b(a, d, 0, income), got = v_u8_shuffle_vb(a, d, 0, income, p, polarity);
  for (int i = 0; i < 256; ++i) EXPECT_EQ(got.lane[i], p.lane[i] != polarity ? all.lane[i] : income.lane[i]);
}
}
}
, {CASE(v_u8_mov_dual_group_all_b){dual_groups<uchar256>(v_u8_mov_dual_group_all_b, bits);
}
}
, {CASE(v_u16_mov_dual_group_all_b){dual_groups<ushort128>(v_u16_mov_dual_group_all_b, bits);
}
}
, {CASE(v_f32_mov_dual_group_all_b){dual_groups<float64>(v_f32_mov_dual_group_all_b, bits);
}
}
, {CASE(v_f32_mov_dual_group_b){const uchar256 a = bits.vector<uchar256>(), income = bits.vector<uchar256>();
for (int k = 0; k < 64; ++k) {
  const int from = k & 3, to = k >> 2 & 3, w = k >> 4;
  const uint32_t write = k % 3 ? bits.word() : ~0u;
  const float64 got = v_f32_mov_dual_group_b((float64)a, write, from, to, MkWr(w & 1, w & 2), (float64)income);
  const uchar256 r = as_bytes(got);
  for (int i = 0; i < 256; ++i) {
    const bool written = i / 64 == to && (w >> i % 64 / 32 & 1) && (write >> i % 32 & 1);
    ASSERT_EQ(r.lane[i], written ? a.lane[from * 64 + i % 64] : income.lane[i]) << i;
  }
  predicated(got, (float64)income, [&](bool p, bool q) {
    return v_f32_mov_dual_group_b((float64)a, write, from, to, MkWr(w & 1, w & 2), (float64)income, p, q);
  });
}
}
}
, {CASE(v_f32_mov_group_b){group_swap(v_f32_mov_group_b, bits);
}
}
, {CASE(v_u8_mov_group_b){group_swap(v_u8_mov_group_b, bits);
}
}
, {CASE(v_f32_mov_b){splat(v_f32_mov_b, 1.5f, bits);
}
}
, {CASE(v_u8_mov_b){splat(v_u8_mov_b, 0x8E, bits);
}
}
, {CASE(v_bf16_mov_b){splat(v_bf16_mov_b, 1.5f, bits);
}
}
, {CASE(v_i32_mov_b){splat(v_i32_mov_b, -7, bits);
}
}
, {CASE(v_f32_mov_vb){const float64 a = bits.floats(), income = bits.floats();
bool64 p;
for (uint8_t& x : p.lane) x = bits.word() & 1;
for (const bool polarity : {false, true}) {
  const float64 got = v_f32_mov_vb(a, 0, income, p, polarity);
  for (int i = 0; i < 64; ++i) EXPECT_EQ(lane_bits(got, i), lane_bits(p.lane[i] != polarity ? a : income, i));
}
}
}
, {CASE(read_lane_id_4b_b){lane_numbers(read_lane_id_4b_b, bits);
}
}
, {CASE(read_lane_id_2b_b){lane_numbers(read_lane_id_2b_b, bits);
}
}
, {CASE(read_lane_id_1b_b){lane_numbers(read_lane_id_1b_b, bits);
}
}
,

    // ---- comparisons
    {CASE(v_f32_sel_less_f32_b){select(v_f32_sel_less_f32_b, bits.floats(), bits.floats(), bits,
                                       [](uint32_t x, uint32_t y) { return f32(x) < f32(y); });
}
}
, {CASE(v_f32_sel_eq_f32_b){float64 a = bits.floats(), b = bits.floats();
for (int i = 0; i < 64; i += 2) b.lane[i] = a.lane[i];
a.lane[0] = 0.0f, b.lane[0] = -0.0f, a.lane[1] = b.lane[1] = f32(1), a.lane[3] = f32(2), b.lane[3] = f32(1);
select(v_f32_sel_eq_f32_b, a, b, bits, [](uint32_t x, uint32_t y) { return f32(x) == f32(y); });
}
}
, {CASE(v_u32_sel_less_u32_b){select(v_u32_sel_less_u32_b, bits.vector<uint64>(), bits.vector<uint64>(), bits,
                                     [](uint32_t x, uint32_t y) { return int64_t{x} - int64_t{y} < 0; });
}
}
, {CASE(v_i32_sel_less_i32_b){select(v_i32_sel_less_i32_b, bits.vector<int64>(), bits.vector<int64>(), bits,
                                     [](uint32_t x, uint32_t y) { return (x ^ 0x80000000u) < (y ^ 0x80000000u); });
}
}
, {CASE(v_f32_cmp_less_b){
      compare(v_f32_cmp_less_b, bits.floats(), bits.floats(), [](uint32_t x, uint32_t y) { return f32(x) < f32(y); });
}
}
, {CASE(v_u32_cmp_less_b){compare(v_u32_cmp_less_b, bits.vector<uint64>(), bits.vector<uint64>(),
                                  [](uint32_t x, uint32_t y) { return int64_t{x} - int64_t{y} < 0; });
}
}
, {CASE(v_u8_cmp_less_b){compare(v_u8_cmp_less_b, bits.vector<uchar256>(), bits.vector<uchar256>(),
                                 [](uint32_t x, uint32_t y) { return int64_t{x} - int64_t{y} < 0; });
}
}
,
}
;
