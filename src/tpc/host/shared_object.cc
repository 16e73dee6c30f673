// SPDX-License-Identifier: Apache-2.0
#include "tpc/host/shared_object.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace mxk::tpc {
namespace {

Status cannot_load(const std::string& what, const char* why) {
  return error(Code::io, what + " cannot be loaded: " + (why ? why : "unknown reason") + "; nothing of it can be used");
}

std::string name_of(int fd) { return "/proc/self/fd/" + std::to_string(fd); }

}  // namespace

Status SharedObject::open(const std::string& path, std::shared_ptr<SharedObject>* out) {
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) return cannot_load(path, dlerror());
  out->reset(new SharedObject(handle, -1));
  return {};
}

Status SharedObject::open(std::span<const uint8_t> bytes, const std::string& what, std::shared_ptr<SharedObject>* out) {
  const int fd = memfd_create("mxk", MFD_CLOEXEC);
  if (fd < 0) return cannot_load(what, std::strerror(errno));
  void* handle = nullptr;
  std::string why;
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = write(fd, bytes.data() + done, bytes.size() - done);
    if (n > 0) {
      done += static_cast<size_t>(n);
    } else if (errno != EINTR) {
      why = std::strerror(errno);
      break;
    }
  }
  if (done == bytes.size()) {
    handle = dlopen(name_of(fd).c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
      const char* message = dlerror();
      why = message ? message : "dlopen failed";
    }
  }
  if (!handle) {
    close(fd);
    return cannot_load(what, why.c_str());
  }
  out->reset(new SharedObject(handle, fd));
  return {};
}

// The loader knows an object by its name, and the name of one in memory is the number of its file. Some objects stay
// loaded for good (those with unique symbols of C++ do); their number must not come to stand for another one.
SharedObject::~SharedObject() {
  dlclose(handle_);
  if (fd_ < 0) return;
  if (void* still = dlopen(name_of(fd_).c_str(), RTLD_LAZY | RTLD_NOLOAD)) {
    dlclose(still);
  } else {
    close(fd_);
  }
}

void* SharedObject::symbol(const char* name) const { return dlsym(handle_, name); }

}  // namespace mxk::tpc
