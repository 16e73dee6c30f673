// SPDX-License-Identifier: Apache-2.0
//
// libhabana_pytorch2_plugin.so: the custom ops of eager mode and torch.compile.
#include <ATen/Functions.h>
#include <hpu_custom_op_pt2.h>
#include <torch/library.h>

#include <map>
#include <mutex>

#include "launch.h"

namespace habana::custom_op {
namespace {

struct Registry {
  std::mutex mutex;
  std::map<std::string, UserCustomOpDescriptor> ops;
};

Registry& registry() {
  static auto& it = *new Registry;
  return it;
}

}  // namespace

std::vector<at::Tensor> UserCustomOpDescriptor::execute(const std::vector<c10::IValue>& inputs) {
  mxk::standin::require_mode(false, schema_);
  std::vector<at::Tensor> tensors, outputs;
  for (const c10::IValue& input : inputs)
    if (input.isTensor()) tensors.push_back(input.toTensor());
  TORCH_CHECK(!tensors.empty(), schema_, ": no input is a tensor");
  for (const PartialOutputMetaData& meta : output_meta_fn_(inputs))
    outputs.push_back(at::empty(meta.shape, tensors[0].options().dtype(meta.dtype)));
  mxk::standin::launch(guid_, tensors, outputs, mxk::standin::params_of(fill_params_fn_, inputs));
  return outputs;
}

const UserCustomOpDescriptor& UserCustomOpDescriptor::getUserCustomOpDescriptor(const std::string& op) {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  const auto it = r.ops.find(op);
  TORCH_CHECK(it != r.ops.end(), op, " isn't registered in KernelRegistry!");
  return it->second;
}

void registerUserCustomOp(const std::string& schema, const std::string& guid, OutputMetaFn output_meta_fn,
                          FillParamsFn fill_params_fn) {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  r.ops.emplace(schema, UserCustomOpDescriptor(schema, guid, output_meta_fn, fill_params_fn));  // the first one stays
}

// For the Python package: what a compiled graph finds.
extern "C" __attribute__((visibility("default"))) int mxk_standin_is_registered(const char* op) {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  return r.ops.count(op) > 0 ? 1 : 0;
}

const std::string& UserCustomOpDescriptor::getSchemaName() const { return schema_; }
const std::string& UserCustomOpDescriptor::getGuid() const { return guid_; }
const OutputMetaFn& UserCustomOpDescriptor::getOutputMetaFn() const { return output_meta_fn_; }
const FillParamsFn& UserCustomOpDescriptor::getFillParamsFn() const { return fill_params_fn_; }

}  // namespace habana::custom_op
