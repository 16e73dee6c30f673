// SPDX-License-Identifier: Apache-2.0
//
// Finds the MXFP4 expert layers among the tensors of a checkpoint, by name, type and shape.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ckpt/safetensors.h"

namespace mxk::ckpt {

enum class Format {
  gptoss_hf,   // ...mlp.experts.gate_up_proj_blocks/_scales/_bias, down_proj_*   (interleaved rows)
  fused,       // <prefix>w13_weight, w13_weight_scale, w2_weight, w2_weight_scale [, w13_bias, w2_bias]
  per_expert,  // ...experts.<e>.{gate,up,down}_proj.weight + .weight_scale       (one tensor per expert and projection)
};
const char* to_string(Format);

struct LayerInfo {
  Format format;
  std::string prefix;  // what precedes the tensor's own name
  int index;           // layer number in the model; 0 when the names carry none
  int E, K, I;
  bool bias;
};

// One tensor of a layer. Slots of gptoss_hf and fused: w13, s13, w2, s2, b13, b2. Slots of per_expert: weight and scale
// of gate, of up, of down.
struct Part {
  int expert;  // 0 where one tensor holds them all
  int slot;
  uint32_t file;
  const Tensor* tensor;
};

struct FoundLayer {
  LayerInfo info{};
  std::vector<Part> parts;  // ascending (expert, slot), all present unless there is a problem
  std::string problem;      // why the layer cannot be used; empty if it can
};

// Every group of tensors that holds 4-bit expert weights or their scales, ascending index; experts of other types
// (BF16, FP8) are left out. Where two usable layers claim one index, the later prefix becomes a problem.
std::vector<FoundLayer> find_layers(std::span<const SafeTensors> files);

}  // namespace mxk::ckpt
