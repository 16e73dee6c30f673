// SPDX-License-Identifier: Apache-2.0
//
// For tests of the kernel library: calls of every kernel, written out by hand and not from its table, and a loader that
// gives each test a library of its own.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "fake_stock.h"
#include "mxk/moe.h"
#include "tpc/tables.h"

namespace mxk::test {

namespace api = tpc_lib_api;

// ---- the library ---------------------------------------------------------------------------------------------------

// A copy of a library file, loaded with MXK_STOCK_TPC_LIB set. What a library remembers belongs to its file, so each
// copy starts anew.
class GlueLibrary {
 public:
  // `stock` is the value of the variable; SELF is the path of the copy, LINK a symbolic link to it, UNSET takes it
  // away.
  explicit GlueLibrary(std::string stock, const char* original = MXK_TEST_GLUE) {
    static int number = 0;
    directory_ = std::filesystem::temp_directory_path() /
                 ("mxk_glue_test." + std::to_string(getpid()) + "." + std::to_string(number++));
    std::filesystem::create_directory(directory_);
    path = directory_ / "libmxk_tpc.so";
    std::filesystem::copy_file(original, path);
    std::filesystem::create_symlink(path, directory_ / "link.so");
    if (stock == "SELF") stock = path;
    if (stock == "LINK") stock = directory_ / "link.so";
    if (stock == "UNSET") {
      unsetenv("MXK_STOCK_TPC_LIB");
    } else {
      setenv("MXK_STOCK_TPC_LIB", stock.c_str(), 1);
    }
    handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle) ADD_FAILURE() << dlerror();
    get("GetKernelGuids", &guids);
    get("InstantiateTpcKernel", &instantiate);
    get("GetShapeInference", &infer_shapes);
    get("GetSupportedDataLayouts", &layouts);
    get("GetLibVersion", &version);
    get("GetSuggestedManipulation", &manipulation);
  }
  ~GlueLibrary() {
    dlclose(handle);
    std::filesystem::remove_all(directory_);
  }
  GlueLibrary(const GlueLibrary&) = delete;
  GlueLibrary& operator=(const GlueLibrary&) = delete;

  template <class F>
  void get(const char* name, F* out) {
    *out = reinterpret_cast<F>(dlsym(handle, name));
    EXPECT_NE(*out, nullptr) << name;
  }

  std::vector<api::GuidInfo> list(api::DeviceId device = api::DEVICE_ID_GAUDI2) const {
    uint32_t n = 0;
    EXPECT_EQ(guids(device, &n, nullptr), api::GLUE_SUCCESS);
    std::vector<api::GuidInfo> all(n);
    if (n) {
      EXPECT_EQ(guids(device, &n, all.data()), api::GLUE_SUCCESS);
    }
    EXPECT_EQ(n, all.size());
    return all;
  }

  std::string path;
  void* handle = nullptr;
  api::pfnGetKernelGuids guids = nullptr;
  api::pfnInstantiateTpcKernel instantiate = nullptr;
  api::pfnGetShapeInference infer_shapes = nullptr;
  api::pfnGetSupportedDataLayout layouts = nullptr;
  api::pfnGetLibVersion version = nullptr;
  glue::GetSuggestedManipulation manipulation = nullptr;

 private:
  std::filesystem::path directory_;
};

// ---- calls ---------------------------------------------------------------------------------------------------------

struct Operand {
  api::TensorDataType type;
  std::vector<uint64_t> sizes;  // slowest first
};

// A call of a kernel, all of it valid.
struct KernelCall {
  std::string guid;
  std::vector<Operand> in;
  Operand out;
  bool first_expert;  // the node has parameters
};

inline const std::vector<std::string>& all_kernels() {
  static const std::vector<std::string> names = {"mxk_w13xib",  "mxk_w13x",     "mxk_w13xi", "mxk_w13xt",
                                                 "mxk_w2xb",    "mxk_w2x",      "mxk_w2xr",  "mxk_w2xb_f32",
                                                 "mxk_w2x_f32", "mxk_w2xr_f32", "mxk_deq",   "mxk_selfcheck"};
  return names;
}

inline uint64_t pad512(uint64_t n) { return (n + 511) / 512 * 512; }

