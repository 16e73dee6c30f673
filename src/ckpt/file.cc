// SPDX-License-Identifier: Apache-2.0
#include "ckpt/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <system_error>
#include <utility>

namespace mxk::ckpt {
namespace {

constexpr std::string_view kNotRead = "the file is not read";
constexpr std::string_view kNotWritten = "the file is not written";
constexpr size_t kMaxTransfer = size_t{1} << 30;  // Linux moves at most 2 GiB - 4 KiB a call

// "a/b/" of "a/b/c", nothing of "c".
std::string directory_part(const std::string& path) { return path.substr(0, path.rfind('/') + 1); }

}  // namespace

std::string printable(std::string_view text, size_t limit) {
  std::string out;
  for (const char c : text) {
    if (out.size() >= limit) return out + "...";
    if (c >= 0x20 && c < 0x7F)
      out += c;
    else
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  }
  return out;
}

Status os_error(const std::string& path, std::string_view what, int number, std::string_view after) {
  return error(Code::io, fmt::format("{}: cannot {}: {}; {}", printable(path, 1000), what,
                                     std::generic_category().message(number), after));
}

Status InputFile::open(const std::string& path, std::shared_ptr<InputFile>* out) {
  // O_NONBLOCK: opening a FIFO must return at once; it changes nothing for regular files.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return os_error(path, "open", errno, kNotRead);
  std::shared_ptr<InputFile> file(new InputFile(path, fd, 0));  // closes fd on every return below
  struct stat st;
  if (fstat(fd, &st) != 0) return os_error(path, "stat", errno, kNotRead);
  if (!S_ISREG(st.st_mode))
    return error(Code::io,
                 fmt::format("{}: {}, not a regular file; {}", printable(path, 1000),
                             S_ISDIR(st.st_mode) ? "is a directory" : "is a pipe, socket or device", kNotRead));
  file->size_ = static_cast<uint64_t>(st.st_size);
  *out = std::move(file);
  return {};
}

InputFile::~InputFile() {
  if (data_) munmap(const_cast<uint8_t*>(data_), size_);
  close(fd_);
}

Status InputFile::read(uint64_t offset, std::span<uint8_t> out) const {
  while (!out.empty()) {
    const ssize_t n = pread(fd_, out.data(), std::min(out.size(), kMaxTransfer), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return os_error(path_, fmt::format("read {} bytes at {}", out.size(), offset), errno, kNotRead);
    if (n == 0)
      return error(Code::corrupt_file, fmt::format("{}: ends at byte {} but had {} bytes when opened; {}",
                                                   printable(path_, 1000), offset, size_, kNotRead));
    offset += static_cast<uint64_t>(n);
    out = out.subspan(static_cast<size_t>(n));
  }
  return {};
}

Status InputFile::map() {
  if (data_ || size_ == 0) return {};
  void* p = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, fd_, 0);
  if (p == MAP_FAILED) return os_error(path_, fmt::format("map {} bytes", size_), errno, kNotRead);
  data_ = static_cast<const uint8_t*>(p);
  return {};
}

Status InputFile::intact() const {
  struct stat st;
  if (fstat(fd_, &st) != 0) return os_error(path_, "stat", errno, "its data is not used");
  if (const auto now = static_cast<uint64_t>(st.st_size); now != size_)
    return error(Code::corrupt_file, fmt::format("{}: was {} bytes when opened and is {} now; its data is not used",
                                                 printable(path_, 1000), size_, now));
  return {};
}

Status read_file(const std::string& path, uint64_t limit, std::string* out) {
  std::shared_ptr<InputFile> file;
  if (Status s = InputFile::open(path, &file); !s.ok()) return s;
  if (file->size() > limit)
    return error(Code::corrupt_file, fmt::format("{}: {} bytes exceed the limit of {}; {}", printable(path, 1000),
                                                 file->size(), limit, kNotRead));
  out->resize(file->size());
  return file->read(0, {reinterpret_cast<uint8_t*>(out->data()), out->size()});
}

Status OutputFile::failed(std::string_view what, int number) const {
  return os_error(path_, what, number, kNotWritten);
}

Status OutputFile::create(const std::string& path) {
  path_ = path;
  struct stat st;
  // Renaming over a link, device or FIFO would replace it: a link is followed, the others are refused.
  if (lstat(path.c_str(), &st) == 0 && S_ISLNK(st.st_mode)) {
    char* target = realpath(path.c_str(), nullptr);
    if (!target) return failed("follow the link", errno);
    path_ = target;
    free(target);
  }
  if (stat(path_.c_str(), &st) == 0 && !S_ISREG(st.st_mode))
    return error(Code::io, fmt::format("{}: exists and is not a regular file; {}", printable(path, 1000), kNotWritten));
  static std::atomic<unsigned> counter{0};
  for (int attempt = 0; attempt < 100; ++attempt) {
    // A name of fixed length, so that every legal file name can be written.
    std::string name = fmt::format("{}.mxk-{}-{}.tmp", directory_part(path_), getpid(), counter++);
    fd_ = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd_ >= 0) {
      temporary_ = std::move(name);
      return {};
    }
    if (errno != EEXIST) break;
  }
  return failed("create a temporary file beside it", errno);
}

Status OutputFile::write(std::span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd_, bytes.data(), std::min(bytes.size(), kMaxTransfer));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return failed("write", n < 0 ? errno : ENOSPC);
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return {};
}

Status OutputFile::commit() {
  // The data must be on disk before the name is: otherwise a crash can leave the name with no data behind it.
  if (fsync(fd_) != 0) return failed("sync", errno);
  const int fd = std::exchange(fd_, -1);
  if (close(fd) != 0) return failed("close", errno);
  if (rename(temporary_.c_str(), path_.c_str()) != 0) return failed("rename the temporary file", errno);
  temporary_.clear();
  // Best effort: the file is complete under its name, only a crash right now could still undo the rename.
  const int directory = ::open((directory_part(path_) + ".").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory >= 0) {
    fsync(directory);
    close(directory);
  }
  return {};
}

OutputFile::~OutputFile() {
  if (fd_ >= 0) close(fd_);
  if (!temporary_.empty()) unlink(temporary_.c_str());
}

Status write_file(const std::string& path, std::string_view text) {
  OutputFile file;
  if (Status s = file.create(path); !s.ok()) return s;
  if (Status s = file.write({reinterpret_cast<const uint8_t*>(text.data()), text.size()}); !s.ok()) return s;
  return file.commit();
}

}  // namespace mxk::ckpt
