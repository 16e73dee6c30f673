// SPDX-License-Identifier: Apache-2.0
//
// The C++ interface from outside: the table of variants, check() and an engine.
#include <mxk/moe.h>

#include <cstdio>

int main() {
  for (const mxk::Variant& v : mxk::variants()) {
    const auto& s = v.serving;
    const mxk::Shape shape{1, s.top_k, s.e_local, s.K, s.I};
    const mxk::Status status = mxk::check(v, shape);
    std::printf("%-8s %s\n", v.name, status.ok() ? "ok" : status.message.c_str());
    if (!status.ok()) return 1;
    if (mxk::check(v, {1, s.top_k, s.e_local, s.K + 1, s.I}).code != mxk::Code::bad_shape) return 1;
  }
  std::unique_ptr<mxk::Engine> engine;
  const mxk::Status status = mxk::Engine::create(mxk::variants()[0], {1, 1, 1, 32, 32}, {}, &engine);
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.message.c_str());
    return 1;
  }
  std::printf("backend %s, %d threads\n", engine->backend().name, engine->threads());
}
