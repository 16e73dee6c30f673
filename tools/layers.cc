// SPDX-License-Identifier: Apache-2.0
#include "layers.h"

#include <algorithm>

namespace mxk::cli {

std::unique_ptr<ckpt::Checkpoint> open_checkpoint(const std::string& path) {
  std::unique_ptr<ckpt::Checkpoint> checkpoint;
  require(ckpt::Checkpoint::open(path, &checkpoint));
  for (const std::string& w : checkpoint->warnings()) warn(w);
  return checkpoint;
}

std::string list_layers(const ckpt::Checkpoint& checkpoint) {
  std::string text;
  const auto& layers = checkpoint.layers();
  for (size_t i = 0; i < layers.size();) {
    size_t j = i;
    while (j + 1 < layers.size() && layers[j + 1].index == layers[j].index + 1) ++j;
    text += text.empty() ? "" : ", ";
    text += i == j ? fmt::format("{}", layers[i].index) : fmt::format("{}-{}", layers[i].index, layers[j].index);
    i = j + 1;
  }
  return text;
}

const ckpt::LayerInfo& pick_layer(const ckpt::Checkpoint& checkpoint, int index) {
  const auto& layers = checkpoint.layers();
  if (layers.empty()) fail("{}: no MXFP4 mixture-of-experts layer in it", checkpoint.path());
  if (index < 0) {
    if (layers.size() > 1) usage("{}: several layers ({}); name one", checkpoint.path(), list_layers(checkpoint));
    return layers.front();
  }
  const auto at = std::find_if(layers.begin(), layers.end(), [&](const auto& l) { return l.index == index; });
  if (at == layers.end()) usage("{}: no layer {} (it has {})", checkpoint.path(), index, list_layers(checkpoint));
  return *at;
}

uint64_t expert_bytes(int K, int I) { return uint64_t{3} * K * I * 17 / 32; }

bool other_row_order(const Variant& v, const ckpt::LayerInfo& layer) {
  return layer.format == ckpt::Format::gptoss_hf && v.rows != Rows::interleaved;
}

void require_readable(const Variant& v, const ckpt::LayerInfo& layer, const std::string& path) {
  if (layer.bias && !v.bias)
    fail("{}: layer {} has biases but variant '{}' takes none; nothing was computed", path, layer.index, v.name);
  if (other_row_order(v, layer))
    warn(fmt::format("{}: gpt-oss tensors hold gate and up rows interleaved; variant '{}' reads them as stacked", path,
                     v.name));
}

Status covers(const Variant& v, const ckpt::LayerInfo& layer) {
  if (layer.bias && !v.bias)
    return error(Code::bad_argument, fmt::format("{}: takes no biases but the layer has them", v.name));
  if (other_row_order(v, layer))
    return error(Code::bad_argument,
                 fmt::format("{}: wants stacked gate and up rows but the layer's are interleaved", v.name));
  return check(v, {1, v.serving.top_k, std::min(layer.E, v.limits.experts), layer.K, layer.I});
}

}  // namespace mxk::cli
