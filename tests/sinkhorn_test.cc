// SPDX-License-Identifier: Apache-2.0
//
// The extra kernel of examples/dsv41_sinkhorn in the emulation, against the same in double precision. Through a kernel
// library made like the one of build.sh --extra-kernel, or through the one that MXK_TEST_LIBRARY names.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>

#include "tpc_call.h"

namespace mxk::test {
namespace {

constexpr double kEpsilon = 1e-6;
using Matrix = std::array<double, 16>;  // row by row

void normalise(Matrix& m, bool rows) {
  for (size_t i = 0; i < 4; ++i) {
    const size_t first = rows ? 4 * i : i, step = rows ? 1 : 4;
    double sum = 0;
    for (size_t j = 0; j < 4; ++j) sum += m[first + j * step];
    for (size_t j = 0; j < 4; ++j) m[first + j * step] /= sum + kEpsilon;
  }
}

Matrix reference(const Matrix& logits, int iterations) {
  Matrix m;
  for (size_t r = 0; r < 16; r += 4) {
    double top = logits[r], sum = 0;
    for (size_t c = 1; c < 4; ++c) top = std::max(top, logits[r + c]);
    for (size_t c = 0; c < 4; ++c) sum += m[r + c] = std::exp(logits[r + c] - top);
    for (size_t c = 0; c < 4; ++c) m[r + c] = m[r + c] / sum + kEpsilon;
  }
  normalise(m, false);
  for (int i = 1; i < iterations; ++i) {
    normalise(m, true);
    normalise(m, false);
  }
  return m;
}

// Tokens and their matrices, as the kernel has them: entry by entry.
struct Batch {
  explicit Batch(size_t tokens) : T(tokens), logits(16 * tokens), y(16 * tokens) {}
  Matrix matrix(const std::vector<float>& of, size_t token) const {
    Matrix m;
    for (size_t e = 0; e < 16; ++e) m[e] = static_cast<double>(of[e * T + token]);
    return m;
  }
  KernelCall call(int iterations) {
    const tpc::TensorSpec spec{api::DATA_F32, {T, 16}};
    const auto i = static_cast<uint8_t>(iterations);
    return {"dsv41_sinkhorn", {{spec, logits.data()}}, {spec, y.data()}, {i, 0, 0, 0}};
  }

  size_t T;
  std::vector<float> logits, y;
};

std::string run(const KernelCall& call, const Launching& how = {}) {
  const char* library = std::getenv("MXK_TEST_LIBRARY");
  return run_kernel(call, how, library ? library : MXK_TPC_LIBRARY);
}

Batch random_batch(size_t tokens, float scale, uint64_t seed) {
  Random random(seed);
  Batch b(tokens);
  for (float& x : b.logits) x = scale * random.normal();
  return b;
}

void expect_reference(Batch& b, int iterations, const std::string& what, double tolerance = 5e-6) {
  ASSERT_EQ(run(b.call(iterations)), "");
  double worst = 0;
  for (size_t t = 0; t < b.T; ++t) {
    const Matrix want = reference(b.matrix(b.logits, t), iterations), got = b.matrix(b.y, t);
    for (size_t e = 0; e < 16; ++e) worst = std::max(worst, std::abs(got[e] - want[e]) / want[e]);
  }
  EXPECT_LT(worst, tolerance) << what << ", " << iterations << " iterations: relative error of an entry";
}

TEST(Sinkhorn, EqualsTheReference) {
  for (const size_t T : {1, 2, 63, 64, 65, 128, 200, 1600})
    for (const int iterations : {1, 2, 3, 20}) {
      Batch b = random_batch(T, 2, T + static_cast<size_t>(iterations));
      expect_reference(b, iterations, std::to_string(T) + " tokens");
    }
  for (int iterations = 1; iterations <= 20; ++iterations) {
    Batch b = random_batch(16, 5, 99);
    expect_reference(b, iterations, "16 tokens");
  }
}

TEST(Sinkhorn, NoIterationsCountAsOne) {
  Batch none = random_batch(5, 1, 3), one = none;
  ASSERT_EQ(run(none.call(0)), "");
  ASSERT_EQ(run(one.call(1)), "");
  EXPECT_EQ(none.y, one.y);
}

// Rows that softmax makes a one and zeros, in all places, and differences beyond what an exponential can show.
TEST(Sinkhorn, ExtremeLogits) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const float values[] = {-kInf, -3e38f, -1e4f, -88, -87, -20, 0, 0x1p-140f, 1, 88, 1e4f, 3e38f};
  Batch b(300);
  Random random(17);
  for (size_t t = 0; t < b.T; ++t)
    for (size_t e = 0; e < 16; ++e) {
      // The last column is finite: a row of nothing but -inf is no distribution.
      const float v = values[random.below(std::size(values))];
      b.logits[e * b.T + t] = e % 4 == 3 && v == -kInf ? 0.0f : v;
    }
  for (const int iterations : {1, 2, 20}) expect_reference(b, iterations, "extreme logits");
}

TEST(Sinkhorn, AMatrixWithoutAnAnswerIsNaNAndNoOther) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  Batch b = random_batch(130, 1, 5);
  b.logits[6 * b.T + 3] = std::numeric_limits<float>::quiet_NaN();
  b.logits[9 * b.T + 77] = kInf;
  for (size_t e = 4; e < 8; ++e) b.logits[e * b.T + 129] = -kInf;
  ASSERT_EQ(run(b.call(4)), "");
  for (size_t t = 0; t < b.T; ++t)
    for (const double v : b.matrix(b.y, t)) EXPECT_EQ(std::isnan(v), t == 3 || t == 77 || t == 129) << "token " << t;
}

