// SPDX-License-Identifier: Apache-2.0
//
// The kernels of a build as kernels.inc lists them, and the check of a call against a row: do the sizes of all operands
// follow from one set of letters? What a layer may look like is not decided here: mxk::check() is asked.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace mxk::tpc {

enum class Letter : uint8_t { T, k, E, K, I, N, C, none };
constexpr size_t kLetters = 7;
using Letters = std::array<uint64_t, kLetters>;  // the sizes behind a call's tensors

// One dimension: times * letter * with / over, up to a multiple of `pad`. Without a letter it is the number `times`.
struct Size {
  const char* name = nullptr;  // as in messages; null for a number
  Letter letter = Letter::none;
  uint64_t times = 0;  // 0: the tensor has no such dimension
  uint64_t over = 1, pad = 1;
  Letter with = Letter::none;

  constexpr Size() = default;
  constexpr Size(int number) : times(static_cast<uint64_t>(number)) {}  // NOLINT(google-explicit-constructor)
  constexpr Size(const char* name_, Letter letter_, uint64_t times_ = 1, uint64_t over_ = 1, uint64_t pad_ = 1,
                 Letter with_ = Letter::none)
      : name(name_), letter(letter_), times(times_), over(over_), pad(pad_), with(with_) {}

  constexpr bool gives_letter() const { return letter != Letter::none && with == Letter::none && pad == 1; }
  uint64_t of(const Letters&) const;
};

namespace sizes {  // the names that rows use
inline constexpr Size one = 1;
inline constexpr Size T{"T", Letter::T}, k{"k", Letter::k}, E{"E", Letter::E}, K{"K", Letter::K}, N{"N", Letter::N},
    C{"C", Letter::C};
inline constexpr Size T_k{"T*k", Letter::T, 1, 1, 1, Letter::k}, E_N{"E*N", Letter::E, 1, 1, 1, Letter::N};
inline constexpr Size I_2{"2I", Letter::I, 2}, K_half{"K/2", Letter::K, 1, 2}, I_half{"I/2", Letter::I, 1, 2},
    C_half{"C/2", Letter::C, 1, 2}, I_4th{"I/4", Letter::I, 1, 4}, K_8th{"K/8", Letter::K, 1, 8},
    K_32nd{"K/32", Letter::K, 1, 32}, I_32nd{"I/32", Letter::I, 1, 32}, C_32nd{"C/32", Letter::C, 1, 32};
// Activation rows are padded to whole units of 512.
inline constexpr Size K_padded{"K up to a multiple of 512", Letter::K, 1, 1, 512},
    I_padded{"I up to a multiple of 512", Letter::I, 1, 1, 512};
}  // namespace sizes

enum class Element : uint8_t { u8, bf16, i32, f32 };
const char* to_string(Element);

struct Operand {
  const char* name;
  Element type;
  std::array<Size, 3> dims;  // slowest first, as in the model
  constexpr uint32_t rank() const {
    uint32_t n = 0;
    while (n < dims.size() && dims[n].times != 0) ++n;
    return n;
  }
  std::string shape() const;  // "[E, 2I, K/2]"
};

enum class Users : uint8_t { w13, w2, deq, always, extra };  // which variants use a kernel

struct Kernel {
  const char* name;
  Users users;
  const char* variant_kernel;   // its name in variants.inc
  std::string_view parameters;  // names of the int32 values of a node, by comma
  Size units;
  std::span<const Operand> inputs;
  Operand output;
  uint32_t parameter_count() const;
};
constexpr size_t kMaxInputs = 8;

// The kernels of this build, in the order of the table: those of MXK_TPC_VARIANT, or of all variants without it; the
// emulation's own only with MXK_TPC_EMULATION.
std::span<const Kernel> kernels();
const Kernel* find_kernel(std::string_view name);  // null if there is none

// What is wrong with a call, and a line that says so: what, limit, value.
struct Fault {
  enum Kind : uint8_t { none, input, output, layer } kind = none;
  std::string message;
};

// The sizes of one tensor, slowest dimension first.
using Sizes = std::span<const uint64_t>;

// The letters behind the sizes of a call's operands, and mxk::check() of the layer that they make. `output` empty: it
// is asked for.
Fault bind(const Kernel&, std::span<const Sizes> inputs, Sizes output, Letters*);

}  // namespace mxk::tpc
