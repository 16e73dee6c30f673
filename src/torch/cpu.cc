// SPDX-License-Identifier: Apache-2.0
//
// The ops of the accelerator kernels on a CPU, tensor for tensor: what a script does on a card it does here too. The
// work is done by the CPU backends, one stage at a time; around it the activations change their order. Whole layers in
// the plain order, without that, are moe_decode.cc.
#include <ATen/Functions.h>

#include <string_view>

#include "cpu/driver.h"
#include "mxk/moe.h"
#include "torch/engines.h"
#include "torch/ops.h"
#include "tpc/selfcheck.h"

namespace mxk::ops {

const char* const kLibrary = "libmxk_op_cpu.so";
const c10::DispatchKey kDevice = c10::DispatchKey::CPU;

void announce(const Kernel&) {}

namespace {

// Element i of a row in the order of the TPC kernels: 512 c + 4 j + p stands at 512 c + 128 p + j.
constexpr int64_t place(int64_t i) { return i / 512 * 512 + i % 4 * 128 + i % 512 / 4; }

// bf16 rows of n elements, of `padded` in the kernels' order.
at::Tensor plain(const at::Tensor& permuted, int64_t n) {
  const int64_t rows = permuted.size(0), padded = permuted.size(1);
  at::Tensor out = at::empty({rows, n}, permuted.options());
  const auto* from = static_cast<const uint16_t*>(permuted.const_data_ptr());
  auto* to = static_cast<uint16_t*>(out.mutable_data_ptr());
  for (int64_t row = 0; row < rows; ++row, from += padded, to += n)
    for (int64_t i = 0; i < n; ++i) to[i] = from[place(i)];
  return out;
}

at::Tensor permuted(const at::Tensor& plain, int64_t padded) {
  const int64_t rows = plain.size(0), n = plain.size(1);
  at::Tensor out = at::zeros({rows, padded}, plain.options());
  const auto* from = static_cast<const uint16_t*>(plain.const_data_ptr());
  auto* to = static_cast<uint16_t*>(out.mutable_data_ptr());
  for (int64_t row = 0; row < rows; ++row, from += n, to += padded)
    for (int64_t i = 0; i < n; ++i) to[place(i)] = from[i];
  return out;
}

// fp32 [E, 8, rows / 8], of row 8 u + i at [i, u], to [E, rows] in the order of w13: kernels want gates and up rows in
// turn, stacked ones too.
at::Tensor plain_bias(const at::Tensor& relaid) { return relaid.transpose(1, 2).reshape({relaid.size(0), -1}); }

template <class T>
const T* data(const c10::IValue& v) {
  return static_cast<const T*>(v.toTensor().const_data_ptr());
}

const Variant& variant_of(const Kernel& kernel) {
  for (const Variant& v : variants())
    if (std::string_view(kernel.users == tpc::Users::w13 ? v.w13_kernel : v.w2_kernel) == kernel.variant_kernel)
      return v;
  TORCH_INTERNAL_ASSERT(false, "no variant uses ", kernel.name);
}

at::Tensor w13(const Kernel& kernel, const std::vector<c10::IValue>& arguments) {
  const at::Tensor &w = arguments[1].toTensor(), &ids = arguments[3].toTensor();
  Call call;
  call.variant = &variant_of(kernel);
  call.shape = {static_cast<int>(ids.size(0)), static_cast<int>(ids.size(1)), static_cast<int>(w.size(0)),
                static_cast<int>(w.size(2) * 2), static_cast<int>(w.size(1) / 2)};
  const at::Tensor x = plain(arguments[0].toTensor(), call.shape.K);
  const at::Tensor a = at::empty({ids.numel(), call.shape.I}, x.options());
  at::Tensor bias;
  if (kernel.inputs.size() == 5) {
    bias = plain_bias(arguments[4].toTensor());
    call.weights.b13 = bias.const_data_ptr<float>();
  }
  call.stage = Stage::w13;
  call.x = static_cast<const uint16_t*>(x.const_data_ptr());
  call.a = static_cast<uint16_t*>(a.mutable_data_ptr());
  call.weights.w13 = data<uint8_t>(arguments[1]);
  call.weights.s13 = data<uint8_t>(arguments[2]);
  call.topk_ids = data<int32_t>(arguments[3]);
  call.first_expert = arguments.back().to<int>();
  run_call(call);
  return permuted(a, (call.shape.I + 511) / 512 * 512);
}

at::Tensor w2(const Kernel& kernel, const std::vector<c10::IValue>& arguments) {
  const at::Tensor &w = arguments[1].toTensor(), &ids = arguments[3].toTensor();
  Call call;
  call.variant = &variant_of(kernel);
  call.shape = {static_cast<int>(ids.size(0)), static_cast<int>(ids.size(1)), static_cast<int>(w.size(0)),
                static_cast<int>(w.size(1)), static_cast<int>(w.size(2) * 2)};
  const at::Tensor a = plain(arguments[0].toTensor(), call.shape.I);
  at::Tensor bias;
  if (kernel.inputs.size() == 6) {
    bias = plain_bias(arguments[5].toTensor());
    call.weights.b2 = bias.const_data_ptr<float>();
  }
  call.stage = Stage::w2;
  call.a = static_cast<uint16_t*>(a.mutable_data_ptr());
  call.weights.w2 = data<uint8_t>(arguments[1]);
  call.weights.s2 = data<uint8_t>(arguments[2]);
  call.topk_ids = data<int32_t>(arguments[3]);
  call.topk_weights = data<float>(arguments[4]);
  call.first_expert = arguments.back().to<int>();
  const at::Tensor y = at::empty(check(kernel, arguments), a.options());
  call.y = y.mutable_data_ptr();
  run_call(call);
  return y;
}

at::Tensor deq(const Kernel& kernel, const std::vector<c10::IValue>& arguments) {
  const at::Tensor out = at::empty(check(kernel, arguments), c10::kBFloat16);
  const int64_t rows = out.size(0) * out.size(1), n = out.size(2);
  const auto *w = data<uint8_t>(arguments[0]), *s = data<uint8_t>(arguments[1]);
  auto* to = static_cast<uint16_t*>(out.mutable_data_ptr());
  for (int64_t row = 0; row < rows; ++row)
    cpu::best_kernels().unpack_row(w + row * (n / 2), s + row * (n / 32), static_cast<int>(n), to + row * n);
  return out;
}

}  // namespace

at::Tensor execute(const Kernel& kernel, const std::vector<c10::IValue>& arguments) {
  switch (kernel.users) {
    case tpc::Users::w13: return w13(kernel, arguments);
    case tpc::Users::w2: return w2(kernel, arguments);
    case tpc::Users::deq: return deq(kernel, arguments);
    default: break;
  }
  const at::Tensor out = at::empty(check(kernel, arguments), c10::kFloat);
  tpc::expected_selfcheck(out.mutable_data_ptr<float>());
  return out;
}

}  // namespace mxk::ops
