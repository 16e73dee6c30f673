// SPDX-License-Identifier: Apache-2.0
//
// The vector types of TPC-C as C++ classes under their TPC-C names, in the global namespace because kernels are C:
// int64 and uint64 are vectors of 64 lanes here. A scalar splats, {a, b} sets the first lanes and zeroes the rest, {}
// is zero, and a cast between two vectors keeps the bits. There are no operators on lanes: kernels use intrinsics,
// which are counted.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include <bit>
#include <cstring>
#include <initializer_list>
#include <type_traits>

#include "core/formats.h"

namespace mxk::emu {

struct Bf16 {
  uint16_t bits;
  Bf16() = default;
  template <class S>
    requires std::is_arithmetic_v<S>
  Bf16(S s) : bits(f32_to_bf16(static_cast<float>(s))) {}
};

// An 8-bit float: five exponent bits with bias 15, two mantissa bits. Only bits, no arithmetic.
struct H8 {
  uint8_t bits;
};

template <class S>
inline constexpr bool kIsScalar = std::is_arithmetic_v<S> || std::is_same_v<S, Bf16>;

// An element of a braced list. A conversion through this class is not a narrowing one, as in C.
template <class T>
struct Element {
  T value;
  template <class S>
    requires kIsScalar<S>
  Element(S s) : value(static_cast<T>(s)) {}
};

template <class T, int N>
struct alignas(16) Vec {
  using Lane = T;
  static constexpr int kLanes = N;
  T lane[N];

  Vec() = default;

  template <class S>
    requires(kIsScalar<S> && !std::is_same_v<T, H8>)
  Vec(S s) {
    const T value = static_cast<T>(s);
    for (int i = 0; i < N; ++i) lane[i] = value;
  }

  Vec(std::initializer_list<Element<T>> list)
    requires(!std::is_same_v<T, H8>)
  {
    std::memset(static_cast<void*>(this), 0, sizeof *this);
    int i = 0;
    for (const Element<T>& e : list) {
      if (i == N) break;
      lane[i++] = e.value;
    }
  }

  template <class U, int M>
    requires(!std::is_same_v<T, U> && sizeof(Vec<U, M>) == N * sizeof(T))
  explicit Vec(const Vec<U, M>& other) {
    std::memcpy(static_cast<void*>(this), &other, sizeof *this);
  }
};

// Predicates of N lanes. One byte a lane here, one bit a lane on the card: a kernel cannot see the difference.
template <int N>
struct Mask {
  static constexpr int kLanes = N;
  uint8_t lane[N];
};

template <class V>
inline constexpr V zero{};

template <class To, class From>
To astype(const From& from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(static_cast<void*>(&to), &from, sizeof to);
  return to;
}

}  // namespace mxk::emu

using bf16 = mxk::emu::Bf16;
using float64 = mxk::emu::Vec<float, 64>;
using int64 = mxk::emu::Vec<int32_t, 64>;
using uint64 = mxk::emu::Vec<uint32_t, 64>;
using short128 = mxk::emu::Vec<int16_t, 128>;
using ushort128 = mxk::emu::Vec<uint16_t, 128>;
using bfloat128 = mxk::emu::Vec<bf16, 128>;
using char256 = mxk::emu::Vec<int8_t, 256>;
using uchar256 = mxk::emu::Vec<uint8_t, 256>;
using minihalf256 = mxk::emu::Vec<mxk::emu::H8, 256>;
using bool64 = mxk::emu::Mask<64>;
using bool128 = mxk::emu::Mask<128>;
using bool256 = mxk::emu::Mask<256>;

// NOLINTBEGIN(readability-identifier-naming,bugprone-reserved-identifier): names of TPC-C
// Register pairs and quads.
struct float128 {
  float64 v1, v2;
};
struct float256 {
  float64 v1, v2, v3, v4;
};
struct int128 {
  int64 v1, v2;
};
struct uint128 {
  uint64 v1, v2;
};
struct bfloat256 {
  bfloat128 v1, v2;
};
struct short256 {
  short128 v1, v2;
};
struct ushort256 {
  ushort128 v1, v2;
};
struct char512 {
  char256 v1, v2;
};
struct uchar512 {
  uchar256 v1, v2;
};
struct uint32_t_pair_t {
  unsigned int v1, v2;
};

// Tensor coordinates.
struct int5 {
  int at[5];
  int5() = default;
  int5(int s) : at{s, s, s, s, s} {}
  int5(std::initializer_list<mxk::emu::Element<int>> list) : at{} {
    int i = 0;
    for (const mxk::emu::Element<int>& e : list) {
      if (i == 5) break;
      at[i++] = e.value;
    }
  }
  int& operator[](int i) { return at[i]; }
  const int& operator[](int i) const { return at[i]; }
};

inline int5 operator+(const int5& a, const int5& b) {
  int5 sum;
  for (int i = 0; i < 5; ++i) sum[i] = static_cast<int>(static_cast<unsigned>(a[i]) + static_cast<unsigned>(b[i]));
  return sum;
}

using tensor = int;
#define __global
// NOLINTEND(readability-identifier-naming,bugprone-reserved-identifier)

#define as_int(x) (mxk::emu::astype<int>(x))
#define as_uint(x) (mxk::emu::astype<unsigned>(x))
#define as_float(x) (mxk::emu::astype<float>(x))
