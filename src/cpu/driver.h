// SPDX-License-Identifier: Apache-2.0
//
// A layer on the kernels of one instruction set.
#pragma once

#include "cpu/cpu.h"
#include "mxk/backend.h"

namespace mxk::cpu {

size_t scratch_bytes(const Kernels&, const Shape& max, int threads);
Status run(const Kernels&, const Call&, const Workspace&);

// The kernels of the best instruction set this machine has.
const Kernels& best_kernels();

}  // namespace mxk::cpu
