// SPDX-License-Identifier: Apache-2.0
//
// The read floor: how long the same threads take to only read the bytes that a call must read.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "core/pool.h"

namespace mxk::cli {

struct Span {
  const uint8_t* data;
  uint64_t bytes;
};

template <class F>
double microseconds(F&& f) {
  const auto start = std::chrono::steady_clock::now();
  f();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
}

// How a reading thread asks for lines 2 KB ahead. Which is fastest differs between CPUs and is found by fastest_read().
enum class Ahead { none, l1, l2 };

// Reads all bytes once; each thread a contiguous share of them. Returns their OR, so that no read can be left out.
uint64_t read_all(ThreadPool& pool, const std::vector<Span>& spans, Ahead ahead);

// The fastest way on this machine now, each tried on a third of the calls given: a floor that flatters nobody.
Ahead fastest_read(ThreadPool& pool, const std::vector<std::vector<Span>>& calls);

}  // namespace mxk::cli
