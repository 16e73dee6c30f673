// SPDX-License-Identifier: Apache-2.0
//
// Checkpoints and activations made from a seed: real layer shapes, plausible statistics, no download.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "mxk/types.h"

namespace mxk::ckpt {

struct SyntheticOptions {
  int layers = 1;
  int experts = 0;   // 0: the variant's local experts
  int K = 0, I = 0;  // 0: the variant's serving shape
  uint64_t seed = 1;
};

// Writes a checkpoint directory in the variant's public on-disk format: gptoss in the Hugging Face gpt-oss names
// (BF16 biases and router), the others in one tensor per expert and projection; one shard per layer. With config.json
// and model.safetensors.index.json. The directory must be absent or empty; a failure removes what was written. Same
// seed and options, same bytes. Errors: bad_argument, bad_shape, io.
Status make_checkpoint(const std::string& directory, const Variant&, const SyntheticOptions&);

// Deterministic fillers, the same on every machine: element i (a byte, or a bf16) depends on seed, stream and i only.
// `offset` is the i of out[0], and `stream` tells tensors apart. Codes: E2M1 pairs, all 16 codes alike. Scales: E8M0
// bytes 118 to 121, with which uniform codes have a standard deviation of 0.023, as trained experts do.
void fill_codes(uint64_t seed, uint64_t stream, uint64_t offset, std::span<uint8_t> out);
void fill_scales(uint64_t seed, uint64_t stream, uint64_t offset, std::span<uint8_t> out);
void fill_normal_bf16(uint64_t seed, uint64_t stream, uint64_t offset, float rms, std::span<uint16_t> out);

}  // namespace mxk::ckpt
