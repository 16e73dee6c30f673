// SPDX-License-Identifier: Apache-2.0
//
// What tests know about the library of fake_stock.cc.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "glue/interface.h"

namespace mxk::test {

constexpr uint32_t kFakeCount = 412;  // kernels for Gaudi 2; every other device has 3
constexpr uint64_t kFakeVersion = 0x0123456789ABCDEF;
constexpr const char* kFakeFaults[] = {
    "fault_none",        "fault_rank",        "fault_empty_space", "fault_gaps",        "fault_uncovered",
    "fault_scalars",     "fault_many_aux",    "fault_aux_bytes",   "fault_scratch",     "fault_same_aux",
    "fault_endless_elf", "fault_overrun_aux", "fault_no_elf",      "fault_overrun_elf", "fault_pattern_dim",
};

// The last call of the calling thread.
struct FakeCall {
  const char* function;
  const void *a, *b, *c;
  int device;
};

struct FakeBig {
  int64_t x[5];  // by value it travels in memory, and comes back through a hidden pointer
};

constexpr uint64_t fnv56(std::string_view text) {
  uint64_t h = 0xcbf29ce484222325;
  for (char c : text) h = (h ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return (h ^ h >> 56) & ((uint64_t{1} << 56) - 1);
}

}  // namespace mxk::test
