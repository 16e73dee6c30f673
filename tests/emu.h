// SPDX-License-Identifier: Apache-2.0
//
// A launch of the TPC emulation whose intrinsics a test calls itself, and bits to feed them with.
#pragma once

#include <cstring>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "tpc/emu/intrinsics.h"
#include "tpc/emu/runtime.h"

namespace mxk::emu::test {

// Storage of one tensor; rows may be padded so that strides are not those of a dense tensor.
struct Storage {
  std::vector<uint8_t> data, written;
  Tensor tensor{};

  Storage(ElementType type, std::initializer_list<uint64_t> sizes, bool output, uint64_t pad) {
    tensor.type = type;
    tensor.is_output = output;
    int d = 0;
    uint64_t stride = 1, elements = 1;
    for (; d < 5; ++d) {
      tensor.size[d] = d < static_cast<int>(sizes.size()) ? sizes.begin()[d] : 1;
      tensor.stride[d] = stride;
      stride *= tensor.size[d];
      if (d == 0) stride += pad;
      elements *= tensor.size[d];
    }
    data.resize(stride * static_cast<uint64_t>(size_of(type)), 0xEE);
    tensor.data = data.data();
    if (output) {
      written.resize(elements);
      tensor.written = written.data();
    }
  }

  template <class T>
  T at(uint64_t i) const {
    T v;
    std::memcpy(static_cast<void*>(&v), data.data() + i * sizeof(T), sizeof v);
    return v;
  }
  template <class T>
  void set(uint64_t i, T v) {
    std::memcpy(data.data() + i * sizeof(T), &v, sizeof v);
  }
};

// The storage is set up first, then start() puts this thread into the launch.
class Machine {
 public:
  int add(ElementType type, std::initializer_list<uint64_t> sizes, bool output = false, uint64_t pad = 0) {
    storage_.push_back(std::make_unique<Storage>(type, sizes, output, pad));
    return static_cast<int>(storage_.size()) - 1;
  }
  Storage& operator[](int number) { return *storage_[static_cast<size_t>(number)]; }

  void start(int tpc = 0) {
    tensors_.clear();
    for (const auto& s : storage_) tensors_.push_back(s->tensor);
    launch.tensors = tensors_.data();
    launch.tensor_count = static_cast<int32_t>(tensors_.size());
    launch.tpc = tpc;
    scope_.reset();
    state = std::make_unique<State>(&launch);
    scope_ = std::make_unique<Scope>(state.get());
  }

  Launch launch{};
  std::unique_ptr<State> state;

 private:
  std::vector<std::unique_ptr<Storage>> storage_;
  std::vector<Tensor> tensors_;
  std::unique_ptr<Scope> scope_;
};

class Bits {
 public:
  uint32_t word() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return static_cast<uint32_t>(state_ >> 16);
  }
  template <class V>
  V vector() {
    uint32_t w[64];
    for (uint32_t& x : w) x = word();
    return astype<V>(w);
  }
  // Floats that meet: half of them special, the others with exponents near that of 1, or near the ends.
  uint32_t f32() {
    static constexpr uint32_t kSpecial[] = {0,          1,          0x007FFFFF, 0x00800000, 0x00800001, 0x3F800000,
                                            0x3F800001, 0x7F7FFFFF, 0x7F800000, 0x7F800001, 0x7FC00000, 0x33800000,
                                            0x0C000000, 0x1F800000, 0x20000000, 0x3FFFFFFF};
    const uint32_t r = word(), sign = r & 0x80000000u;
    if (r % 4 == 0) return sign | kSpecial[r >> 8 & 15];
    if (r % 4 == 1) return sign | ((r >> 5 & 31) + 112) << 23 | (word() & 0x7FFFFF);
    if (r % 4 == 2) return sign | ((r >> 5 & 63) + 32) << 23 | (word() & 0x7FF000);
    return word();
  }
  float64 floats() {
    uint32_t w[64];
    for (uint32_t& x : w) x = f32();
    return astype<float64>(w);
  }
  bfloat128 bf16s() {
    uint16_t w[128];
    for (uint16_t& x : w) x = static_cast<uint16_t>(f32() >> 16);
    return astype<bfloat128>(w);
  }

 private:
  uint64_t state_ = 0x9E3779B97F4A7C15u;
};

template <class V>
bool same(const V& a, const V& b) {
  return std::memcmp(&a, &b, sizeof a) == 0;
}

template <class T, int N>
uint32_t lane_bits(const Vec<T, N>& v, int i) {
  uint32_t r = 0;
  std::memcpy(&r, &v.lane[i], sizeof v.lane[i]);
  return r;
}

}  // namespace mxk::emu::test
