// SPDX-License-Identifier: Apache-2.0
//
// A stock kernel library for tests: several hundred kernels with arbitrary bytes in every field, answers of its own for
// all six entry points, and further functions. It remembers the pointers of the last call. Some kernels break the
// protocol in one way each, for tests of the host side.
#include "fake_stock.h"

#include <atomic>
#include <cstdarg>
#include <cstring>
#include <string_view>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace api = tpc_lib_api;

namespace {

using mxk::test::FakeCall;
using mxk::test::kFakeCount;
using mxk::test::kFakeFaults;

std::atomic<uint64_t> calls{0};
thread_local FakeCall last;

api::GlueCodeReturn note(const char* function, const void* a, const void* b, const void* c, int device) {
  ++calls;
  last = {function, a, b, c, device};
  // One of the codes of which only the stock library knows the meaning, so that forwarding shows.
  return static_cast<api::GlueCodeReturn>(1000 + std::strlen(function));
}

uint64_t mix(uint64_t x) {
  x = (x ^ x >> 31) * 0x9E3779B97F4A7C15;
  return (x ^ x >> 29) * 0xBF58476D1CE4E5B9;
}

api::GuidInfo entry(uint32_t i) {
  api::GuidInfo g;
  for (size_t b = 0; b < sizeof g; ++b) reinterpret_cast<uint8_t*>(&g)[b] = static_cast<uint8_t>(mix(i * 97 + b) >> 40);
  const std::string name =
      i < std::size(kFakeFaults) ? kFakeFaults[i] : "stock_kernel_" + std::to_string(i) + (i % 2 ? "_bf16" : "_f32");
  std::memcpy(g.name, name.c_str(), name.size() + 1);                        // the bytes behind stay arbitrary
  if (i == std::size(kFakeFaults)) std::memset(g.name, 'n', sizeof g.name);  // not terminated
  // Where ours would like to be: the first hash that mxk_w13x wants, and the one after it.
  if (i == 300) g.nameHash.hashValue = mxk::test::fnv56("mxk_w13x");
  if (i == 301) g.nameHash.hashValue = mxk::test::fnv56("mxk_w13x") + 1;
  return g;
}

// ---- kernels that can be instantiated, each with its own fault ------------------------------------------------------

api::GlueCodeReturn faulty(std::string_view fault, const api::HabanaKernelParams& p,
                           api::HabanaKernelInstantiation* o) {
  o->indexSpaceRank = fault == "fault_rank" ? 0 : 1;
  o->indexSpaceGeometry[0] = fault == "fault_empty_space" ? 0 : 4;
  for (uint32_t i = 0; i < p.inputTensorNr; ++i) o->inputTensorAccessPattern[i].allRequired = 1;
  for (uint32_t i = 0; i < p.outputTensorNr; ++i) {
    auto& m = o->outputTensorAccessPattern[i].mapping[0];
    const auto slice = static_cast<float>(p.outputTensors[i].geometry.maxSizes[0]) / 4;
    m.a = fault == "fault_gaps" ? slice * 2 : slice;
    m.end_b = fault == "fault_uncovered" ? slice - 2 : slice - 1;
    m.indexSpaceDim = fault == "fault_pattern_dim" ? 3 : 0;
  }
  o->kernel.paramsNr = fault == "fault_scalars" ? 33 : 2;
  o->kernel.scalarParams[0] = 7;
  o->kernel.scalarParams[1] = 8;
  api::AuxTensor& aux = o->auxiliaryTensors[0];
  const uint32_t had = o->auxiliaryTensorNr;
  o->auxiliaryTensorNr = fault == "fault_many_aux" ? 17 : 1;
  if (had != 0 && had != 1) return api::GLUE_FAILED;  // the graph compiler says 0, then what it was told
  aux.geometry.dims = 1;
  aux.geometry.maxSizes[0] = 10;
  aux.geometry.dataType = api::DATA_F32;
  const uint64_t wanted = fault == "fault_aux_bytes" ? 10 : 40;
  if (fault == "fault_scratch") {
    aux.noInit = 1;
    aux.bufferSize = wanted;
  } else if (fault == "fault_same_aux" && aux.bufferSize == wanted) {
    return api::GLUE_INSUFFICIENT_AUX_BUFFER_SIZE;
  } else if (aux.bufferSize < wanted) {
    aux.bufferSize = wanted;
    return api::GLUE_INSUFFICIENT_AUX_BUFFER_SIZE;
  } else {
    std::memset(aux.pData, 5, fault == "fault_overrun_aux" ? wanted + 1 : wanted);
  }
  const uint32_t given = o->kernel.elfSize;
  o->kernel.elfSize = fault == "fault_endless_elf" ? given + 16 : fault == "fault_no_elf" ? 0 : 100;
  if (given < o->kernel.elfSize) return api::GLUE_INSUFFICIENT_ELF_BUFFER;
  if (given) std::memset(o->kernel.kernelElf, 0x7F, fault == "fault_overrun_elf" ? given + 1 : given);
  return api::GLUE_SUCCESS;
}

}  // namespace

