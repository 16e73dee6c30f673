// SPDX-License-Identifier: Apache-2.0
//
// Backends: one row each in src/core/backends.inc, in the order in which they are tried.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "mxk/types.h"

namespace mxk {

class ThreadPool;

// Memory a call works in, allocated when an Engine is made. `bytes` is what scratch_bytes() asked for.
struct Workspace {
  ThreadPool* pool;
  unsigned char* scratch;  // 64-byte aligned
  size_t bytes;
};

struct Backend {
  const char* name;
  const char* description;
  bool automatic;         // may be chosen without being named (ref and stock are not)
  bool table_limits;      // bound to the limits of variants.inc; otherwise any multiple of 32
  bool stages;            // takes half a layer, see Stage
  Status (*supported)();  // can this machine run it? ok or the reason
  size_t (*scratch_bytes)(const Variant&, const Shape& max, int threads);
  Status (*run)(const Call&, const Workspace&);  // arguments were checked; no output, no allocation (tpc-emu: some)
};

// All backends of this build, first choice first.
const std::vector<const Backend*>& backends();

struct Selection {
  const Backend* backend = nullptr;
  struct Refused {
    const Backend* backend;
    std::string reason;
  };
  std::vector<Refused> refused;  // better ones that were passed over, and why
};

// `name` empty: the environment variable MXK_BACKEND if set, else the first automatic backend this machine can run.
// Errors: backend_unknown (lists the names), unsupported_cpu (with the reason). Never falls back from a given name.
Status select_backend(std::string_view name, Selection* out);

}  // namespace mxk
