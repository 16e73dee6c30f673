// SPDX-License-Identifier: Apache-2.0
//
// The Gaudi 2 kernels in the emulation: the budget of issue slots, results that do not depend on how routes are grouped
// or rows divided, the unpacks that are not the default, mxk_deq for every scale byte, mxk_selfcheck. (That the layer
// comes out right for all variants and shapes is parity_test's, for the backend tpc-emu.)
#include <gtest/gtest.h>

#include "layer.h"
#include "tpc/host/backend.h"
#include "tpc/selfcheck.h"
#include "tpc_call.h"

namespace mxk::test {
namespace {

using tpc::last_call;

// ids: for each token its k experts, local numbers; other ids as they are.
std::vector<float> run_layer(const Variant& v, const Shape& s, const std::vector<int>& experts, int threads = 2) {
  Random random(7);
  const Layer layer(v, s, random);
  Batch batch(s, Routing::all_local, 1, Dtype::f32, random);
  batch.ids.unseal();
  for (size_t r = 0; r < experts.size(); ++r) batch.ids.as<int32_t>()[r] = kFirstExpert + experts[r];
  batch.ids.seal();
  auto engine = make_engine(v, s, "tpc-emu", threads);
  return run(*engine, make_call(v, s, layer, batch), Dtype::f32);
}

double per_unit(uint64_t slots, const tpc::RunStats& s) {
  return static_cast<double>(slots) / static_cast<double>(s.marked_units);
}

// Everything between a pair's first load and its sum in lanes of its own, cross-lane sums included; only the
// activation, the bias and the store of a tile (64 rows) are outside.
TEST(TpcKernel, SlotBudget) {
  struct Group {
    int R;
    std::vector<int> experts;
    double budget;
  };
  const Group groups[] = {{1, {0}, 14.5}, {2, {1, 1}, 10.2}, {4, {1, 1, 1, 1}, 8.0}};
  std::printf("  vector ops per chunk-row and route      w13: VPU  LOAD   all    w2: VPU  LOAD   all\n");
  for (const Variant& v : variants()) {
    for (const Group& g : groups) {
      // Rows of gpt-oss's length where the variant has such, one block of each TPC's rows.
      const int K = v.limits.k_multiple == 32 ? 2880 : 3072, I = v.limits.i_multiple == 32 ? 2880 : 3072;
      const Shape s{g.R, 1, 2, K, I};
      run_layer(v, s, g.experts);
      const tpc::RunStats &w13 = last_call().w13, &w2 = last_call().w2;
      std::printf("  %-6s R=%d K=%d I=%d             %10.2f %5.2f %5.2f   %9.2f %5.2f %5.2f\n", v.name, g.R, K, I,
                  per_unit(w13.marked.vpu, w13), per_unit(w13.marked.load, w13), per_unit(w13.total.vpu, w13),
                  per_unit(w2.marked.vpu, w2), per_unit(w2.marked.load, w2), per_unit(w2.total.vpu, w2));
      EXPECT_LE(per_unit(w13.marked.vpu, w13), g.budget) << v.name << " w13, R=" << g.R;
      EXPECT_LE(per_unit(w2.marked.vpu, w2), g.budget) << v.name << " w2, R=" << g.R;
      // The other slots must never be the busier ones.
      EXPECT_LT(w13.marked.load, w13.marked.vpu) << v.name;
      EXPECT_LT(w2.marked.load, w2.marked.vpu) << v.name;
      EXPECT_GT(w13.marked_units, 0u);
    }
  }
}

// A row must not show whether its route was alone, one of two or one of four.
TEST(TpcKernel, AloneEqualsInBatch) {
  for (const Variant& v : variants()) {
    const int K = v.limits.k_multiple == 32 ? 1440 : 1536, I = v.limits.i_multiple == 32 ? 736 : 512;
    const Shape s{9, 2, 4, K, I};
    Random random(11);
    const Layer layer(v, s, random);
    Batch batch(s, Routing::all_local, 1, Dtype::f32, random);
    // Expert 0 has seven routes (4 + 2 + 1), 1 has three, 2 six, two of them of one token; two are remote.
    static constexpr int kExperts[] = {0, 1, 0, 2, 0, 0, -1, 2, 0, 2, 2, 0, 2, 2, 1, 99, 1, 0};
    batch.ids.unseal();
    for (int r = 0; r < 18; ++r)
      batch.ids.as<int32_t>()[r] = kExperts[r] < 0 || kExperts[r] > 3 ? kExperts[r] : kFirstExpert + kExperts[r];
    batch.ids.seal();
    const Call call = make_call(v, s, layer, batch);
    auto engine = make_engine(v, s, "tpc-emu");
    const std::vector<float> all = run(*engine, call, Dtype::f32);
    const size_t row = static_cast<size_t>(K) * (v.per_route ? 2 : 1);
    for (int t = 0; t < s.T; ++t) {
      Call one = call;
      one.shape.T = 1;
      one.x += t * K;
      one.topk_ids += 2 * t;
      one.topk_weights = static_cast<const float*>(call.topk_weights) + 2 * t;
      const std::vector<float> alone = run(*engine, one, Dtype::f32);
      EXPECT_EQ(std::memcmp(alone.data(), &all[static_cast<size_t>(t) * row], row * 4), 0) << v.name << " token " << t;
    }
  }
}

// ---- single kernels ------------------------------------------------------------------------------------------------

TEST(TpcKernel, DeqIsExactForEveryScaleByte) {
  // Row e of expert 0 and 1 has scale byte e everywhere, and all codes; then a row length that is no multiple of 512.
  for (const int C : {512, 1024, 544, 32, 2880}) {
    const int N = 256, E = 2;
    std::vector<uint8_t> w(static_cast<size_t>(E) * N * C / 2), s(static_cast<size_t>(E) * N * C / 32);
    Random random(static_cast<uint64_t>(C));
    for (auto& b : w) b = static_cast<uint8_t>(random.next());
    for (size_t i = 0; i < s.size(); ++i) {
      const auto row = static_cast<int>(i / static_cast<size_t>(C / 32)) % N;
      s[i] = static_cast<uint8_t>(i % 3 ? row : random.below(256));
    }
    const size_t n = static_cast<size_t>(E) * N * C;
    std::vector<uint16_t> got(n);
    const auto u = [](int v) { return static_cast<uint64_t>(v); };
    const KernelCall call{
        "mxk_deq",
        {{{api::DATA_U8, {u(C / 2), u(N), u(E)}}, w.data()}, {{api::DATA_U8, {u(C / 32), u(N), u(E)}}, s.data()}},
        {{api::DATA_BF16, {u(C), u(N), u(E)}}, got.data()},
        {}};
    ASSERT_EQ(run_kernel(call), "");
    int normal = 0;
    for (size_t i = 0; i < n; ++i) {
      const uint8_t e = s[i / 32];
      const float code = kE2M1[(w[i / 2] >> (4 * (i % 2))) & 15];
      const double exact = std::ldexp(double{code}, e - 127);  // 255 too: it counts as 2^128
      const double v = double{from_bf16(got[i])};
      if (exact == 0 || (std::abs(exact) >= 0x1p-126 && std::abs(exact) < 0x1p128)) {
        ++normal;
        ASSERT_EQ(v, exact) << "C=" << C << " element " << i << " scale " << int{e};
        ASSERT_EQ(std::signbit(v), std::signbit(code)) << i;
      } else if (std::abs(exact) < 1) {
        ASSERT_EQ(v, 0) << i;
      } else {
        ASSERT_TRUE(std::isinf(v)) << i;
      }
    }
    EXPECT_GT(normal, static_cast<int>(n / 2));
  }
}

std::vector<float> selfcheck(std::string* error) {
  std::vector<uint8_t> codes(256);
  std::vector<float> numbers(64), got(static_cast<size_t>(tpc::kSelfcheckRows) * 64);
  for (size_t i = 0; i < 256; ++i) codes[i] = static_cast<uint8_t>(i);
  for (size_t i = 0; i < 64; ++i) numbers[i] = static_cast<float>(i);
  *error = run_kernel({"mxk_selfcheck",
                       {{{api::DATA_U8, {256, 1}}, codes.data()}, {{api::DATA_F32, {64, 1}}, numbers.data()}},
                       {{api::DATA_F32, {64, tpc::kSelfcheckRows}}, got.data()},
                       {}});
  return got;
}

TEST(TpcKernel, Selfcheck) {
  std::string error;
  const std::vector<float> got = selfcheck(&error);
  ASSERT_EQ(error, "");
  std::vector<float> want(got.size());
  tpc::expected_selfcheck(want.data());
  for (int row = 0; row < tpc::kSelfcheckRows; ++row)
    for (int lane = 0; lane < 64; ++lane) {
      const size_t at = static_cast<size_t>(row * 64 + lane);
      const double tolerance = tpc::selfcheck_tolerance(row);
      if (tolerance == 0)
        ASSERT_EQ(std::bit_cast<uint32_t>(got[at]), std::bit_cast<uint32_t>(want[at]))
            << "row " << row << " lane " << lane << ": " << got[at] << ", not " << want[at];
      else
        ASSERT_NEAR(got[at], want[at], tolerance * std::abs(want[at])) << "row " << row << " lane " << lane;
    }
}

// A w13 and a w2 kernel of glm with random operands, and room for their outputs.
struct TwoKernels {
  Shape s{3, 2, 3, 1024, 512};
  Random random{5};
  Layer layer{*find_variant("glm"), s, random};
  Batch batch{s, Routing::duplicates, 1, Dtype::f32, random};
  std::vector<uint16_t> x = numbers(3 * 1024), a = numbers(6 * 512), h = std::vector<uint16_t>(6 * 512);
  std::vector<float> y = std::vector<float>(3 * 1024);
  const std::pair<tpc::TensorSpec, const void*> ids{{api::DATA_I32, {2, 3}}, batch.ids.data()};
  std::vector<uint8_t> first = {kFirstExpert, 0, 0, 0};
  KernelCall w13{"mxk_w13x",
                 {{{api::DATA_BF16, {1024, 3}}, x.data()},
                  {{api::DATA_U8, {512, 1024, 3}}, layer.w13.data()},
                  {{api::DATA_U8, {32, 1024, 3}}, layer.s13.data()},
                  ids},
                 {{api::DATA_BF16, {512, 6}}, h.data()},
                 first};
  KernelCall w2{"mxk_w2x_f32",
                {{{api::DATA_BF16, {512, 6}}, a.data()},
                 {{api::DATA_U8, {256, 1024, 3}}, layer.w2.data()},
                 {{api::DATA_U8, {16, 1024, 3}}, layer.s2.data()},
                 ids,
                 {{api::DATA_F32, {2, 3}}, batch.weights.data()}},
                {{api::DATA_F32, {1024, 3}}, y.data()},
                first};

