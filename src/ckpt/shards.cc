// SPDX-License-Identifier: Apache-2.0
#include "ckpt/shards.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <map>
#include <optional>
#include <system_error>
#include <utility>

#include "ckpt/file.h"
#include "ckpt/header.h"
#include "ckpt/json_reader.h"

namespace mxk::ckpt {
namespace {

struct Index {
  struct Entry {
    std::string tensor;
    size_t file;
  };
  std::vector<Entry> entries;
  std::vector<std::string> files;  // in order of first mention
  std::optional<uint64_t> total_size;
};

bool plain_file_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.find_first_of(std::string_view("/\\\0", 3)) == name.npos;
}

// Events of {"metadata": {"total_size": n, ..}, "weight_map": {"tensor": "file", ..}}.
class IndexReader final : public JsonReader {
 public:
  explicit IndexReader(Index* out) : out_(*out) {}
  bool complete() const { return map_seen_; }

 private:
  enum class At { start, root, metadata, map };

  bool on_open(bool object) override {
    if (!object || at_ == At::metadata || at_ == At::map) return unexpected(object ? "an object" : "an array");
    at_ = at_ == At::start ? At::root : key_ == "weight_map" ? At::map : At::metadata;
    return true;
  }
  bool on_close() override {
    at_ = At::root;
    return true;
  }
  bool on_key(std::string& key) override {
    if (at_ == At::root) {
      if (key != "weight_map" && key != "metadata") skip_value();
      if (key == "weight_map" && std::exchange(map_seen_, true)) return refuse("holds two weight_maps");
    } else if (at_ == At::metadata && key != "total_size") {
      skip_value();
    }
    key_ = std::move(key);
    return true;
  }
  bool on_string(std::string& value) override {
    if (at_ != At::map) return on_other("a string");
    if (!plain_file_name(value))
      return refuse(fmt::format("maps tensor '{}' to '{}', not a plain file name", printable(key_), printable(value)));
    const auto [at, fresh] = ids_.try_emplace(value, out_.files.size());
    if (fresh) out_.files.push_back(std::move(value));
    out_.entries.push_back({std::move(key_), at->second});
    return true;
  }
  bool on_unsigned(uint64_t value) override {
    if (at_ != At::metadata) return on_other(std::to_string(value));
    out_.total_size = value;
    return true;
  }
  bool on_other(const std::string& what) override {
    return at_ == At::metadata || unexpected(what);  // a total_size nobody can compare, such as 1.5e9, is no harm
  }
  bool unexpected(const std::string& what) {
    if (at_ == At::start) return refuse("is " + what + ", not an object");
    return refuse("'" + printable(key_) + "' is " + what);
  }

