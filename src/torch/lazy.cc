// SPDX-License-Identifier: Apache-2.0
//
// libmxk_op_lazy.so: the ops through the bridge's legacy interface, for lazy mode. The bridge finds a compiled recipe
// by the signature of an op's inputs and not by its name, so no two ops of a library may have inputs alike.
#include <hpu_custom_op.h>

#include "torch/ops.h"

namespace mxk::ops {

namespace bridge = habana::custom_op;

const char* const kLibrary = "libmxk_op_lazy.so";
const c10::DispatchKey kDevice = c10::DispatchKey::HPU;

void announce(const Kernel& kernel) {
  std::vector<bridge::InputDesc> inputs;
  for (unsigned i = 0; i < kernel.inputs.size() + kernel.parameter_count(); ++i)
    inputs.push_back({i < kernel.inputs.size() ? bridge::input_type::TENSOR : bridge::input_type::USER_PARAMS, i});
  const std::vector<bridge::OutputDesc> outputs = {
      {0, dtype(kernel), [&kernel](const at::Stack& arguments) { return check(kernel, arguments); }}};
  bridge::allocate_user_params_func fill = nullptr;
  if (kernel.parameter_count())
    fill = [&kernel](const at::Stack& arguments, size_t& bytes) { return node_parameters(kernel, arguments, &bytes); };
  REGISTER_CUSTOM_OP_ATTRIBUTES(name(kernel), kernel.name, inputs, outputs, fill)
}

at::Tensor execute(const Kernel& kernel, const std::vector<c10::IValue>& arguments) {
  auto op = bridge::HabanaCustomOpDescriptor::getCustomOpDescriptor(name(kernel));
  return op.execute(arguments).at(0);
}

}  // namespace mxk::ops
