// SPDX-License-Identifier: Apache-2.0
//
// What both plugins of the stand-in share: the device, which has the kernel library that GC_KERNEL_PATH named when it
// was opened, and the launch of a kernel on it.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/boxing/KernelFunction.h>  // at::Stack

#include <string>
#include <vector>

namespace mxk::standin {

// The first call reads GC_KERNEL_PATH and loads that library; later ones repeat its error, if it had one.
void open_device();

// Throws unless the process is in the mode that a plugin is for, as PT_HPU_LAZY_MODE says.
void require_mode(bool lazy, const std::string& op);

// Has the kernel library instantiate the kernel for these tensors, and runs it on 24 emulated TPCs. `outputs` are
// dense.
void launch(const std::string& guid, at::TensorList inputs, at::TensorList outputs, const std::vector<uint8_t>& params);

// A CPU tensor with the memory of one on the device, which it does not keep alive.
at::Tensor on_host(const at::Tensor&);

// The bytes of a node's parameters, from the callback of either interface; none without one.
template <class Fill>
std::vector<uint8_t> params_of(const Fill& fill, const at::Stack& arguments) {
  if (!fill) return {};
  size_t size = 0;
  const std::shared_ptr<void> params = fill(arguments, size);
  const auto* bytes = static_cast<const uint8_t*>(params.get());
  return {bytes, bytes + size};
}

}  // namespace mxk::standin
