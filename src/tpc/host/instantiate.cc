// SPDX-License-Identifier: Apache-2.0
//
// Library::instantiate: the tries, and what the graph compiler checks of the result.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "tpc/host/library.h"

namespace mxk::tpc {
namespace {

using glue::kMaxAuxTensors;

constexpr int kMaxTries = 5;
constexpr size_t kMaxOperands = 16;  // tensors that one kernel can have on Gaudi 2, auxiliary ones included
constexpr size_t kGuard = 64;        // bytes behind every buffer that is handed out
constexpr uint8_t kGuardByte = 0xA5;

// A buffer that notices writes behind its end.
class Buffer {
 public:
  void resize(size_t n) {
    bytes_.assign(n + kGuard, kGuardByte);
    size_ = n;
  }
  uint8_t* data() { return bytes_.data(); }
  size_t size() const { return size_; }
  bool intact() const {
    return std::all_of(bytes_.begin() + static_cast<std::ptrdiff_t>(size_), bytes_.end(),
                       [](uint8_t b) { return b == kGuardByte; });
  }
  std::vector<uint8_t> take(size_t n) const {
    return {bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(std::min(n, size_))};
  }

 private:
  std::vector<uint8_t> bytes_;
  size_t size_ = 0;
};

// An instantiation in progress: the buffers outlive the tries, everything else of the structure is cleared each time.
struct Attempt {
  Attempt(size_t inputs, size_t outputs) : in_patterns(inputs), out_patterns(outputs) { reset(0); }

  // Also restores what the library is told about its buffers. At the first call auxiliaryTensorNr is 0, although
  // there is room for 16.
  void reset(uint32_t aux_count) {
    std::memset(&in, 0, sizeof in);
    std::memset(aux.data(), 0, sizeof aux);
    in.inputTensorAccessPattern = in_patterns.data();
    in.outputTensorAccessPattern = out_patterns.data();
    in.auxiliaryTensors = aux.data();
    in.auxiliaryTensorNr = aux_count;
    for (size_t i = 0; i < aux_count; ++i) {
      aux[i].pData = aux_buffers[i].size() ? aux_buffers[i].data() : nullptr;
      aux[i].bufferSize = aux_buffers[i].size();
    }
    in.kernel.kernelElf = elf.size() ? elf.data() : nullptr;
    in.kernel.elfSize = static_cast<uint32_t>(elf.size());
  }

  bool grow_aux() {
    bool changed = false;
    for (size_t i = 0; i < in.auxiliaryTensorNr; ++i)
      if (aux[i].bufferSize != aux_buffers[i].size()) {
        aux_buffers[i].resize(aux[i].bufferSize);
        changed = true;
      }
    return changed;
  }

  bool intact() const {
    return (elf.size() == 0 || elf.intact()) &&
           std::all_of(aux_buffers.begin(), aux_buffers.end(),
                       [](const Buffer& b) { return b.size() == 0 || b.intact(); });
  }

