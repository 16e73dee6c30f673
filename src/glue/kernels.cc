// SPDX-License-Identifier: Apache-2.0
#include "glue/kernels.h"

#include <cstring>
#include <limits>
#include <string_view>

#include "glue/kernels.inc"
#include "mxk/moe.h"
#include "mxk/variants.inc"
#include "tpc/tables.h"

// The bytes of each kernel, as embed.cmake puts them here.
#define MXK_DECLARE(name, ...)                                                            \
  extern "C" {                                                                            \
  __attribute__((visibility("hidden"))) extern const uint8_t mxk_kernel_##name##_begin[]; \
  __attribute__((visibility("hidden"))) extern const uint8_t mxk_kernel_##name##_end[];   \
  }
MXK_TPC_KERNELS(MXK_DECLARE)
#undef MXK_DECLARE

namespace mxk::glue {
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
    case Users::always: return true;
  }
  return false;
}

constexpr bool in_build(Users users, std::string_view kernel, bool emulation_only) {
  if (emulation_only && !kEmulation) return false;
  for (const Row& row : kRows)
    if (ships(row.variant) && uses(row, users, kernel)) return true;
  return false;
}
static_assert(in_build(Users::always, "", false), "MXK_TPC_VARIANT is no variant of variants.inc");

// ---- the table -----------------------------------------------------------------------------------------------------