TEST(Sinkhorn, IsDoublyStochastic) {
  Batch b = random_batch(150, 1, 21);
  ASSERT_EQ(run(b.call(20)), "");
  for (size_t t = 0; t < b.T; ++t) {
    const Matrix m = b.matrix(b.y, t);
    for (size_t i = 0; i < 4; ++i) {
      double row = 0, column = 0;
      for (size_t j = 0; j < 4; ++j) {
        row += m[4 * i + j];
        column += m[4 * j + i];
        EXPECT_GT(m[4 * i + j], 0) << "token " << t;
      }
      EXPECT_NEAR(row, 1, 1e-4) << "token " << t << " row " << i;
      EXPECT_NEAR(column, 1, 3e-6) << "token " << t << " column " << i;
    }
  }
}

// Nor may a token show who else is there, or over how many points and TPCs tokens are divided.
TEST(Sinkhorn, OnlyTheMatrixCounts) {
  Batch b = random_batch(333, 3, 8);
  ASSERT_EQ(run(b.call(7)), "");
  const std::vector<float> usual = b.y;
  for (const Launching& how :
       {Launching{1, 1}, Launching{1, 24}, Launching{5, 24}, Launching{7, 7}, Launching{24, 2}}) {
    ASSERT_EQ(run(b.call(7), how), "");
    EXPECT_EQ(b.y, usual) << how.points << " points on " << how.tpcs << " TPCs";
  }
  for (const size_t token : {0, 63, 64, 200, 332}) {
    Batch one(1);
    for (size_t e = 0; e < 16; ++e) one.logits[e] = b.logits[e * b.T + token];
    ASSERT_EQ(run(one.call(7)), "");
    for (size_t e = 0; e < 16; ++e) EXPECT_EQ(one.y[e], usual[e * b.T + token]) << "token " << token;
  }
}

// What op and library refuse follows from glue.inc: another shape or type, a parameter too many or below zero.
TEST(Sinkhorn, RefusesWhatItsRowDoesNotSay) {
  Batch b = random_batch(64, 1, 1);
  const auto refused = [&](const std::function<void(KernelCall&)>& change) {
    KernelCall call = b.call(2);
    change(call);
    return !run(call).empty();
  };
  EXPECT_FALSE(refused([](KernelCall&) {}));
  EXPECT_TRUE(refused([](KernelCall& c) { c.inputs[0].first.sizes = {64, 15}; }));
  EXPECT_TRUE(refused([](KernelCall& c) { c.inputs[0].first.sizes = {64, 4, 4}; }));
  EXPECT_TRUE(refused([](KernelCall& c) { c.inputs[0].first.type = api::DATA_BF16; }));
  EXPECT_TRUE(refused([](KernelCall& c) { c.output.first.sizes = {63, 16}; }));
  EXPECT_TRUE(refused([](KernelCall& c) { c.params.clear(); }));
  EXPECT_TRUE(refused([](KernelCall& c) { c.params.resize(8); }));
  EXPECT_TRUE(refused([](KernelCall& c) { c.params[3] = 0x80; }));
}

}  // namespace
}  // namespace mxk::test
