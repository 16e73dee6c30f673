// SPDX-License-Identifier: Apache-2.0
//
// tpc-emu: the kernels for Gaudi 2 on the host, the whole way they go on a card: the library hands out its kernels to a
// graph compiler, which is the stand-in of library.h, and each runs on 24 TPCs, which executor.h has on the threads of
// the pool. What a card does around the kernels, the host does here: the activations' order, fp32 routing weights, the
// biases' order.
#include "tpc/host/backend.h"

#include <atomic>
#include <cstring>
#include <memory>

#include "core/call.h"
#include "core/pool.h"
#include "mxk/backend.h"

extern "C" const uint8_t mxk_kernel_library_begin[], mxk_kernel_library_end[];  // libmxk_tpc.so, embedded

namespace mxk::tpc {
namespace {

thread_local CallStats last;

constexpr int64_t pad(int64_t n) { return (n + 511) / 512 * 512; }

struct Loaded {
  std::unique_ptr<Library> library;
  Status status;
};
const Loaded& loaded() {
  static const Loaded l = [] {
    Loaded made;
    made.status = Library::open(std::span(mxk_kernel_library_begin, mxk_kernel_library_end), &made.library);
    return made;
  }();
  return l;
}

Status supported() { return loaded().status; }

// Tensors that exist only around the kernels.
struct Layout {
  size_t x, a, weights, bias13, bias2, bytes = 0;
  Layout(const Variant& v, const Shape& s) {
    const size_t T = s.T, R = T * s.k, E = v.bias ? s.E : 0;
    x = take(2 * T * pad(s.K));
    a = take(2 * R * pad(s.I));
    weights = take(4 * R);
    bias13 = take(4 * E * 2 * s.I);
    bias2 = take(4 * E * s.K);
  }

 private:
  size_t take(size_t n) {
    const size_t at = bytes;
    bytes += (n + 63) / 64 * 64;
    return at;
  }
};

size_t scratch_bytes(const Variant& v, const Shape& max, int) { return Layout(v, max).bytes; }

// Element 512 c + 4 i + p of a row to 512 c + 128 p + i; zeros behind the row.
void permute(const uint16_t* x, int64_t rows, int64_t n, uint16_t* out) {
  std::memset(out, 0, static_cast<size_t>(2 * rows * pad(n)));
  for (int64_t row = 0; row < rows; ++row, x += n, out += pad(n))
    for (int64_t i = 0; i < n; ++i) out[i / 512 * 512 + i % 4 * 128 + i % 512 / 4] = x[i];
}

// Bias of row 8 u + i of each expert to [i, u]; no bias is a bias of zero.
void relay(const float* bias, int64_t experts, int64_t rows, float* out) {
  for (int64_t e = 0; e < experts; ++e)
    for (int64_t row = 0; row < rows; ++row)
      out[e * rows + row % 8 * (rows / 8) + row / 8] = bias ? bias[e * rows + row] : 0;
}

TensorSpec spec(api::TensorDataType type, std::initializer_list<int64_t> sizes) {
  TensorSpec s{type, {}};
  for (int64_t n : sizes) s.sizes.push_back(static_cast<uint64_t>(n));
  return s;
}

struct Operand {
  TensorSpec spec;
  const void* data;
};

Status launch(const char* guid, const std::vector<Operand>& inputs, const Operand& output, int first_expert,
              ThreadPool& pool, RunStats* stats) {
  Node node;
  node.guid = guid;
  std::vector<const void*> in;
  for (const Operand& o : inputs) {
    node.inputs.push_back(o.spec);
    in.push_back(o.data);
  }
  node.outputs.push_back(output.spec);
  node.params.resize(sizeof(int32_t));
  std::memcpy(node.params.data(), &first_expert, sizeof(int32_t));
  Instance instance;
  if (Status s = loaded().library->instantiate(node, &instance); !s.ok()) return s;
  RunOptions options;
  options.parallel = [&pool](int n, const std::function<void(int)>& f) {
    std::atomic<int> next = 0;
    pool.parallel([&](int) {
      for (int i; (i = next.fetch_add(1)) < n;) f(i);
    });
  };
  void* const out[] = {const_cast<void*>(output.data)};
  return tpc::run(instance, in, out, options, stats);
}

Status run_call(const Call& c, const Workspace& ws) {
  last = {};
  const Variant& v = *c.variant;
  const int64_t T = c.shape.T, k = c.shape.k, E = c.shape.E, K = c.shape.K, I = c.shape.I;
  if (T == 0) return {};
  const Layout at(v, c.shape);
  uint16_t* x = reinterpret_cast<uint16_t*>(ws.scratch + at.x);
  void* a = ws.scratch + at.a;
  float* weights = reinterpret_cast<float*>(ws.scratch + at.weights);
  float* bias13 = reinterpret_cast<float*>(ws.scratch + at.bias13);
  float* bias2 = reinterpret_cast<float*>(ws.scratch + at.bias2);
  permute(c.x, T, K, x);
  for (int64_t r = 0; r < T * k; ++r) weights[r] = routing_weight(c, r);

  const auto ids = spec(api::DATA_I32, {k, T});
  const auto a_spec = spec(api::DATA_BF16, {pad(I), T * k});
  std::vector<Operand> w13 = {{spec(api::DATA_BF16, {pad(K), T}), x},
                              {spec(api::DATA_U8, {K / 2, 2 * I, E}), c.weights.w13},
                              {spec(api::DATA_U8, {K / 32, 2 * I, E}), c.weights.s13},
                              {ids, c.topk_ids}};
  std::vector<Operand> w2 = {{a_spec, a},
                             {spec(api::DATA_U8, {I / 2, K, E}), c.weights.w2},
                             {spec(api::DATA_U8, {I / 32, K, E}), c.weights.s2},
                             {ids, c.topk_ids},
                             {spec(api::DATA_F32, {k, T}), weights}};
  if (v.bias) {
    relay(c.weights.b13, E, 2 * I, bias13);
    relay(c.weights.b2, E, K, bias2);
    w13.push_back({spec(api::DATA_F32, {I / 4, 8, E}), bias13});
    w2.push_back({spec(api::DATA_F32, {K / 8, 8, E}), bias2});
  }
  if (Status s = launch(v.w13_kernel, w13, {a_spec, a}, c.first_expert, *ws.pool, &last.w13); !s.ok()) return s;
  const auto type = c.out_dtype == Dtype::f32 ? api::DATA_F32 : api::DATA_BF16;
  const std::string kernel = std::string(v.w2_kernel) + (c.out_dtype == Dtype::f32 ? "_f32" : "");
  const auto y = v.per_route ? spec(type, {K, k, T}) : spec(type, {K, T});
  return launch(kernel.c_str(), w2, {y, c.y}, c.first_expert, *ws.pool, &last.w2);
}

}  // namespace

const CallStats& last_call() { return last; }

double CallStats::issue_seconds() const { return static_cast<double>(w13.busiest + w2.busiest) / kClockHz; }

}  // namespace mxk::tpc

namespace mxk {
extern const Backend backend_tpc_emu;
const Backend backend_tpc_emu = {"tpc-emu",
                                 "the Gaudi 2 kernels, emulated on the host: slow, for checking",
                                 false,
                                 true,
                                 false,
                                 tpc::supported,
                                 tpc::scratch_bytes,
                                 tpc::run_call};
}  // namespace mxk