// NOLINTBEGIN(readability-identifier-naming): the names are the interface's.

EXPORT api::GlueCodeReturn GetKernelGuids(api::DeviceId device, uint32_t* count, api::GuidInfo* guids) {
  note("GetKernelGuids", count, guids, nullptr, device);
  const uint32_t n = device == api::DEVICE_ID_GAUDI2 ? kFakeCount : 3;
  if (guids)
    for (uint32_t i = 0; i < n; ++i) guids[i] = entry(i);
  *count = n;
  return api::GLUE_SUCCESS;
}

EXPORT api::GlueCodeReturn InstantiateTpcKernel(const api::HabanaKernelParams* p, api::HabanaKernelInstantiation* o) {
  const auto code = note("InstantiateTpcKernel", p, o, nullptr, p->deviceId);
  const std::string_view name(p->guid.name, strnlen(p->guid.name, sizeof p->guid.name));
  return name.starts_with("fault_") ? faulty(name, *p, o) : code;
}

EXPORT api::GlueCodeReturn GetShapeInference(api::DeviceId device, const api::ShapeInferenceParams* p,
                                             api::ShapeInferenceOutput* o) {
  return note("GetShapeInference", p, o, nullptr, device);
}

EXPORT api::GlueCodeReturn GetSupportedDataLayouts(const api::HabanaKernelParams* p, api::NodeDataLayouts* l,
                                                   uint32_t* count) {
  return note("GetSupportedDataLayouts", p, l, count, p->deviceId);
}

EXPORT uint64_t GetLibVersion() { return mxk::test::kFakeVersion; }

EXPORT api::GlueCodeReturn GetSuggestedManipulation(const api::HabanaKernelParams* p, void* suggestion) {
  return note("GetSuggestedManipulation", p, suggestion, nullptr, p->deviceId);
}

// ---- functions that only pass through ------------------------------------------------------------------------------

EXPORT uint64_t fake_calls() { return calls; }
EXPORT const FakeCall* fake_last() { return &last; }

EXPORT double fake_many(int64_t a, int64_t b, int64_t c, int64_t d, int64_t e, int64_t f, int64_t g, int64_t h,
                        int64_t i, int64_t j, double p, double q, double r, double s, double t, double u, double v,
                        double w, double x, double y) {
  const int64_t integers[] = {a, b, c, d, e, f, g, h, i, j};
  const double reals[] = {p, q, r, s, t, u, v, w, x, y};
  double sum = 0;
  for (int n = 0; n < 10; ++n) sum = sum * 3 + static_cast<double>(integers[n]) + reals[n] / 8;
  return sum;
}

EXPORT double fake_variadic(int n, ...) {
  va_list list;
  va_start(list, n);
  double sum = 0;
  for (int i = 0; i < n; ++i) sum = sum * 2 + va_arg(list, double);
  va_end(list);
  return sum;
}

// Returns what it finds in rax, which a variadic call sets to the number of vector registers that it uses.
asm(".globl fake_rax\n.type fake_rax, @function\nfake_rax: ret\n.size fake_rax, .-fake_rax\n");

EXPORT mxk::test::FakeBig fake_struct(mxk::test::FakeBig in, int add) {
  for (int64_t& x : in.x) x += add;
  return in;
}

EXPORT int fake_throws(int x) { throw x; }

// As in the stock library's neighbour, which the graph compiler asks by name.
EXPORT api::GlueCodeReturn GetFunctionalComplexGuids(api::DeviceId device, uint32_t* count, api::GuidInfo* guids) {
  return note("GetFunctionalComplexGuids", count, guids, nullptr, device);
}

// NOLINTEND(readability-identifier-naming)

#ifdef FAKE_STOCK_OLD
// A build without this one stands for a stock library of another release.
EXPORT int64_t fake_gone(int64_t x) { return x + 1; }
EXPORT double fake_gone_too(double x) { return x; }
#endif
