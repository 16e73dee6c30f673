// SPDX-License-Identifier: Apache-2.0
//
// A stand-in for the graph compiler, second half: runs an instance whose "ELF file" is an emulated kernel (emu/abi.h),
// and sees to it that the kernel wrote all of its outputs.
#pragma once

#include <functional>
#include <span>

#include "mxk/types.h"
#include "tpc/emu/abi.h"
#include "tpc/host/library.h"

namespace mxk::tpc {

struct RunOptions {
  int tpcs = 24;    // over which the index space is divided, in contiguous ranges; at most 254
  int threads = 1;  // of the host
  // Used instead of `threads` when set: calls f(i) for every i in [0, n) and returns when all are done.
  std::function<void(int n, const std::function<void(int)>& f)> parallel;
  bool poison = true;       // fill the outputs with 0xFF before the run
  uint8_t unpack_high = 0;  // see emu::Launch
};

struct RunStats {
  emu::Slots total{}, marked{};  // sums over the TPCs
  uint64_t marked_units = 0;
  uint64_t busiest = 0;  // slots of the fullest kind on the TPC that has most of them: no run takes fewer cycles
  int tpcs = 0;          // that had a part of the index space
};

// `inputs` and `outputs` hold a pointer for each tensor of the node, in order, dense. bad_argument: a rule was broken
// (the message of the TPC of the lowest number that found one), or an element of an output was not written. The stats
// are set in any case that the kernel ran.
Status run(const Instance&, std::span<const void* const> inputs, std::span<void* const> outputs, const RunOptions&,
           RunStats* stats = nullptr);

}  // namespace mxk::tpc
