// SPDX-License-Identifier: Apache-2.0
//
// The read floor: how long the same threads take to only read the bytes that a call must read.
#pragma once

#include <cstdint>
#include <vector>

#include "core/pool.h"

namespace mxk::cli {

struct Span {
  const uint8_t* data;
  uint64_t bytes;
};

// Reads all bytes once; each thread a contiguous share of them. Returns their OR, so that no read can be left out.
uint64_t read_all(ThreadPool& pool, const std::vector<Span>& spans);

}  // namespace mxk::cli
