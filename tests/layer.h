// SPDX-License-Identifier: Apache-2.0
//
// What the tests of the backends run on: random numbers from a printed seed, memory that traps every access outside
// of it, and small random layers in the served layout.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <bit>
#include <climits>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "mxk/moe.h"

namespace mxk::test {

// MXK_TEST_SMALL: a subset that is representative, for emulators and sanitizers.
inline bool small() {
  const char* e = std::getenv("MXK_TEST_SMALL");
  return e && *e && std::strcmp(e, "0") != 0;
}

// MXK_TEST_SEED repeats a run; the seed in use is printed once.
inline uint64_t seed() {
  static const uint64_t value = [] {
    const char* e = std::getenv("MXK_TEST_SEED");
    const uint64_t s = e && *e ? std::strtoull(e, nullptr, 0) : 20250701;
    std::printf("MXK_TEST_SEED=%llu\n", static_cast<unsigned long long>(s));
    std::fflush(stdout);
    return s;
  }();
  return value;
}

// SplitMix64, so that a seed means the same numbers with every standard library.
class Random {
 public:
  explicit Random(uint64_t stream) : state_(seed() * 0x9E3779B97F4A7C15u + (stream << 32)) {}
  uint64_t next() {
    uint64_t z = state_ += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  int below(int n) { return static_cast<int>((next() >> 33) * static_cast<uint64_t>(n) >> 31); }
  double uniform(double low, double high) { return low + (high - low) * static_cast<double>(next() >> 11) * 0x1p-53; }
  double normal() { return std::sqrt(-2 * std::log(1 - uniform(0, 1))) * std::cos(2 * M_PI * uniform(0, 1)); }

 private:
  uint64_t state_;
};

// The nearest bf16 that is at most as far from zero: exact values are all that the inputs of a test need.
inline uint16_t to_bf16(double v) {
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(v)) >> 16);
}
inline float from_bf16(uint16_t b) { return std::bit_cast<float>(uint32_t{b} << 16); }

// Bytes between two pages that nothing may touch, ending `tail` bytes before the second one. An odd tail gives odd
// addresses, tail 0 turns the first byte read or written past the end into a crash. What lies between the pages and
// the bytes is a canary.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(size_t bytes, size_t tail = 0) : bytes_(bytes), tail_(tail) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    inside_ = (bytes + tail + page) / page * page;
    all_ = inside_ + 2 * page;
    void* p = mmap(nullptr, all_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) throw std::bad_alloc();
    map_ = static_cast<uint8_t*>(p);
    inner_ = map_ + page;
    if (mprotect(inner_, inside_, PROT_READ | PROT_WRITE) != 0) throw std::bad_alloc();
    std::memset(inner_, kCanary, inside_);
  }
  Buffer(Buffer&& o) noexcept { *this = std::move(o); }
  Buffer& operator=(Buffer&& o) noexcept {
    std::swap(map_, o.map_);
    std::swap(inner_, o.inner_);
    std::swap(inside_, o.inside_);
    std::swap(all_, o.all_);
    std::swap(bytes_, o.bytes_);
    std::swap(tail_, o.tail_);
    return *this;
  }
  ~Buffer() {
    if (map_) munmap(map_, all_);
  }
  size_t size() const { return bytes_; }
  uint8_t* data() const { return map_ ? inner_ + inside_ - tail_ - bytes_ : nullptr; }
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(data());
  }
  // From here on a write is a crash, in the bytes and around them: how a test knows that inputs are left alone.
  void seal() { mprotect(inner_, inside_, PROT_READ); }
  void unseal() { mprotect(inner_, inside_, PROT_READ | PROT_WRITE); }
  bool canary_intact() const {
    for (const uint8_t* p = inner_; p < inner_ + inside_; p = p + 1 == data() ? data() + bytes_ : p + 1)
      if (*p != kCanary) return false;
    return true;
  }

 private:
  static constexpr uint8_t kCanary = 0xA5;
  uint8_t *map_ = nullptr, *inner_ = nullptr;
  size_t inside_ = 0, all_ = 0, bytes_ = 0, tail_ = 0;
};

// The weights of one layer. Scales are such that g, u and W2 a are about as large as x and a, and take `spread` values.
struct Layer {
  Buffer w13, s13, w2, s2, b13, b2;

  Layer() = default;
  Layer(const Variant& v, const Shape& s, Random& random, size_t tail = 0, int spread = 4) {
    const size_t E = static_cast<size_t>(s.E), K = static_cast<size_t>(s.K), I = static_cast<size_t>(s.I);
    w13 = codes(E * 2 * I * K / 2, random, tail);
    s13 = scales(E * 2 * I * K / 32, s.K, random, tail, spread);
    w2 = codes(E * K * I / 2, random, tail);
    s2 = scales(E * K * I / 32, s.I, random, tail, spread);
    if (v.bias) {
      b13 = floats(E * 2 * I, random);
      b2 = floats(E * K, random);
    }
  }
  Weights weights() const { return {w13.data(), s13.data(), w2.data(), s2.data(), b13.as<float>(), b2.as<float>()}; }

