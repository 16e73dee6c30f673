// SPDX-License-Identifier: Apache-2.0
//
// A fixed set of threads that run the same job and meet at barriers. The caller is thread 0. Waiting spins for a
// while, then sleeps on a futex; it never yields (sched_yield costs a whole time slice when anything else is runnable).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

namespace mxk {

class ThreadPool {
 public:
  using Job = void (*)(void* context, int thread);

  explicit ThreadPool(int threads);  // throws std::system_error if a thread cannot be started
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_; }

  // Runs job(context, t) for every t in [0, threads()) and returns when all are done.
  void run(Job job, void* context);

  // For use inside a job, by all threads: returns when all have arrived.
  void barrier();

  // run() for a callable `f(int thread)`.
  template <class F>
  void parallel(F&& f) {
    run([](void* c, int t) { (*static_cast<std::remove_reference_t<F>*>(c))(t); }, &f);
  }

 private:
  void worker(int thread);
  void advance(std::atomic<uint32_t>& word);
  void wait_change(std::atomic<uint32_t>& word, uint32_t old);

  const int threads_;
  Job job_ = nullptr;
  void* context_ = nullptr;
  bool stop_ = false;
  alignas(64) std::atomic<uint32_t> start_{0};    // bumped to start a job
  alignas(64) std::atomic<uint32_t> arrived_{0};  // threads at the current barrier
  alignas(64) std::atomic<uint32_t> phase_{0};    // bumped when the last one arrives
  alignas(64) std::atomic<uint32_t> sleepers_{0};
  std::vector<std::thread> workers_;
};

// Threads that this process may run on (its affinity mask), at least 1.
int available_threads();

// The slice [begin, end) of [0, n) that thread t of `threads` owns, in whole units of `unit` (the last may be short).
struct Slice {
  int64_t begin, end;
};
constexpr Slice slice(int64_t n, int64_t unit, int t, int threads) {
  const int64_t units = (n + unit - 1) / unit;
  const auto cut = [&](int64_t i) {
    const int64_t at = units * i / threads * unit;
    return at < n ? at : n;
  };
  return {cut(t), cut(t + 1)};
}

}  // namespace mxk
