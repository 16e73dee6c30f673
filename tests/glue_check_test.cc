// SPDX-License-Identifier: Apache-2.0
//
// What the kernel library refuses of calls of its own kernels: one thing at a time is made wrong in a call that is
// otherwise valid, for every kernel and every operand. The code must be the right one, and nothing may be written.
#include <gtest/gtest.h>

#include <functional>
#include <memory>

#include "glue_calls.h"

namespace mxk::test {
namespace {

class Check : public testing::TestWithParam<std::string> {
 protected:
  static GlueLibrary& lib() {
    static auto& l = *new std::unique_ptr<GlueLibrary>;  // loaded once: it knows no state that a refusal could change
    if (!l) l = std::make_unique<GlueLibrary>(MXK_TEST_STOCK);
    return *l;
  }
  static void SetUpTestSuite() { lib(); }

  const KernelCall call = call_of(GetParam(), shape_of(GetParam()));

  // `change` makes one thing of a valid call wrong.
  void expect(api::GlueCodeReturn want, const std::string& what, const std::function<void(Node&)>& change) const {
    expect(call, want, what, change);
  }
  static void expect(const KernelCall& c, api::GlueCodeReturn want, const std::string& what,
                     const std::function<void(Node&)>& change) {
    Node node(c);
    change(node);
    const std::string before = node.bytes();
    EXPECT_EQ(lib().instantiate(&node.p, &node.o), want) << what;
    EXPECT_EQ(node.bytes() == before, want != kAccepted) << what << ": what a refusal must not touch";
  }
  static constexpr auto kAccepted = api::GLUE_INSUFFICIENT_AUX_BUFFER_SIZE;