  std::vector<api::TensorAccessPattern> in_patterns, out_patterns;
  std::array<api::AuxTensor, kMaxAuxTensors> aux;
  std::array<Buffer, kMaxAuxTensors> aux_buffers;
  Buffer elf;
  api::HabanaKernelInstantiation in;
};

Status check_index_space(const Node& node, const api::HabanaKernelInstantiation& in) {
  if (in.indexSpaceRank < 1 || in.indexSpaceRank > api::MAX_INDEX_SPACE_DIM_SIZE)
    return refuse(node, "index space of rank " + std::to_string(in.indexSpaceRank));
  for (uint32_t d = 0; d < in.indexSpaceRank; ++d)
    if (in.indexSpaceGeometry[d] < 1 || in.indexSpaceGeometry[d] > std::numeric_limits<int32_t>::max())
      return refuse(node, "index space of size " + std::to_string(in.indexSpaceGeometry[d]) + " in dimension " +
                              std::to_string(d));
  if (in.kernel.paramsNr > api::MAX_SCALAR_PARAMS)
    return refuse(node, std::to_string(in.kernel.paramsNr) + " scalars, more than 32");
  if (in.auxiliaryTensorNr > kMaxAuxTensors)
    return refuse(node, std::to_string(in.auxiliaryTensorNr) + " auxiliary tensors, more than 16");
  if (node.inputs.size() + node.outputs.size() + in.auxiliaryTensorNr > kMaxOperands)
    return refuse(node, "more than 16 tensors");
  return {};
}

// Do the index points together reach every element of every dimension, without leaving gaps?
Status check_pattern(const Node& node, const std::string& tensor, const TensorSpec& spec,
                     const api::TensorAccessPattern& pattern, const api::HabanaKernelInstantiation& in) {
  if (pattern.allRequired) return {};
  for (size_t d = 0; d < spec.sizes.size(); ++d) {
    const api::DimIndexSpaceMapping& m = pattern.mapping[d];
    if (m.allRequired) continue;
    const auto bad = [&](const char* what) {
      return refuse(node, tensor + " " + to_string(spec) + " dimension " + std::to_string(d) + ": " + what);
    };
    if (m.indexSpaceDim >= in.indexSpaceRank) return bad("is mapped to a dimension that the index space has not");
    const double steps = static_cast<double>(in.indexSpaceGeometry[m.indexSpaceDim] - 1);
    const double last = static_cast<double>(m.a) * steps;
    if (m.end_b < m.start_b) return bad("an index point touches nothing");
    if (std::min<double>(m.start_b, last + m.start_b) > 0 ||
        std::max<double>(m.end_b, last + m.end_b) + 1 < static_cast<double>(spec.sizes[d]))
      return bad("the index space does not cover it");
    if (steps > 0 && std::abs(m.a) > m.end_b - m.start_b + 1) return bad("the index space leaves gaps in it");
    for (double offset : {0.0, last})
      if (offset + m.end_b < 0 || offset + m.start_b >= static_cast<double>(spec.sizes[d]))
        return bad("an index point lies outside");
  }
  return {};
}

Status check_patterns(const Node& node, const api::HabanaKernelInstantiation& in) {
  for (size_t i = 0; i < node.inputs.size(); ++i)
    if (Status s =
            check_pattern(node, "input " + std::to_string(i), node.inputs[i], in.inputTensorAccessPattern[i], in);
        !s.ok())
      return s;
  for (size_t i = 0; i < node.outputs.size(); ++i)
    if (Status s =
            check_pattern(node, "output " + std::to_string(i), node.outputs[i], in.outputTensorAccessPattern[i], in);
        !s.ok())
      return s;
  return {};
}

Status take_aux(const Node& node, const api::AuxTensor& aux, const Buffer& buffer, Instance::Aux* out) {
  if (aux.geometry.dims < 1 || aux.geometry.dims > kMaxRank)
    return refuse(node, "an auxiliary tensor of rank " + std::to_string(aux.geometry.dims));
  out->spec.type = aux.geometry.dataType;
  out->spec.sizes.assign(aux.geometry.maxSizes, aux.geometry.maxSizes + aux.geometry.dims);
  if (out->spec.bytes() == 0 || aux.bufferSize != out->spec.bytes())
    return refuse(node, "an auxiliary tensor " + to_string(out->spec) + " with a buffer of " +
                            std::to_string(aux.bufferSize) + " bytes");
  if (aux.noInit) return {};
  if (!aux.pData || buffer.size() < aux.bufferSize)
    return refuse(node, "an auxiliary tensor " + to_string(out->spec) + " for which no buffer was asked");
  out->bytes = buffer.take(aux.bufferSize);
  return {};
}

}  // namespace

Status Library::instantiate(const Node& node, Instance* out, api::GlueCodeReturn* code_out) const {
  if (code_out) *code_out = api::GLUE_FAILED;
  const api::GuidInfo* guid;
  if (Status s = find(node, &guid); !s.ok()) return s;
  Params params(node, *guid);
  Attempt a(node.inputs.size(), node.outputs.size());
  api::GlueCodeReturn code = api::GLUE_FAILED;
  int tries = 0;
  while (tries < kMaxTries) {
    if (tries > 0) a.reset(a.in.auxiliaryTensorNr);
    code = instantiate_(&params.p, &a.in);
    ++tries;
    if (code_out) *code_out = code;
    if (!a.intact()) return refuse(node, "the kernel library wrote behind the end of a buffer");
    if (code == api::GLUE_INSUFFICIENT_AUX_BUFFER_SIZE) {
      if (a.in.auxiliaryTensorNr > kMaxAuxTensors) return refuse(node, "more than 16 auxiliary tensors");
      if (!a.grow_aux()) return refuse(node, "auxiliary buffers are too small, but no other size is asked for");
    } else if (code == api::GLUE_INSUFFICIENT_ELF_BUFFER) {
      a.elf.resize(a.in.kernel.elfSize);
    } else {
      break;
    }
  }
  if (code != api::GLUE_SUCCESS) return answered(node, "InstantiateTpcKernel", code);
  if (Status s = check_index_space(node, a.in); !s.ok()) return s;
  if (Status s = check_patterns(node, a.in); !s.ok()) return s;
  if (a.in.kernel.elfSize == 0 || a.in.kernel.elfSize > a.elf.size()) return refuse(node, "no kernel was handed over");

  Instance result;
  for (uint32_t i = 0; i < a.in.auxiliaryTensorNr; ++i) {
    Instance::Aux aux;
    if (Status s = take_aux(node, a.aux[i], a.aux_buffers[i], &aux); !s.ok()) return s;
    result.aux.push_back(std::move(aux));
  }
  result.node = node;
  result.elf = a.elf.take(a.in.kernel.elfSize);
  result.index_space.assign(a.in.indexSpaceGeometry, a.in.indexSpaceGeometry + a.in.indexSpaceRank);
  result.scalars.assign(a.in.kernel.scalarParams, a.in.kernel.scalarParams + a.in.kernel.paramsNr);
  result.tries = tries;
  *out = std::move(result);
  return {};
}

}  // namespace mxk::tpc
