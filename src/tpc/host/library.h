// SPDX-License-Identifier: Apache-2.0
//
// A stand-in for the graph compiler, first half: it loads a kernel library, asks it for its kernels and has one
// instantiated, with the calls, the retries and the checks of the real one. No card and no SDK are needed.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "glue/interface.h"
#include "mxk/types.h"
#include "tpc/host/shared_object.h"

namespace mxk::tpc {

namespace api = tpc_lib_api;

constexpr uint32_t kMaxRank = 5;  // of a tensor that one descriptor can hold

struct TensorSpec {
  api::TensorDataType type{};
  std::vector<uint64_t> sizes;  // fastest dimension first, dense
  // Elements and bytes; 0 if there are more than 64 bits of them.
  uint64_t elements() const;
  uint64_t bytes() const;
};
uint64_t size_of(api::TensorDataType);  // 0 for types that no kernel here has
std::string to_string(const TensorSpec&);

// One call of a kernel, before anything is known about the kernel.
struct Node {
  std::string guid;
  std::vector<TensorSpec> inputs, outputs;
  std::vector<uint8_t> params;
  uint32_t tpcs = 24;  // that the device has
};

// What a kernel library made of it.
struct Instance {
  struct Aux {
    TensorSpec spec;
    std::vector<uint8_t> bytes;  // empty: scratch memory
  };
  Node node;
  std::vector<uint8_t> elf;
  std::vector<uint64_t> index_space;
  std::vector<Aux> aux;
  std::vector<int32_t> scalars;
  int tries = 0;  // calls that it took
};

const char* to_string(api::GlueCodeReturn);

// The parameters of the calls about a node, with what they point to.
struct Params {
  Params(const Node&, const api::GuidInfo&);
  Params(const Params&) = delete;
  Params& operator=(const Params&) = delete;

  std::vector<api::Tensor> inputs, outputs;
  std::vector<uint8_t> user;
  api::HabanaKernelParams p{};
};

// bad_argument: what the graph compiler does not accept of a kernel library.
Status refuse(const Node&, const std::string& what);
// An answer of a kernel library as a Status.
Status answered(const Node&, const char* function, api::GlueCodeReturn);

class Library {
 public:
  // Loads the library and its list of kernels for Gaudi 2. The error of a library that lacks one of the entry points
  // that the graph compiler insists on names all that are missing.
  static Status open(const std::string& path, std::unique_ptr<Library>* out);
  static Status open(std::span<const uint8_t> bytes, std::unique_ptr<Library>* out);

  std::span<const api::GuidInfo> guids() const { return guids_; }
  uint64_t version() const;  // 0 when the library does not say

  // All of these may be called by several threads at once. `code`, when given, is the library's own answer.
  Status instantiate(const Node&, Instance*, api::GlueCodeReturn* code = nullptr) const;
  // One string for each tensor, without the letters that mean nothing: empty is any layout.
  Status layouts(const Node&, std::vector<std::string>* inputs, std::vector<std::string>* outputs) const;
  Status infer_shapes(const Node&, std::vector<TensorSpec>* outputs) const;

 private:
  Status load();
  Status find(const Node&, const api::GuidInfo**) const;

  std::shared_ptr<SharedObject> object_;
  std::vector<api::GuidInfo> guids_;
  api::pfnGetKernelGuids get_guids_ = nullptr;
  api::pfnInstantiateTpcKernel instantiate_ = nullptr;
  api::pfnGetShapeInference infer_shapes_ = nullptr;
  api::pfnGetSupportedDataLayout layouts_ = nullptr;
  api::pfnGetLibVersion version_ = nullptr;
};

}  // namespace mxk::tpc
