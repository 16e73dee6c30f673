// SPDX-License-Identifier: Apache-2.0
//
// The kernel library that came with the SDK, to which everything but our own kernels is forwarded.
#pragma once

#include "glue/interface.h"

namespace mxk::glue {

constexpr const char* kStockVariable = "MXK_STOCK_TPC_LIB";
constexpr const char* kStockDefault = "/usr/lib/habanalabs/libtpc_kernels.so";

// Its six functions. All null when there is no stock library, and one null when it lacks that one.
struct Stock {
  api::pfnGetKernelGuids guids = nullptr;
  api::pfnInstantiateTpcKernel instantiate = nullptr;
  api::pfnGetShapeInference infer_shapes = nullptr;
  api::pfnGetSupportedDataLayout layouts = nullptr;
  api::pfnGetLibVersion version = nullptr;
  GetSuggestedManipulation manipulation = nullptr;
};

// Loads it at the first call: the file that MXK_STOCK_TPC_LIB names, which must be an absolute path and not this very
// library, or the default when the variable is not set (the emulation then has none). When that fails one line goes to
// stderr, once in the life of the process.
const Stock& stock() noexcept;

}  // namespace mxk::glue

// For the trampolines that passthrough.py makes: the address of a function of the stock library, or null.
extern "C" __attribute__((visibility("hidden"))) void* mxk_stock_resolve(const char* name) noexcept;
