// SPDX-License-Identifier: Apache-2.0
//
// For standin_test.py: legacy custom ops that each break one rule of the bridge. standin_test::NAME(codes, numbers)
// would otherwise be mxk_selfcheck.
#include <hpu_custom_op.h>
#include <torch/library.h>

namespace {

namespace bridge = habana::custom_op;
using bridge::input_type;

at::Tensor run(const char* name, const std::vector<c10::IValue>& inputs) {
  auto op = bridge::HabanaCustomOpDescriptor::getCustomOpDescriptor(name);
  return op.execute(inputs).at(0);
}

void add(const char* name, const std::vector<bridge::InputDesc>& inputs, const char* guid = "mxk_selfcheck") {
  const std::vector<bridge::OutputDesc> outputs = {
      {0, c10::kFloat, [](const at::Stack&) { return std::vector<int64_t>{56, 64}; }}};
  REGISTER_CUSTOM_OP_ATTRIBUTES(name, guid, inputs, outputs, nullptr)
}

const bool added = [] {
  add("standin_test::twin", {{input_type::TENSOR, 0}, {input_type::TENSOR, 1}});
  add("standin_test::one_too_few", {{input_type::TENSOR, 0}});
  add("standin_test::not_unique", {{input_type::TENSOR, 0}, {input_type::TENSOR, 0}});
  add("standin_test::scalar_first", {{input_type::USER_PARAMS, 0}, {input_type::TENSOR, 1}, {input_type::TENSOR, 2}});
  add("standin_test::list", {{input_type::TENSOR, 0}, {input_type::TENSOR, 1}, {input_type::USER_PARAMS, 2}});
  add("standin_test::no_kernel", {{input_type::TENSOR, 0}, {input_type::TENSOR, 1}}, "mxk_no_such_kernel");
  return true;
}();

template <int n>
at::Tensor call(const at::Tensor& codes, const at::Tensor& numbers) {
  switch (n) {
    case 0: return run("standin_test::twin", {codes, numbers});
    case 1: return run("standin_test::one_too_few", {codes, numbers});
    case 2: return run("standin_test::not_unique", {codes, numbers});
    case 3: return run("standin_test::scalar_first", {1, codes, numbers});
    case 4: return run("standin_test::list", {codes, numbers, std::vector<int64_t>{1, 2}});
    case 5: return run("standin_test::no_kernel", {codes, numbers});
    default: return run("standin_test::unknown", {codes, numbers});
  }
}

TORCH_LIBRARY(standin_test, m) {
  for (const char* name : {"twin", "one_too_few", "not_unique", "scalar_first", "list", "no_kernel", "unknown"})
    m.def((std::string(name) + "(Tensor codes, Tensor numbers) -> Tensor").c_str());
}

TORCH_LIBRARY_IMPL(standin_test, HPU, m) {
  m.impl("twin", &call<0>);
  m.impl("one_too_few", &call<1>);
  m.impl("not_unique", &call<2>);
  m.impl("scalar_first", &call<3>);
  m.impl("list", &call<4>);
  m.impl("no_kernel", &call<5>);
  m.impl("unknown", &call<6>);
}

}  // namespace