// Of mxk_deq the weight is [E, K, I]. The shape is not checked.
inline KernelCall call_of(const std::string& guid, const Shape& s) {
  const auto T = static_cast<uint64_t>(s.T), k = static_cast<uint64_t>(s.k), E = static_cast<uint64_t>(s.E),
             K = static_cast<uint64_t>(s.K), I = static_cast<uint64_t>(s.I);
  const Operand x{api::DATA_BF16, {T, pad512(K)}}, a{api::DATA_BF16, {T * k, pad512(I)}}, ids{api::DATA_I32, {T, k}};
  if (guid == "mxk_selfcheck")
    return {
        guid, {{api::DATA_U8, {1, 256}}, {api::DATA_F32, {1, 64}}}, {api::DATA_F32, {tpc::kSelfcheckRows, 64}}, false};
  if (guid == "mxk_deq")
    return {guid, {{api::DATA_U8, {E, K, I / 2}}, {api::DATA_U8, {E, K, I / 32}}}, {api::DATA_BF16, {E, K, I}}, false};
  if (guid.starts_with("mxk_w13")) {
    KernelCall c{guid, {x, {api::DATA_U8, {E, 2 * I, K / 2}}, {api::DATA_U8, {E, 2 * I, K / 32}}, ids}, a, true};
    if (guid == "mxk_w13xib") c.in.push_back({api::DATA_F32, {E, 8, 2 * I / 8}});
    return c;
  }
  KernelCall c{guid,
               {a, {api::DATA_U8, {E, K, I / 2}}, {api::DATA_U8, {E, K, I / 32}}, ids, {api::DATA_F32, {T, k}}},
               {guid.ends_with("_f32") ? api::DATA_F32 : api::DATA_BF16, {T, K}},
               true};
  if (guid.starts_with("mxk_w2xb")) c.in.push_back({api::DATA_F32, {E, 8, K / 8}});
  if (guid.starts_with("mxk_w2xr")) c.out.sizes = {T, k, K};
  return c;
}

// A shape that the kernel takes.
inline Shape shape_of(const std::string& guid) {
  if (guid == "mxk_w13xib" || guid.starts_with("mxk_w2xb")) return {3, 4, 5, 2880, 2880};
  if (guid == "mxk_w13x") return {2, 8, 4, 6144, 1024};
  if (guid == "mxk_w13xi") return {2, 6, 3, 5120, 2304};
  if (guid == "mxk_w13xt") return {2, 8, 3, 7168, 2048};
  if (guid.starts_with("mxk_w2xr")) return {2, 8, 3, 4096, 1024};
  if (guid == "mxk_deq") return {1, 1, 2, 96, 2048};
  return {2, 6, 3, 5120, 2304};
}

// What the index points share out: 4 columns, 8 rows, a row. 0: nothing.
inline uint32_t units_of(const std::string& guid, const Shape& s) {
  if (guid == "mxk_selfcheck") return 0;
  return static_cast<uint32_t>(guid == "mxk_deq" ? s.E * s.K : guid.starts_with("mxk_w13") ? s.I / 4 : s.K / 8);
}

// The structures of a call as the graph compiler lays them out. `aux_nr` is what it says of the auxiliary tensors
// before the first try.
struct Node {
  explicit Node(const KernelCall& c, uint32_t aux_nr = 0) {
    const auto fill = [](api::Tensor* t, const Operand& o) {
      t->geometry.dims = static_cast<uint32_t>(o.sizes.size());
      t->geometry.dataType = o.type;
      for (size_t d = 0; d < 5; ++d)
        t->geometry.maxSizes[d] = t->geometry.minSizes[d] = d < o.sizes.size() ? o.sizes[o.sizes.size() - 1 - d] : 1;
    };
    for (size_t i = 0; i < c.in.size(); ++i) fill(&in[i], c.in[i]);
    fill(&out[0], c.out);
    p.apiVersion = 1;
    p.deviceId = api::DEVICE_ID_GAUDI2;
    std::memcpy(p.guid.name, c.guid.c_str(), c.guid.size() + 1);
    if (c.first_expert) p.nodeParams = {&first_expert, sizeof first_expert};
    p.inputTensors = in.data();
    p.inputTensorNr = static_cast<uint32_t>(c.in.size());
    p.outputTensors = out.data();
    p.outputTensorNr = 1;
    p.maxAvailableTpc = 24;
    o.inputTensorAccessPattern = in_patterns.data();
    o.outputTensorAccessPattern = out_patterns.data();
    o.auxiliaryTensors = aux.data();
    o.auxiliaryTensorNr = aux_nr;
  }
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  // All bytes that a call could touch.
  std::string bytes() const {
    std::string all;
    const auto add = [&](const auto& x) { all.append(reinterpret_cast<const char*>(&x), sizeof x); };
    add(p), add(o), add(in), add(out), add(in_patterns), add(out_patterns), add(aux), add(first_expert);
    return all;
  }

  std::array<api::Tensor, 9> in{};
  std::array<api::Tensor, 2> out{};
  std::array<api::TensorAccessPattern, 9> in_patterns{};
  std::array<api::TensorAccessPattern, 2> out_patterns{};
  std::array<api::AuxTensor, 16> aux{};
  int32_t first_expert = 64;
  api::HabanaKernelParams p{};
  api::HabanaKernelInstantiation o{};
};

}  // namespace mxk::test
