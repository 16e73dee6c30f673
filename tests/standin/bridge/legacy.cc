// SPDX-License-Identifier: Apache-2.0
//
// libhabana_pytorch_plugin.so: the legacy interface of custom ops, for lazy mode. What the bridge demands of a call is
// demanded here, and what it gets wrong without a word is an error: it looks a compiled recipe up by the signature of
// the inputs and not by the op, so that an op with inputs like those of another one runs the other one's kernel.
#include <ATen/Functions.h>
#include <hpu_custom_op.h>

#include <map>
#include <mutex>
#include <set>

#include "launch.h"

namespace habana::custom_op {
namespace {

struct Registry {
  std::mutex mutex;
  std::map<std::string, HabanaCustomOpDescriptor> ops;
  std::map<std::string, std::string> recipes;  // signature of the inputs: op
};

Registry& registry() {
  static auto& it = *new Registry;
  return it;
}

template <class Descriptors>
void check_unique(const std::string& op, const Descriptors& descriptors) {
  std::set<unsigned> seen;
  for (const auto& d : descriptors) TORCH_CHECK(seen.insert(d.index).second, op, ": Indexes must be unique");
}

// The tensors of a call.
std::vector<at::Tensor> check(const HabanaCustomOpDescriptor& op, const std::vector<c10::IValue>& inputs) {
  const std::string& name = op.getSchemaName();
  check_unique(name, op.getInputs());
  check_unique(name, op.getOutputs());
  TORCH_CHECK(inputs.size() == op.getInputsSize(), name, ": Incorrect size of inputs expected: ", op.getInputsSize(),
              " are described, ", inputs.size(), " were passed");
  TORCH_CHECK(inputs.at(0).isTensor(), name, ": the first input must be a tensor");
  std::vector<at::Tensor> tensors;
  for (size_t i = 0; i < inputs.size(); ++i) {
    TORCH_CHECK(inputs[i].isTensor() || inputs[i].isScalar(), name, ": input ", i, " is of type ", inputs[i].tagKind(),
                ", and a custom op takes only tensors and scalars");
    const input_type type = op.getInputs()[i].type;
    TORCH_CHECK(type != input_type::SCALAR, name, ": input ", i,
                " is a scalar on the device, which the stand-in lacks");
    TORCH_CHECK(inputs[i].isTensor() == (type == input_type::TENSOR), name, ": input ", i,
                " is not what its InputDesc says");
    if (inputs[i].isTensor()) tensors.push_back(inputs[i].toTensor());
  }
  return tensors;
}

std::string signature(const std::vector<c10::IValue>& inputs) {
  std::ostringstream s;
  for (const c10::IValue& input : inputs) {
    if (input.isTensor())
      s << input.toTensor().scalar_type() << input.toTensor().sizes() << ' ';
    else
      s << input.tagKind() << ' ';
  }
  return s.str();
}

}  // namespace

std::vector<at::Tensor> HabanaCustomOpDescriptor::execute(const std::vector<c10::IValue>& inputs) {
  const std::string& name = getSchemaName();
  mxk::standin::require_mode(true, name);
  const std::vector<at::Tensor> tensors = check(*this, inputs);

  Registry& r = registry();
  const std::string key = signature(inputs);
  {
    const std::lock_guard lock(r.mutex);
    const auto it = r.recipes.find(key);
    TORCH_CHECK(it == r.recipes.end() || it->second == name, name, ": inputs ", key, "were also those of ", it->second,
                ", and in lazy mode the bridge would run that op's recipe for this call; nothing was computed");
  }
  std::vector<at::Tensor> outputs;
  for (unsigned i = 0; i < getOutputsSize(); ++i)
    outputs.push_back(at::empty(hasOutputShapeFunc(i) ? getOutputShapeFunc(i)(inputs) : tensors[0].sizes().vec(),
                                tensors[0].options().dtype(getOutputs()[i].dtype)));
  mxk::standin::launch(getGuid(), tensors, outputs, mxk::standin::params_of(getUserParamsAllocFunc(), inputs));
  const std::lock_guard lock(r.mutex);
  r.recipes.emplace(key, name);
  return outputs;
}

const HabanaCustomOpDescriptor HabanaCustomOpDescriptor::getCustomOpDescriptor(std::string op) {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  const auto it = r.ops.find(op);
  TORCH_CHECK(it != r.ops.end(), op, " isn't registered in KernelRegistry!");
  return it->second;
}

void registerKernel(HabanaCustomOpDescriptor& new_desc) {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  r.ops.emplace(new_desc.getSchemaName(), new_desc);  // the first one stays, as in the bridge
}

const std::string& HabanaCustomOpDescriptor::getSchemaName() const { return node_desc_.schema_name; }
const std::string& HabanaCustomOpDescriptor::getGuid() const { return node_desc_.tpc_guid; }
unsigned HabanaCustomOpDescriptor::getInputsSize() const { return static_cast<unsigned>(inputs_.size()); }
unsigned HabanaCustomOpDescriptor::getOutputsSize() const { return static_cast<unsigned>(outputs_.size()); }
const std::vector<InputDesc>& HabanaCustomOpDescriptor::getInputs() const { return inputs_; }
const std::vector<OutputDesc>& HabanaCustomOpDescriptor::getOutputs() const { return outputs_; }
bool HabanaCustomOpDescriptor::hasUserParamsFunc() const { return node_desc_.user_param_func != nullptr; }
const allocate_user_params_func& HabanaCustomOpDescriptor::getUserParamsAllocFunc() const {
  return node_desc_.user_param_func;
}
bool HabanaCustomOpDescriptor::hasOutputShapeFunc(unsigned index) const { return getOutputShapeFunc(index) != nullptr; }
const compute_output_shape_function& HabanaCustomOpDescriptor::getOutputShapeFunc(unsigned index) const {
  TORCH_CHECK(index < outputs_.size(), getSchemaName(), " has ", outputs_.size(), ", requested index: ", index);
  return outputs_[index].compute_output_shape_func;
}

}  // namespace habana::custom_op
