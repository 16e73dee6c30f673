// SPDX-License-Identifier: Apache-2.0
//
// The safetensors container: u64 little-endian header size, JSON header, data. A bounded, validating reader over mmap
// and a writer that never leaves a half-written file.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mxk/types.h"

namespace mxk::ckpt {

// The element types of the format; names as in the header ("F8_E8M0").
enum class Type {
  BOOL,
  F4,
  F6_E2M3,
  F6_E3M2,
  U8,
  I8,
  F8_E5M2,
  F8_E4M3,
  F8_E8M0,
  F8_E4M3FNUZ,
  F8_E5M2FNUZ,
  I16,
  U16,
  F16,
  BF16,
  I32,
  U32,
  F32,
  C64,
  F64,
  I64,
  U64,
};
const char* to_string(Type);
int bits(Type);

struct Tensor {
  std::string name;
  Type type;
  std::vector<int64_t> shape;  // in elements; F4 packs two a byte
  const uint8_t* data;         // into the mapping; any alignment
  uint64_t bytes;
};

class InputFile;

class SafeTensors {
 public:
  // Validates every rule of the format, then maps the file read-only. The mapping itself is not touched here.
  // Errors: io (cannot open, not a regular file), corrupt_file (rule broken, with the tensor and the values).
  static Status open(const std::string& path, SafeTensors* out);
  // The same validation over a buffer the caller keeps alive; `label` names it in messages.
  static Status parse(const uint8_t* data, uint64_t size, const std::string& label, SafeTensors* out);

  const Tensor* find(std::string_view name) const;                 // null if absent
  const std::vector<Tensor>& tensors() const { return tensors_; }  // ascending data offset
  const std::vector<std::pair<std::string, std::string>>& metadata() const { return metadata_; }
  const std::string& path() const { return path_; }

  // corrupt_file if the file is not as long as it was at open. Call it before reading tensor data: a page past the end
  // of a file cut short is a SIGBUS. It narrows that window and does not close it; who replaces a checkpoint in use
  // must rename a new file over it, which leaves the mapping whole.
  Status intact() const;

 private:
  Status adopt(std::string_view header, uint64_t data_bytes);  // fills all but tensor data
  void place(const uint8_t* data);                             // points the tensors into their data
  std::string path_;
  std::shared_ptr<InputFile> file_;  // null for a buffer
  std::vector<Tensor> tensors_;      // by offset
  std::vector<uint32_t> by_name_;    // indices into tensors_, sorted by name
  std::vector<std::pair<std::string, std::string>> metadata_;
};

// What write_safetensors is given; `fill` produces the bytes [offset, offset + out.size()) of tensor i.
struct TensorSpec {
  std::string name;
  Type type;
  std::vector<int64_t> shape;
};
using Fill = Status (*)(void* context, size_t tensor, uint64_t offset, std::span<uint8_t> out);

// Writes to a temporary file beside `path`, then renames. Tensors keep the order given; the header is padded so that
// data starts at a multiple of 8. `fill` is asked for each tensor in order, in pieces of at most kFillBytes that start
// at multiples of it. Errors: io, bad_argument (what SafeTensors::open would refuse), those of `fill`.
inline constexpr size_t kFillBytes = size_t{8} << 20;
Status write_safetensors(const std::string& path, const std::vector<TensorSpec>& tensors,
                         const std::vector<std::pair<std::string, std::string>>& metadata, Fill fill, void* context);

}  // namespace mxk::ckpt
