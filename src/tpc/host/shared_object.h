// SPDX-License-Identifier: Apache-2.0
//
// dlopen of a file or of bytes in memory: kernel libraries are files, kernels are bytes inside them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "mxk/types.h"

namespace mxk::tpc {

// It stays loaded until the last reference is gone.
class SharedObject {
 public:
  static Status open(const std::string& path, std::shared_ptr<SharedObject>* out);
  static Status open(std::span<const uint8_t> bytes, const std::string& what, std::shared_ptr<SharedObject>* out);
  ~SharedObject();
  SharedObject(const SharedObject&) = delete;
  SharedObject& operator=(const SharedObject&) = delete;

  void* symbol(const char* name) const;  // null if there is none

 private:
  SharedObject(void* handle, int fd) : handle_(handle), fd_(fd) {}
  void* handle_;
  int fd_;  // of the bytes, or -1; open as long as the object is loaded
};

}  // namespace mxk::tpc
