// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <new>
#include <utility>

#include "ckpt/ckpt.h"
#include "ckpt/file.h"
#include "ckpt/header.h"
#include "ckpt/shards.h"
#include "core/formats.h"

namespace mxk::ckpt {
namespace {

float f16_to_f32(uint16_t h) {
  const uint32_t exponent = h >> 10 & 31u, fraction = h & 0x3FFu;
  const float sign = h & 0x8000u ? -1.0f : 1.0f;
  if (exponent == 31) return std::bit_cast<float>(uint32_t{h & 0x8000u} << 16 | 0x7F800000u | fraction << 13);
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(fraction), -24);
  return sign * std::ldexp(static_cast<float>(fraction | 0x400u), static_cast<int>(exponent) - 25);
}

// Elements [first, first + out.size()) of a bias.
void widen(const Tensor& t, size_t first, std::vector<float>* out) {
  const size_t width = static_cast<size_t>(bits(t.type)) / 8;
  const uint8_t* p = t.data + first * width;
  for (float& f : *out) {
    if (t.type == Type::F32) {
      std::memcpy(&f, p, 4);
    } else {
      uint16_t h;
      std::memcpy(&h, p, 2);
      f = t.type == Type::BF16 ? bf16_to_f32(h) : f16_to_f32(h);
    }
    p += width;
  }
}

void append(std::vector<uint8_t>* to, const uint8_t* from, size_t n) { to->insert(to->end(), from, from + n); }

// gate and up of one expert, rows of `row_bytes` each, in the order asked for.
void append_pair(std::vector<uint8_t>* to, const Tensor& gate, const Tensor& up, Rows rows, size_t row_bytes) {
  if (rows == Rows::stacked) {
    append(to, gate.data, gate.bytes);
    append(to, up.data, up.bytes);
    return;
  }
  for (size_t at = 0; at < gate.bytes; at += row_bytes) {
    append(to, gate.data + at, row_bytes);
    append(to, up.data + at, row_bytes);
  }
}

void view(const FoundLayer& l, Layer* out) {
  const auto at = [&](int slot, size_t expert_bytes) {
    return l.parts[static_cast<size_t>(slot)].tensor->data + static_cast<size_t>(out->first_expert) * expert_bytes;
  };
  const size_t K = static_cast<size_t>(l.info.K), I = static_cast<size_t>(l.info.I);
  out->weights = {at(0, I * K), at(1, 2 * I * K / kGroup), at(2, K * I / 2), at(3, K * I / kGroup), nullptr, nullptr};
  if (!l.info.bias) return;
  const size_t first = static_cast<size_t>(out->first_expert), experts = static_cast<size_t>(out->experts);
  for (size_t i = 4; i < l.parts.size(); ++i) {  // either may be absent
    const bool of_w13 = l.parts[i].slot == 4;
    std::vector<float>& bias = of_w13 ? out->b13 : out->b2;
    const size_t width = of_w13 ? 2 * I : K;
    bias.resize(experts * width);
    widen(*l.parts[i].tensor, first * width, &bias);
    (of_w13 ? out->weights.b13 : out->weights.b2) = bias.data();
  }
}

void gather(const FoundLayer& l, Rows rows, Layer* out) {
  const size_t K = static_cast<size_t>(l.info.K), I = static_cast<size_t>(l.info.I);
  const size_t experts = static_cast<size_t>(out->experts);
  // In the order they are appended: w13, s13, w2, s2.
  const size_t sizes[4] = {experts * I * K, experts * 2 * I * K / kGroup, experts * K * I / 2,
                           experts * K * I / kGroup};
  std::vector<uint8_t>& bytes = out->owned;
  bytes.reserve(sizes[0] + sizes[1] + sizes[2] + sizes[3]);
  const Part* first = &l.parts[static_cast<size_t>(out->first_expert) * 6];
  const Part* end = first + experts * 6;
  for (const Part* p = first; p != end; p += 6) append_pair(&bytes, *p[0].tensor, *p[2].tensor, rows, K / 2);
  for (const Part* p = first; p != end; p += 6) append_pair(&bytes, *p[1].tensor, *p[3].tensor, rows, K / kGroup);
  for (int slot : {4, 5})
    for (const Part* p = first; p != end; p += 6) append(&bytes, p[slot].tensor->data, p[slot].tensor->bytes);
  const uint8_t* at = bytes.data();
  out->weights = {at, at + sizes[0], at + sizes[0] + sizes[1], at + sizes[0] + sizes[1] + sizes[2], nullptr, nullptr};
}

}  // namespace

