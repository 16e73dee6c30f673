// SPDX-License-Identifier: Apache-2.0
//
// The weights that check and bench run on: one layer of a checkpoint or of a seed, and copies of it in huge pages.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ckpt/ckpt.h"
#include "core/pool.h"
#include "problem.h"

namespace mxk::cli {

struct SourceOptions {
  std::string variant, checkpoint;
  int layer = -1;   // of the checkpoint; default: its first
  int e_local = 0;  // default: all of the checkpoint's, or the variant's local experts
  uint64_t seed = 1;
};
void add_source(CLI::App* app, SourceOptions* options);

// The experts of one rank of a layer.
class Source {
 public:
  explicit Source(const SourceOptions& options);

  const Variant& variant() const { return *variant_; }
  const Space& space() const { return space_; }
  int K() const { return space_.K; }
  int I() const { return I_; }
  uint64_t seed() const { return seed_; }
  uint64_t expert_bytes() const;  // packed weights and scales
  std::string describe() const;   // "random weights, seed 1" or checkpoint and layer
  Json to_json() const;

  Shape shape(int T) const { return {T, space_.k, space_.E, space_.K, I_}; }
  Call call(const Weights& weights, const Batch& batch, void* y, Dtype dtype) const;
  int64_t rows(int T) const { return int64_t{T} * (variant_->per_route ? space_.k : 1); }  // of y, K wide

  const Weights* mapped() const { return checkpoint_ ? &layer_.weights : nullptr; }  // in the file, where there is one
  const float* b13() const { return b13_; }
  const float* b2() const { return b2_; }
  void fill(int expert, const Weights& at) const;  // writes the expert's bytes into a layer-sized place

 private:
  const Variant* variant_;
  Space space_;
  int I_;
  uint64_t seed_;
  std::unique_ptr<ckpt::Checkpoint> checkpoint_;
  ckpt::Layer layer_;
  std::string path_;
  std::vector<float> random_b13_, random_b2_;
  const float *b13_ = nullptr, *b2_ = nullptr;
};

// Copies of the layer, each at its own address, in memory that asks for huge pages. Only the experts that were added
// take memory.
class Copies {
 public:
  Copies(const Source& source, int copies);
  ~Copies();
  Copies(const Copies&) = delete;
  Copies& operator=(const Copies&) = delete;

  Weights at(int copy) const;
  void add(int copy, int expert) { wanted_[static_cast<size_t>(copy) * source_.space().E + expert] = true; }
  uint64_t bytes() const;       // memory that the added experts take, in whole huge pages
  void fill(ThreadPool& pool);  // fails, saying so, if they do not fit into available memory

 private:
  const Source& source_;
  int copies_;
  uint64_t layer_bytes_;
  uint64_t mapped_;
  uint8_t* memory_;
  std::vector<bool> wanted_;
};

}  // namespace mxk::cli
