// SPDX-License-Identifier: Apache-2.0
//
// The cases of emu_test.cc that need tensors, addresses or coordinates. Included there.
#pragma once

// A tensor of three dimensions whose bytes say where they are, and whose rows are padded.
int numbered(Machine& m, ElementType type, uint64_t row) {
  const int t = m.add(type, {row, 3, 2}, false, 7);
  for (size_t i = 0; i < m[t].data.size(); ++i) m[t].data[i] = static_cast<uint8_t>(1 + i * 37 % 251);
  return t;
}

// A load at coordinates inside, at both ends of dimension 0, and outside in each other dimension.
template <class V>
void loads(V (*f)(const int5&, int8_t, int, const V&, bool, bool), Machine& m, Bits& bits, ElementType type) {
  const int size = sizeof(typename V::Lane), row = V::kLanes + 40;
  const auto t = static_cast<int8_t>(numbered(m, type, static_cast<uint64_t>(row)));
  m.start();
  const V income = bits.vector<V>();
  const int5 places[] = {{0, 0, 0},   {3, 2, 1},    {40, 1, 1},      {41, 1, 0},    {row - 1, 2, 1},
                         {row, 0, 0}, {-5, 1, 1},   {-300, 0, 0},    {0, 3, 0},     {0, -1, 0},
                         {0, 0, 2},   {0, 0, 0, 1}, {0, 0, 0, 0, 1}, {0, 0, 0, -1}, {2000000000, 0, 0}};
  for (const int5& at : places) {
    const uchar256 got = as_bytes(f(at, t, 0, income, true, false));
    const bool inside = at[1] >= 0 && at[1] < 3 && at[2] >= 0 && at[2] < 2 && at[3] == 0 && at[4] == 0;
    for (int i = 0; i < 256; ++i) {
      const int64_t x = int64_t{at[0]} + i / size;
      const int64_t byte = ((at[2] * 3 + at[1]) * int64_t{row + 7} + x) * size + i % size;
      ASSERT_EQ(got.lane[i], inside && x >= 0 && x < row ? m[t].data[static_cast<size_t>(byte)] : 0)
          << "byte " << i << " from " << at[0] << " " << at[1] << " " << at[2];
    }
  }
  predicated(f({3, 2, 1}, t, 0, income, true, false), income,
             [&](bool p, bool q) { return f({3, 2, 1}, t, 0, income, p, q); });
}

// 128 bytes to 128 lanes of 16 bits, with any upper half; outside it is padded with 0 in the lower one.
void unpacks(Machine& m) {
  const auto t = static_cast<int8_t>(m.add(ElementType::u8, {90, 2}));
  for (size_t i = 0; i < 180; ++i) m[t].data[i] = static_cast<uint8_t>(i + 1);
  m.start();
  for (const int high : {0, 0xA5}) {
    m.launch.unpack_high = static_cast<uint8_t>(high);
    for (const int start : {0, 60, -3}) {
      const ushort128 got = (ushort128)v_u8_ld_tnsr_b({start, 1}, t, SW_UNPACK | SW_UNPCK_8_TO_16);
      for (int i = 0; i < 128; ++i) {
        const int x = start + i;
        EXPECT_EQ(got.lane[i] & 255, x >= 0 && x < 90 ? 90 + x + 1 : 0);
        EXPECT_EQ(got.lane[i] >> 8, high);
      }
    }
  }
}

template <class V, class F>
void stores(Machine& m, Bits& bits, ElementType type, F f) {
  constexpr int kRow = V::kLanes + 10;
  const auto t = static_cast<int8_t>(m.add(type, {kRow, 2, 2}, true, 5));
  Storage& s = m[t];
  const V v = bits.vector<V>();
  using Lane = typename V::Lane;
  for (const int start : {0, 4, 11, kRow - 1, -6, -400, kRow})
    for (const int row : {1, 2, -1}) {
      std::fill(s.data.begin(), s.data.end(), uint8_t{0xEE});
      std::fill(s.written.begin(), s.written.end(), uint8_t{0});
      m.start(3);
      f({start, row, 1}, t, v);
      uint64_t first = 99999;
      const uint64_t missing = unwritten(s.tensor, &first);
      uint64_t stored = 0;
      for (int i = 0; i < 4 * kRow; ++i) {
        const int lane = i % kRow - start, r = i / kRow;
        const bool hit = r == 2 + row && row < 2 && row >= 0 && lane >= 0 && lane < V::kLanes;
        const size_t at = static_cast<size_t>(r * (kRow + 5) + i % kRow) * sizeof(Lane);
        ASSERT_EQ(s.written[static_cast<size_t>(i)], hit ? 4 : 0) << start << " " << row << " element " << i;
        if (hit) {
          ASSERT_EQ(std::memcmp(&s.data[at], &v.lane[lane], sizeof(Lane)), 0);
        } else {
          ASSERT_EQ(s.data[at], 0xEE);
        }
        stored += hit;
      }
      EXPECT_EQ(missing, 4 * kRow - stored);
      EXPECT_LT(first, 4u * kRow);
    }
}

