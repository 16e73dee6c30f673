// SPDX-License-Identifier: Apache-2.0
#include "tpc/kernels.h"

#include <algorithm>
#include <limits>

#include "mxk/moe.h"
#include "mxk/variants.inc"
#include "tpc/tables.h"

namespace mxk::tpc {
namespace {

// ---- which kernels this build has ----------------------------------------------------------------------------------

struct Row {
  std::string_view variant, w13, w2;
  bool deq;
};
constexpr Row kRows[] = {
#define MXK_ROW(name, w13, w2, deq, ...) {#name, #w13, #w2, deq != 0},
    MXK_VARIANTS(MXK_ROW)
#undef MXK_ROW
};

#ifdef MXK_TPC_EMULATION
constexpr bool kEmulation = true;
#else
constexpr bool kEmulation = false;
#endif

// A library for the card serves one model; the emulation has all variants.
constexpr bool ships(std::string_view variant) {
#ifdef MXK_TPC_VARIANT
  return variant == MXK_TPC_VARIANT;
#else
  return !variant.empty();
#endif
}

constexpr bool uses(const Row& row, Users users, std::string_view kernel) {
  switch (users) {
    case Users::w13: return row.w13 == kernel;
    case Users::w2: return row.w2 == kernel;
    case Users::deq: return row.deq;
    case Users::always:
    case Users::extra: return true;
  }
  return false;
}

constexpr bool in_build(Users users, std::string_view kernel, bool emulation_only) {
  if (emulation_only && !kEmulation) return false;
  return std::any_of(std::begin(kRows), std::end(kRows),
                     [&](const Row& row) { return ships(row.variant) && uses(row, users, kernel); });
}
static_assert(in_build(Users::always, "", false), "MXK_TPC_VARIANT is no variant of variants.inc");

// ---- the table -----------------------------------------------------------------------------------------------------

#define MXK_BARE(...) __VA_ARGS__  // takes a row's parentheses off

// Every letter of a row can be read off an input, so that bind() finds all of them.
constexpr bool closed(std::span<const Operand> inputs, const Operand& output, const Size& units) {
  const auto given = [&](Letter letter) {
    if (letter == Letter::none) return true;
    for (const Operand& operand : inputs)
      for (const Size& size : operand.dims)
        if (size.letter == letter && size.gives_letter()) return true;
    return false;
  };
  const auto fits = [&](const Size& s) { return s.over > 0 && s.pad > 0 && given(s.letter) && given(s.with); };
  for (const Operand& operand : inputs)
    if (!std::all_of(operand.dims.begin(), operand.dims.end(), fits)) return false;
  return std::all_of(output.dims.begin(), output.dims.end(), fits) && fits(units);
}
constexpr uint32_t count_of(std::string_view parameters) {
  if (parameters.empty()) return 0;
  return 1 + static_cast<uint32_t>(std::count(parameters.begin(), parameters.end(), ','));
}
constexpr size_t kMaxParameters = 16;  // int32 each; the interface passes 32 scalars

namespace table {
using namespace sizes;
using enum Element;
#define X(name, users, variant_kernel, emulation, parameters, units, in, out)           \
  constexpr Operand k_in_##name[] = {MXK_BARE in};                                      \
  constexpr Operand k_out_##name = MXK_BARE out;                                        \
  constexpr Size k_units_##name = units;                                                \
  static_assert(std::size(k_in_##name) <= kMaxInputs, #name ": too many inputs");       \
  static_assert(closed(k_in_##name, k_out_##name, k_units_##name),                      \
                #name ": an input has to give each letter by itself, as T or 2I does"); \
  static_assert(count_of(parameters) <= kMaxParameters, #name ": too many parameters");
#include "tpc/kernels.inc"
#undef X
static_assert(k_out_mxk_selfcheck.dims[0].times == kSelfcheckRows);
}  // namespace table

enum : size_t {
#define X(name, ...) row_##name,
#include "tpc/kernels.inc"
#undef X
  kMostKernels
};

struct Table {
  std::array<Kernel, kMostKernels> kernels{};
  size_t count = 0;

  constexpr Table() {
#define X(name, users, variant_kernel, emulation, parameters, ...) \
  if (in_build(Users::users, #variant_kernel, emulation))          \
    kernels[count++] = {#name,                                     \
                        Users::users,                              \
                        #variant_kernel,                           \
                        parameters,                                \
                        table::k_units_##name,                     \
                        table::k_in_##name,                        \
                        table::k_out_##name};
#include "tpc/kernels.inc"
#undef X
  }
};
constexpr Table kTable;

// ---- sizes ---------------------------------------------------------------------------------------------------------

constexpr uint64_t kMaxSize = std::numeric_limits<int32_t>::max();
constexpr uint64_t kUnknown = std::numeric_limits<uint64_t>::max();

uint64_t at(const Letters& l, Letter letter) { return l[static_cast<size_t>(letter)]; }

// No size is above 2^31 and no letter above 2^36, so that nothing here overflows.
bool agrees(const Size& d, uint64_t size, const Letters& l) {
  if (d.gives_letter()) return size * d.over == at(l, d.letter) * d.times;
  return size == d.of(l);
}

std::string text(Sizes sizes) {
  std::string s = "[";
  for (const uint64_t n : sizes) s += (s.size() > 1 ? ", " : "") + std::to_string(n);
  return s + "]";
}

std::string mismatch(const Kernel& kernel, const Operand& operand, Sizes sizes, const Letters& l) {
  std::string s = std::string(kernel.name) + ": " + operand.name + " must be " + operand.shape() + ", ";
  for (uint32_t d = 0; d < operand.rank(); ++d) {
    const Size& size = operand.dims[d];
    if (size.letter != Letter::none && at(l, size.letter) == kUnknown) continue;
    if (d < sizes.size() && !agrees(size, sizes[d], l))
      s += std::string(size.name ? size.name : "a fixed size") + " is " + std::to_string(size.of(l)) + " here, ";
  }
  return s + "it is " + text(sizes) + "; nothing was computed";
}

Fault check_letters(const Kernel& kernel, const Letters& l) {
  const auto refuse = [&](const std::string& what) {
    return Fault{Fault::layer, std::string(kernel.name) + ": " + what + "; nothing was computed"};
  };
  for (const uint64_t n : l)
    if (n != kUnknown && (n < 1 || n > kMaxSize))
      return refuse("a size behind the tensors is " + std::to_string(n) + ", it must be 1 to " +
                    std::to_string(kMaxSize));
  if (kernel.users == Users::always || kernel.users == Users::extra) return {};
  if (kernel.users == Users::deq) {
    constexpr uint64_t kMaxRow = 16384;
    const uint64_t C = at(l, Letter::C);
    if (C % 32 != 0 || C > kMaxRow)
      return refuse("C=" + std::to_string(C) + " is not supported (a multiple of 32, at most " +
                    std::to_string(kMaxRow) + ")");
    if (sizes::E_N.of(l) > kMaxSize) return refuse("E*N is above " + std::to_string(kMaxSize));
    return {};
  }
  const auto letter = [&](Letter a) { return static_cast<int>(at(l, a)); };
  const Shape shape{letter(Letter::T), letter(Letter::k), letter(Letter::E), letter(Letter::K), letter(Letter::I)};
  Status status;
  for (const Variant& v : variants()) {
    const std::string_view used = kernel.users == Users::w13 ? v.w13_kernel : v.w2_kernel;
    if (!ships(v.name) || used != kernel.variant_kernel) continue;
    status = mxk::check(v, shape);
    if (status.ok()) return {};
  }
  return {Fault::layer, std::string(kernel.name) + ": " + status.message};
}

}  // namespace

uint64_t Size::of(const Letters& l) const {
  uint64_t n = times;
  if (letter != Letter::none) n = n * at(l, letter) / over;
  if (with != Letter::none) n *= at(l, with);
  return (n + pad - 1) / pad * pad;
}

const char* to_string(Element e) {
  switch (e) {
    case Element::u8: return "uint8";
    case Element::bf16: return "bfloat16";
    case Element::i32: return "int32";
    case Element::f32: return "float32";
  }
  return "?";
}

std::string Operand::shape() const {
  std::string s = "[";
  for (uint32_t d = 0; d < rank(); ++d)
    s += (d ? ", " : "") + (dims[d].name ? std::string(dims[d].name) : std::to_string(dims[d].times));
  return s + "]";
}

uint32_t Kernel::parameter_count() const { return count_of(parameters); }

std::span<const Kernel> kernels() { return {kTable.kernels.data(), kTable.count}; }

const Kernel* find_kernel(std::string_view name) {
  for (const Kernel& kernel : kernels())
    if (name == kernel.name) return &kernel;
  return nullptr;
}

Fault bind(const Kernel& kernel, std::span<const Sizes> inputs, Sizes output, Letters* letters) {
  Letters l;
  l.fill(kUnknown);
  for (size_t i = 0; i < kernel.inputs.size(); ++i) {
    const Operand& operand = kernel.inputs[i];
    if (inputs[i].size() != operand.rank()) return {Fault::input, mismatch(kernel, operand, inputs[i], l)};
    for (uint32_t d = 0; d < operand.rank(); ++d) {
      if (inputs[i][d] > kMaxSize) return {Fault::input, mismatch(kernel, operand, inputs[i], l)};
      if (!operand.dims[d].gives_letter()) continue;
      uint64_t& letter = l[static_cast<size_t>(operand.dims[d].letter)];
      if (letter == kUnknown) letter = inputs[i][d] * operand.dims[d].over / operand.dims[d].times;
    }
  }
  const auto fits = [&](const Operand& operand, Sizes sizes) {
    for (uint32_t d = 0; d < operand.rank(); ++d)
      if (sizes[d] > kMaxSize || !agrees(operand.dims[d], sizes[d], l)) return false;
    return true;
  };
  for (size_t i = 0; i < kernel.inputs.size(); ++i)
    if (!fits(kernel.inputs[i], inputs[i])) return {Fault::input, mismatch(kernel, kernel.inputs[i], inputs[i], l)};
  if (!output.empty() && (output.size() != kernel.output.rank() || !fits(kernel.output, output)))
    return {Fault::output, mismatch(kernel, kernel.output, output, l)};
  *letters = l;
  return check_letters(kernel, l);
}

}  // namespace mxk::tpc
