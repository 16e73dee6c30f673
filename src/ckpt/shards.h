// SPDX-License-Identifier: Apache-2.0
//
// The files that make up a checkpoint directory, and whether they agree with its index.
#pragma once

#include <string>
#include <vector>

#include "ckpt/safetensors.h"

namespace mxk::ckpt {

inline constexpr const char* kIndexName = "model.safetensors.index.json";

// Opens the shards that `directory`/model.safetensors.index.json lists, or without one every *.safetensors file.
// Errors: those of SafeTensors::open; corrupt_file where index and shards disagree on a name, a tensor is in two
// shards, or the index names anything but a file of the directory; bad_argument if there is no shard. Differences that
// leave every tensor readable are `warnings`.
Status open_shards(const std::string& directory, std::vector<SafeTensors>* files, std::vector<std::string>* warnings);

}  // namespace mxk::ckpt
