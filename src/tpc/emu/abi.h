// SPDX-License-Identifier: Apache-2.0
//
// How an emulated kernel is started: the only interface between a kernel module (a shared object that holds one kernel
// and the emulation of its intrinsics) and whoever runs it. Plain C data, so that a module built by another compiler
// runs.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mxk::emu {

// As in the graph compiler's interface; the order of the bits there.
enum class ElementType : int32_t { u8 = 3, bf16 = 8, i32 = 10, f32 = 12 };
constexpr int size_of(ElementType t) { return t == ElementType::u8 ? 1 : t == ElementType::bf16 ? 2 : 4; }

// What a tensor descriptor tells a kernel. Dimension 0 is the fastest and dense; dimensions beyond the rank have
// size 1.
struct Tensor {
  void* data;
  uint64_t size[5];    // elements
  uint64_t stride[5];  // elements; stride[0] is 1
  ElementType type;
  uint8_t is_output;
  // One byte per element of an output, zero before the launch, shared by all index points: 1 + the number of the TPC
  // that wrote the element. Null for inputs.
  uint8_t* written;
};

// Issue slots that were filled, by the slot of the VLIW word an intrinsic occupies.
struct Slots {
  uint64_t load, spu, vpu, store;
};

// One TPC's share of a launch: kernel(tensors..., scalars...) for index points [offset, offset + size).
struct Launch {
  const Tensor* tensors;  // inputs, outputs, auxiliary, in the order of the kernel's parameters
  int32_t tensor_count;
  const int32_t* scalars;
  int32_t scalar_count;
  int32_t tpc;  // number of this TPC, from 0
  int32_t offset[5];
  int32_t size[5];
  Slots slots;            // out: everything this TPC issued
  Slots marked;           // out: the part issued between mxk_emu_mark(1) and mxk_emu_mark(0); see intrinsics.h
  uint64_t marked_units;  // out: units of work the kernel reported for the marked part
  char message[512];      // out: what rule was broken, where; empty when none was
  // in: what a load that unpacks 8 to 16 bits leaves in the upper bytes. No public source promises 0, so a kernel must
  // give the same bits with any value.
  uint8_t unpack_high;
};

// How many elements of an output no TPC has written; `first` is the index of the first, in the order of memory of a
// dense tensor. To be asked when all TPCs have run.
inline uint64_t unwritten(const Tensor& tensor, uint64_t* first) {
  uint64_t elements = 1, missing = 0;
  for (const uint64_t size : tensor.size) elements *= size;
  for (uint64_t i = 0; i < elements; ++i)
    if (tensor.written[i] == 0 && missing++ == 0) *first = i;
  return missing;
}

// Exported by every module. 0: ran to the end; 1: a rule was broken (message), the kernel was stopped there.
using Run = int (*)(Launch*);
constexpr const char* kRunSymbol = "mxk_emu_run";

}  // namespace mxk::emu
