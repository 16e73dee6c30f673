// SPDX-License-Identifier: Apache-2.0
#include "glue/kernels.h"

#include <cstring>
#include <string_view>
#include <vector>

// The bytes of each kernel, as embed.cmake or build.sh puts them here. Weak: of those that are not in this build there
// are none, and nobody asks for them.
#define X(name, ...)                                                                            \
  extern "C" {                                                                                  \
  __attribute__((visibility("hidden"), weak)) extern const uint8_t mxk_kernel_##name##_begin[]; \
  __attribute__((visibility("hidden"), weak)) extern const uint8_t mxk_kernel_##name##_end[];   \
  }
#include "tpc/kernels.inc"
#undef X

namespace mxk::glue {
namespace {

struct Elf {
  std::string_view name;
  const uint8_t *begin, *end;
};
constexpr Elf kElves[] = {
#define X(name, ...) {#name, mxk_kernel_##name##_begin, mxk_kernel_##name##_end},
#include "tpc/kernels.inc"
#undef X
};

api::TensorDataType type_of(tpc::Element e) {
  switch (e) {
    case tpc::Element::u8: return api::DATA_U8;
    case tpc::Element::bf16: return api::DATA_BF16;
    case tpc::Element::i32: return api::DATA_I32;
    case tpc::Element::f32: return api::DATA_F32;
  }
  return {};
}

api::GlueCodeReturn check_parameters(const Kernel& kernel, const api::UserParams& user) {
  const bool none = !user.nodeParams || user.nodeParamsSize == 0;
  const uint32_t count = kernel.parameter_count();
  if (count == 0) return none ? api::GLUE_SUCCESS : api::GLUE_KERNEL_INVALID_SCALAR_ARGUMENT;
  if (none || user.nodeParamsSize != count * sizeof(int32_t)) return api::GLUE_KERNEL_INVALID_SCALAR_ARGUMENT;
  for (uint32_t i = 0; i < count; ++i) {
    int32_t value;
    std::memcpy(&value, static_cast<const char*>(user.nodeParams) + i * sizeof value, sizeof value);
    if (value < 0) return api::GLUE_KERNEL_INVALID_SCALAR_ARGUMENT;
  }
  return api::GLUE_SUCCESS;
}

api::GlueCodeReturn check_operand(const tpc::Operand& operand, const api::TensorGeometry& g,
                                  api::GlueCodeReturn bad_size) {
  if (g.dataType != type_of(operand.type)) return api::GLUE_INCOMPATIBLE_DATA_TYPE;
  if (g.dims != operand.rank()) return bad_size;
  for (uint32_t d = 0; d < operand.rank(); ++d)
    if (g.minSizes[d] != g.maxSizes[d]) return api::GLUE_UNSUPPORTED_DYNAMIC_SHAPE;
  return api::GLUE_SUCCESS;
}

// The interface has the fastest dimension first. A rank that the operand does not have comes out as one that no
// operand has.
struct Reversed {
  uint64_t sizes[4] = {};
  uint32_t rank;
  Reversed(const tpc::Operand& operand, const api::TensorGeometry& g) : rank(g.dims) {
    if (rank != operand.rank()) rank = 0;
    for (uint32_t d = 0; d < rank; ++d) sizes[d] = g.maxSizes[rank - 1 - d];
  }
  tpc::Sizes span() const { return {sizes, rank}; }
};

}  // namespace

const Kernel* find_kernel(const char (&guid)[api::MAX_NODE_NAME]) {
  return tpc::find_kernel({guid, strnlen(guid, sizeof guid)});
}

std::span<const uint8_t> elf(const Kernel& kernel) {
  for (const Elf& e : kElves)
    if (e.name == kernel.name) return {e.begin, e.end};
  return {};
}

api::GlueCodeReturn check_sizes(const Kernel& kernel, const Geometries& g, Letters* letters) {
  std::vector<Reversed> kept;
  std::vector<tpc::Sizes> inputs;
  kept.reserve(kernel.inputs.size() + 1);  // spans point into it
  for (size_t i = 0; i < kernel.inputs.size(); ++i) {
    kept.emplace_back(kernel.inputs[i], *g.inputs[i]);
    inputs.push_back(kept.back().span());
  }
  tpc::Sizes output;
  if (g.output) {
    if (g.output->dims != kernel.output.rank()) return api::GLUE_INCOMPATIBLE_OUTPUT_SIZE;
    output = kept.emplace_back(kernel.output, *g.output).span();
  }
  switch (tpc::bind(kernel, inputs, output, letters).kind) {
    case tpc::Fault::none: return api::GLUE_SUCCESS;
    case tpc::Fault::input: return api::GLUE_INCOMPATIBLE_INPUT_SIZE;
    case tpc::Fault::output: return api::GLUE_INCOMPATIBLE_OUTPUT_SIZE;
    case tpc::Fault::layer: return api::GLUE_UNSUPPORTED_LAYER_CONFIGURATION;
  }
  return api::GLUE_FAILED;
}

api::GlueCodeReturn check(const Kernel& kernel, const api::HabanaKernelParams& p, Letters* letters) {
  if (p.apiVersion != kApiVersion) return api::GLUE_UNSUPPORTED_API_VERSION;
  if (p.inputTensorNr != kernel.inputs.size()) return api::GLUE_INCOMPATIBLE_INPUT_COUNT;
  if (p.outputTensorNr != 1) return api::GLUE_INCOMPATIBLE_OUTPUT_COUNT;
  if (!p.inputTensors || !p.outputTensors) return api::GLUE_FAILED;
  Geometries g{};
  for (size_t i = 0; i < kernel.inputs.size(); ++i) {
    const api::Tensor& tensor = p.inputTensors[i];
    if (tensor.Null) return api::GLUE_INCOMPATIBLE_INPUT_COUNT;  // no operand is optional
    g.inputs[i] = &tensor.geometry;
    const auto code = check_operand(kernel.inputs[i], tensor.geometry, api::GLUE_INCOMPATIBLE_INPUT_SIZE);
    if (code != api::GLUE_SUCCESS) return code;
  }
  if (p.outputTensors[0].Null) return api::GLUE_INCOMPATIBLE_OUTPUT_COUNT;
  g.output = &p.outputTensors[0].geometry;
  const auto code = check_operand(kernel.output, *g.output, api::GLUE_INCOMPATIBLE_OUTPUT_SIZE);
  if (code != api::GLUE_SUCCESS) return code;
  if (const auto sizes = check_sizes(kernel, g, letters); sizes != api::GLUE_SUCCESS) return sizes;
  return check_parameters(kernel, p.nodeParams);
}

}  // namespace mxk::glue