  Index& out_;
  std::map<std::string, size_t> ids_;
  At at_ = At::start;
  std::string key_;
  bool map_seen_ = false;
};

Status corrupt(const std::string& path, const std::string& why) {
  return error(Code::corrupt_file, fmt::format("{}: {}; the checkpoint is not read", printable(path, 1000), why));
}

std::string join(const std::string& directory, const std::string& name) {
  return directory + (directory.ends_with('/') ? "" : "/") + name;
}

Status read_index(const std::string& path, Index* out) {
  std::string json;
  if (Status s = read_file(path, kMaxHeaderBytes, &json); !s.ok()) return s;
  IndexReader reader(out);
  if (std::string why = reader.read(json); !why.empty()) return corrupt(path, why);
  if (!reader.complete()) return corrupt(path, "has no weight_map");
  std::sort(out->entries.begin(), out->entries.end(),
            [](const Index::Entry& a, const Index::Entry& b) { return a.tensor < b.tensor; });
  const auto twice = std::adjacent_find(out->entries.begin(), out->entries.end(),
                                        [](const auto& a, const auto& b) { return a.tensor == b.tensor; });
  if (twice != out->entries.end()) return corrupt(path, "maps tensor '" + printable(twice->tensor) + "' twice");
  return {};
}

Status list_safetensors(const std::string& directory, std::vector<std::string>* names) {
  std::error_code ec;
  for (std::filesystem::directory_iterator it(directory, ec), end; !ec && it != end; it.increment(ec))
    if (std::string name = it->path().filename().string(); name.ends_with(".safetensors"))
      names->push_back(std::move(name));
  if (ec) return os_error(directory, "list the directory", ec.value(), "the checkpoint is not read");
  std::sort(names->begin(), names->end());
  return {};
}

// One line of the merged table of contents, ascending name.
struct Held {
  std::string_view tensor;
  size_t file;
};

Status contents(const std::vector<SafeTensors>& files, std::vector<Held>* out) {
  for (size_t f = 0; f < files.size(); ++f)
    for (const Tensor& t : files[f].tensors()) out->push_back({t.name, f});
  std::sort(out->begin(), out->end(), [](const Held& a, const Held& b) { return a.tensor < b.tensor; });
  const auto twice =
      std::adjacent_find(out->begin(), out->end(), [](const Held& a, const Held& b) { return a.tensor == b.tensor; });
  if (twice == out->end()) return {};
  return corrupt(files[twice[0].file].path(), fmt::format("tensor '{}' is in '{}' too", printable(twice->tensor),
                                                          printable(files[twice[1].file].path(), 1000)));
}

// Both sides ascend by name and hold no name twice.
Status compare(const std::string& path, const Index& index, const std::vector<Held>& held) {
  size_t i = 0;
  for (const Index::Entry& e : index.entries) {
    if (i < held.size() && held[i].tensor < e.tensor) break;
    if (i == held.size() || held[i].tensor != e.tensor || held[i].file != e.file)
      return corrupt(path, fmt::format("tensor '{}' is not in '{}', where the index has it", printable(e.tensor),
                                       printable(index.files[e.file])));
    ++i;
  }
  if (i < held.size())
    return corrupt(path, fmt::format("tensor '{}' of '{}' is not in the index", printable(held[i].tensor),
                                     printable(index.files[held[i].file])));
  return {};
}

}  // namespace

Status open_shards(const std::string& directory, std::vector<SafeTensors>* files, std::vector<std::string>* warnings) {
  std::vector<std::string> on_disk;
  if (Status s = list_safetensors(directory, &on_disk); !s.ok()) return s;
  const std::string index_path = join(directory, kIndexName);
  struct stat st;
  // lstat: a dangling link is a broken index, not a missing one.
  const bool indexed = lstat(index_path.c_str(), &st) == 0;
  if (!indexed && errno != ENOENT) return os_error(index_path, "stat", errno, "the checkpoint is not read");
  Index index;
  if (indexed) {
    if (Status s = read_index(index_path, &index); !s.ok()) return s;
  } else {
    index.files = on_disk;
  }
  if (index.files.empty())
    return error(Code::bad_argument,
                 fmt::format("{}: no {}; nothing is read", printable(directory, 1000),
                             indexed ? "tensor in its index" : "safetensors file in this directory"));
  for (const std::string& name : index.files) {
    SafeTensors file;
    if (Status s = SafeTensors::open(join(directory, name), &file); !s.ok()) return s;
    files->push_back(std::move(file));
  }
  std::vector<Held> held;
  if (Status s = contents(*files, &held); !s.ok()) return s;
  if (!indexed) return {};
  if (Status s = compare(index_path, index, held); !s.ok()) return s;

  uint64_t total = 0;
  for (const SafeTensors& f : *files)
    for (const Tensor& t : f.tensors()) total += t.bytes;
  if (index.total_size && *index.total_size != total)
    warnings->push_back(fmt::format("{}: total_size is {} but the tensors take {} bytes", printable(index_path, 1000),
                                    *index.total_size, total));
  for (const std::string& name : on_disk)
    if (std::find(index.files.begin(), index.files.end(), name) == index.files.end())
      warnings->push_back(fmt::format("{}: not in the index and not read", printable(join(directory, name), 1000)));
  return {};
}

}  // namespace mxk::ckpt
