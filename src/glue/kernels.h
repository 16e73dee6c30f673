// SPDX-License-Identifier: Apache-2.0
//
// The kernels of this library as the graph compiler sees them, and the check of a call against the table kernels.inc.
// What a layer may look like is not decided here: mxk::check() is asked.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <tuple>

#include "glue/interface.h"

namespace mxk::glue {

enum class Letter : uint8_t { T, k, E, K, I, N, C, none };
constexpr size_t kLetters = 7;
using Letters = std::array<uint64_t, kLetters>;  // the sizes behind a call's tensors

// One dimension of a tensor, as a function of the letters.
enum class Dim : uint8_t {
  end,  // the tensor has no such dimension
  T,
  k,
  E,
  K,
  N,
  C,
  T_k,
  E_N,
  I_2,
  K_half,
  I_half,
  C_half,
  I_4th,
  K_8th,
  K_32nd,
  I_32nd,
  C_32nd,
  K_padded,  // up to a multiple of 512
  I_padded,
  one,
  eight,
  byte_codes,
  selfcheck_rows,
  lanes
};

struct Operand {
  const char* name;
  api::TensorDataType type;
  std::array<Dim, 3> dims;  // slowest first, as in the model; the interface has the fastest first
  constexpr uint32_t rank() const {
    uint32_t n = 0;
    while (n < dims.size() && dims[n] != Dim::end) ++n;
    return n;
  }
  constexpr Dim dim(uint32_t fastest_first) const { return dims[rank() - 1 - fastest_first]; }
};

enum class Users : uint8_t { w13, w2, deq, always };  // which variants use a kernel

struct Kernel {
  const char* name;
  Users users;
  const char* variant_kernel;  // its name in variants.inc
  uint32_t parameters;         // int32 values that the node has: first_expert or none
  Dim units;                   // what the index points share out; Dim::end: there is one point
  std::span<const Operand> inputs;
  Operand output;
  std::span<const uint8_t> elf;
};

// The kernels of this build, in the order of the table.
std::span<const Kernel> kernels();
const Kernel* find_kernel(const char (&guid)[api::MAX_NODE_NAME]);  // null if it is none of ours

// The size of a dimension, once check_sizes() has agreed to the letters.
uint64_t size_of(Dim, const Letters&);

// The geometries of all operands of a call, wherever they lie.
struct Geometries {
  std::array<const api::TensorGeometry*, 8> inputs;
  const api::TensorGeometry* output;  // null: it is asked for
};
constexpr size_t kMaxInputs = std::tuple_size_v<decltype(Geometries::inputs)>;

// Do the sizes of all operands follow from one set of letters, and is that a layer of a variant of this build?
api::GlueCodeReturn check_sizes(const Kernel&, const Geometries&, Letters*);

// Is this a call that the kernel computes? Everything is looked at: counts, element types, ranks, sizes, parameters.
api::GlueCodeReturn check(const Kernel&, const api::HabanaKernelParams&, Letters*);

}  // namespace mxk::glue
