// SPDX-License-Identifier: Apache-2.0
//
// libmxk_op_pt2.so: the ops through the bridge's PT2 interface, for eager mode and torch.compile.
#include <hpu_custom_op_pt2.h>

#include "torch/ops.h"

namespace mxk::ops {

namespace bridge = habana::custom_op;

const char* const kLibrary = "libmxk_op_pt2.so";
const c10::DispatchKey kDevice = c10::DispatchKey::HPU;

void announce(const Kernel& kernel) {
  const auto outputs = [&kernel](const at::Stack& arguments) {
    return habana::PartialOutputMetaDataVector{{dtype(kernel), check(kernel, arguments)}};
  };
  bridge::FillParamsFn fill = nullptr;
  if (kernel.parameter_count())
    fill = [&kernel](const at::Stack& arguments, size_t& bytes) { return node_parameters(kernel, arguments, &bytes); };
  bridge::registerUserCustomOp(name(kernel), kernel.name, outputs, fill);
}

at::Tensor execute(const Kernel& kernel, const std::vector<c10::IValue>& arguments) {
  auto op = bridge::UserCustomOpDescriptor::getUserCustomOpDescriptor(name(kernel));
  return op.execute(arguments).at(0);
}

}  // namespace mxk::ops
