// SPDX-License-Identifier: Apache-2.0
//
// The six functions that the graph compiler calls. A name of ours is answered here, every other one by the stock
// library with the very pointers that came in. On any device but Gaudi 2 this library adds nothing.
#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "glue/kernels.h"
#include "glue/stock.h"
#include "tpc/tables.h"

#ifndef MXK_VERSION
#error "MXK_VERSION is the version of the project, a string"
#endif

#define MXK_EXPORT extern "C" __attribute__((visibility("default")))

namespace mxk::glue {
namespace {

constexpr uint32_t kTpcs = 24;  // of a Gaudi 2
constexpr uint64_t kTableColumns = 256;
constexpr uint64_t kHashMask = (uint64_t{1} << 56) - 1;

// FNV-1a.
constexpr uint64_t hash(std::string_view text) {
  uint64_t h = 0xcbf29ce484222325;
  for (char c : text) h = (h ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return h;
}
constexpr uint64_t hash56(std::string_view text) {
  const uint64_t h = hash(text);
  return (h ^ h >> 56) & kHashMask;
}

// Nothing may be thrown across the C boundary; only a lack of memory could be.
template <class F>
api::GlueCodeReturn guarded(F&& f) noexcept {
  try {
    return f();
  } catch (...) {
    return api::GLUE_FAILED;
  }
}

template <class F, class... Args>
api::GlueCodeReturn forward(F function, Args... args) {
  return function ? function(args...) : api::GLUE_NODE_NOT_FOUND;
}

// ---- answers for our kernels ---------------------------------------------------------------------------------------

void require_all(api::TensorAccessPattern* patterns, size_t n) {
  // Points own columns or rows of all experts, which in the permuted order of the activations are not affine.
  for (size_t i = 0; i < n; ++i) {
    std::memset(&patterns[i], 0, sizeof patterns[i]);
    patterns[i].allRequired = 1;
  }
}

// Auxiliary tensor `index` of `columns` x `rows` elements, filled by `fill` once there is room. The graph compiler
// asserts that the final size is that of the geometry, so a larger buffer is reported smaller too.
template <class Fill>
api::GlueCodeReturn fill_aux(api::HabanaKernelInstantiation* out, uint32_t index, api::TensorDataType type,
                             uint64_t columns, uint64_t rows, uint64_t bytes, Fill&& fill) {
  api::AuxTensor& aux = out->auxiliaryTensors[index];
  const uint64_t given = aux.bufferSize;
  aux.geometry.dims = 2;
  aux.geometry.maxSizes[0] = aux.geometry.minSizes[0] = columns;
  aux.geometry.maxSizes[1] = aux.geometry.minSizes[1] = rows;
  aux.geometry.dataType = type;
  aux.bufferSize = bytes;
  aux.flags = 0;
  out->auxiliaryTensorNr = index + 1;
  if (given < bytes) return api::GLUE_INSUFFICIENT_AUX_BUFFER_SIZE;
  if (!aux.pData) return api::GLUE_FAILED;
  fill(aux.pData);
  return api::GLUE_SUCCESS;
}

api::GlueCodeReturn fill_aux(const Kernel& kernel, api::HabanaKernelInstantiation* out) {
  const auto tables = fill_aux(out, 0, api::DATA_U8, kTableColumns, tpc::kTableRows, tpc::kTableRows * kTableColumns,
                               [](void* p) { tpc::fill_tables(static_cast<uint8_t*>(p)); });
#ifdef MXK_LUT
  if (kernel.users == tpc::Users::w13 || kernel.users == tpc::Users::w2) {
    // Both sizes are asked for in one answer.
    const auto lut = fill_aux(out, 1, api::DATA_BF16, tpc::kLutElements, 1, 2 * tpc::kLutElements,
                              [](void* p) { tpc::fill_lut(static_cast<uint16_t*>(p)); });
    return tables == api::GLUE_SUCCESS ? lut : tables;
  }
#endif
  (void)kernel;
  return tables;
}

api::GlueCodeReturn fill_elf(const Kernel& kernel, api::DeviceKernel* out) {
  const auto bytes = elf(kernel);
  if (bytes.empty()) return api::GLUE_FAILED;
  const size_t given = out->elfSize;
  out->elfSize = static_cast<uint32_t>(bytes.size());
  if (given < bytes.size()) return api::GLUE_INSUFFICIENT_ELF_BUFFER;
  if (!out->kernelElf) return api::GLUE_FAILED;
  std::memcpy(out->kernelElf, bytes.data(), bytes.size());
  return api::GLUE_SUCCESS;
}

api::GlueCodeReturn instantiate(const Kernel& kernel, const api::HabanaKernelParams& params,
                                api::HabanaKernelInstantiation* out) {
  Letters letters;
  if (const auto code = check(kernel, params, &letters); code != api::GLUE_SUCCESS) return code;
  if (!out || !out->inputTensorAccessPattern || !out->outputTensorAccessPattern || !out->auxiliaryTensors)
    return api::GLUE_FAILED;
  const bool divided = kernel.units.letter != tpc::Letter::none;
  const uint32_t available = params.maxAvailableTpc ? std::min(params.maxAvailableTpc, kTpcs) : kTpcs;
  const uint32_t points = divided ? available : 1;
  out->indexSpaceRank = 1;
  out->indexSpaceGeometry[0] = points;
  out->preferredSplitDim = 0;
  require_all(out->inputTensorAccessPattern, kernel.inputs.size());
  require_all(out->outputTensorAccessPattern, 1);
  uint32_t* scalars = out->kernel.scalarParams;
  const uint32_t parameters = kernel.parameter_count();
  if (parameters) std::memcpy(scalars, params.nodeParams.nodeParams, parameters * sizeof(int32_t));
  scalars += parameters;
  if (divided) {
    // Each point has so many units, the first so many points one more. A kernel cannot see how many points there are.
    const uint64_t units = kernel.units.of(letters);
    *scalars++ = static_cast<uint32_t>(units / points);
    *scalars++ = static_cast<uint32_t>(units % points);
  }
  out->kernel.paramsNr = static_cast<uint32_t>(scalars - out->kernel.scalarParams);
  if (const auto code = fill_aux(kernel, out); code != api::GLUE_SUCCESS) return code;
  return fill_elf(kernel, &out->kernel);
}

// Any layout will do, which is one choice. The graph compiler leaves the counts of `out` at 0: those of the node hold.
api::GlueCodeReturn layouts(const Kernel& kernel, const api::HabanaKernelParams& params, api::NodeDataLayouts* out,
                            uint32_t* count) {
  if (params.inputTensorNr != kernel.inputs.size()) return api::GLUE_INCOMPATIBLE_INPUT_COUNT;
  if (params.outputTensorNr != 1) return api::GLUE_INCOMPATIBLE_OUTPUT_COUNT;
  if (!count) return api::GLUE_FAILED;
  if (out && *count != 0) {
    if (!out->inputs || !out->outputs) return api::GLUE_FAILED;
    for (size_t i = 0; i < kernel.inputs.size(); ++i) std::memset(out->inputs[i].layout, 'x', api::MAX_TENSOR_DIM);
    std::memset(out->outputs[0].layout, 'x', api::MAX_TENSOR_DIM);
  }
  *count = 1;
  return api::GLUE_SUCCESS;
}

api::GlueCodeReturn infer_shapes(const Kernel& kernel, const api::ShapeInferenceParams& params,
                                 api::ShapeInferenceOutput* out) {
  if (params.apiVersion != kApiVersion) return api::GLUE_UNSUPPORTED_API_VERSION;
  if (params.inputTensorsNr != kernel.inputs.size()) return api::GLUE_INCOMPATIBLE_INPUT_COUNT;
  if (params.outputTensorsNr != 1) return api::GLUE_INCOMPATIBLE_OUTPUT_COUNT;
  if (!params.inputTensors || !out || !out->outputTensors || !out->outputTensors[0]) return api::GLUE_FAILED;
  Geometries g{};
  for (size_t i = 0; i < kernel.inputs.size(); ++i) {
    if (!params.inputTensors[i]) return api::GLUE_FAILED;
    g.inputs[i] = &params.inputTensors[i]->geometry;
  }
  Letters letters;
  if (const auto code = check_sizes(kernel, g, &letters); code != api::GLUE_SUCCESS) return code;
  api::TensorGeometry& y = out->outputTensors[0]->geometry;
  y.dims = kernel.output.rank();
  for (uint32_t d = 0; d < y.dims; ++d) y.maxSizes[d] = y.minSizes[d] = kernel.output.dims[y.dims - 1 - d].of(letters);
  return api::GLUE_SUCCESS;
}

// ---- the list ------------------------------------------------------------------------------------------------------

// The entries of the stock library as they are, then ours. A name that it has too is not listed twice (the graph
// compiler may throw), and is still ours: dispatch goes by name.
api::GlueCodeReturn list_kernels(std::vector<api::GuidInfo>* list) {
  uint32_t n = 0;
  if (const auto f = stock().guids) {
    if (const auto code = f(api::DEVICE_ID_GAUDI2, &n, nullptr); code != api::GLUE_SUCCESS) return code;
    list->resize(n);
    if (n)
      if (const auto code = f(api::DEVICE_ID_GAUDI2, &n, list->data()); code != api::GLUE_SUCCESS) return code;
    list->resize(std::min<size_t>(n, list->size()));
    n = static_cast<uint32_t>(list->size());
  }
  for (const Kernel& kernel : tpc::kernels()) {
    const auto same_name = [&](const api::GuidInfo& g) {
      return std::string_view(g.name, strnlen(g.name, sizeof g.name)) == kernel.name;
    };
    if (std::any_of(list->begin(), list->begin() + n, same_name)) continue;
    // Stock kernels are found by their hash, so ours must be nobody's. 0 means that there is none.
    uint64_t h = hash56(kernel.name);
    const auto taken = [&](const api::GuidInfo& g) { return g.nameHash.hashValue == h; };
    while (h == 0 || std::any_of(list->begin(), list->end(), taken)) h = (h + 1) & kHashMask;
    api::GuidInfo info{};
    std::memcpy(info.name, kernel.name, std::strlen(kernel.name));
    info.nameHash.hashValue = h;
    list->push_back(info);
  }
  return api::GLUE_SUCCESS;
}

// Call 1, without an array or with one of size 0: how many there are. Call 2: the list, if the array holds all of it.
api::GlueCodeReturn list_kernels(uint32_t* count, api::GuidInfo* guids) {
  if (!count) return api::GLUE_FAILED;
  std::vector<api::GuidInfo> list;
  if (const auto code = list_kernels(&list); code != api::GLUE_SUCCESS) return code;
  const uint32_t given = std::exchange(*count, static_cast<uint32_t>(list.size()));
  if (!guids || given == 0) return api::GLUE_SUCCESS;
  if (given < list.size()) return api::GLUE_FAILED;
  std::memcpy(guids, list.data(), list.size() * sizeof(api::GuidInfo));
  return api::GLUE_SUCCESS;
}

const Kernel* ours(api::DeviceId device, const api::GuidInfo& guid) {
  return device == api::DEVICE_ID_GAUDI2 ? find_kernel(guid.name) : nullptr;
}

}  // namespace
}  // namespace mxk::glue

namespace api = tpc_lib_api;
using namespace mxk::glue;

// NOLINTBEGIN(readability-identifier-naming): the names are the interface's.

MXK_EXPORT api::GlueCodeReturn GetKernelGuids(api::DeviceId device, uint32_t* count, api::GuidInfo* guids) noexcept {
  return guarded([&] {
    if (device == api::DEVICE_ID_GAUDI2) return list_kernels(count, guids);
    if (stock().guids) return stock().guids(device, count, guids);
    if (count) *count = 0;
    return api::GLUE_SUCCESS;
  });
}

MXK_EXPORT api::GlueCodeReturn InstantiateTpcKernel(const api::HabanaKernelParams* params,
                                                    api::HabanaKernelInstantiation* out) noexcept {
  return guarded([&] {
    if (!params) return api::GLUE_FAILED;
    if (const Kernel* kernel = ours(params->deviceId, params->guid)) return instantiate(*kernel, *params, out);
    return forward(stock().instantiate, params, out);
  });
}

MXK_EXPORT api::GlueCodeReturn GetShapeInference(api::DeviceId device, const api::ShapeInferenceParams* params,
                                                 api::ShapeInferenceOutput* out) noexcept {
  return guarded([&] {
    if (!params) return api::GLUE_FAILED;
    const Kernel* kernel = ours(device, params->pGuid ? *params->pGuid : params->guid);
    if (kernel) return infer_shapes(*kernel, *params, out);
    return forward(stock().infer_shapes, device, params, out);
  });
}

MXK_EXPORT api::GlueCodeReturn GetSupportedDataLayouts(const api::HabanaKernelParams* params, api::NodeDataLayouts* out,
                                                       uint32_t* count) noexcept {
  return guarded([&] {
    if (!params) return api::GLUE_FAILED;
    if (const Kernel* kernel = ours(params->deviceId, params->guid)) return layouts(*kernel, *params, out, count);
    return forward(stock().layouts, params, out, count);
  });
}

MXK_EXPORT api::GlueCodeReturn GetSuggestedManipulation(const api::HabanaKernelParams* params,
                                                        void* suggestion) noexcept {
  return guarded([&] {
    if (!params || ours(params->deviceId, params->guid)) return api::GLUE_FAILED;  // ours have nothing to suggest
    return forward(stock().manipulation, params, suggestion);
  });
}

// Recipes are cached by this number, so it must change with either library.
MXK_EXPORT uint64_t GetLibVersion() noexcept {
  static const uint64_t own = [] {
    uint64_t h = hash("mxk " MXK_VERSION);
    for (const Kernel& kernel : mxk::tpc::kernels())
      h = h * 31 + hash({reinterpret_cast<const char*>(elf(kernel).data()), elf(kernel).size()});
    return h;
  }();
  try {
    return stock().version ? stock().version() ^ own : own;
  } catch (...) {
    return own;
  }
}
// NOLINTEND(readability-identifier-naming)
