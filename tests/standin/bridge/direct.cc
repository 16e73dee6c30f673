// SPDX-License-Identifier: Apache-2.0
//
// For standin_test.py: a node run without PyTorch and without the bridge, by ctypes.
#include <cstdio>
#include <cstring>

#include "tpc/host/executor.h"
#include "tpc/host/library.h"

// Tensors: `rank` sizes each, slowest first, one after the other, inputs before the one output; types as in
// tpc_lib_api::TensorDataType. 0, or 1 and a line in `message`.
extern "C" __attribute__((visibility("default"))) int run_node(const char* library, const char* guid, int inputs,
                                                               const int* type, const int* rank, const uint64_t* size,
                                                               void* const* data, const int32_t* params,
                                                               int params_count, char* message, size_t message_size) {
  using namespace mxk;
  tpc::Node node;
  node.guid = guid;
  for (int i = 0; i <= inputs; size += rank[i], ++i) {
    tpc::TensorSpec spec{static_cast<tpc_lib_api::TensorDataType>(type[i]), {}};
    for (int d = rank[i]; d-- > 0;) spec.sizes.push_back(size[d]);
    (i < inputs ? node.inputs : node.outputs).push_back(spec);
  }
  node.params.resize(sizeof(int32_t) * params_count);
  if (params_count) std::memcpy(node.params.data(), params, node.params.size());

  std::unique_ptr<tpc::Library> loaded;
  tpc::Instance instance;
  Status s = tpc::Library::open(library, &loaded);
  if (s.ok()) s = loaded->instantiate(node, &instance);
  if (s.ok()) s = tpc::run(instance, {data, static_cast<size_t>(inputs)}, {data + inputs, 1}, {});
  std::snprintf(message, message_size, "%s", s.message.c_str());
  return s.ok() ? 0 : 1;
}
