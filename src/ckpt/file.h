// SPDX-License-Identifier: Apache-2.0
//
// The two ways the checkpoint code touches the disk: reading regular files only, and writing files that appear whole
// or not at all.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "mxk/types.h"

namespace mxk::ckpt {

// Text from a file made safe for a message: printable ASCII, the rest as \xNN, cut after `limit` characters.
std::string printable(std::string_view text, size_t limit = 200);

// "PATH: cannot WHAT: REASON; AFTER" with the reason of errno value `number`.
Status os_error(const std::string& path, std::string_view what, int number, std::string_view after);

// A regular file open for reading. Anything else (directory, FIFO, socket, device) is refused without blocking.
class InputFile {
 public:
  static Status open(const std::string& path, std::shared_ptr<InputFile>* out);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  uint64_t size() const { return size_; }
  // Fills `out` from `offset` or fails; a file cut short meanwhile is an error, not a signal.
  Status read(uint64_t offset, std::span<uint8_t> out) const;
  // Maps the whole file read-only; data() is null before.
  Status map();
  const uint8_t* data() const { return data_; }
  // Is the file still as long as it was when opened? See SafeTensors::intact.
  Status intact() const;

 private:
  InputFile(std::string path, int fd, uint64_t size) : path_(std::move(path)), fd_(fd), size_(size) {}
  std::string path_;
  int fd_;
  uint64_t size_;
  const uint8_t* data_ = nullptr;
};

// The whole of a regular file of at most `limit` bytes.
Status read_file(const std::string& path, uint64_t limit, std::string* out);

// A file under a temporary name beside `path` until commit() has synced and renamed it; the destructor removes what
// was not committed.
class OutputFile {
 public:
  OutputFile() = default;
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  Status create(const std::string& path);
  Status write(std::span<const uint8_t> bytes);
  Status commit();

 private:
  Status failed(std::string_view what, int number) const;
  std::string path_, temporary_;
  int fd_ = -1;
};

Status write_file(const std::string& path, std::string_view text);

}  // namespace mxk::ckpt
