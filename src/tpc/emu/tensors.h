// SPDX-License-Identifier: Apache-2.0
//
// The tensors of the running launch. These trap when there is no such tensor or its elements have another type.
#pragma once

#include "tpc/emu/abi.h"

namespace mxk::emu {

const char* name_of(ElementType type);
const Tensor& tensor_at(int number);
const Tensor& tensor_at(int number, ElementType want);

}  // namespace mxk::emu