 private:
  std::vector<uint16_t> numbers(size_t n) {
    std::vector<uint16_t> v(n);
    for (auto& e : v) e = to_bf16(random.normal());
    return v;
  }
};

// Neither what a load that widens bytes leaves in the upper ones, nor over how many TPCs the rows are divided.
TEST(TpcKernel, TheLaunchDoesNotShow) {
  TwoKernels k;
  const auto same = [](const KernelCall& call, auto& out) {
    ASSERT_EQ(run_kernel(call), "");
    const auto usual = out;
    EXPECT_TRUE(std::any_of(out.begin(), out.end(), [](auto e) { return e != 0; }));
    for (const Launching& how :
         {Launching{24, 24, 255}, Launching{7, 7, 0}, Launching{5, 24, 0x5A}, Launching{1, 24, 0}}) {
      ASSERT_EQ(run_kernel(call, how), "");
      EXPECT_EQ(std::memcmp(usual.data(), out.data(), out.size() * sizeof out[0]), 0)
          << call.guid << ", " << how.points << " points on " << how.tpcs << " TPCs, upper bytes "
          << int{how.unpack_high};
    }
  };
  same(k.w13, k.h);
  same(k.w2, k.y);
}

// ---- the unpacks behind macros -------------------------------------------------------------------------------------

// The same matrix through kernels built with another unpack: the same bits, as every unpack is exact.
class Unpack : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Macros, Unpack, testing::Values(MXK_TPC_LIBRARY_CODES, MXK_TPC_LIBRARY_LUT),
                         [](const auto& i) { return i.index == 0 ? "codes" : "lut"; });

TEST_P(Unpack, GivesTheSameBits) {
  TwoKernels k;
  const auto both = [](const KernelCall& call, auto& out) {
    ASSERT_EQ(run_kernel(call), "");
    const auto usual = out;
    ASSERT_EQ(run_kernel(call, {}, GetParam()), "");
    EXPECT_EQ(std::memcmp(usual.data(), out.data(), out.size() * sizeof out[0]), 0) << call.guid;
    EXPECT_TRUE(std::any_of(out.begin(), out.end(), [](auto e) { return e != 0; }));
  };
  both(k.w13, k.h);
  both(k.w2, k.y);
}

}  // namespace
}  // namespace mxk::test
