// SPDX-License-Identifier: Apache-2.0
//
// Single kernels, for tests: through the kernel library as a graph compiler calls it, or, for modules that no library
// has, directly.
#pragma once

#include <fstream>
#include <iterator>
#include <utility>

#include "core/formats.h"
#include "layer.h"
#include "tpc/host/executor.h"
#include "tpc/host/library.h"
#include "tpc/tables.h"

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

// Empty, or what went wrong.
inline std::string run_kernel(const KernelCall& c, const Launching& how = {}) {
  static const std::unique_ptr<tpc::Library> library = [] {
    std::unique_ptr<tpc::Library> l;
    if (Status s = tpc::Library::open(MXK_TPC_LIBRARY, &l); !s.ok()) throw std::runtime_error(s.message);
    return l;
  }();
  tpc::Node node = node_of(c);
  node.tpcs = how.points;
  tpc::Instance instance;
  if (Status s = library->instantiate(node, &instance); !s.ok()) return s.message;
  return execute(instance, c, how);
}

// A module of this build, which may be one that the library does not have, with the auxiliary tensors it wants.
inline std::string run_module(const KernelCall& c, std::vector<int32_t> scalars, bool lut) {
  std::ifstream file(std::string(MXK_TPC_MODULES "/") + c.guid + ".so", std::ios::binary);
  if (!file) return std::string("no module ") + c.guid;
  tpc::Instance instance;
  instance.node = node_of(c);
  instance.elf.assign(std::istreambuf_iterator<char>(file), {});
  instance.index_space = {24};
  instance.scalars = std::move(scalars);
  instance.aux.push_back({{api::DATA_U8, {256, tpc::kTableRows}}, std::vector<uint8_t>(tpc::kTableRows * 256)});
  tpc::fill_tables(instance.aux[0].bytes.data());
  if (lut) {
    instance.aux.push_back({{api::DATA_BF16, {512}}, std::vector<uint8_t>(1024)});
    for (size_t byte = 0; byte < 256; ++byte)
      for (size_t high = 0; high < 2; ++high) {
        const uint16_t code = to_bf16(double{kE2M1[high ? byte >> 4 : byte & 15]});
        std::memcpy(&instance.aux[1].bytes[4 * byte + 2 * high], &code, 2);
      }
  }
  return execute(instance, c);
}

}  // namespace mxk::test