template <class V, class F>
void partial_stores(Machine& m, Bits& bits, ElementType type, F f) {
  constexpr int kRow = 2 * V::kLanes;
  const auto t = static_cast<int8_t>(m.add(type, {kRow}, true));
  const V v = bits.vector<V>();
  using Lane = typename V::Lane;
  for (const auto& [start, size, offset] :
       {std::tuple{0, 1, 0}, {7, 5, 3}, {kRow - 2, 4, 1}, {-2, 4, 0}, {3, V::kLanes, 0}, {1, 1, V::kLanes - 1}}) {
    std::fill(m[t].written.begin(), m[t].written.end(), uint8_t{0});
    m.start();
    f({start}, t, v, static_cast<int8_t>(size - 1), static_cast<int8_t>(offset), true, true);
    f({start}, t, v, static_cast<int8_t>(size - 1), static_cast<int8_t>(offset), true, false);
    for (int i = 0; i < kRow; ++i) {
      const bool hit = i >= start && i < start + size;
      ASSERT_EQ(m[t].written[static_cast<size_t>(i)], hit ? 1 : 0);
      if (hit) {
        ASSERT_EQ(
            std::memcmp(&m[t].data[static_cast<size_t>(i) * sizeof(Lane)], &v.lane[offset + i - start], sizeof(Lane)),
            0);
      }
    }
  }
}

// Scalars by address, and the arithmetic on it.
template <class T>
void by_address(T (*f)(void*, int, T, bool, bool), Machine& m, ElementType type, T income) {
  const auto t = static_cast<int8_t>(numbered(m, type, 20));
  m.start();
  void* const p = gen_addr({4, 2, 1}, t);
  const uint64_t at = 5 * 27 + 4;
  const T want = m[t].template at<T>(at), next = m[t].template at<T>(at + 1);
  EXPECT_EQ(f(static_cast<T*>(p) + 1, 0, income, true, false), next);
  predicated(want, income, [&](bool x, bool y) { return f(p, 0, income, x, y); });
}

template <class V>
void vector_local(Machine& m, Bits& bits, V (*load)(uint32_t, int, const V&, bool, bool),
                  void (*store)(uint32_t, const V&, int, bool, bool), bool store_last) {
  m.start();
  mxk_emu_local(64);
  const V a = bits.vector<V>(), b = bits.vector<V>(), income = bits.vector<V>();
  store(0, a, 0, true, false);
  store(63 * 256, b, 0, true, false);
  store(63 * 256, a, 0, false, false);
  EXPECT_TRUE(same(load(63 * 256, 0, income, true, false), b));
  predicated(a, income, [&](bool p, bool q) { return load(0, 0, income, p, q); });
  if (store_last) store(0, b, 0, true, false);
}

