// SPDX-License-Identifier: Apache-2.0
//
// Fuzz target: bytes that pass as a safetensors file, searched for expert layers. What is found must be whole.
#include <cstdlib>
#include <vector>

#include "ckpt/layers.h"

using namespace mxk::ckpt;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::vector<SafeTensors> files(1);
  if (!SafeTensors::parse(data, size, "fuzz", &files[0]).ok()) return 0;
  for (const auto& layer : find_layers(files)) {
    if (!layer.problem.empty()) continue;
    if (layer.info.E < 1 || layer.info.K < 32 || layer.info.I < 32) abort();
    const size_t parts = layer.parts.size(), biases = layer.info.bias ? 2 : 0;
    if (layer.info.format == Format::per_expert ? parts != size_t(layer.info.E) * 6
                                                : parts > 4 + biases || parts < 4 + (biases ? 1 : 0))
      abort();
    for (const auto& part : layer.parts)
      if (part.tensor->bytes == 0) abort();
  }
  return 0;
}
