// SPDX-License-Identifier: Apache-2.0
//
// The kernel library as the graph compiler loads it: what it forwards to the stock library and how, what happens
// without one, and what it answers for its own kernels.
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <set>
#include <thread>

#include "glue_calls.h"

namespace mxk::test {
namespace {

constexpr api::DeviceId kOtherDevices[] = {api::DEVICE_ID_GAUDI, api::DEVICE_ID_GRECO, api::DEVICE_ID_GAUDI3};

// The stock library itself, for comparison; the kernel library loads the same one.
struct Stock {
  Stock() {
    void* handle = dlopen(MXK_TEST_STOCK, RTLD_NOW | RTLD_LOCAL);
    guids = reinterpret_cast<api::pfnGetKernelGuids>(dlsym(handle, "GetKernelGuids"));
    last = reinterpret_cast<const FakeCall* (*)()>(dlsym(handle, "fake_last"));
    calls = reinterpret_cast<uint64_t (*)()>(dlsym(handle, "fake_calls"));
  }
  std::vector<api::GuidInfo> list(api::DeviceId device) const {
    uint32_t n = 0;
    guids(device, &n, nullptr);
    std::vector<api::GuidInfo> all(n);
    guids(device, &n, all.data());
    return all;
  }
  api::pfnGetKernelGuids guids;
  const FakeCall* (*last)();
  uint64_t (*calls)();
};
const Stock& stock() {
  static const Stock s;
  return s;
}

std::string read_file(const std::string& path) {
  std::ifstream f(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(f), {}};
}

std::vector<std::string> names_from(const std::vector<api::GuidInfo>& list, size_t first) {
  std::vector<std::string> names;
  for (size_t i = first; i < list.size(); ++i) names.emplace_back(list[i].name);
  return names;
}

// ---- the list ------------------------------------------------------------------------------------------------------

TEST(List, StockByteForByteInOrderThenOurs) {
  const GlueLibrary lib(MXK_TEST_STOCK);
  const std::vector<api::GuidInfo> want = stock().list(api::DEVICE_ID_GAUDI2), got = lib.list();
  ASSERT_EQ(want.size(), kFakeCount);
  ASSERT_EQ(got.size(), kFakeCount + all_kernels().size());
  EXPECT_EQ(std::memcmp(got.data(), want.data(), want.size() * sizeof want[0]), 0);
  EXPECT_EQ(names_from(got, kFakeCount), all_kernels());
  EXPECT_EQ(std::memcmp(lib.list().data(), got.data(), got.size() * sizeof got[0]), 0) << "the same every time";
}

TEST(List, OurHashesAreNobodysElse) {
  const GlueLibrary lib(MXK_TEST_STOCK);
  const std::vector<api::GuidInfo> list = lib.list();
  std::set<uint64_t> stock_hashes, hashes;
  for (const api::GuidInfo& g : list) {
    if (&g - list.data() < kFakeCount) {
      stock_hashes.insert(g.nameHash.hashValue);
      continue;
    }
    EXPECT_TRUE(hashes.insert(g.nameHash.hashValue).second) << g.name;
    EXPECT_FALSE(stock_hashes.contains(g.nameHash.hashValue)) << g.name;
    EXPECT_NE(g.nameHash.hashValue, 0u);
    EXPECT_EQ(g.nameHash.sharedObjectId, 0u);
    EXPECT_EQ(g.kernelProperties, 0u);
    // The stock library has the hash that this one would have, and the next.
    EXPECT_EQ(g.nameHash.hashValue, fnv56(g.name) + (std::string_view(g.name) == "mxk_w13x" ? 2 : 0)) << g.name;
  }
  EXPECT_EQ(hashes.size(), all_kernels().size());
}

TEST(List, TwoCallProtocol) {
  const GlueLibrary lib(MXK_TEST_STOCK);
  const auto total = static_cast<uint32_t>(kFakeCount + all_kernels().size());
  std::vector<api::GuidInfo> buffer(total + 1);
  std::memset(buffer.data(), 0x5A, buffer.size() * sizeof buffer[0]);
  const std::vector<api::GuidInfo> before = buffer;
  const auto untouched = [&](size_t from) {
    return std::memcmp(&buffer[from], &before[from], (buffer.size() - from) * sizeof buffer[0]) == 0;
  };
  uint32_t n = 0;
  EXPECT_EQ(lib.guids(api::DEVICE_ID_GAUDI2, &n, buffer.data()), api::GLUE_SUCCESS);
  EXPECT_EQ(n, total) << "an array of size 0 asks for the size";
  EXPECT_TRUE(untouched(0));
  for (uint32_t small : {1u, kFakeCount, total - 1}) {
    n = small;
    EXPECT_EQ(lib.guids(api::DEVICE_ID_GAUDI2, &n, buffer.data()), api::GLUE_FAILED) << small;
    EXPECT_EQ(n, total);
    EXPECT_TRUE(untouched(0));
  }
  n = total + 1;
  EXPECT_EQ(lib.guids(api::DEVICE_ID_GAUDI2, &n, buffer.data()), api::GLUE_SUCCESS);
  EXPECT_EQ(n, total);
  EXPECT_TRUE(untouched(total));
  EXPECT_EQ(lib.guids(api::DEVICE_ID_GAUDI2, nullptr, buffer.data()), api::GLUE_FAILED);
}

TEST(List, OtherDevicesSeeTheStockLibraryAlone) {
  const GlueLibrary lib(MXK_TEST_STOCK);
  for (api::DeviceId device : kOtherDevices) {
    const std::vector<api::GuidInfo> want = stock().list(device), got = lib.list(device);
    ASSERT_EQ(got.size(), want.size());
    EXPECT_EQ(std::memcmp(got.data(), want.data(), want.size() * sizeof want[0]), 0);
    uint32_t n = 3;
    api::GuidInfo buffer[3];
    EXPECT_EQ(lib.guids(device, &n, buffer), api::GLUE_SUCCESS);
    EXPECT_EQ(stock().last()->a, &n) << "the caller's own pointers";
    EXPECT_EQ(stock().last()->b, buffer);
  }
}

// ---- forwarding ----------------------------------------------------------------------------------------------------

void expect_forwarded(const char* function, int code, const void* a, const void* b, const void* c) {
  const FakeCall& last = *stock().last();
  EXPECT_EQ(code, static_cast<int>(1000 + std::strlen(function))) << "the stock library's own answer";
  EXPECT_STREQ(last.function, function);
  EXPECT_EQ(last.a, a);
  EXPECT_EQ(last.b, b);
  EXPECT_EQ(last.c, c);
}

// All calls about the kernel of `node` are the stock library's.
void expect_all_forwarded(const GlueLibrary& lib, Node& node) {
  const std::string before = node.bytes();
  api::NodeDataLayouts l{};
  uint32_t count = 0;
  char suggestion = 0;
  api::ShapeInferenceParams sp{};
  api::ShapeInferenceOutput so{};
  sp.guid = node.p.guid;
  expect_forwarded("InstantiateTpcKernel", lib.instantiate(&node.p, &node.o), &node.p, &node.o, nullptr);
  expect_forwarded("GetSupportedDataLayouts", lib.layouts(&node.p, &l, &count), &node.p, &l, &count);
  expect_forwarded("GetSuggestedManipulation", lib.manipulation(&node.p, &suggestion), &node.p, &suggestion, nullptr);
  expect_forwarded("GetShapeInference", lib.infer_shapes(node.p.deviceId, &sp, &so), &sp, &so, nullptr);
  api::GuidInfo guid = std::exchange(sp.guid, {});
  sp.pGuid = &guid;
  expect_forwarded("GetShapeInference", lib.infer_shapes(node.p.deviceId, &sp, &so), &sp, &so, nullptr);
  EXPECT_EQ(node.bytes(), before);
}

TEST(Forwarding, EveryCallWithTheVeryPointers) {
  const GlueLibrary lib(MXK_TEST_STOCK);
  std::vector<std::string> names = {"",         "stock_kernel_77_bf16", "mxk", "mxk_w13", "mxk_w13xibx", "MXK_W13X",
                                    " mxk_w13x"};
  for (const std::string& name : names) {
    Node node(KernelCall{name, {{api::DATA_F32, {1}}}, {api::DATA_F32, {1}}, true});
    expect_all_forwarded(lib, node);
  }
  Node endless(KernelCall{"", {}, {}, false});
  std::memset(endless.p.guid.name, 'm', sizeof endless.p.guid.name);
  expect_all_forwarded(lib, endless);
}

TEST(Forwarding, OurNamesOnOtherDevices) {
  const GlueLibrary lib(MXK_TEST_STOCK);
  for (api::DeviceId device : kOtherDevices) {
    Node node(call_of("mxk_w13x", shape_of("mxk_w13x")));
    node.p.deviceId = device;
    expect_all_forwarded(lib, node);
  }
}

TEST(Forwarding, OursNeverReachTheStockLibrary) {
  const GlueLibrary lib(MXK_TEST_STOCK);
  lib.list();
  const uint64_t before = stock().calls();
  for (const std::string& name : all_kernels()) {
    Node node(call_of(name, shape_of(name)));
    uint32_t count = 0;
    lib.instantiate(&node.p, &node.o);
    lib.layouts(&node.p, nullptr, &count);
    EXPECT_EQ(lib.manipulation(&node.p, &count), api::GLUE_FAILED);
    node.p.inputTensorNr = 0;
    lib.instantiate(&node.p, &node.o);
  }
  EXPECT_EQ(lib.instantiate(nullptr, nullptr), api::GLUE_FAILED);
  EXPECT_EQ(lib.layouts(nullptr, nullptr, nullptr), api::GLUE_FAILED);
  EXPECT_EQ(lib.manipulation(nullptr, nullptr), api::GLUE_FAILED);
  EXPECT_EQ(lib.infer_shapes(api::DEVICE_ID_GAUDI2, nullptr, nullptr), api::GLUE_FAILED);
  EXPECT_EQ(stock().calls(), before);
}

TEST(Forwarding, VersionChangesWithEitherLibrary) {
  testing::internal::CaptureStderr();
  const uint64_t without = GlueLibrary("/nowhere/libtpc_kernels.so").version();
  testing::internal::GetCapturedStderr();
  EXPECT_NE(without, 0u);
  EXPECT_EQ(GlueLibrary(MXK_TEST_STOCK).version() ^ without, kFakeVersion);
}

TEST(Forwarding, PassesOtherFunctionsThrough) {
  GlueLibrary lib(MXK_TEST_STOCK);
  double (*many)(int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, double,
                 double, double, double, double, double, double, double, double, double);
  double (*variadic)(int, ...);
  FakeBig (*structure)(FakeBig, int);
  int (*throws)(int);
  api::pfnGetKernelGuids complex_guids;
  void* handle = dlopen(MXK_TEST_STOCK, RTLD_NOW | RTLD_LOCAL);
  const auto direct = reinterpret_cast<decltype(many)>(dlsym(handle, "fake_many"));
  lib.get("fake_many", &many);
  lib.get("fake_variadic", &variadic);
  int (*rax)(int, ...);
  lib.get("fake_rax", &rax);
  lib.get("fake_struct", &structure);
  lib.get("fake_throws", &throws);
  lib.get("GetFunctionalComplexGuids", &complex_guids);
  EXPECT_NE(many, direct) << "a trampoline";
  for (int again = 0; again < 2; ++again) {
    const double want = direct(1, -2, 3, 4, 5, 6, 7, 8, 9, 10, .5, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5, 8.5, 9.5);
    EXPECT_EQ(many(1, -2, 3, 4, 5, 6, 7, 8, 9, 10, .5, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5, 8.5, 9.5), want);
    EXPECT_EQ(variadic(9, 1., 0., 1., 0., 1., 0., 1., 0., 1.), 341.0);
    EXPECT_EQ(rax(0, 1., 2., 3.) & 0xFF, 3);
    const FakeBig big = structure({{1, 2, 3, 4, 5}}, 10);
    EXPECT_EQ(big.x[0], 11);
    EXPECT_EQ(big.x[4], 15);
    EXPECT_THROW(throws(3), int) << "through the trampoline";
    uint32_t n = 0;
    api::GuidInfo g;
    expect_forwarded("GetFunctionalComplexGuids", complex_guids(api::DEVICE_ID_GAUDI2, &n, &g), &n, &g, nullptr);
  }
  dlclose(handle);
}

TEST(Forwarding, AFunctionThatTheStockLibraryHasNoMoreReturnsZero) {
  GlueLibrary lib(MXK_TEST_STOCK);
  int64_t (*gone)(int64_t);
  double (*gone_too)(double);
  lib.get("fake_gone", &gone);
  lib.get("fake_gone_too", &gone_too);
  testing::internal::CaptureStderr();
  EXPECT_EQ(gone(41), 0);
  EXPECT_EQ(gone(41), 0);
  EXPECT_EQ(gone_too(2.5), 0.0);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "mxk: the stock TPC kernel library has no 'fake_gone'; it answers 0\n"
            "mxk: the stock TPC kernel library has no 'fake_gone_too'; it answers 0\n");
}

// ---- no stock library ----------------------------------------------------------------------------------------------

struct Without {
  const char *stock, *why;  // SELF, LINK: see GlueLibrary
  const char* library = MXK_TEST_GLUE;
  std::vector<std::string> kernels = all_kernels();
};
class WithoutStock : public testing::TestWithParam<Without> {};

TEST_P(WithoutStock, OnlyOurKernelsAndOneLine) {
  GlueLibrary lib(GetParam().stock, GetParam().library);
  testing::internal::CaptureStderr();
  EXPECT_EQ(names_from(lib.list(), 0), GetParam().kernels);
  for (api::DeviceId device : kOtherDevices) EXPECT_TRUE(lib.list(device).empty());
  Node stranger(KernelCall{"stock_kernel_77_bf16", {}, {}, false});
  api::ShapeInferenceParams sp{};
  uint32_t count = 0;
  EXPECT_EQ(lib.instantiate(&stranger.p, &stranger.o), api::GLUE_NODE_NOT_FOUND);
  EXPECT_EQ(lib.layouts(&stranger.p, nullptr, &count), api::GLUE_NODE_NOT_FOUND);
  EXPECT_EQ(lib.manipulation(&stranger.p, &count), api::GLUE_NODE_NOT_FOUND);
  EXPECT_EQ(lib.infer_shapes(api::DEVICE_ID_GAUDI2, &sp, nullptr), api::GLUE_NODE_NOT_FOUND);
  EXPECT_NE(lib.version(), 0u);
  Node node(call_of("mxk_deq", shape_of("mxk_deq")));
  EXPECT_EQ(lib.instantiate(&node.p, &node.o), api::GLUE_INSUFFICIENT_AUX_BUFFER_SIZE);
  if (std::string_view(GetParam().library) == MXK_TEST_GLUE) {
    uint64_t (*calls)();
    lib.get("fake_calls", &calls);
    EXPECT_EQ(calls(), 0u);
  }
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(text.starts_with("mxk: the stock TPC kernel library '")) << text;
  EXPECT_NE(text.find(GetParam().why), text.npos) << text;
  EXPECT_TRUE(text.ends_with("; only the mxk kernels are available\n")) << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1) << text;
}

