// SPDX-License-Identifier: Apache-2.0
//
// Stand-in for the header of the Habana PyTorch bridge's legacy custom ops: the same names, types and signatures, so
// that an op library compiles against either. What the functions do is in legacy.cc.
#pragma once

#include <ATen/Tensor.h>
#include <ATen/core/boxing/KernelFunction.h>  // at::Stack

#include <functional>
#include <memory>
#include <string>
#include <vector>

#pragma GCC visibility push(default)
namespace habana::custom_op {

using output_shape = std::vector<int64_t>;
using compute_output_shape_function = std::function<output_shape(const at::Stack& stack)>;
using user_param = std::shared_ptr<void>;
using allocate_user_params_func = std::function<user_param(const at::Stack& stack, size_t& size)>;

struct NodeDesc {
  std::string tpc_guid;
  std::string schema_name;
  allocate_user_params_func user_param_func = nullptr;
};

enum class input_type { TENSOR, SCALAR, USER_PARAMS };

struct InputDesc {
  input_type type;
  unsigned index;
};

struct OutputDesc {
  unsigned index;
  c10::ScalarType dtype = c10::ScalarType::Float;
  compute_output_shape_function compute_output_shape_func = nullptr;  // null: the shape of the first input
};

class HabanaCustomOpDescriptor {
 public:
  HabanaCustomOpDescriptor() {}
  HabanaCustomOpDescriptor(NodeDesc node_desc, const std::vector<InputDesc>& inputs,
                           const std::vector<OutputDesc>& outputs)
      : node_desc_(node_desc), inputs_(inputs), outputs_(outputs) {}

  std::vector<at::Tensor> execute(const std::vector<c10::IValue>& inputs);
  static const HabanaCustomOpDescriptor getCustomOpDescriptor(std::string op);

  const std::string& getSchemaName() const;
  const std::string& getGuid() const;
  unsigned getInputsSize() const;
  unsigned getOutputsSize() const;
  const std::vector<InputDesc>& getInputs() const;
  const std::vector<OutputDesc>& getOutputs() const;
  bool hasUserParamsFunc() const;
  const allocate_user_params_func& getUserParamsAllocFunc() const;
  bool hasOutputShapeFunc(unsigned index) const;
  const compute_output_shape_function& getOutputShapeFunc(unsigned index) const;

 private:
  NodeDesc node_desc_;
  std::vector<InputDesc> inputs_;
  std::vector<OutputDesc> outputs_;
};

void registerKernel(habana::custom_op::HabanaCustomOpDescriptor& new_desc);

}  // namespace habana::custom_op
#pragma GCC visibility pop

#define REGISTER_CUSTOM_OP_ATTRIBUTES(schema_name, guid, inputs_desc, outputs_desc, param_func) \
  {                                                                                             \
    habana::custom_op::NodeDesc node{guid, schema_name, param_func};                            \
    habana::custom_op::HabanaCustomOpDescriptor descriptor{node, inputs_desc, outputs_desc};    \
    habana::custom_op::registerKernel(descriptor);                                              \
  }

#define HPU_PARAMS_STUB(struct_name) \
  size = sizeof(struct_name);        \
  auto params = std::make_shared<struct_name>()