namespace table {
using enum Dim;
constexpr auto u8 = api::DATA_U8;
constexpr auto bf16 = api::DATA_BF16;
constexpr auto i32 = api::DATA_I32;
constexpr auto f32 = api::DATA_F32;
// A kernel that is not in the build must not be asked of the linker: a branch not taken names no symbol.
#define MXK_BARE(...) __VA_ARGS__
#define MXK_DEFINE(name, users, variant_kernel, emulation, parameters, units, in, out)   \
  constexpr Operand k_in_##name[] = {MXK_BARE in};                                       \
  constexpr Operand k_out_##name = MXK_BARE out;                                         \
  static_assert(std::size(k_in_##name) <= kMaxInputs);                                   \
  template <bool kShipped>                                                               \
  std::span<const uint8_t> elf_##name() {                                                \
    if constexpr (kShipped) return {mxk_kernel_##name##_begin, mxk_kernel_##name##_end}; \
    return {};                                                                           \
  }
MXK_TPC_KERNELS(MXK_DEFINE)
#undef MXK_DEFINE
#undef MXK_BARE
}  // namespace table

#define MXK_ROW(name, ...) row_##name,
enum : size_t { MXK_TPC_KERNELS(MXK_ROW) kMostKernels };
#undef MXK_ROW

struct Table {
  std::array<Kernel, kMostKernels> kernels{};
  size_t count = 0;

  Table() {
#define MXK_ADD(name, users, variant_kernel, emulation, parameters, units, ...)             \
  if (constexpr bool shipped = in_build(Users::users, #variant_kernel, emulation); shipped) \
    kernels[count++] = {#name,      Users::users,       #variant_kernel,     parameters,    \
                        Dim::units, table::k_in_##name, table::k_out_##name, table::elf_##name<shipped>()};
    MXK_TPC_KERNELS(MXK_ADD)
#undef MXK_ADD
  }
};

// ---- sizes ---------------------------------------------------------------------------------------------------------

constexpr uint64_t kVector = 512;  // activation rows are padded to whole units of this many elements
constexpr uint64_t kMaxSize = std::numeric_limits<int32_t>::max();
constexpr uint64_t kUnknown = std::numeric_limits<uint64_t>::max();

// A dimension that is a letter times `times` over `over`; Letter::none for all others.
struct Multiple {
  Letter letter;
  uint64_t times, over;
};

constexpr Multiple multiple(Dim d) {
  switch (d) {
    case Dim::T: return {Letter::T, 1, 1};
    case Dim::k: return {Letter::k, 1, 1};
    case Dim::E: return {Letter::E, 1, 1};
    case Dim::K: return {Letter::K, 1, 1};
    case Dim::N: return {Letter::N, 1, 1};
    case Dim::C: return {Letter::C, 1, 1};
    case Dim::I_2: return {Letter::I, 2, 1};
    case Dim::K_half: return {Letter::K, 1, 2};
    case Dim::I_half: return {Letter::I, 1, 2};
    case Dim::C_half: return {Letter::C, 1, 2};
    case Dim::I_4th: return {Letter::I, 1, 4};
    case Dim::K_8th: return {Letter::K, 1, 8};
    case Dim::K_32nd: return {Letter::K, 1, 32};
    case Dim::I_32nd: return {Letter::I, 1, 32};
    case Dim::C_32nd: return {Letter::C, 1, 32};
    default: return {Letter::none, 1, 1};
  }
}

uint64_t at(const Letters& l, Letter letter) { return l[static_cast<size_t>(letter)]; }
uint64_t padded(uint64_t n) { return (n + kVector - 1) / kVector * kVector; }

// No size is above 2^31 and no letter above 2^36, so that nothing here overflows.
bool agrees(Dim d, uint64_t size, const Letters& l) {
  if (const Multiple m = multiple(d); m.letter != Letter::none) return size * m.over == at(l, m.letter) * m.times;
  return size == size_of(d, l);
}

api::GlueCodeReturn check_letters(const Kernel& kernel, const Letters& l) {
  for (uint64_t n : l)
    if (n != kUnknown && (n < 1 || n > kMaxSize)) return api::GLUE_UNSUPPORTED_LAYER_CONFIGURATION;
  if (kernel.users == Users::always) return api::GLUE_SUCCESS;
  if (kernel.users == Users::deq) {
    constexpr uint64_t kMaxRow = 16384;
    const uint64_t C = at(l, Letter::C);
    return C % 32 == 0 && C <= kMaxRow && size_of(Dim::E_N, l) <= kMaxSize ? api::GLUE_SUCCESS
                                                                           : api::GLUE_UNSUPPORTED_LAYER_CONFIGURATION;
  }
  const auto letter = [&](Letter a) { return static_cast<int>(at(l, a)); };
  const Shape shape{letter(Letter::T), letter(Letter::k), letter(Letter::E), letter(Letter::K), letter(Letter::I)};
  for (const Variant& v : variants()) {
    const std::string_view used = kernel.users == Users::w13 ? v.w13_kernel : v.w2_kernel;
    if (ships(v.name) && used == kernel.variant_kernel && mxk::check(v, shape).ok()) return api::GLUE_SUCCESS;
  }
  return api::GLUE_UNSUPPORTED_LAYER_CONFIGURATION;
}

api::GlueCodeReturn check_parameters(const Kernel& kernel, const api::UserParams& user) {
  const bool none = !user.nodeParams || user.nodeParamsSize == 0;
  if (kernel.parameters == 0) return none ? api::GLUE_SUCCESS : api::GLUE_KERNEL_INVALID_SCALAR_ARGUMENT;
  if (none || user.nodeParamsSize != kernel.parameters * sizeof(int32_t))
    return api::GLUE_KERNEL_INVALID_SCALAR_ARGUMENT;
  int32_t first_expert;
  std::memcpy(&first_expert, user.nodeParams, sizeof first_expert);
  return first_expert >= 0 ? api::GLUE_SUCCESS : api::GLUE_KERNEL_INVALID_SCALAR_ARGUMENT;
}

api::GlueCodeReturn check_operand(const Operand& operand, const api::TensorGeometry& g, api::GlueCodeReturn bad_size) {
  if (g.dataType != operand.type) return api::GLUE_INCOMPATIBLE_DATA_TYPE;
  if (g.dims != operand.rank()) return bad_size;
  for (uint32_t d = 0; d < operand.rank(); ++d)
    if (g.minSizes[d] != g.maxSizes[d]) return api::GLUE_UNSUPPORTED_DYNAMIC_SHAPE;
  return api::GLUE_SUCCESS;
}

}  // namespace

std::span<const Kernel> kernels() {
  static const Table table;
  return {table.kernels.data(), table.count};
}

const Kernel* find_kernel(const char (&guid)[api::MAX_NODE_NAME]) {
  const std::string_view name(guid, strnlen(guid, sizeof guid));
  for (const Kernel& kernel : kernels())
    if (name == kernel.name) return &kernel;
  return nullptr;
}

uint64_t size_of(Dim d, const Letters& l) {
  if (const Multiple m = multiple(d); m.letter != Letter::none) return at(l, m.letter) * m.times / m.over;
  switch (d) {
    case Dim::T_k: return at(l, Letter::T) * at(l, Letter::k);
    case Dim::E_N: return at(l, Letter::E) * at(l, Letter::N);
    case Dim::K_padded: return padded(at(l, Letter::K));
    case Dim::I_padded: return padded(at(l, Letter::I));
    case Dim::eight: return 8;
    case Dim::byte_codes: return 256;
    case Dim::selfcheck_rows: return tpc::kSelfcheckRows;
    case Dim::lanes: return 64;
    default: return 1;
  }
}

api::GlueCodeReturn check_sizes(const Kernel& kernel, const Geometries& g, Letters* letters) {
  Letters l;
  l.fill(kUnknown);
  for (size_t i = 0; i < kernel.inputs.size(); ++i) {
    const Operand& operand = kernel.inputs[i];
    if (g.inputs[i]->dims != operand.rank()) return api::GLUE_INCOMPATIBLE_INPUT_SIZE;
    for (uint32_t d = 0; d < operand.rank(); ++d) {
      const uint64_t size = g.inputs[i]->maxSizes[d];
      if (size > kMaxSize) return api::GLUE_INCOMPATIBLE_INPUT_SIZE;
      const Multiple m = multiple(operand.dim(d));
      if (m.letter == Letter::none) continue;
      uint64_t& letter = l[static_cast<size_t>(m.letter)];
      if (letter == kUnknown) letter = size * m.over / m.times;  // whoever comes later must agree
    }
  }
  for (size_t i = 0; i < kernel.inputs.size(); ++i)
    for (uint32_t d = 0; d < kernel.inputs[i].rank(); ++d)
      if (!agrees(kernel.inputs[i].dim(d), g.inputs[i]->maxSizes[d], l)) return api::GLUE_INCOMPATIBLE_INPUT_SIZE;
  if (g.output) {
    if (g.output->dims != kernel.output.rank()) return api::GLUE_INCOMPATIBLE_OUTPUT_SIZE;
    for (uint32_t d = 0; d < kernel.output.rank(); ++d)
      if (g.output->maxSizes[d] > kMaxSize || !agrees(kernel.output.dim(d), g.output->maxSizes[d], l))
        return api::GLUE_INCOMPATIBLE_OUTPUT_SIZE;
  }
  *letters = l;
  return check_letters(kernel, l);
}

api::GlueCodeReturn check(const Kernel& kernel, const api::HabanaKernelParams& p, Letters* letters) {
  if (p.apiVersion != kApiVersion) return api::GLUE_UNSUPPORTED_API_VERSION;
  if (p.inputTensorNr != kernel.inputs.size()) return api::GLUE_INCOMPATIBLE_INPUT_COUNT;
  if (p.outputTensorNr != 1) return api::GLUE_INCOMPATIBLE_OUTPUT_COUNT;
  if (!p.inputTensors || !p.outputTensors) return api::GLUE_FAILED;
  Geometries g{};
  for (size_t i = 0; i < kernel.inputs.size(); ++i) {
    const api::Tensor& tensor = p.inputTensors[i];
    if (tensor.Null) return api::GLUE_INCOMPATIBLE_INPUT_COUNT;  // no operand is optional
    g.inputs[i] = &tensor.geometry;
    const auto code = check_operand(kernel.inputs[i], tensor.geometry, api::GLUE_INCOMPATIBLE_INPUT_SIZE);
    if (code != api::GLUE_SUCCESS) return code;
  }
  if (p.outputTensors[0].Null) return api::GLUE_INCOMPATIBLE_OUTPUT_COUNT;
  g.output = &p.outputTensors[0].geometry;
  const auto code = check_operand(kernel.output, *g.output, api::GLUE_INCOMPATIBLE_OUTPUT_SIZE);
  if (code != api::GLUE_SUCCESS) return code;
  if (const auto sizes = check_sizes(kernel, g, letters); sizes != api::GLUE_SUCCESS) return sizes;
  return check_parameters(kernel, p.nodeParams);
}

}  // namespace mxk::glue
