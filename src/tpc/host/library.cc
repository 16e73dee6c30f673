// SPDX-License-Identifier: Apache-2.0
#include "tpc/host/library.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <type_traits>

namespace mxk::tpc {
namespace {

using glue::kApiVersion;

constexpr uint8_t kObjectId = 32;  // the graph compiler's mark of kernels that came from a library

// The graph compiler fills the sizes of five dimensions, those beyond the rank with 1.
void fill(api::TensorGeometry* g, const TensorSpec& spec) {
  g->dims = static_cast<uint32_t>(spec.sizes.size());
  g->dataType = spec.type;
  for (uint32_t d = 0; d < std::max(g->dims, kMaxRank); ++d)
    g->maxSizes[d] = g->minSizes[d] = d < g->dims ? spec.sizes[d] : 1;
}

std::vector<api::Tensor> tensors_of(const std::vector<TensorSpec>& specs) {
  std::vector<api::Tensor> tensors(specs.size());
  for (size_t i = 0; i < specs.size(); ++i) {
    fill(&tensors[i].geometry, specs[i]);
    for (uint32_t d = 0; d < api::MAX_TENSOR_DIM; ++d) tensors[i].permutation[d] = d;
    tensors[i].quantizationParam.scale = 1;
  }
  return tensors;
}

}  // namespace

Params::Params(const Node& node, const api::GuidInfo& guid)
    : inputs(tensors_of(node.inputs)), outputs(tensors_of(node.outputs)), user(node.params) {
  p.apiVersion = kApiVersion;
  p.deviceId = api::DEVICE_ID_GAUDI2;
  std::memcpy(p.guid.name, guid.name, sizeof p.guid.name);
  p.guid.nameHash = guid.nameHash;
  p.nodeParams = {user.empty() ? nullptr : user.data(), static_cast<uint32_t>(user.size())};
  p.inputTensors = inputs.data();
  p.inputTensorNr = static_cast<uint32_t>(inputs.size());
  p.outputTensors = outputs.data();
  p.outputTensorNr = static_cast<uint32_t>(outputs.size());
  p.maxAvailableTpc = node.tpcs;
  p.uniqueNodeId = 1;
}

Status Library::open(const std::string& path, std::unique_ptr<Library>* out) {
  auto library = std::make_unique<Library>();
  if (Status s = SharedObject::open(path, &library->object_); !s.ok()) return s;
  if (Status s = library->load(); !s.ok()) return s;
  *out = std::move(library);
  return {};
}

Status Library::open(std::span<const uint8_t> bytes, std::unique_ptr<Library>* out) {
  auto library = std::make_unique<Library>();
  if (Status s = SharedObject::open(bytes, "kernel library", &library->object_); !s.ok()) return s;
  if (Status s = library->load(); !s.ok()) return s;
  *out = std::move(library);
  return {};
}

Status Library::load() {
  std::string missing;
  const auto find = [&](const char* name, auto* out, bool required) {
    *out = reinterpret_cast<std::remove_pointer_t<decltype(out)>>(object_->symbol(name));
    if (!*out && required) missing += missing.empty() ? name : std::string(", ") + name;
  };
  find("GetKernelGuids", &get_guids_, true);
  find("InstantiateTpcKernel", &instantiate_, true);
  find("GetShapeInference", &infer_shapes_, true);
  // The graph compiler only warns about these three, and later calls the last without looking.
  glue::GetSuggestedManipulation manipulation;
  find("GetSupportedDataLayouts", &layouts_, false);
  find("GetLibVersion", &version_, false);
  find("GetSuggestedManipulation", &manipulation, true);
  if (!missing.empty())
    return error(Code::io, "kernel library without entry point " + missing + "; no kernel of it can be used");

  uint32_t count = 0;
  api::GlueCodeReturn code = get_guids_(api::DEVICE_ID_GAUDI2, &count, nullptr);
  if (code == api::GLUE_SUCCESS && count > 0) {
    guids_.resize(count);
    code = get_guids_(api::DEVICE_ID_GAUDI2, &count, guids_.data());
  }
  if (code != api::GLUE_SUCCESS)
    return error(Code::io, std::string("kernel library: GetKernelGuids answers ") + to_string(code) +
                               "; no kernel of it can be used");
  for (api::GuidInfo& g : guids_) g.nameHash.sharedObjectId = kObjectId;
  return {};
}

Status Library::find(const Node& node, const api::GuidInfo** out) const {
  for (const auto* specs : {&node.inputs, &node.outputs})
    for (const TensorSpec& spec : *specs)
      if (spec.sizes.empty() || spec.sizes.size() > kMaxRank)
        return refuse(node, "a tensor has rank " + std::to_string(spec.sizes.size()) + ", not 1 to 5");
  for (const api::GuidInfo& g : guids_)
    if (node.guid == std::string_view(g.name, strnlen(g.name, sizeof g.name))) {
      *out = &g;
      return {};
    }
  return error(Code::unsupported_variant, node.guid + ": the kernel library lists no such kernel");
}

uint64_t Library::version() const { return version_ ? version_() : 0; }

Status Library::layouts(const Node& node, std::vector<std::string>* inputs, std::vector<std::string>* outputs) const {
  const api::GuidInfo* guid;
  if (Status s = find(node, &guid); !s.ok()) return s;
  inputs->assign(node.inputs.size(), "");
  outputs->assign(node.outputs.size(), "");
  if (!layouts_) return {};
  Params params(node, *guid);
  uint32_t count = 0;
  api::GlueCodeReturn code = layouts_(&params.p, nullptr, &count);
  if (code != api::GLUE_SUCCESS) return answered(node, "GetSupportedDataLayouts", code);
  if (count != 1) return refuse(node, std::to_string(count) + " layouts, but the graph compiler takes one");
  std::vector<api::TensorDataLayout> in(node.inputs.size()), out(node.outputs.size());
  api::NodeDataLayouts l{};  // the graph compiler sets no counts
  l.inputs = in.data();
  l.outputs = out.data();
  code = layouts_(&params.p, &l, &count);
  if (code != api::GLUE_SUCCESS) return answered(node, "GetSupportedDataLayouts", code);
  const auto text = [](const api::TensorDataLayout& layout) {
    std::string s;
    for (char c : layout.layout)
      if (c && c != 'x' && c != '*') s += c;
    return s;
  };
  std::transform(in.begin(), in.end(), inputs->begin(), text);
  std::transform(out.begin(), out.end(), outputs->begin(), text);
  return {};
}

Status Library::infer_shapes(const Node& node, std::vector<TensorSpec>* outputs) const {
  const api::GuidInfo* guid;
  if (Status s = find(node, &guid); !s.ok()) return s;
  std::vector<api::TensorShapeInfo> in(node.inputs.size()), out(node.outputs.size());
  std::vector<api::TensorShapeInfo*> in_at, out_at;
  for (size_t i = 0; i < in.size(); ++i) {
    fill(&in[i].geometry, node.inputs[i]);
    in_at.push_back(&in[i]);
  }
  for (size_t i = 0; i < out.size(); ++i) {
    out[i].geometry.dataType = node.outputs[i].type;
    out_at.push_back(&out[i]);
  }
  std::vector<uint8_t> user = node.params;
  api::GuidInfo named = *guid;
  uint32_t invalid = 0;
  api::ShapeInferenceParams p{};
  p.apiVersion = kApiVersion;
  p.guid = named;
  p.pGuid = &named;
  p.inputTensors = in_at.data();
  p.inputTensorsNr = static_cast<uint32_t>(in.size());
  p.nodeParams = {user.empty() ? nullptr : user.data(), static_cast<uint32_t>(user.size())};
  p.outputTensorsNr = static_cast<uint32_t>(out.size());
  p.maxAvailableTpc = node.tpcs;
  api::ShapeInferenceOutput o{};
  o.outputTensors = out_at.data();
  o.invalidMask = &invalid;
  const api::GlueCodeReturn code = infer_shapes_(api::DEVICE_ID_GAUDI2, &p, &o);
  if (code != api::GLUE_SUCCESS) return answered(node, "GetShapeInference", code);
  if (invalid) return refuse(node, "GetShapeInference marks an output as invalid");
  std::vector<TensorSpec> specs;
  for (const api::TensorShapeInfo& info : out) {
    const api::TensorGeometry& g = info.geometry;
    if (g.dims < 1 || g.dims > kMaxRank) return refuse(node, "GetShapeInference gives an output no rank");
    specs.push_back({g.dataType, {g.maxSizes, g.maxSizes + g.dims}});
  }
  *outputs = std::move(specs);
  return {};
}

// ---- plain data ----------------------------------------------------------------------------------------------------

Status refuse(const Node& node, const std::string& what) {
  return error(Code::bad_argument, node.guid + ": " + what + "; the node is not compiled");
}

Status answered(const Node& node, const char* function, api::GlueCodeReturn code) {
  Code c = Code::bad_argument;
  switch (code) {
    case api::GLUE_SUCCESS: return {};
    case api::GLUE_NODE_NOT_FOUND: c = Code::unsupported_variant; break;
    case api::GLUE_INCOMPATIBLE_DATA_TYPE: c = Code::bad_dtype; break;
    case api::GLUE_INCOMPATIBLE_INPUT_SIZE:
    case api::GLUE_INCOMPATIBLE_OUTPUT_SIZE:
    case api::GLUE_UNSUPPORTED_DYNAMIC_SHAPE:
    case api::GLUE_UNSUPPORTED_LAYER_CONFIGURATION: c = Code::bad_shape; break;
    default: break;
  }
  return error(c, node.guid + ": " + function + " answers " + to_string(code) + "; the node is not compiled");
}

uint64_t size_of(api::TensorDataType type) {
  switch (type) {
    case api::DATA_U8: return 1;
    case api::DATA_BF16: return 2;
    case api::DATA_I32:
    case api::DATA_F32: return 4;
    default: return 0;
  }
}

uint64_t TensorSpec::elements() const {
  uint64_t n = sizes.empty() ? 0 : 1;
  for (uint64_t s : sizes)
    if (__builtin_mul_overflow(n, s, &n)) return 0;
  return n;
}

uint64_t TensorSpec::bytes() const {
  uint64_t n;
  return __builtin_mul_overflow(elements(), size_of(type), &n) ? 0 : n;
}

std::string to_string(const TensorSpec& spec) {
  std::string s = "[";
  for (size_t i = spec.sizes.size(); i-- > 0;) s += std::to_string(spec.sizes[i]) + (i ? ", " : "");
  return s + "]";
}

const char* to_string(api::GlueCodeReturn code) {
  switch (code) {
#define MXK_CASE(name) \
  case api::GLUE_##name: return #name;
    MXK_CASE(SUCCESS)
    MXK_CASE(NODE_NOT_FOUND)
    MXK_CASE(INCOMPATIBLE_INPUT_COUNT)
    MXK_CASE(INCOMPATIBLE_INPUT_SIZE)
    MXK_CASE(INCOMPATIBLE_OUTPUT_COUNT)
    MXK_CASE(INCOMPATIBLE_OUTPUT_SIZE)
    MXK_CASE(INCOMPATIBLE_DATA_TYPE)
    MXK_CASE(UNSUPPORTED_LAYER_CONFIGURATION)
    MXK_CASE(INSUFFICIENT_AUX_BUFFER_SIZE)
    MXK_CASE(UNSUPPORTED_API_VERSION)
    MXK_CASE(KERNEL_INVALID_SCALAR_ARGUMENT)
    MXK_CASE(INSUFFICIENT_ELF_BUFFER)
    MXK_CASE(UNSUPPORTED_DYNAMIC_SHAPE)
    MXK_CASE(FAILED)
#undef MXK_CASE
    default: return "an unknown code";
  }
}

}  // namespace mxk::tpc
