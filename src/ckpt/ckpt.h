// SPDX-License-Identifier: Apache-2.0
//
// Checkpoints, reading side: which MoE layers a safetensors file or checkpoint directory holds, and views of their
// packed bytes in the served layout.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ckpt/layers.h"
#include "ckpt/safetensors.h"
#include "mxk/types.h"

namespace mxk::ckpt {

// One layer in the served layout. `weights` points into the mapped file for gptoss_hf and fused; per_expert tensors
// are gathered into `owned` once (rows in the order asked for); biases are widened to f32 once. Moves, but does not
// copy: `weights` may point into the members.
struct Layer {
  LayerInfo info{};
  int first_expert = 0;  // global id of weights' expert 0
  int experts = 0;       // experts viewed
  Weights weights;
  std::vector<uint8_t> owned;
  std::vector<float> b13, b2;
  bool zero_copy() const { return owned.empty(); }

  Layer() = default;
  Layer(Layer&&) = default;
  Layer& operator=(Layer&&) = default;
};

class Checkpoint {
 public:
  // A .safetensors file, or a directory (model.safetensors.index.json, or any *.safetensors in it). Errors: io,
  // corrupt_file. A checkpoint without a single usable layer opens; warnings() says why.
  static Status open(const std::string& path, std::unique_ptr<Checkpoint>* out);
  Checkpoint(const Checkpoint&) = delete;
  Checkpoint& operator=(const Checkpoint&) = delete;

  const std::vector<LayerInfo>& layers() const { return layers_; }  // ascending index
  const std::string& path() const { return path_; }
  const std::vector<std::string>& warnings() const { return warnings_; }
  size_t tensor_count() const;
  uint64_t tensor_bytes() const;

  // Layer `index` (a LayerInfo::index), experts [first, first + count); count < 0: all from `first` on. `rows` is the
  // order wanted for per_expert sources; the other formats are as they are on disk. The Checkpoint must outlive *out.
  // Errors: bad_argument (no such layer, expert range), corrupt_file (missing or misshapen tensor, by name; a file cut
  // short since open), out_of_memory.
  Status load(int index, Rows rows, int first, int count, Layer* out) const;

 private:
  Checkpoint() = default;
  std::string path_;
  std::vector<SafeTensors> files_;
  std::vector<FoundLayer> found_;  // the usable ones, beside layers_; then those with a problem
  std::vector<LayerInfo> layers_;
  std::vector<std::string> warnings_;
};

}  // namespace mxk::ckpt
