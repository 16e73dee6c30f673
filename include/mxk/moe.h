// SPDX-License-Identifier: Apache-2.0
//
// The C++ API: look up a variant, check a shape, make an Engine once, run layers through it.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "mxk/backend.h"
#include "mxk/types.h"

namespace mxk {

std::span<const Variant> variants();
const Variant* find_variant(std::string_view name);  // null if unknown
std::string variants_json();                         // the table as a JSON array, for other languages
const char* to_string(Rows);
const char* to_string(Act);
const char* to_string(Code);

// Is the shape one that any backend could take: every dimension positive (T may be 0), K and I multiples of 32,
// no size that overflows? bad_shape with the offending value otherwise.
Status check_shape(const Variant&, const Shape&);

// check_shape plus the limits of variants.inc. This is what the accelerator kernels take; every layer that asks
// "is this shape covered" asks here.
Status check(const Variant&, const Shape&);

struct EngineOptions {
  std::string_view backend;  // empty: see select_backend
  int threads = 0;           // 0: one for each CPU of the affinity mask
};

// A backend, its thread pool and its scratch memory for calls of one variant up to a maximum shape. One Engine
// serves every layer of a model. Calls of one Engine must not overlap. Its threads do not survive fork().
class Engine {
 public:
  // `max` bounds T, k, E, K and I of later calls. Errors: those of check_shape/check, select_backend, out_of_memory.
  static Status create(const Variant&, const Shape& max, const EngineOptions&, std::unique_ptr<Engine>* out);
  ~Engine();

  // y = the layer. Allocates nothing. Errors leave y untouched: unsupported_variant, bad_shape, bad_dtype,
  // bad_argument.
  Status run(const Call&);

  const Variant& variant() const;
  const Backend& backend() const;
  const Selection& selection() const;
  int threads() const;
  ThreadPool& pool();
  size_t scratch_bytes() const;

 private:
  struct State;
  explicit Engine(std::unique_ptr<State>);
  std::unique_ptr<State> state_;
};

}  // namespace mxk
