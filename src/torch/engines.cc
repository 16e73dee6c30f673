// SPDX-License-Identifier: Apache-2.0
#include "torch/engines.h"

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>

#include "mxk/moe.h"

namespace mxk::ops {
namespace {

struct Held {
  Shape max{};
  std::unique_ptr<Engine> engine;
};
using Key = std::tuple<std::string, int, std::string>;

void require(const Status& status) { TORCH_CHECK(status.ok(), status.message); }

bool fits(const Shape& s, const Shape& max) {
  return s.T <= max.T && s.k <= max.k && s.E <= max.E && s.K <= max.K && s.I <= max.I;
}

// Room for twice as many tokens, so that batches that grow by one do not make an engine each. Not for a backend that
// has limits of its own.
Shape grown(const Shape& s, const Shape& max) {
  return {std::max(s.T, max.T), std::max(s.k, max.k), std::max(s.E, max.E), std::max(s.K, max.K), std::max(s.I, max.I)};
}

}  // namespace

void run_call(const Call& call) {
  static std::mutex mutex;
  static std::map<Key, Held>* held;
  static pid_t owner;
  const std::scoped_lock lock(mutex);
  // The threads of an engine do not survive fork(). What a child inherits is left alone: it cannot be destroyed either.
  if (!held || owner != getpid()) {
    held = new std::map<Key, Held>;
    owner = getpid();
  }
  const char* backend = std::getenv("MXK_BACKEND");
  const int threads = at::get_num_threads();
  Held& h = (*held)[{call.variant->name, threads, backend ? backend : ""}];
  if (!h.engine || !fits(call.shape, h.max)) {
    const Shape max = h.engine ? grown(call.shape, h.max) : call.shape;
    h.engine.reset();
    require(Engine::create(*call.variant, max, {{}, threads}, &h.engine));
    h.max = max;
  }
  require(h.engine->run(call));
}

}  // namespace mxk::ops
