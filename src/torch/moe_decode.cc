// SPDX-License-Identifier: Apache-2.0
//
// torch.ops.mxk.moe_decode: the routed experts of one layer on a CPU, from the served tensors as they are.
//   x bf16 [T, K], topk_ids int32 or int64 [T, k] (global), topk_weights f32 or bf16 [T, k],
//   w13 u8 [E, 2I, K/2], s13 u8 [E, 2I, K/32], w2 u8 [E, K, I/2], s2 u8 [E, K, I/32], bias13 [E, 2I] and bias2 [E, K]
//   of f32 (bf16 is converted in every call) or None -> y bf16 [T, K], or [T, k, K] for variants with per-route output.
// docs/semantics.md says what is computed. Errors are RuntimeErrors: what, limit, value; nothing is computed then.
#include <ATen/Functions.h>
#include <torch/library.h>

#include <algorithm>

#include "mxk/moe.h"
#include "torch/engines.h"

namespace mxk::ops {
namespace {

using OptionalTensor = std::optional<at::Tensor>;

const Variant& variant_named(std::string_view name) {
  const Variant* variant = find_variant(name);
  if (!variant) {
    std::string names;
    for (const Variant& v : variants()) names += std::string(names.empty() ? "" : ", ") + v.name;
    TORCH_CHECK(false, "moe_decode: variant '", name, "' is unknown (", names, "); nothing was computed");
  }
  return *variant;
}

void check_type(const char* name, const at::Tensor& t, std::initializer_list<c10::ScalarType> allowed, int64_t rank) {
  TORCH_CHECK(std::find(allowed.begin(), allowed.end(), t.scalar_type()) != allowed.end(), "moe_decode: ", name,
              " must be ", c10::ArrayRef<c10::ScalarType>(allowed), ", it is ", t.scalar_type(),
              "; nothing was computed");
  TORCH_CHECK(t.dim() == rank, "moe_decode: ", name, " must have ", rank, " dimensions, it has ", t.dim(),
              "; nothing was computed");
}

void check_size(const char* name, const at::Tensor& t, c10::IntArrayRef sizes) {
  TORCH_CHECK(t.sizes() == sizes, "moe_decode: ", name, " must be ", sizes, " here, it is ", t.sizes(),
              "; nothing was computed");
}

// Weights are read where they lie: a copy of them is what this library exists to avoid.
const uint8_t* weights(const char* name, const at::Tensor& t) {
  TORCH_CHECK(t.is_contiguous(), "moe_decode: ", name, " must be contiguous; nothing was computed");
  return t.const_data_ptr<uint8_t>();
}

void check_types(const Variant& v, const at::Tensor& x, const at::Tensor& ids, const at::Tensor& topk_weights,
                 const at::Tensor& w13, const at::Tensor& s13, const at::Tensor& w2, const at::Tensor& s2,
                 const OptionalTensor& bias13, const OptionalTensor& bias2) {
  check_type("x", x, {c10::kBFloat16}, 2);
  check_type("topk_ids", ids, {c10::kInt, c10::kLong}, 2);
  check_type("topk_weights", topk_weights, {c10::kFloat, c10::kBFloat16}, 2);
  check_type("w13", w13, {c10::kByte}, 3);
  check_type("s13", s13, {c10::kByte}, 3);
  check_type("w2", w2, {c10::kByte}, 3);
  check_type("s2", s2, {c10::kByte}, 3);
  TORCH_CHECK(v.bias || !(bias13 || bias2), "moe_decode: variant '", v.name,
              "' has no bias but one was given; nothing was computed");
  if (bias13) check_type("bias13", *bias13, {c10::kFloat, c10::kBFloat16}, 2);
  if (bias2) check_type("bias2", *bias2, {c10::kFloat, c10::kBFloat16}, 2);
  // One tensor on the meta device is enough to get here, and its contents would be anything.
  const std::pair<const char*, const at::Tensor*> tensors[] = {{"topk_ids", &ids},
                                                               {"topk_weights", &topk_weights},
                                                               {"w13", &w13},
                                                               {"s13", &s13},
                                                               {"w2", &w2},
                                                               {"s2", &s2},
                                                               {"bias13", bias13 ? &*bias13 : nullptr},
                                                               {"bias2", bias2 ? &*bias2 : nullptr}};
  for (const auto& [name, t] : tensors)
    TORCH_CHECK(!t || t->device() == x.device(), "moe_decode: ", name, " is on ", t->device(), ", x on ", x.device(),
                "; nothing was computed");
}

int to_int(const char* name, int64_t n) {
  TORCH_CHECK(n >= 0 && n <= INT32_MAX, "moe_decode: ", name, "=", n, " must be 0 to 2147483647; nothing was computed");
  return static_cast<int>(n);
}

// Ids that no int32 holds are no expert's.
at::Tensor int32_ids(const at::Tensor& ids) {
  if (ids.scalar_type() == c10::kInt) return ids.contiguous();
  return at::where(ids.ge(0).logical_and(ids.le(INT32_MAX)), ids, -1).to(c10::kInt).contiguous();
}

at::Tensor moe_decode(const at::Tensor& x, const at::Tensor& topk_ids, const at::Tensor& topk_weights,
                      const at::Tensor& w13, const at::Tensor& s13, const at::Tensor& w2, const at::Tensor& s2,
                      const OptionalTensor& bias13, const OptionalTensor& bias2, std::string_view variant,
                      int64_t first_expert) {
  const Variant& v = variant_named(variant);
  check_types(v, x, topk_ids, topk_weights, w13, s13, w2, s2, bias13, bias2);
  const int64_t T = x.size(0), K = x.size(1), k = topk_ids.size(1), E = w2.size(0), I = w2.size(2) * 2;
  Call call;
  call.variant = &v;
  call.shape = {to_int("T", T), to_int("k", k), to_int("E", E), to_int("K", K), to_int("I", I)};
  if (const Status status = check_shape(v, call.shape); !status.ok()) TORCH_CHECK(false, status.message);
  check_size("topk_ids", topk_ids, {T, k});
  check_size("topk_weights", topk_weights, {T, k});
  check_size("w13", w13, {E, 2 * I, K / 2});
  check_size("s13", s13, {E, 2 * I, K / 32});
  check_size("w2", w2, {E, K, I / 2});
  check_size("s2", s2, {E, K, I / 32});
  if (bias13) check_size("bias13", *bias13, {E, 2 * I});
  if (bias2) check_size("bias2", *bias2, {E, K});

  const at::Tensor x_rows = x.contiguous(), ids = int32_ids(topk_ids), route_weights = topk_weights.contiguous();
  const auto fp32 = [](const OptionalTensor& t) { return t ? t->to(c10::kFloat).contiguous() : at::Tensor(); };
  const at::Tensor b13 = fp32(bias13), b2 = fp32(bias2);
  const at::Tensor y = v.per_route ? at::empty({T, k, K}, x.options()) : at::empty({T, K}, x.options());
  call.weights = {weights("w13", w13),
                  weights("s13", s13),
                  weights("w2", w2),
                  weights("s2", s2),
                  b13.defined() ? b13.const_data_ptr<float>() : nullptr,
                  b2.defined() ? b2.const_data_ptr<float>() : nullptr};
  call.x = static_cast<const uint16_t*>(x_rows.const_data_ptr());
  call.topk_ids = ids.const_data_ptr<int32_t>();
  call.topk_weights = route_weights.const_data_ptr();
  call.weights_dtype = route_weights.scalar_type() == c10::kFloat ? Dtype::f32 : Dtype::bf16;
  call.first_expert = to_int("first_expert", first_expert);
  call.y = y.mutable_data_ptr();
  run_call(call);
  return y;
}

// Sizes may be symbols here, so what depends on them is left to the call itself.
at::Tensor moe_decode_meta(const at::Tensor& x, const at::Tensor& topk_ids, const at::Tensor& topk_weights,
                           const at::Tensor& w13, const at::Tensor& s13, const at::Tensor& w2, const at::Tensor& s2,
                           const OptionalTensor& bias13, const OptionalTensor& bias2, std::string_view variant,
                           int64_t) {
  const Variant& v = variant_named(variant);
  check_types(v, x, topk_ids, topk_weights, w13, s13, w2, s2, bias13, bias2);
  if (!v.per_route) return at::empty_symint({x.sym_size(0), x.sym_size(1)}, x.options());
  return at::empty_symint({x.sym_size(0), topk_ids.sym_size(1), x.sym_size(1)}, x.options());
}

}  // namespace
}  // namespace mxk::ops

TORCH_LIBRARY_FRAGMENT(mxk, m) {
  m.def(
      "moe_decode(Tensor x, Tensor topk_ids, Tensor topk_weights, Tensor w13, Tensor s13, Tensor w2, Tensor s2, "
      "Tensor? bias13, Tensor? bias2, str variant, int first_expert=0) -> Tensor");
}
TORCH_LIBRARY_IMPL(mxk, CPU, m) { m.impl("moe_decode", &mxk::ops::moe_decode); }
TORCH_LIBRARY_IMPL(mxk, Meta, m) { m.impl("moe_decode", &mxk::ops::moe_decode_meta); }