Status Checkpoint::open(const std::string& path, std::unique_ptr<Checkpoint>* out) {
  std::unique_ptr<Checkpoint> c(new Checkpoint);
  c->path_ = path;
  struct stat st;
  if (stat(path.c_str(), &st) != 0) return os_error(path, "open", errno, "no checkpoint is read");
  if (S_ISDIR(st.st_mode)) {
    if (Status s = open_shards(path, &c->files_, &c->warnings_); !s.ok()) return s;
  } else {
    SafeTensors file;
    if (Status s = SafeTensors::open(path, &file); !s.ok()) return s;
    c->files_.push_back(std::move(file));
  }
  c->found_ = find_layers(c->files_);
  std::stable_partition(c->found_.begin(), c->found_.end(), [](const FoundLayer& l) { return l.problem.empty(); });
  for (const FoundLayer& l : c->found_) {
    const std::string name =
        l.info.index < 0 ? "layer '" + printable(l.info.prefix) + "'" : fmt::format("layer {}", l.info.index);
    if (!l.problem.empty()) {
      c->warnings_.push_back(fmt::format("{}: {}; it cannot be loaded", name, l.problem));
      continue;
    }
    c->layers_.push_back(l.info);
    const LayerInfo& a = c->layers_.front();
    if (l.info.E != a.E || l.info.K != a.K || l.info.I != a.I)
      c->warnings_.push_back(fmt::format("{}: E={} K={} I={} differ from E={} K={} I={} of layer {}", name, l.info.E,
                                         l.info.K, l.info.I, a.E, a.K, a.I, a.index));
  }
  *out = std::move(c);
  return {};
}

size_t Checkpoint::tensor_count() const {
  size_t n = 0;
  for (const SafeTensors& f : files_) n += f.tensors().size();
  return n;
}

uint64_t Checkpoint::tensor_bytes() const {
  uint64_t n = 0;
  for (const SafeTensors& f : files_)
    for (const Tensor& t : f.tensors()) n += t.bytes;
  return n;
}

Status Checkpoint::load(int index, Rows rows, int first, int count, Layer* out) const {
  *out = Layer();
  const auto layer =
      std::find_if(found_.begin(), found_.end(), [&](const FoundLayer& l) { return l.info.index == index; });
  const std::string label = printable(path_, 1000);
  if (layer == found_.end() || index < 0)
    return error(Code::bad_argument,
                 layers_.empty()
                     ? fmt::format("{}: holds no MXFP4 expert layer; nothing is loaded", label)
                     : fmt::format("{}: no MXFP4 expert layer {} among its {} layers {} to {}; nothing is loaded",
                                   label, index, layers_.size(), layers_.front().index, layers_.back().index));
  if (!layer->problem.empty())
    return error(Code::corrupt_file, fmt::format("{}: layer {}: {}; it is not loaded", label, index, layer->problem));
  const LayerInfo& info = layer->info;
  const int64_t experts = count < 0 ? int64_t{info.E} - first : count;
  if (first < 0 || experts < 1 || first + experts > info.E)
    return error(Code::bad_argument,
                 fmt::format("{}: layer {}: experts [{}, {}) are not in its [0, {}); nothing is loaded", label, index,
                             first, first + experts, info.E));
  uint32_t checked = UINT32_MAX;
  for (const Part& p : layer->parts)
    if (p.file != std::exchange(checked, p.file))
      if (Status s = files_[p.file].intact(); !s.ok()) return s;
  Layer l;
  l.info = info;
  l.first_expert = first;
  l.experts = static_cast<int>(experts);
  try {
    if (info.format == Format::per_expert)
      gather(*layer, rows, &l);
    else
      view(*layer, &l);
  } catch (const std::bad_alloc&) {
    return error(Code::out_of_memory, fmt::format("{}: layer {}: no memory for a copy of {} experts; it is not loaded",
                                                  label, index, experts));
  }
  *out = std::move(l);
  return {};
}

}  // namespace mxk::ckpt
