// SPDX-License-Identifier: Apache-2.0
//
// Layers of a checkpoint as the commands see them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ckpt/ckpt.h"
#include "cli.h"

namespace mxk::cli {

// Opens it and passes its warnings on to stderr.
std::unique_ptr<ckpt::Checkpoint> open_checkpoint(const std::string& path);

// "0, 1, 3-35".
std::string list_layers(const ckpt::Checkpoint& checkpoint);

// Layer `index`, or the only one if index < 0. Usage errors that list what there is.
const ckpt::LayerInfo& pick_layer(const ckpt::Checkpoint& checkpoint, int index);

// Packed weights and scales of one expert.
uint64_t expert_bytes(int K, int I);

// What `run`, `check` and `bench` demand of a layer: biases only where the variant has them. Warns when the rows are in
// another order than the variant reads.
void require_readable(const Variant& variant, const ckpt::LayerInfo& layer, const std::string& path);

// Does the variant fit the layer? Semantics that contradict it (row order, biases), then the limits of check(); a rank
// may hold fewer experts than the layer has. The activation is in no checkpoint, so several variants may fit.
Status covers(const Variant& variant, const ckpt::LayerInfo& layer);

}  // namespace mxk::cli
