// SPDX-License-Identifier: Apache-2.0
#include "torch/engines.h"

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>

#include "mxk/moe.h"

namespace mxk::ops {
namespace {

// Variant, K, I, threads and MXK_BACKEND. A model has one K and I.
using Key = std::tuple<std::string, int, int, int, std::string>;

struct Held {
  Shape max{};
  std::unique_ptr<Engine> engine;
};

struct Process {
  std::mutex mutex;
  std::map<Key, Held> held;
};

// The threads of an engine do not survive fork(), and a lock that another thread held would never be free: a child
// starts anew. What it inherits is left alone, because it cannot be destroyed either.
std::atomic<Process*> process;
Process& this_process() {
  static const bool once = [] {
    process = new Process;
    pthread_atfork(nullptr, nullptr, [] { process = new Process; });
    return true;
  }();
  static_cast<void>(once);
  return *process;
}

void require(const Status& status) { TORCH_CHECK(status.ok(), status.message); }

bool fits(const Shape& s, const Shape& max) { return s.T <= max.T && s.k <= max.k && s.E <= max.E; }

}  // namespace

void run_call(const Call& call) {
  const Shape& s = call.shape;
  const char* backend = std::getenv("MXK_BACKEND");
  const int threads = at::get_num_threads();
  Process& own = this_process();
  const std::scoped_lock lock(own.mutex);
  Held& h = own.held[{call.variant->name, s.K, s.I, threads, backend ? backend : ""}];
  if (!h.engine || !fits(s, h.max)) {
    // For what was seen so far, so that calls that take turns do not make an engine each. If that is more than can be
    // had, for this call alone.
    const Shape seen = {std::max(s.T, h.max.T), std::max(s.k, h.max.k), std::max(s.E, h.max.E), s.K, s.I};
    h.engine.reset();
    h.max = seen;
    if (!Engine::create(*call.variant, seen, {{}, threads}, &h.engine).ok()) {
      h.max = s;
      require(Engine::create(*call.variant, s, {{}, threads}, &h.engine));
    }
  }
  require(h.engine->run(call));
}

}  // namespace mxk::ops
