// SPDX-License-Identifier: Apache-2.0
#include "mxk/backend.h"

#include <cstdlib>

namespace mxk {

#define X(symbol) extern const Backend backend_##symbol;
#include "core/backends.inc"
#undef X

const std::vector<const Backend*>& backends() {
  static const std::vector<const Backend*> list = {
#define X(symbol) &backend_##symbol,
#include "core/backends.inc"
#undef X
  };
  return list;
}

Status select_backend(std::string_view name, Selection* out) {
  *out = {};
  const char* origin = "";
  if (name.empty()) {
    if (const char* env = std::getenv("MXK_BACKEND"); env && *env) {
      name = env;
      origin = "MXK_BACKEND: ";
    }
  }
  if (name.empty()) {
    for (const Backend* b : backends()) {
      if (!b->automatic) continue;
      Status s = b->supported();
      if (s.ok()) {
        out->backend = b;
        return {};
      }
      out->refused.push_back({b, std::move(s.message)});
    }
    return error(Code::unsupported_cpu, "no backend runs on this machine; name one to see its reason");
  }
  std::string known;
  for (const Backend* b : backends()) {
    if (name == b->name) {
      Status s = b->supported();
      if (!s.ok())
        return error(s.code, std::string(origin) + "backend '" + b->name + "' cannot run here: " + s.message +
                                 "; no other is used in its place");
      out->backend = b;
      return {};
    }
    known += known.empty() ? "" : ", ";
    known += b->name;
  }
  return error(Code::backend_unknown, std::string(origin) + "backend '" + std::string(name) +
                                          "' does not exist (this build has: " + known + "); nothing was computed");
}

}  // namespace mxk
