// SPDX-License-Identifier: Apache-2.0
//
// Stand-in for the header of the Habana PyTorch bridge's custom ops for eager mode and torch.compile: the same names,
// types and signatures, so that an op library compiles against either. What the functions do is in pt2.cc.
#pragma once

#include <ATen/Tensor.h>
#include <ATen/core/boxing/KernelFunction.h>  // at::Stack

#include <functional>
#include <memory>
#include <string>
#include <vector>

#pragma GCC visibility push(default)
namespace habana {

struct PartialOutputMetaData {
  at::ScalarType dtype{at::ScalarType::Undefined};
  std::vector<int64_t> shape{};
};
using PartialOutputMetaDataVector = std::vector<PartialOutputMetaData>;

namespace custom_op {

using OutputMetaFn = std::function<PartialOutputMetaDataVector(const at::Stack&)>;
using FillParamsFn = std::function<std::shared_ptr<void>(const at::Stack&, size_t&)>;

class UserCustomOpDescriptor {
 public:
  UserCustomOpDescriptor() {}
  UserCustomOpDescriptor(const std::string& schema, const std::string& guid, OutputMetaFn output_meta_fn,
                         FillParamsFn fill_params_fn = nullptr)
      : schema_(schema), guid_(guid), output_meta_fn_(output_meta_fn), fill_params_fn_(fill_params_fn) {}

  std::vector<at::Tensor> execute(const std::vector<c10::IValue>& inputs);
  static const UserCustomOpDescriptor& getUserCustomOpDescriptor(const std::string& op);

  const std::string& getSchemaName() const;
  const std::string& getGuid() const;
  const OutputMetaFn& getOutputMetaFn() const;
  const FillParamsFn& getFillParamsFn() const;

 private:
  std::string schema_;
  std::string guid_;
  OutputMetaFn output_meta_fn_{nullptr};
  FillParamsFn fill_params_fn_{nullptr};
};

void registerUserCustomOp(const std::string& schema, const std::string& guid, OutputMetaFn output_meta_fn,
                          FillParamsFn fill_params_fn);

}  // namespace custom_op
}  // namespace habana
#pragma GCC visibility pop

#define HPU_PARAMS_STUB(struct_name) \
  size = sizeof(struct_name);        \
  auto params = std::make_shared<struct_name>()
