// SPDX-License-Identifier: Apache-2.0
//
// One kernel source (MXK_KERNEL_SOURCE, a quoted path) as a module: a shared object that exports mxk_emu_run.
#include <cstdio>
#include <utility>

#include "tpc/emu/intrinsics.h"
#include "tpc/emu/runtime.h"

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"  // {0} of a register pair
#define main mxk_kernel_main
#include MXK_KERNEL_SOURCE
#undef main
#pragma GCC diagnostic pop

namespace {

using mxk::emu::Launch;
using mxk::emu::Trap;

template <class P>
P argument(const Launch& l, int i) {
  if (i >= l.tensor_count) return std::bit_cast<P>(l.scalars[i - l.tensor_count]);
  if constexpr (std::is_integral_v<P>) return static_cast<P>(i);
  throw Trap{"launch: a tensor is passed for a parameter that is not an integer"};
}

template <class... P, int... kIndex>
void call(void (*kernel)(P...), const Launch& l, std::integer_sequence<int, kIndex...>) {
  static_assert(((sizeof(P) == 4) && ...), "parameters of a kernel are tensors and 32-bit scalars");
  if (l.tensor_count + l.scalar_count != static_cast<int>(sizeof...(P))) {
    Trap t;
    std::snprintf(t.message, sizeof t.message, "launch: %d tensors and %d scalars for a kernel of %d parameters",
                  l.tensor_count, l.scalar_count, static_cast<int>(sizeof...(P)));
    throw t;
  }
  kernel(argument<P>(l, kIndex)...);
}

template <class... P>
void call(void (*kernel)(P...), const Launch& l) {
  call(kernel, l, std::make_integer_sequence<int, sizeof...(P)>());
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int mxk_emu_run(mxk::emu::Launch* launch);
int mxk_emu_run(mxk::emu::Launch* launch) {
  return mxk::emu::run(launch, [](const Launch& l) { call(mxk_kernel_main, l); });
}
