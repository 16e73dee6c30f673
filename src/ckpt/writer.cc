// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "ckpt/file.h"
#include "ckpt/header.h"
#include "ckpt/safetensors.h"

namespace mxk::ckpt {
namespace {

Status refused(const std::string& path, const std::string& why) {
  return error(Code::bad_argument, fmt::format("{}: {}; nothing is written", printable(path, 1000), why));
}

// A JSON string literal; throws nlohmann's type_error on invalid UTF-8.
std::string json_string(const std::string& text) { return nlohmann::json(text).dump(); }

// `sizes` gets the bytes of each tensor; returns what is wrong.
std::string build_header(const std::vector<TensorSpec>& tensors,
                         const std::vector<std::pair<std::string, std::string>>& metadata, std::string* json,
                         std::vector<uint64_t>* sizes) {
  std::string& out = *json;
  out = "{";
  if (!metadata.empty()) {
    out += "\"__metadata__\":{";
    for (const auto& [key, value] : metadata) out += json_string(key) + ":" + json_string(value) + ",";
    out.back() = '}';
    out += ',';
  }
  uint64_t at = 0;
  for (const TensorSpec& t : tensors) {
    uint64_t bytes;
    std::string why = byte_size(t.type, t.shape, &bytes);
    if (why.empty() && __builtin_add_overflow(at, bytes, &bytes)) why = "the data overflows 64 bits";
    if (!why.empty()) return "tensor '" + printable(t.name) + "': " + why;
    out += fmt::format("{}:{{\"dtype\":\"{}\",\"shape\":{},\"data_offsets\":[{},{}]}},", json_string(t.name),
                       to_string(t.type), nlohmann::json(t.shape).dump(), at, bytes);
    sizes->push_back(bytes - at);
    at = bytes;
  }
  if (out.size() > 1) out.pop_back();
  out += '}';
  out.resize((out.size() + 7) / 8 * 8, ' ');
  if (out.size() > kMaxHeaderBytes)
    return fmt::format("header size {} exceeds the limit of {}", out.size(), kMaxHeaderBytes);
  Header header;  // the reader's own rules: duplicate names, ranks, counts
  return parse_header(out, at, &header);
}

}  // namespace

Status write_safetensors(const std::string& path, const std::vector<TensorSpec>& tensors,
                         const std::vector<std::pair<std::string, std::string>>& metadata, Fill fill, void* context) {
  std::string json;
  std::vector<uint64_t> sizes;
  try {
    if (std::string why = build_header(tensors, metadata, &json, &sizes); !why.empty()) return refused(path, why);
  } catch (const nlohmann::json::exception&) {
    return refused(path, "a name or metadata text is not valid UTF-8");
  }
  OutputFile file;
  if (Status s = file.create(path); !s.ok()) return s;
  uint8_t first8[8];
  for (int i = 0; i < 8; ++i) first8[i] = static_cast<uint8_t>(json.size() >> (8 * i));
  if (Status s = file.write(first8); !s.ok()) return s;
  if (Status s = file.write({reinterpret_cast<const uint8_t*>(json.data()), json.size()}); !s.ok()) return s;

  const uint64_t largest = sizes.empty() ? 0 : *std::max_element(sizes.begin(), sizes.end());
  std::vector<uint8_t> buffer(std::min<uint64_t>(largest, kFillBytes));
  for (size_t i = 0; i < sizes.size(); ++i) {
    for (uint64_t at = 0; at < sizes[i]; at += buffer.size()) {
      const std::span<uint8_t> piece(buffer.data(), std::min<uint64_t>(buffer.size(), sizes[i] - at));
      if (Status s = fill(context, i, at, piece); !s.ok()) return s;
      if (Status s = file.write(piece); !s.ok()) return s;
    }
  }
  return file.commit();
}

}  // namespace mxk::ckpt