 private:
  static Buffer codes(size_t n, Random& random, size_t tail) {
    Buffer b(n, tail);
    for (size_t i = 0; i < n; ++i) b.data()[i] = static_cast<uint8_t>(random.next());
    b.seal();
    return b;
  }
  static Buffer scales(size_t n, int length, Random& random, size_t tail, int spread) {
    Buffer b(n, tail);
    const int centre = 127 - static_cast<int>(std::lround(std::log2(2.93 * std::sqrt(length))));  // 2.93: RMS of a code
    for (size_t i = 0; i < n; ++i) b.data()[i] = static_cast<uint8_t>(centre - spread / 2 + random.below(spread));
    b.seal();
    return b;
  }
  static Buffer floats(size_t n, Random& random) {
    Buffer b(n * sizeof(float));
    for (size_t i = 0; i < n; ++i) b.as<float>()[i] = static_cast<float>(0.5 * random.normal());
    b.seal();
    return b;
  }
};

enum class Routing { random, all_local, one_hot, none_local, duplicates };
inline constexpr Routing kRoutings[] = {Routing::random, Routing::all_local, Routing::one_hot, Routing::none_local,
                                        Routing::duplicates};
inline const char* to_string(Routing r) {
  static constexpr const char* kNames[] = {"random", "all_local", "one_hot", "none_local", "duplicates"};
  return kNames[static_cast<int>(r)];
}

inline constexpr int kFirstExpert = 3;  // local experts are a range inside of the layer's

inline int32_t remote_id(int E, Random& random) {
  const int32_t ids[] = {-1, 0, kFirstExpert - 1, kFirstExpert + E, kFirstExpert + E + 5, INT32_MAX, INT32_MIN};
  return ids[random.below(7)];
}
inline int32_t route(Routing routing, int E, Random& random) {
  switch (routing) {
    case Routing::random: return random.below(kFirstExpert + E + 4);
    case Routing::all_local: return kFirstExpert + random.below(E);
    case Routing::one_hot: return kFirstExpert + E / 2;
    case Routing::none_local: return remote_id(E, random);
    case Routing::duplicates:
      return random.below(3) == 0 ? -1 : random.below(2) == 0 ? kFirstExpert : kFirstExpert + random.below(E);
  }
  return -1;
}

// The tokens of one call.
struct Batch {
  Buffer x, ids, weights;
  Dtype weights_dtype;

  // `apart`: arrays end one element before the forbidden page, which aligns them to their type only.
  Batch(const Shape& s, Routing routing, double rms, Dtype dtype, Random& random, bool apart = false)
      : weights_dtype(dtype) {
    const size_t T = static_cast<size_t>(s.T), R = T * static_cast<size_t>(s.k), n = T * static_cast<size_t>(s.K);
    x = Buffer(n * sizeof(uint16_t), apart ? sizeof(uint16_t) : 0);
    for (size_t i = 0; i < n; ++i) x.as<uint16_t>()[i] = to_bf16(rms * random.normal());
    ids = Buffer(R * sizeof(int32_t), apart ? sizeof(int32_t) : 0);
    for (size_t r = 0; r < R; ++r) ids.as<int32_t>()[r] = route(routing, s.E, random);
    const size_t size = dtype == Dtype::f32 ? 4 : 2;
    weights = Buffer(R * size, apart ? size : 0);
    double sign = 1;
    for (size_t r = 0; r < R; ++r) {  // any number is a weight, but those of a token should not cancel
      if (r % static_cast<size_t>(s.k) == 0) sign = random.below(8) == 0 ? -2 : 1;
      const double w = random.below(32) == 0 ? 0 : sign * random.uniform(0.05, 1);
      if (dtype == Dtype::f32)
        weights.as<float>()[r] = static_cast<float>(w);
      else
        weights.as<uint16_t>()[r] = to_bf16(w);
    }
    x.seal();
    ids.seal();
    weights.seal();
  }
};

inline Call make_call(const Variant& v, const Shape& s, const Layer& layer, const Batch& batch) {
  Call c;
  c.variant = &v;
  c.shape = s;
  c.weights = layer.weights();
  c.x = batch.x.as<uint16_t>();
  c.topk_ids = batch.ids.as<int32_t>();
  c.topk_weights = batch.weights.data();
  c.weights_dtype = batch.weights_dtype;
  c.first_expert = kFirstExpert;
  return c;
}

inline bool is_local(const Call& c, int64_t route) {
  const int64_t e = int64_t{c.topk_ids[route]} - c.first_expert;
  return e >= 0 && e < c.shape.E;
}
inline int64_t output_rows(const Call& c) { return int64_t{c.shape.T} * (c.variant->per_route ? c.shape.k : 1); }

inline std::unique_ptr<Engine> make_engine(const Variant& v, const Shape& max, std::string_view backend,
                                           int threads = 2) {
  std::unique_ptr<Engine> engine;
  if (Status s = Engine::create(v, max, {backend, threads}, &engine); !s.ok()) throw std::runtime_error(s.message);
  return engine;
}

// The output of a call, as floats. y starts as NaN, so that an element nobody writes is seen, and is aligned to its
// type only.
inline std::vector<float> run(Engine& engine, Call c, Dtype out) {
  const size_t n = static_cast<size_t>(output_rows(c) * c.shape.K), size = out == Dtype::f32 ? 4 : 2;
  const Buffer y(n * size, size);
  std::memset(y.data(), 0xFF, y.size());
  c.y = y.data();
  c.out_dtype = out;
  if (Status s = engine.run(c); !s.ok()) throw std::runtime_error(s.message);
  if (!y.canary_intact()) throw std::runtime_error("wrote outside of y");
  std::vector<float> values(n);
  for (size_t i = 0; i < n; ++i) values[i] = out == Dtype::f32 ? y.as<float>()[i] : from_bf16(y.as<uint16_t>()[i]);
  return values;
}

}  // namespace mxk::test
