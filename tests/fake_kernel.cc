// SPDX-License-Identifier: Apache-2.0
//
// A kernel module for tests of whatever runs kernels: its only output is filled with bytes of its first input, row
// by element, shared out over the index points. Of three scalars the first picks a fault.
#include <atomic>
#include <cstdio>
#include <cstring>

#include "tpc/emu/abi.h"

namespace {

using mxk::emu::Launch;
using mxk::emu::Tensor;

enum Fault { kNone, kTrap, kLeaveHole, kOverlap };

constexpr int kPoints = 24;  // what the table gives a kernel unless there are fewer TPCs

int trap(Launch* l, const char* what, uint64_t at) {
  std::snprintf(l->message, sizeof l->message, "TPC %d: %s at element %llu", l->tpc, what,
                static_cast<unsigned long long>(at));
  return 1;
}

int run(Launch* l) {
  const Tensor* output = nullptr;
  for (int i = 0; i < l->tensor_count; ++i)
    if (l->tensors[i].is_output) output = &l->tensors[i];
  if (!output || !output->written || l->tensors[0].is_output) return trap(l, "tensors in a wrong order", 0);
  if (l->tensors[l->tensor_count - 1].is_output) return trap(l, "no auxiliary tensor", 0);
  const int fault = l->scalar_count == 3 ? l->scalars[0] : kNone;
  uint64_t elements = 1, in_bytes = size_of(l->tensors[0].type);
  for (uint64_t n : output->size) elements *= n;
  for (uint64_t n : l->tensors[0].size) in_bytes *= n;
  const auto* in = static_cast<const uint8_t*>(l->tensors[0].data);
  auto* out = static_cast<uint8_t*>(output->data);
  const uint64_t width = size_of(output->type);
  for (int p = l->offset[0]; p < l->offset[0] + l->size[0]; ++p) {
    if (fault == kTrap && p >= 5) return trap(l, "told to", p);
    uint64_t begin = elements * p / kPoints;
    const uint64_t end = elements * (p + 1) / kPoints;
    if (fault == kOverlap && p == 12) --begin;
    for (uint64_t e = begin; e < end; ++e) {
      if (fault == kLeaveHole && e >= elements - 3) continue;
      std::atomic_ref<uint8_t> written(output->written[e]);
      const uint8_t before = written.exchange(static_cast<uint8_t>(1 + l->tpc));
      if (before && before != 1 + l->tpc) return trap(l, "written by two TPCs", e);
      for (uint64_t b = 0; b < width; ++b) out[e * width + b] = in[(e * width + b) % in_bytes];
      ++l->slots.store;
    }
    l->marked.store += end - begin;
    ++l->slots.spu;
    l->marked_units += 1;
  }
  return 0;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int mxk_emu_run(Launch* l) { return run(l); }
