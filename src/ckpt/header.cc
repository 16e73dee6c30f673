// SPDX-License-Identifier: Apache-2.0
#include "ckpt/header.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <tuple>

#include "ckpt/file.h"
#include "ckpt/json_reader.h"

namespace mxk::ckpt {
namespace {

struct TypeRow {
  const char* name;
  int bits;
};
constexpr TypeRow kTypes[] = {
    {"BOOL", 8},    {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6},     {"U8", 8},          {"I8", 8},
    {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I16", 16},
    {"U16", 16},    {"F16", 16},    {"BF16", 16},   {"I32", 32},        {"U32", 32},        {"F32", 32},
    {"C64", 64},    {"F64", 64},    {"I64", 64},    {"U64", 64},
};
static_assert(std::size(kTypes) == static_cast<size_t>(Type::U64) + 1);

std::string named(std::string_view name) { return "tensor '" + printable(name) + "'"; }

// Events of {"name": {"dtype": "U8", "shape": [..], "data_offsets": [begin, end]}, .., "__metadata__": {"k": "v"}}.
class HeaderReader final : public JsonReader {
 public:
  explicit HeaderReader(Header* out) : out_(*out) {}

 private:
  enum class At { start, root, tensor, metadata, shape, offsets };
  enum Field { dtype = 1, shape = 2, offsets = 4, all = 7 };

  Header::Entry& entry() { return out_.entries.back(); }
  bool refuse_tensor(const std::string& why) { return refuse(named(entry().tensor.name) + ": " + why); }
  bool unexpected(const std::string& what) {
    switch (at_) {
      case At::start: return refuse("is " + what + ", not an object");
      case At::root: return refuse(named(key_) + ": described by " + what + ", not an object");
      case At::tensor:
        return refuse_tensor(field_ == dtype ? "dtype is " + what + ", not a string"
                                             : fmt::format("{} is {}, not an array", field_name(), what));
      case At::metadata: return refuse("__metadata__ '" + printable(key_) + "' is " + what + ", not a string");
      case At::shape:
      case At::offsets:
        return refuse_tensor(fmt::format("{} holds {}, not an integer of 0 to 2^63-1", field_name(), what));
    }
    return false;
  }
  const char* field_name() const { return field_ == shape ? "shape" : "data_offsets"; }

  bool on_open(bool object) override {
    if (at_ == At::start && object) return at_ = At::root, true;
    if (at_ == At::root && object) return key_ == "__metadata__" ? open_metadata() : open_tensor();
    if (at_ == At::tensor && !object && field_ != dtype) return at_ = field_ == shape ? At::shape : At::offsets, true;
    return unexpected(object ? "an object" : "an array");
  }
  bool open_metadata() {
    if (metadata_seen_) return refuse("__metadata__ appears twice");
    metadata_seen_ = true;
    at_ = At::metadata;
    return true;
  }
  bool open_tensor() {
    if (out_.entries.size() == kMaxTensors) return refuse(fmt::format("lists more than {} tensors", kMaxTensors));
    out_.entries.push_back({{std::move(key_), Type::U8, {}, nullptr, 0}, 0, 0});
    seen_ = 0;
    at_ = At::tensor;
    return true;
  }
  bool on_close() override {
    if (at_ == At::offsets && offset_count_ != 2)
      return refuse_tensor(fmt::format("data_offsets holds {} numbers where 2 are needed", offset_count_));
    if (at_ == At::tensor && seen_ != all)
      return refuse_tensor(fmt::format("has no {}", !(seen_ & dtype)   ? "dtype"
                                                    : !(seen_ & shape) ? "shape"
                                                                       : "data_offsets"));
    at_ = at_ == At::shape || at_ == At::offsets ? At::tensor : At::root;
    return true;
  }
  bool on_key(std::string& key) override {
    if (key.find('\0') != std::string::npos) return refuse("name '" + printable(key) + "' holds a NUL character");
    if (at_ != At::tensor) {
      if (at_ == At::metadata && out_.metadata.size() == kMaxMetadata)
        return refuse(fmt::format("__metadata__ holds more than {} entries", kMaxMetadata));
      key_ = std::move(key);
      return true;
    }
    const int field = key == "dtype" ? dtype : key == "shape" ? shape : key == "data_offsets" ? offsets : 0;
    if (field == 0) {  // other readers ignore fields they do not know
      skip_value();
      return true;
    }
    if (seen_ & field) return refuse_tensor("field '" + key + "' appears twice");
    seen_ |= field;
    field_ = field;
    offset_count_ = 0;
    return true;
  }
  bool on_string(std::string& value) override {
    if (at_ == At::metadata) {
      out_.metadata.emplace_back(std::move(key_), std::move(value));
      return true;
    }
    if (at_ != At::tensor || field_ != dtype) return unexpected("a string");
    const auto* row =
        std::find_if(std::begin(kTypes), std::end(kTypes), [&](const TypeRow& r) { return r.name == value; });
    if (row == std::end(kTypes)) return refuse_tensor("dtype '" + printable(value) + "' is unknown");
    entry().tensor.type = static_cast<Type>(row - kTypes);
    return true;
  }
  bool on_unsigned(uint64_t value) override {
    if ((at_ != At::shape && at_ != At::offsets) || value > std::numeric_limits<int64_t>::max())
      return unexpected(std::to_string(value));
    if (at_ == At::shape) {
      std::vector<int64_t>& s = entry().tensor.shape;
      if (s.size() == kMaxRank) return refuse_tensor(fmt::format("shape has more than {} dimensions", kMaxRank));
      s.push_back(static_cast<int64_t>(value));
      return true;
    }
    if (offset_count_ == 2) return refuse_tensor("data_offsets holds more than 2 numbers");
    (offset_count_++ == 0 ? entry().begin : entry().end) = value;
    return true;
  }
  bool on_other(const std::string& what) override { return unexpected(what); }

  Header& out_;
  At at_ = At::start;
  std::string key_;
  int field_ = 0, seen_ = 0, offset_count_ = 0;
  bool metadata_seen_ = false;
};

// Two equal strings in a row of a sorted copy; null if all differ.
std::string duplicate(std::vector<std::string_view> names) {
  std::sort(names.begin(), names.end());
  const auto at = std::adjacent_find(names.begin(), names.end());
  return at == names.end() ? "" : "'" + printable(*at) + "' appears twice";
}

// Tensors must tile the data: no hole, no overlap, nothing after the last.
std::string check_layout(std::vector<Header::Entry>& entries, uint64_t data_bytes) {
  std::sort(entries.begin(), entries.end(), [](const Header::Entry& a, const Header::Entry& b) {
    return std::tie(a.begin, a.end, a.tensor.name) < std::tie(b.begin, b.end, b.tensor.name);
  });
  uint64_t at = 0;
  for (const auto& [t, begin, end] : entries) {
    const std::string where = fmt::format("{}: offsets [{}, {})", named(t.name), begin, end);
    if (end < begin) return where + " run backwards";
    if (begin != at)
      return fmt::format("{} leave {} where the previous tensor ends at {}", where,
                         begin > at ? "a hole" : "an overlap", at);
    if (end > data_bytes) return fmt::format("{} exceed the {} data bytes of the file", where, data_bytes);
    uint64_t need;
    if (std::string why = byte_size(t.type, t.shape, &need); !why.empty()) return named(t.name) + ": " + why;
    if (end - begin != need)
      return fmt::format("{} hold {} bytes but {} needs {}", where, end - begin, describe(t.type, t.shape), need);
    at = end;
  }
  if (at != data_bytes) return fmt::format("the tensors end at data byte {} but the file holds {}", at, data_bytes);
  return {};
}

}  // namespace

const char* to_string(Type type) { return kTypes[static_cast<size_t>(type)].name; }
int bits(Type type) { return kTypes[static_cast<size_t>(type)].bits; }

std::string describe(Type type, const std::vector<int64_t>& shape) {
  std::string out = fmt::format("{} [", to_string(type));
  for (size_t i = 0; i < shape.size(); ++i) out += fmt::format("{}{}", i ? ", " : "", shape[i]);
  return out + "]";
}

std::string byte_size(Type type, const std::vector<int64_t>& shape, uint64_t* bytes) {
  // A zero dimension does not excuse the others: code that multiplies them in any order must not overflow.
  uint64_t total = static_cast<uint64_t>(bits(type));
  bool empty = false;
  for (const int64_t d : shape) {
    if (d < 0) return fmt::format("shape holds {}, not an integer of 0 to 2^63-1", d);
    empty |= d == 0;
    if (__builtin_mul_overflow(total, static_cast<uint64_t>(d ? d : 1), &total))
      return describe(type, shape) + " overflows 64 bits";
  }
  if (empty) total = 0;
  if (total % 8) return fmt::format("{} is {} bits, not whole bytes", describe(type, shape), total);
  *bytes = total / 8;
  return {};
}

std::string parse_header(std::string_view json, uint64_t data_bytes, Header* out) {
  if (std::string why = HeaderReader(out).read(json); !why.empty())
    return why.starts_with("tensor ") ? why : "header " + why;
  std::vector<std::string_view> names;
  names.reserve(out->entries.size());
  for (const Header::Entry& e : out->entries) names.push_back(e.tensor.name);
  if (std::string why = duplicate(std::move(names)); !why.empty()) return "tensor " + why;
  std::vector<std::string_view> keys;
  for (const auto& [key, value] : out->metadata) keys.push_back(key);
  if (std::string why = duplicate(std::move(keys)); !why.empty()) return "header __metadata__ " + why;
  return check_layout(out->entries, data_bytes);
}

}  // namespace mxk::ckpt
