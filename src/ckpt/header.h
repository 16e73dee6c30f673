// SPDX-License-Identifier: Apache-2.0
//
// The JSON header of a safetensors file and every rule about it, shared by the reader and the writer.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ckpt/safetensors.h"

namespace mxk::ckpt {

// Bounds on what a file can make the reader allocate. Real headers reach 15 MB and 140,000 tensors.
inline constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the limit of the format itself
inline constexpr size_t kMaxTensors = 1'000'000;
inline constexpr size_t kMaxMetadata = 65'536;
inline constexpr size_t kMaxRank = 8;

struct Header {
  struct Entry {
    Tensor tensor;        // data and bytes are not set
    uint64_t begin, end;  // in the data that follows the header
  };
  std::vector<Entry> entries;  // ascending offset
  std::vector<std::pair<std::string, std::string>> metadata;
};

// Both return what is wrong, naming tensor, limit and value, or an empty string.
std::string parse_header(std::string_view json, uint64_t data_bytes, Header* out);
std::string byte_size(Type type, const std::vector<int64_t>& shape, uint64_t* bytes);

std::string describe(Type type, const std::vector<int64_t>& shape);  // "U8 [4, 2]"

}  // namespace mxk::ckpt
