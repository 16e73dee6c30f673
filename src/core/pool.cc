// SPDX-License-Identifier: Apache-2.0
#include "core/pool.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>

namespace mxk {
namespace {

// Some ten to a hundred microseconds, as long as `pause` takes on the CPU: longer than the threads of a stage lie
// apart.
constexpr int kSpins = 2000;

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// std::atomic::wait is not used: libstdc++ calls sched_yield before it sleeps.
long futex(std::atomic<uint32_t>& word, int op, uint32_t value) {
  static_assert(sizeof word == sizeof(uint32_t));
  return syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), op | FUTEX_PRIVATE_FLAG, value, nullptr, nullptr, 0);
}

}  // namespace

void ThreadPool::advance(std::atomic<uint32_t>& word) {
  word.fetch_add(1);
  // Sequentially consistent with wait_change: either we see the sleeper, or the sleeper sees the new value.
  if (sleepers_.load() != 0) futex(word, FUTEX_WAKE, INT_MAX);
}

ThreadPool::ThreadPool(int threads) : threads_(threads < 1 ? 1 : threads) {
  workers_.reserve(threads_ - 1);
  try {
    for (int t = 1; t < threads_; ++t) workers_.emplace_back(&ThreadPool::worker, this, t);
  } catch (...) {  // the system has no more threads: stop those that started, let the caller report
    stop_ = true;
    advance(start_);
    for (auto& w : workers_) w.join();
    throw;
  }
}

ThreadPool::~ThreadPool() {
  stop_ = true;
  advance(start_);
  for (auto& w : workers_) w.join();
}

void ThreadPool::wait_change(std::atomic<uint32_t>& word, uint32_t old) {
  for (int i = 0; i < kSpins; ++i) {
    if (word.load(std::memory_order_acquire) != old) return;
    pause();
  }
  sleepers_.fetch_add(1);
  while (word.load() == old) futex(word, FUTEX_WAIT, old);
  sleepers_.fetch_sub(1);
}

void ThreadPool::barrier() {
  if (threads_ == 1) return;
  const uint32_t phase = phase_.load(std::memory_order_relaxed);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == static_cast<uint32_t>(threads_)) {
    arrived_.store(0, std::memory_order_relaxed);
    advance(phase_);
  } else {
    wait_change(phase_, phase);
  }
}

void ThreadPool::run(Job job, void* context) {
  job_ = job;
  context_ = context;
  advance(start_);
  job(context, 0);
  barrier();
}

void ThreadPool::worker(int thread) {
  for (uint32_t seen = 0;; ++seen) {
    wait_change(start_, seen);
    if (stop_) return;
    job_(context_, thread);
    barrier();
  }
}

int available_threads() {
  // The kernel refuses a set smaller than its own, which may hold more than the 1024 CPUs of a cpu_set_t.
  for (int cpus = 1024; cpus <= 1 << 20; cpus *= 2) {
    cpu_set_t* set = CPU_ALLOC(cpus);
    if (!set) break;
    const size_t size = CPU_ALLOC_SIZE(cpus);
    const int count = sched_getaffinity(0, size, set) == 0 ? CPU_COUNT_S(size, set) : 0;
    CPU_FREE(set);
    if (count > 0) return count;
  }
  return 1;
}

}  // namespace mxk