INSTANTIATE_TEST_SUITE_P(All, WithoutStock,
                         testing::Values(Without{"/nowhere/libtpc_kernels.so", "cannot open shared object file"},
                                         Without{"libfake_stock.so", "must be an absolute path"},
                                         Without{"./libfake_stock.so", "must be an absolute path"},
                                         Without{"SELF", "it is this library itself"},
                                         Without{"LINK", "it is this library itself"},
                                         Without{"/etc/passwd", "invalid ELF header"},
                                         Without{MXK_TEST_KERNEL, "it has no GetKernelGuids"},
                                         Without{"", "'/usr/lib/habanalabs/libtpc_kernels.so'"},
                                         Without{"UNSET",
                                                 "'/usr/lib/habanalabs/libtpc_kernels.so'",
                                                 MXK_TEST_GLUE_GLM,
                                                 {"mxk_w13x", "mxk_w2x", "mxk_deq", "mxk_selfcheck"}}));

TEST(NoStock, TheEmulationExpectsNone) {
  const GlueLibrary lib("UNSET");
  testing::internal::CaptureStderr();
  EXPECT_EQ(names_from(lib.list(), 0), all_kernels());
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

// ---- answers for our kernels ---------------------------------------------------------------------------------------

TEST(Ours, AuxThenElfThenSuccess) {
  const GlueLibrary lib(MXK_TEST_STOCK);
  const std::string elf = read_file(MXK_TEST_KERNEL);
  constexpr size_t kAux = size_t{256} * tpc::kTableRows;
  std::vector<uint8_t> tables(kAux);
  tpc::fill_tables(tables.data());
  for (const std::string& name : all_kernels())
    for (uint32_t aux_nr : {0u, 16u}) {
      SCOPED_TRACE(name);
      const KernelCall call = call_of(name, shape_of(name));
      Node node(call, aux_nr);
      std::memset(node.in_patterns.data(), 0x77, sizeof node.in_patterns);
      std::memset(node.out_patterns.data(), 0x77, sizeof node.out_patterns);
      // Too small by one byte is too small.
      std::vector<uint8_t> aux(kAux + 1, 0xEE), binary(elf.size() + 1, 0xEE);
      node.aux[0].pData = aux.data();
      node.aux[0].bufferSize = kAux - 1;
      ASSERT_EQ(lib.instantiate(&node.p, &node.o), api::GLUE_INSUFFICIENT_AUX_BUFFER_SIZE);
      EXPECT_EQ(node.o.auxiliaryTensorNr, 1u);
      EXPECT_EQ(node.aux[0].bufferSize, kAux);
      EXPECT_EQ(aux[0], 0xEE);
      node.o.kernel.kernelElf = binary.data();
      node.o.kernel.elfSize = static_cast<uint32_t>(elf.size() - 1);
      ASSERT_EQ(lib.instantiate(&node.p, &node.o), api::GLUE_INSUFFICIENT_ELF_BUFFER);
      EXPECT_EQ(node.o.kernel.elfSize, elf.size());
      EXPECT_EQ(binary[0], 0xEE);
      node.aux[0].bufferSize = kAux + 1;  // more than is needed
      node.o.kernel.elfSize = static_cast<uint32_t>(elf.size() + 1);
      ASSERT_EQ(lib.instantiate(&node.p, &node.o), api::GLUE_SUCCESS);
      EXPECT_EQ(node.o.kernel.elfSize, elf.size());
      EXPECT_EQ(std::memcmp(binary.data(), elf.data(), elf.size()), 0);
      EXPECT_EQ(binary.back(), 0xEE);
      EXPECT_EQ(node.aux[0].bufferSize, kAux) << "the product of its sizes";
      EXPECT_EQ(node.aux[0].geometry.dims, 2u);
      EXPECT_EQ(node.aux[0].geometry.maxSizes[0] * node.aux[0].geometry.maxSizes[1], kAux);
      EXPECT_EQ(node.aux[0].geometry.dataType, api::DATA_U8);
      EXPECT_EQ(node.aux[0].flags, 0u);
      EXPECT_TRUE(std::equal(tables.begin(), tables.end(), aux.begin()));
      EXPECT_EQ(aux.back(), 0xEE);
      EXPECT_EQ(node.o.indexSpaceRank, 1u);
      EXPECT_EQ(node.o.indexSpaceGeometry[0], name == "mxk_selfcheck" ? 1u : 24u);
      std::vector<uint32_t> scalars;
      if (call.first_expert) scalars.push_back(64);
      if (const uint32_t units = units_of(name, shape_of(name)); units != 0) {
        scalars.push_back(units / 24);
        scalars.push_back(units % 24);
      }
      ASSERT_EQ(node.o.kernel.paramsNr, scalars.size());
      EXPECT_TRUE(std::equal(scalars.begin(), scalars.end(), node.o.kernel.scalarParams));
      for (size_t i = 0; i < node.in_patterns.size(); ++i)
        EXPECT_EQ(node.in_patterns[i].Value, i < call.in.size() ? 1u : 0x77777777u) << i;
      EXPECT_EQ(node.out_patterns[0].Value, 1u);
      EXPECT_EQ(node.out_patterns[1].Value, 0x77777777u);
    }
}

TEST(Ours, IndexPointsAreTheTpcsThatThereAre) {
  const GlueLibrary lib(MXK_TEST_STOCK);
  for (const std::string& name : all_kernels())
    for (uint32_t tpcs : {0u, 1u, 8u, 23u, 24u, 25u, 64u, ~0u}) {
      Node node(call_of(name, shape_of(name)));
      node.p.maxAvailableTpc = tpcs;
      EXPECT_EQ(lib.instantiate(&node.p, &node.o), api::GLUE_INSUFFICIENT_AUX_BUFFER_SIZE);
      const uint64_t want = tpcs == 0 ? 24 : std::min(tpcs, 24u);
      EXPECT_EQ(node.o.indexSpaceGeometry[0], name == "mxk_selfcheck" ? 1 : want) << name << " " << tpcs;
      const uint32_t* last = node.o.kernel.scalarParams + node.o.kernel.paramsNr;
      if (const uint32_t units = units_of(name, shape_of(name)); units != 0) {
        EXPECT_EQ(want * last[-2] + last[-1], units) << name << " " << tpcs;
        EXPECT_LT(last[-1], want);
      }
    }
}

TEST(Ours, BuffersThatAreNotThere) {
  const GlueLibrary lib(MXK_TEST_STOCK);
  Node node(call_of("mxk_deq", shape_of("mxk_deq")));
  node.aux[0].bufferSize = 1 << 20;
  EXPECT_EQ(lib.instantiate(&node.p, &node.o), api::GLUE_FAILED);
  std::vector<uint8_t> aux(size_t{256} * tpc::kTableRows);
  node.aux[0].pData = aux.data();
  node.o.kernel.elfSize = 1 << 30;
  EXPECT_EQ(lib.instantiate(&node.p, &node.o), api::GLUE_FAILED);
}

TEST(Ours, AnyLayout) {
  const GlueLibrary lib(MXK_TEST_STOCK);
  for (const std::string& name : all_kernels()) {
    Node node(call_of(name, shape_of(name)));
    std::array<api::TensorDataLayout, 9> in{};
    std::array<api::TensorDataLayout, 2> out{};
    api::NodeDataLayouts l{};
    l.inputs = in.data();
    l.outputs = out.data();
    uint32_t count = 0;
    ASSERT_EQ(lib.layouts(&node.p, nullptr, &count), api::GLUE_SUCCESS);
    ASSERT_EQ(count, 1u);
    ASSERT_EQ(lib.layouts(&node.p, &l, &count), api::GLUE_SUCCESS);
    ASSERT_EQ(count, 1u);
    const std::string any(api::MAX_TENSOR_DIM, 'x'), none(api::MAX_TENSOR_DIM, '\0');
    for (size_t i = 0; i < in.size(); ++i)
      EXPECT_EQ(std::string(in[i].layout, sizeof in[i].layout), i < node.p.inputTensorNr ? any : none);
    EXPECT_EQ(std::string(out[0].layout, sizeof out[0].layout), any);
    EXPECT_EQ(std::string(out[1].layout, sizeof out[1].layout), none);
    l.inputs = nullptr;
    EXPECT_EQ(lib.layouts(&node.p, &l, &count), api::GLUE_FAILED);
    EXPECT_EQ(lib.layouts(&node.p, nullptr, nullptr), api::GLUE_FAILED);
    ++node.p.inputTensorNr;
    EXPECT_EQ(lib.layouts(&node.p, nullptr, &count), api::GLUE_INCOMPATIBLE_INPUT_COUNT);
    --node.p.inputTensorNr, ++node.p.outputTensorNr;
    EXPECT_EQ(lib.layouts(&node.p, nullptr, &count), api::GLUE_INCOMPATIBLE_OUTPUT_COUNT);
  }
}

TEST(Ours, ShapesOfOutputs) {
  const GlueLibrary lib(MXK_TEST_STOCK);
  for (const std::string& name : all_kernels())
    for (bool by_pointer : {false, true}) {
      SCOPED_TRACE(name);
      const KernelCall call = call_of(name, shape_of(name));
      const Node node(call);
      std::array<api::TensorShapeInfo, 9> in{};
      std::array<api::TensorShapeInfo*, 9> in_at;
      for (size_t i = 0; i < in.size(); ++i) in[i].geometry = node.in[i].geometry, in_at[i] = &in[i];
      api::TensorShapeInfo out{}, *out_at = &out;
      api::ShapeInferenceParams p{};
      api::ShapeInferenceOutput o{};
      api::GuidInfo guid = node.p.guid;
      (by_pointer ? p.pGuid = &guid : nullptr);
      if (!by_pointer) p.guid = guid;
      p.apiVersion = 1;
      p.inputTensors = in_at.data();
      p.inputTensorsNr = node.p.inputTensorNr;
      p.outputTensorsNr = 1;
      o.outputTensors = &out_at;
      ASSERT_EQ(lib.infer_shapes(api::DEVICE_ID_GAUDI2, &p, &o), api::GLUE_SUCCESS);
      ASSERT_EQ(out.geometry.dims, call.out.sizes.size());
      for (size_t d = 0; d < call.out.sizes.size(); ++d) {
        EXPECT_EQ(out.geometry.maxSizes[d], call.out.sizes[call.out.sizes.size() - 1 - d]);
        EXPECT_EQ(out.geometry.minSizes[d], out.geometry.maxSizes[d]);
      }
      ++in[1].geometry.maxSizes[0], ++in[0].geometry.maxSizes[0];
      EXPECT_EQ(lib.infer_shapes(api::DEVICE_ID_GAUDI2, &p, &o), api::GLUE_INCOMPATIBLE_INPUT_SIZE);
      in_at[0] = nullptr;
      EXPECT_EQ(lib.infer_shapes(api::DEVICE_ID_GAUDI2, &p, &o), api::GLUE_FAILED);
      ++p.inputTensorsNr;
      EXPECT_EQ(lib.infer_shapes(api::DEVICE_ID_GAUDI2, &p, &o), api::GLUE_INCOMPATIBLE_INPUT_COUNT);
    }
}

// ---- builds and threads --------------------------------------------------------------------------------------------

TEST(Builds, OneVariantHasItsKernelsAndItsLimits) {
  const GlueLibrary all(MXK_TEST_STOCK), glm(MXK_TEST_STOCK, MXK_TEST_GLUE_GLM);
  EXPECT_EQ(names_from(glm.list(), kFakeCount),
            (std::vector<std::string>{"mxk_w13x", "mxk_w2x", "mxk_deq", "mxk_selfcheck"}));
  const auto answer = [](const GlueLibrary& lib, const Shape& s) {
    Node node(call_of("mxk_w2x", s));
    return lib.instantiate(&node.p, &node.o);
  };
  const Shape both{2, 8, 4, 6144, 1024}, dsv41{2, 6, 3, 5120, 2304};
  EXPECT_EQ(answer(glm, both), api::GLUE_INSUFFICIENT_AUX_BUFFER_SIZE);
  EXPECT_EQ(answer(glm, dsv41), api::GLUE_UNSUPPORTED_LAYER_CONFIGURATION);
  EXPECT_EQ(answer(all, dsv41), api::GLUE_INSUFFICIENT_AUX_BUFFER_SIZE);
  Node other(call_of("mxk_w13xib", shape_of("mxk_w13xib")));
  expect_forwarded("InstantiateTpcKernel", glm.instantiate(&other.p, &other.o), &other.p, &other.o, nullptr);
}

TEST(Threads, ManyAtOnceFromTheFirstCallOn) {
  GlueLibrary lib(MXK_TEST_STOCK);
  double (*variadic)(int, ...);
  lib.get("fake_variadic", &variadic);
  std::atomic<int> ready{0}, good{0};
  std::vector<std::jthread> threads;
  constexpr int kThreads = 16, kRounds = 20;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      ++ready;
      while (ready < kThreads) std::this_thread::yield();
      for (int i = 0; i < kRounds; ++i) {
        const std::string& name = all_kernels()[static_cast<size_t>(t + i) % all_kernels().size()];
        Node node(call_of(name, shape_of(name))), stranger(KernelCall{"stock", {}, {}, false});
        uint32_t n = 0;
        good += variadic(3, 1., 2., 3.) == 11.0 && lib.guids(api::DEVICE_ID_GAUDI2, &n, nullptr) == api::GLUE_SUCCESS &&
                n == kFakeCount + all_kernels().size() &&
                lib.instantiate(&node.p, &node.o) == api::GLUE_INSUFFICIENT_AUX_BUFFER_SIZE &&
                static_cast<int>(lib.instantiate(&stranger.p, &stranger.o)) == 1020;
      }
    });
  threads.clear();
  EXPECT_EQ(good, kThreads * kRounds);
}

}  // namespace
}  // namespace mxk::test
