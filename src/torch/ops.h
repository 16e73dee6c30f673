// SPDX-License-Identifier: Apache-2.0
//
// torch.ops.custom_op.<kernel>: one PyTorch operator for each row of tpc/kernels.inc. Its schema, the check of its
// arguments, its output and its Meta implementation all follow from the row. What differs between the op libraries is
// how a kernel is run, and that is in one file of each: lazy.cc, pt2.cc, cpu.cc.
//
// Errors: an argument of another element type, rank or size than the row has, or a layer outside mxk::check(), raises
// a RuntimeError that names it, the limit and the value; nothing is computed.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <memory>
#include <string>
#include <vector>

#include "tpc/kernels.h"

namespace mxk::ops {

using tpc::Kernel;

// ---- each op library has its own -----------------------------------------------------------------------------------

extern const char* const kLibrary;      // file name, for messages
extern const c10::DispatchKey kDevice;  // where its tensors are
void announce(const Kernel&);           // called once for each kernel, when the library is loaded
at::Tensor execute(const Kernel&, const std::vector<c10::IValue>& arguments);  // checked ones

// ---- for all -------------------------------------------------------------------------------------------------------

std::string name(const Kernel&);       // custom_op::<kernel>
c10::ScalarType dtype(const Kernel&);  // of its output
// Sizes of the output; throws c10::Error unless the arguments are a call of the kernel.
std::vector<int64_t> check(const Kernel&, c10::ArrayRef<c10::IValue> arguments);
// The parameters of a call, and the same as the bridges take them for a node; negative ones throw.
std::vector<int32_t> parameters(const Kernel&, c10::ArrayRef<c10::IValue> arguments);
std::shared_ptr<void> node_parameters(const Kernel&, c10::ArrayRef<c10::IValue> arguments, size_t* bytes);

// Defines the op of a row. Rows of variants.inc are defined by ops.cc; a port defines its own in its op.cpp:
// MXK_OP(guid) at the top level.
bool define(const char* kernel);
#define MXK_OP(guid) static const bool mxk_op_##guid = mxk::ops::define(#guid)

}  // namespace mxk::ops