  // Every operand in turn: its tensor, and the code for a wrong size of it.
  void for_operands(const std::function<void(const std::string&, const Operand&, api::Tensor& (*)(Node&, size_t),
                                             size_t, api::GlueCodeReturn)>& f) const {
    for (size_t i = 0; i < call.in.size(); ++i)
      f(
          "input " + std::to_string(i), call.in[i], [](Node& n, size_t j) -> api::Tensor& { return n.in[j]; }, i,
          api::GLUE_INCOMPATIBLE_INPUT_SIZE);
    f(
        "output", call.out, [](Node& n, size_t) -> api::Tensor& { return n.out[0]; }, 0,
        api::GLUE_INCOMPATIBLE_OUTPUT_SIZE);
  }
};

TEST_P(Check, TheUnchangedCallIsAccepted) {
  expect(kAccepted, "unchanged", [](Node&) {});
}

TEST_P(Check, Version) {
  for (int version : {0, 2, -1})
    expect(api::GLUE_UNSUPPORTED_API_VERSION, "version", [&](Node& n) { n.p.apiVersion = version; });
}

TEST_P(Check, Counts) {
  const auto inputs = static_cast<uint32_t>(call.in.size());
  for (uint32_t n : {0u, inputs - 1, inputs + 1, ~0u})
    expect(api::GLUE_INCOMPATIBLE_INPUT_COUNT, "inputs", [&](Node& node) { node.p.inputTensorNr = n; });
  for (uint32_t n : {0u, 2u, ~0u})
    expect(api::GLUE_INCOMPATIBLE_OUTPUT_COUNT, "outputs", [&](Node& node) { node.p.outputTensorNr = n; });
  for (size_t i = 0; i < call.in.size(); ++i)
    expect(api::GLUE_INCOMPATIBLE_INPUT_COUNT, "an input that is not there", [&](Node& n) { n.in[i].Null = 1; });
  expect(api::GLUE_INCOMPATIBLE_OUTPUT_COUNT, "an output that is not there", [](Node& n) { n.out[0].Null = 1; });
}

TEST_P(Check, NullPointers) {
  expect(api::GLUE_FAILED, "inputs", [](Node& n) { n.p.inputTensors = nullptr; });
  expect(api::GLUE_FAILED, "outputs", [](Node& n) { n.p.outputTensors = nullptr; });
  expect(api::GLUE_FAILED, "input patterns", [](Node& n) { n.o.inputTensorAccessPattern = nullptr; });
  expect(api::GLUE_FAILED, "output patterns", [](Node& n) { n.o.outputTensorAccessPattern = nullptr; });
  expect(api::GLUE_FAILED, "auxiliary tensors", [](Node& n) { n.o.auxiliaryTensors = nullptr; });
  Node node(call);
  EXPECT_EQ(lib().instantiate(&node.p, nullptr), api::GLUE_FAILED);
}

TEST_P(Check, ElementTypes) {
  for_operands([&](const std::string& what, const Operand& operand, auto tensor, size_t i, api::GlueCodeReturn) {
    for (uint32_t bits = 0; bits <= 1u << 16; bits = bits ? bits * 2 : 1)
      if (bits != static_cast<uint32_t>(operand.type))
        expect(api::GLUE_INCOMPATIBLE_DATA_TYPE, what + " type " + std::to_string(bits),
               [&](Node& n) { std::memcpy(&tensor(n, i).geometry.dataType, &bits, sizeof bits); });
  });
}

TEST_P(Check, Ranks) {
  for_operands([&](const std::string& what, const Operand& operand, auto tensor, size_t i, api::GlueCodeReturn code) {
    for (uint32_t rank : {0u, 1u, 2u, 3u, 4u, 5u, 25u, 26u, ~0u})
      if (rank != operand.sizes.size())
        expect(code, what + " rank " + std::to_string(rank), [&](Node& n) { tensor(n, i).geometry.dims = rank; });
  });
}

TEST_P(Check, EverySizeOfEveryOperand) {
  // Routes per token are to be seen in nothing but `ids` and, through T*k, the output of these kernels.
  const bool w13 = GetParam().starts_with("mxk_w13");
  for_operands([&](const std::string& what, const Operand& operand, auto tensor, size_t i, api::GlueCodeReturn code) {
    for (uint32_t d = 0; d < operand.sizes.size(); ++d) {
      const uint64_t size = operand.sizes[operand.sizes.size() - 1 - d];
      for (uint64_t other : {uint64_t{0}, size - 1, size + 1, size * 2, size / 2, size + 512, size | uint64_t{1} << 31,
                             size | uint64_t{1} << 32, size | uint64_t{1} << 63, ~uint64_t{0}}) {
        if (other == size) continue;
        const bool routes = w13 && what == "input 3" && d == 0 && other <= 0x7FFFFFFF;
        expect(routes ? api::GLUE_INCOMPATIBLE_OUTPUT_SIZE : code,
               what + " dimension " + std::to_string(d) + " size " + std::to_string(other),
               [&](Node& n) { tensor(n, i).geometry.maxSizes[d] = tensor(n, i).geometry.minSizes[d] = other; });
      }
    }
  });
}

TEST_P(Check, SizesBeyondTheRankMeanNothing) {
  expect(kAccepted, "sizes beyond the rank", [&](Node& n) {
    for (auto& t : n.in) t.geometry.maxSizes[t.geometry.dims] = 0, t.geometry.minSizes[t.geometry.dims + 1] = 99;
  });
}

TEST_P(Check, DynamicShapes) {
  for_operands([&](const std::string& what, const Operand& operand, auto tensor, size_t i, api::GlueCodeReturn) {
    for (uint32_t d = 0; d < operand.sizes.size(); ++d)
      expect(api::GLUE_UNSUPPORTED_DYNAMIC_SHAPE, what + " dimension " + std::to_string(d),
             [&](Node& n) { --tensor(n, i).geometry.minSizes[d]; });
  });
}

TEST_P(Check, Parameters) {
  static char bytes[16] = {};
  static int32_t negative = -1;
  const auto bad = api::GLUE_KERNEL_INVALID_SCALAR_ARGUMENT;
  for (uint32_t size : {0u, 1u, 3u, 4u, 5u, 8u, ~0u}) {
    const bool good = call.first_expert ? size == 4 : size == 0;
    expect(good ? kAccepted : bad, "bytes " + std::to_string(size), [&](Node& n) { n.p.nodeParams = {bytes, size}; });
    expect(call.first_expert ? bad : kAccepted, "null, bytes " + std::to_string(size),
           [&](Node& n) { n.p.nodeParams = {nullptr, size}; });
  }
  if (!call.first_expert) return;
  expect(bad, "negative expert", [](Node& n) { n.p.nodeParams = {&negative, 4}; });
  expect(kAccepted, "unaligned", [](Node& n) { n.p.nodeParams = {bytes + 1, 4}; });
}

// The kernels of a layer take what mxk::check() takes for one of their variants, and nothing else.
TEST_P(Check, Limits) {
  const std::string name = GetParam().ends_with("_f32") ? GetParam().substr(0, GetParam().size() - 4) : GetParam();
  if (name == "mxk_deq" || name == "mxk_selfcheck") return;
  int accepted = 0, refused = 0;
  const auto expect_as_check = [&](const Shape& s) {
    bool takes = false;
    for (const Variant& v : variants()) takes |= (name == v.w13_kernel || name == v.w2_kernel) && check(v, s).ok();
    takes &= s.T >= 1;
    ++(takes ? accepted : refused);
    expect(call_of(GetParam(), s), takes ? kAccepted : api::GLUE_UNSUPPORTED_LAYER_CONFIGURATION,
           "T=" + std::to_string(s.T) + " k=" + std::to_string(s.k) + " E=" + std::to_string(s.E) +
               " K=" + std::to_string(s.K) + " I=" + std::to_string(s.I),
           [](Node&) {});
  };
  const Shape good = shape_of(GetParam());
  const auto with = [&](int Shape::* letter, int value) {
    Shape s = good;
    s.*letter = value;
    return s;
  };
  for (int T : {0, 1, 15, 16, 17, 31, 32, 33, 1 << 20}) expect_as_check(with(&Shape::T, T));
  for (int k : {1, 32, 64, 65, 129}) expect_as_check(with(&Shape::k, k));
  expect_as_check({16, 8, good.E, good.K, good.I});
  expect_as_check({16, 9, good.E, good.K, good.I});
  for (int E : {1, 127, 128, 129, 1 << 21}) expect_as_check(with(&Shape::E, E));
  for (int Shape::* letter : {&Shape::K, &Shape::I})
    for (int n : {0, 32, 96, 256, 512, 768, 2880, 3072, 3104, 3328, 3584, 4096, 6144, 6176, 6656, 8192, 8704, 1 << 25})
      expect_as_check(with(letter, n));
  EXPECT_GE(accepted, 10);
  EXPECT_GE(refused, 10);
}

TEST_P(Check, LimitsOfUnpacking) {
  if (GetParam() != "mxk_deq") return;
  const auto answer = [&](uint64_t E, uint64_t N, uint64_t C, api::GlueCodeReturn want) {
    const KernelCall c{
        "mxk_deq", {{api::DATA_U8, {E, N, C / 2}}, {api::DATA_U8, {E, N, C / 32}}}, {api::DATA_BF16, {E, N, C}}, false};
    expect(c, want, std::to_string(E) + " " + std::to_string(N) + " " + std::to_string(C), [](Node&) {});
  };
  constexpr auto kRefused = api::GLUE_UNSUPPORTED_LAYER_CONFIGURATION;
  for (uint64_t C : {32, 64, 96, 4096, 16352, 16384}) answer(3, 7, C, kAccepted);
  for (uint64_t C : {0, 16416, 32768}) answer(3, 7, C, kRefused);
  for (uint64_t C : {16, 48}) answer(3, 7, C, api::GLUE_INCOMPATIBLE_INPUT_SIZE);
  answer(1, 1, 32, kAccepted);
  answer(0, 1, 32, kRefused);
  answer(1, 0, 32, kRefused);
  answer(1, 0x7FFFFFFF, 16384, kAccepted);
  answer(2, 0x7FFFFFFF, 32, kRefused);  // more rows than an int counts
  answer(0x7FFFFFFF, 0x7FFFFFFF, 16384, kRefused);
  answer(0x80000000, 1, 32, api::GLUE_INCOMPATIBLE_INPUT_SIZE);
}

INSTANTIATE_TEST_SUITE_P(Every, Check, testing::ValuesIn(all_kernels()), [](const auto& p) { return p.param; });

}  // namespace
}  // namespace mxk::test