const Case kMemoryCases[] = {{CASE(get_index_space_offset){for (int i = 0; i < 5; ++i) m.launch.offset[i] = 10 + i;
const int5 r = get_index_space_offset();
for (int i = 0; i < 5; ++i) EXPECT_EQ(r[i], 10 + i);
}
}
, {CASE(get_index_space_size){for (int i = 0; i < 5; ++i) m.launch.size[i] = 20 + i;
const int5 r = get_index_space_size();
for (int i = 0; i < 5; ++i) EXPECT_EQ(r[i], 20 + i);
}
}
, {CASE(get_dim_size){const int t = m.add(ElementType::f32, {11, 12, 13});
m.start();
for (int d = 0; d < 5; ++d)
  EXPECT_EQ(get_dim_size(t, static_cast<uint32_t>(d)), d < 3 ? 11u + static_cast<uint32_t>(d) : 1u);
}
}
, {CASE(i_i32_add){const int5 a = {1, 2, 3, 4, 5}, b = {10, 20, 30, 40, 50}, income = {7, 7, 7, 7, 7};
for (int mask = 0; mask < 32; ++mask) {
  const int5 r = i_i32_add(a, b, mask, 0, income);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(r[i], mask >> i & 1 ? 11 * (i + 1) : 7);
}
predicated(i_i32_add(1, a, 9, 0, a), a, [&](bool p, bool q) { return i_i32_add(1, a, 9, 0, a, p, q); });
}
}
, {CASE(set_indx){const int5 a = {1, 2, 3, 4, 5};
for (int mask = 0; mask < 32; ++mask) {
  const int5 r = set_indx(77, a, mask, 0);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(r[i], mask >> i & 1 ? 77 : i + 1);
}
predicated(set_indx(77, a, 3, 0), a, [&](bool p, bool q) { return set_indx(77, a, 3, 0, p, q); });
}
}
, {CASE(mov_irf_dim){for (int d = 0; d < 5; ++d)
                         EXPECT_EQ(mov_irf_dim({5, 6, 7, 8, 9}, static_cast<int8_t>(d), 0), d + 5);
predicated(6, 42, [](bool p, bool q) { return mov_irf_dim({5, 6, 7, 8, 9}, 1, 0, 42, p, q); });
}
}
, {CASE(u32_udiv_both){
      for (int round = 0; round < 100; ++round){const uint32_t a = bits.word(), b = 1 + (bits.word() >> round % 32);
const uint32_t_pair_t r = u32_udiv_both(a, b, 0, {0, 0});
EXPECT_EQ(uint64_t{r.v1} * b + r.v2, a);
EXPECT_LT(r.v2, b);
predicated(r, uint32_t_pair_t{1, 2}, [&](bool p, bool q) { return u32_udiv_both(a, b, 0, {1, 2}, p, q); });
}
}
}
,

    {CASE(v_u8_ld_tnsr_b){loads(v_u8_ld_tnsr_b, m, bits, ElementType::u8);
unpacks(m);
}
}
, {CASE(v_u16_ld_tnsr_b){loads(v_u16_ld_tnsr_b, m, bits, ElementType::bf16);
}
}
, {CASE(v_bf16_ld_tnsr_b){loads(v_bf16_ld_tnsr_b, m, bits, ElementType::bf16);
}
}
, {CASE(v_f32_ld_tnsr_b){loads(v_f32_ld_tnsr_b, m, bits, ElementType::f32);
}
}
, {CASE(v_i32_ld_tnsr_b){loads(v_i32_ld_tnsr_b, m, bits, ElementType::i32);
}
}
, {CASE(v_h8_ld_tnsr_b){loads(v_h8_ld_tnsr_b, m, bits, ElementType::u8);
}
}
, {CASE(v_f32_ld_tnsr_partial_b){const auto t = static_cast<int8_t>(m.add(ElementType::f32, {50, 2}));
for (uint64_t i = 0; i < 100; ++i) m[t].set(i, static_cast<float>(i + 1));
m.start();
const float64 income = bits.floats();
for (const auto& [start, size, offset] : {std::tuple{0, 8, 24}, {45, 10, 3}, {-2, 5, 0}, {7, 64, 0}, {9, 1, 63}}) {
  const auto last = static_cast<int8_t>(size - 1), first = static_cast<int8_t>(offset);
  const float64 got = v_f32_ld_tnsr_partial_b({start, 1}, t, last, first, 0, income);
  for (int i = 0; i < 64; ++i) {
    const int k = i - offset, x = start + k;
    const float want = x >= 0 && x < 50 ? static_cast<float>(51 + x) : 0.0f;
    EXPECT_EQ(lane_bits(got, i), k >= 0 && k < size ? std::bit_cast<uint32_t>(want) : lane_bits(income, i));
  }
  predicated(got, income,
             [&](bool p, bool q) { return v_f32_ld_tnsr_partial_b({start, 1}, t, last, first, 0, income, p, q); });
}
}
}
, {CASE(v_bf16_st_tnsr){stores<bfloat128>(m, bits, ElementType::bf16, [](const int5& at, int8_t t, const bfloat128& v) {
  v_bf16_st_tnsr(at, t, bfloat128(), 0, false, false);
  v_bf16_st_tnsr(at, t, v);
});
}
}
, {CASE(v_f32_st_tnsr){stores<float64>(m, bits, ElementType::f32, [](const int5& at, int8_t t, const float64& v) {
  v_f32_st_tnsr(at, t, float64(), 0, true, true);
  v_f32_st_tnsr(at, t, v);
});
}
}
, {CASE(v_bf16_st_tnsr_partial){
      partial_stores<bfloat128>(m, bits, ElementType::bf16,
                                [](const int5& at, int8_t t, const bfloat128& v, int8_t size, int8_t offset, bool p,
                                   bool q) { v_bf16_st_tnsr_partial(at, t, v, size, offset, 0, p, q); });
}
}
, {CASE(v_f32_st_tnsr_partial){
      partial_stores<float64>(m, bits, ElementType::f32,
                              [](const int5& at, int8_t t, const float64& v, int8_t size, int8_t offset, bool p,
                                 bool q) { v_f32_st_tnsr_partial(at, t, v, size, offset, 0, p, q); });
}
}
,

    {CASE(gen_addr){const auto t = static_cast<int8_t>(numbered(m, ElementType::i32, 20));
m.start();
int other;
auto* const from = static_cast<uint8_t*>(gen_addr({0, 0, 0}, t));
EXPECT_EQ(gen_addr({3, 2, 1}, t), from + 4 * (5 * 27 + 3));
predicated<void*>(from, &other, [&](bool p, bool q) { return gen_addr({0, 0, 0}, t, 0, &other, p, q); });
}
}
, {CASE(s_i32_ld_g){by_address<int32_t>(s_i32_ld_g, m, ElementType::i32, -5);
}
}
, {CASE(s_u32_ld_g){by_address<uint32_t>(s_u32_ld_g, m, ElementType::i32, 5);
}
}
, {CASE(s_f32_ld_g){by_address<float>(s_f32_ld_g, m, ElementType::f32, 5);
}
}
, {CASE(s_u8_ld_g){by_address<uint8_t>(s_u8_ld_g, m, ElementType::u8, 5);
}
}
, {CASE(v_f32_ld_g){const auto t = static_cast<int8_t>(numbered(m, ElementType::f32, 20));
m.start();
const float64 income = bits.floats();
void* const p = gen_addr({4, 2, 1}, t);
predicated(float64(m[t].at<float>(5 * 27 + 4)), income, [&](bool x, bool y) { return v_f32_ld_g(p, 0, income, x, y); });
}
}
, {CASE(prefetch){const auto t = static_cast<int8_t>(numbered(m, ElementType::f32, 20));
m.start();
prefetch(gen_addr({4, 2, 1}, t));
prefetch(nullptr, 0, false);
}
}
, {CASE(aso){aso(SW_DEC | SW_VPU);
}
}
, {CASE(cache_flush){cache_flush();
}
}
, {CASE(cache_invalidate){cache_invalidate(SW_D | SW_LU | SW_SB);
}
}
,

    {CASE(v_bf16_ld_l_v_b){vector_local(m, bits, v_bf16_ld_l_v_b, v_bf16_st_l_v, false);
}
}
, {CASE(v_f32_ld_l_v_b){vector_local(m, bits, v_f32_ld_l_v_b, v_f32_st_l_v, false);
}
}
, {CASE(v_u8_ld_l_v_b){vector_local(m, bits, v_u8_ld_l_v_b, v_u8_st_l_v, false);
}
}
, {CASE(v_bf16_st_l_v){vector_local(m, bits, v_bf16_ld_l_v_b, v_bf16_st_l_v, true);
}
}
, {CASE(v_f32_st_l_v){vector_local(m, bits, v_f32_ld_l_v_b, v_f32_st_l_v, true);
}
}
, {CASE(v_u8_st_l_v){vector_local(m, bits, v_u8_ld_l_v_b, v_u8_st_l_v, true);
}
}
, {CASE(s_i32_ld_l){s_i32_st_l(1020, -9);
predicated(-9, 4, [](bool p, bool q) { return s_i32_ld_l(1020, 0, 4, p, q); });
}
}
, {CASE(s_i32_st_l){s_i32_st_l(0, 11);
s_i32_st_l(4, 12);
s_i32_st_l(0, 13, 0, false);
EXPECT_EQ(s_i32_ld_l(0), 11);
EXPECT_EQ(s_i32_ld_l(4), 12);
s_i32_st_l(8, 1);
}
}
,

    {CASE(set_lut_256){const int t = m.add(ElementType::bf16, {512});
m.start();
set_lut_256(t);
EXPECT_EQ(m.state->table, t);
}
}
, {CASE(v_bf16_lookup_2c){const int t = m.add(ElementType::bf16, {512});
for (uint64_t i = 0; i < 512; ++i) m[t].set<uint16_t>(i, static_cast<uint16_t>(1000 + i));
m.start();
set_lut_256(t);
ushort128 a = bits.vector<ushort128>();
for (uint16_t& x : a.lane) x &= 255;
const bfloat256 income = bf16_pair_of(bits), got = v_bf16_lookup_2c(a, 0, SW_LUT_PTR, income);
EXPECT_EQ(m.state->slots[LOAD], 3u) << "one for the table, two for the lookup";
for (int i = 0; i < 128; ++i) {
  EXPECT_EQ(got.v1.lane[i].bits, 1000 + 2 * a.lane[i]);
  EXPECT_EQ(got.v2.lane[i].bits, 1001 + 2 * a.lane[i]);
}
predicated(got, income, [&](bool p, bool q) { return v_bf16_lookup_2c(a, 0, SW_LUT_PTR, income, p, q); });
}
}
,
}
;
