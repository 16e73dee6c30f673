// SPDX-License-Identifier: Apache-2.0
//
// Single kernels, for tests: through a kernel library as a graph compiler calls it.
#pragma once

#include <map>
#include <utility>

#include "core/formats.h"
#include "layer.h"
#include "tpc/host/executor.h"
#include "tpc/host/library.h"

namespace mxk::test {

namespace api = tpc_lib_api;

struct KernelCall {
  const char* guid;
  std::vector<std::pair<tpc::TensorSpec, const void*>> inputs;
  std::pair<tpc::TensorSpec, void*> output;
  std::vector<uint8_t> params;
};

// How a launch may differ without a difference in the result.
struct Launching {
  uint32_t tpcs = 24;  // that share the index points
  uint32_t points = 24;
  uint8_t unpack_high = 0;
};

inline std::string execute(const tpc::Instance& instance, const KernelCall& c, const Launching& how = {}) {
  std::vector<const void*> in;
  for (const auto& [spec, data] : c.inputs) in.push_back(data);
  void* const out[] = {c.output.second};
  tpc::RunOptions options;
  options.threads = 2;
  options.tpcs = static_cast<int>(how.tpcs);
  options.unpack_high = how.unpack_high;
  return tpc::run(instance, in, out, options).message;
}

inline tpc::Node node_of(const KernelCall& c) {
  tpc::Node node;
  node.guid = c.guid;
  for (const auto& [spec, data] : c.inputs) node.inputs.push_back(spec);
  node.outputs.push_back(c.output.first);
  node.params = c.params;
  return node;
}

// The same call through a library of this build; empty, or what went wrong.
inline std::string run_kernel(const KernelCall& c, const Launching& how = {}, const char* path = MXK_TPC_LIBRARY) {
  static std::map<std::string, std::unique_ptr<tpc::Library>> libraries;
  std::unique_ptr<tpc::Library>& library = libraries[path];
  if (!library)
    if (Status s = tpc::Library::open(path, &library); !s.ok()) return s.message;
  tpc::Node node = node_of(c);
  node.tpcs = how.points;
  tpc::Instance instance;
  if (Status s = library->instantiate(node, &instance); !s.ok()) return s.message;
  return execute(instance, c, how);
}

}  // namespace mxk::test
