// SPDX-License-Identifier: Apache-2.0
#include "glue/stock.h"

#include <dlfcn.h>
#include <sys/stat.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>

namespace mxk::glue {
namespace {

struct Loaded {
  Stock functions;
  void* handle = nullptr;
};

void complain(const char* path, const char* why) {
  std::fprintf(stderr, "mxk: the stock TPC kernel library '%s' is not used: %s; only the mxk kernels are available\n",
               path, why);
}

// A file is this library if it is the same file, whatever it is called. A library that forwarded to itself would never
// come back.
bool is_this_library(const char* path) {
  Dl_info self;
  struct stat a, b;
  return dladdr(reinterpret_cast<const void*>(&mxk_stock_resolve), &self) && self.dli_fname &&
         stat(self.dli_fname, &a) == 0 && stat(path, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

template <class F>
void find(void* handle, const char* name, F* out) {
  *out = reinterpret_cast<F>(dlsym(handle, name));
}

Loaded load() {
  const char* path = std::getenv(kStockVariable);
  Loaded loaded;
#ifdef MXK_TPC_EMULATION
  if (!path) return loaded;  // no one expects a stock library where there is no card, so there is nothing to say
#endif
  if (!path || !*path) path = kStockDefault;
  if (*path != '/') return complain(path, "MXK_STOCK_TPC_LIB must be an absolute path"), loaded;
  if (is_this_library(path)) return complain(path, "it is this library itself"), loaded;
  void* handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    const char* why = dlerror();
    return complain(path, why ? why : "dlopen failed"), loaded;
  }
  Stock s;
  find(handle, "GetKernelGuids", &s.guids);
  find(handle, "InstantiateTpcKernel", &s.instantiate);
  find(handle, "GetShapeInference", &s.infer_shapes);
  find(handle, "GetSupportedDataLayouts", &s.layouts);
  find(handle, "GetLibVersion", &s.version);
  find(handle, "GetSuggestedManipulation", &s.manipulation);
  const char* missing = !s.guids          ? "it has no GetKernelGuids"
                        : !s.instantiate  ? "it has no InstantiateTpcKernel"
                        : !s.infer_shapes ? "it has no GetShapeInference"
                                          : nullptr;  // the graph compiler loads a library without the others
  if (missing) return complain(path, missing), dlclose(handle), loaded;
  loaded.functions = s;
  loaded.handle = handle;
  return loaded;
}

// Never closed: the graph compiler keeps pointers into it.
const Loaded& loaded() noexcept {
  static std::once_flag once;
  static Loaded library;
  std::call_once(once, [] { library = load(); });
  return library;
}

}  // namespace

const Stock& stock() noexcept { return loaded().functions; }

}  // namespace mxk::glue

void* mxk_stock_resolve(const char* name) noexcept {
  void* handle = mxk::glue::loaded().handle;
  if (!handle) return nullptr;
  void* function = dlsym(handle, name);
  if (!function) std::fprintf(stderr, "mxk: the stock TPC kernel library has no '%s'; it answers 0\n", name);
  return function;
}
