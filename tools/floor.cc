// SPDX-License-Identifier: Apache-2.0
#include "floor.h"

#include <algorithm>
#include <atomic>

namespace mxk::cli {
namespace {

constexpr uint64_t kStep = 64;  // a cache line
constexpr uint64_t kPrefetchAhead = 2048;

// Loads and ORs only. Four 16-byte vectors a step, so that any CPU of the baseline is bound by memory, not by issue.
typedef uint64_t Vector __attribute__((vector_size(16), aligned(1), may_alias));

template <Ahead ahead>
Vector read(const uint8_t* p, uint64_t bytes) {
  Vector a{}, b{}, c{}, d{};
  uint64_t i = 0;
  for (; i + kStep <= bytes; i += kStep) {
    if (ahead == Ahead::l1) __builtin_prefetch(p + i + kPrefetchAhead, 0, 3);
    if (ahead == Ahead::l2) __builtin_prefetch(p + i + kPrefetchAhead, 0, 2);
    const Vector* v = reinterpret_cast<const Vector*>(p + i);
    a |= v[0];
    b |= v[1];
    c |= v[2];
    d |= v[3];
  }
  for (; i < bytes; ++i) a |= Vector{p[i], 0};
  return a | b | c | d;
}

}  // namespace

uint64_t read_all(ThreadPool& pool, const std::vector<Span>& spans, Ahead ahead) {
  const auto read_span = ahead == Ahead::none ? read<Ahead::none>
                         : ahead == Ahead::l1 ? read<Ahead::l1>
                                              : read<Ahead::l2>;
  uint64_t total = 0;
  for (const Span& s : spans) total += s.bytes;
  std::atomic<uint64_t> all{0};
  pool.parallel([&](int t) {
    const Slice share = slice(static_cast<int64_t>(total), kStep, t, pool.threads());
    const uint64_t begin = share.begin, end = share.end;
    uint64_t at = 0;  // of the span's first byte, in the whole
    Vector sum{};
    for (const Span& s : spans) {
      const uint64_t from = std::max(at, begin), to = std::min(at + s.bytes, end);
      if (from < to) sum |= read_span(s.data + (from - at), to - from);
      at += s.bytes;
    }
    all |= sum[0] | sum[1];
  });
  return all;
}

Ahead fastest_read(ThreadPool& pool, const std::vector<std::vector<Span>>& calls) {
  Ahead best = Ahead::none;
  double best_speed = 0;  // bytes per microsecond of the fastest read of a way
  size_t next = 0;
  for (const Ahead ahead : {Ahead::none, Ahead::l1, Ahead::l2})
    for (size_t i = 0; i < 3; ++i) {
      const std::vector<Span>& spans = calls[next++ % calls.size()];
      double bytes = 0;
      for (const Span& s : spans) bytes += static_cast<double>(s.bytes);
      const double speed = bytes / microseconds([&] { read_all(pool, spans, ahead); });
      if (speed > best_speed) {
        best_speed = speed;
        best = ahead;
      }
    }
  return best;
}

}  // namespace mxk::cli
