// SPDX-License-Identifier: Apache-2.0
#include "ckpt/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "ckpt/file.h"
#include "ckpt/header.h"

namespace mxk::ckpt {
namespace {

Status corrupt(const std::string& label, const std::string& why) {
  return error(Code::corrupt_file, fmt::format("{}: {}; the file is not read", printable(label, 1000), why));
}

// The size of the JSON header, from the first 8 bytes of a file of `size` bytes.
Status header_size(const std::string& label, const uint8_t* first8, uint64_t size, uint64_t* out) {
  uint64_t n = 0;
  for (int i = 7; i >= 0; --i) n = n << 8 | first8[i];
  if (n > kMaxHeaderBytes)
    return corrupt(label, fmt::format("header size {} exceeds the limit of {}", n, kMaxHeaderBytes));
  if (n > size - 8)
    return corrupt(label, fmt::format("header size {} exceeds the {} bytes that follow it", n, size - 8));
  *out = n;
  return {};
}

Status too_short(const std::string& label, uint64_t size) {
  return corrupt(label, fmt::format("{} bytes are too few for the header size, which takes 8", size));
}

}  // namespace

Status SafeTensors::adopt(std::string_view json, uint64_t data_bytes) {
  Header header;
  if (std::string why = parse_header(json, data_bytes, &header); !why.empty()) return corrupt(path_, why);
  tensors_.reserve(header.entries.size());
  for (auto& [tensor, begin, end] : header.entries) {
    tensor.bytes = end - begin;
    tensors_.push_back(std::move(tensor));
  }
  metadata_ = std::move(header.metadata);
  by_name_.resize(tensors_.size());
  std::iota(by_name_.begin(), by_name_.end(), 0u);
  std::sort(by_name_.begin(), by_name_.end(),
            [&](uint32_t a, uint32_t b) { return tensors_[a].name < tensors_[b].name; });
  return {};
}

void SafeTensors::place(const uint8_t* data) {
  for (Tensor& t : tensors_) {  // they tile the data in this order
    t.data = data;
    data += t.bytes;
  }
}

Status SafeTensors::parse(const uint8_t* data, uint64_t size, const std::string& label, SafeTensors* out) {
  SafeTensors st;
  st.path_ = label;
  if (size < 8) return too_short(label, size);
  uint64_t n;
  if (Status s = header_size(label, data, size, &n); !s.ok()) return s;
  if (Status s = st.adopt({reinterpret_cast<const char*>(data) + 8, n}, size - 8 - n); !s.ok()) return s;
  st.place(data + 8 + n);
  *out = std::move(st);
  return {};
}

Status SafeTensors::open(const std::string& path, SafeTensors* out) {
  SafeTensors st;
  st.path_ = path;
  if (Status s = InputFile::open(path, &st.file_); !s.ok()) return s;
  const uint64_t size = st.file_->size();
  if (size < 8) return too_short(path, size);
  uint8_t first8[8];
  if (Status s = st.file_->read(0, first8); !s.ok()) return s;
  uint64_t n;
  if (Status s = header_size(path, first8, size, &n); !s.ok()) return s;
  std::string json(n, '\0');
  if (Status s = st.file_->read(8, {reinterpret_cast<uint8_t*>(json.data()), json.size()}); !s.ok()) return s;
  if (Status s = st.adopt(json, size - 8 - n); !s.ok()) return s;
  if (Status s = st.file_->map(); !s.ok()) return s;
  st.place(st.file_->data() + 8 + n);
  *out = std::move(st);
  return {};
}

const Tensor* SafeTensors::find(std::string_view name) const {
  const auto at = std::lower_bound(by_name_.begin(), by_name_.end(), name,
                                   [&](uint32_t i, std::string_view n) { return tensors_[i].name < n; });
  return at != by_name_.end() && tensors_[*at].name == name ? &tensors_[*at] : nullptr;
}

Status SafeTensors::intact() const { return file_ ? file_->intact() : Status{}; }

}  // namespace mxk::ckpt
