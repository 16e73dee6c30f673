// SPDX-License-Identifier: Apache-2.0
//
// Small checkpoint files for tests: a directory that goes away, and safetensors images built by hand so that they can
// be wrong in every way.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ckpt/safetensors.h"

namespace mxk::ckpt {

class TempDir {
 public:
  TempDir() {
    static std::atomic<int> counter{0};
    path_ = std::filesystem::temp_directory_path() /
            ("mxk_ckpt_" + std::to_string(getpid()) + "_" + std::to_string(counter++));
    std::filesystem::create_directories(path_);
  }
  ~TempDir() {
    std::error_code ec;
    std::filesystem::remove_all(path_, ec);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  std::string operator/(std::string_view name) const { return (path_ / name).string(); }
  std::string path() const { return path_.string(); }
  size_t entries() const {
    return static_cast<size_t>(
        std::distance(std::filesystem::directory_iterator(path_), std::filesystem::directory_iterator()));
  }

 private:
  std::filesystem::path path_;
};

inline void write_bytes(const std::string& path, std::string_view bytes) {
  std::remove(path.c_str());  // a truncated file would be flushed to disk on close
  std::ofstream(path, std::ios::binary | std::ios::trunc)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

inline std::string read_bytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// The file image: header size, header, data.
inline std::string image(std::string_view json, std::string_view data, uint64_t header_size) {
  std::string out;
  for (int i = 0; i < 8; ++i) out += static_cast<char>(header_size >> (8 * i));
  return out.append(json).append(data);
}
inline std::string image(std::string_view json, std::string_view data = {}) { return image(json, data, json.size()); }

// A tensor with its bytes.
struct Item {
  TensorSpec spec;
  std::string data;
};

// A file of the items, in order; `pad` spaces end the header, to give the data any alignment.
inline std::string image(const std::vector<Item>& items, int pad = 0) {
  std::string json = "{", data;
  for (const Item& i : items) {
    json +=
        (json.size() > 1 ? ",\"" : "\"") + i.spec.name + "\":{\"dtype\":\"" + to_string(i.spec.type) + "\",\"shape\":[";
    for (size_t d = 0; d < i.spec.shape.size(); ++d) json += (d ? "," : "") + std::to_string(i.spec.shape[d]);
    json += "],\"data_offsets\":[" + std::to_string(data.size()) + ",";
    data += i.data;
    json += std::to_string(data.size()) + "]}";
  }
  return image(json + "}" + std::string(static_cast<size_t>(pad), ' '), data);
}

// Parses a copy of exactly `bytes`, so that a sanitizer sees any read past the end.
struct Parsed {
  explicit Parsed(std::string_view bytes) : copy(new uint8_t[bytes.size()]) {
    std::memcpy(copy.get(), bytes.data(), bytes.size());
    status = SafeTensors::parse(copy.get(), bytes.size(), "mem", &st);
  }
  std::unique_ptr<uint8_t[]> copy;
  SafeTensors st;
  Status status;
};

// Reads the first and last byte of every tensor, as a user would.
inline int touch(const SafeTensors& st) {
  int sum = 0;
  for (const Tensor& t : st.tensors())
    if (t.bytes) sum += t.data[0] + t.data[t.bytes - 1];
  return sum;
}

inline void expect_error(const Status& s, Code code, std::string_view fragment) {
  EXPECT_EQ(s.code, code) << s.message;
  EXPECT_NE(s.message.find(fragment), std::string::npos) << "'" << s.message << "' lacks '" << fragment << "'";
}

}  // namespace mxk::ckpt
