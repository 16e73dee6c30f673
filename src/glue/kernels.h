// SPDX-License-Identifier: Apache-2.0
//
// The kernels of this library as the graph compiler sees them: their bytes, and the check of a call against
// tpc/kernels.inc in the graph compiler's own structures.
#pragma once

#include <cstdint>
#include <span>

#include "glue/interface.h"
#include "tpc/kernels.h"

namespace mxk::glue {

using tpc::Kernel;
using tpc::Letters;

const Kernel* find_kernel(const char (&guid)[api::MAX_NODE_NAME]);  // null if it is none of ours
std::span<const uint8_t> elf(const Kernel&);

// The geometries of all operands of a call, wherever they lie.
struct Geometries {
  std::array<const api::TensorGeometry*, tpc::kMaxInputs> inputs;
  const api::TensorGeometry* output;  // null: it is asked for
};

// Do the sizes of all operands follow from one set of letters, and is that a layer of a variant of this build?
api::GlueCodeReturn check_sizes(const Kernel&, const Geometries&, Letters*);

// Is this a call that the kernel computes? Everything is looked at: counts, element types, ranks, sizes, parameters.
api::GlueCodeReturn check(const Kernel&, const api::HabanaKernelParams&, Letters*);

}  // namespace mxk::glue
