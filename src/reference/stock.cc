// SPDX-License-Identifier: Apache-2.0
//
// The baseline: what frameworks do with MXFP4 experts today. Each touched expert is unpacked to bf16 in memory, then
// multiplied by an ordinary bf16 GEMM with fp32 accumulation; results are rounded to bf16 between the steps, where
// bf16 tensors end in a framework: after gate/up, after the activation, after down, after the routing weight.
// The unpack and the GEMM use the best vector instructions of the machine and all threads, so that what is compared
// is the method and not the care taken.
#include <algorithm>
#include <cmath>

#include "core/call.h"
#include "core/formats.h"
#include "core/pool.h"
#include "core/routing.h"
#include "cpu/driver.h"
#include "mxk/backend.h"

namespace mxk {
namespace {

constexpr int kRows = 32;    // rows multiplied at a time
constexpr int kRoutes = 64;  // routes they are multiplied with at a time

float round_to_bf16(float f) { return bf16_to_f32(f32_to_bf16(f)); }

struct Layout {
  size_t unpacked, gu, a, d, sum, plan, bytes = 0;
  explicit Layout(const Shape& s) {
    const size_t T = s.T, R = T * s.k, K = s.K, I = s.I;
    unpacked = take(2 * 2 * I * K);  // bf16, one matrix of one expert; W13 is the larger
    gu = take(4 * R * 2 * I);        // fp32 [route, 2I]
    a = take(2 * R * I);             // bf16 [route, I]
    d = take(4 * R * K);             // fp32 [route, K]
    sum = take(4 * T * K);           // fp32 [token, K]
    plan = take(sizeof(int32_t) * route_plan_words(R, s.E));
  }

 private:
  size_t take(size_t n) {
    const size_t at = bytes;
    bytes += (n + 63) / 64 * 64;
    return at;
  }
};

// One matrix [rows, n] of one expert.
struct Matrix {
  const uint8_t* w;
  const uint8_t* s;
  const float* bias;
  int64_t rows, n;
};

struct Run {
  const cpu::Kernels& k = cpu::best_kernels();
  const Call& c;
  const Workspace& ws;
  const int64_t K = c.shape.K, I = c.shape.I, top_k = c.shape.k;
  const Layout at{c.shape};
  const RoutePlan plan =
      plan_routes(c.topk_ids, static_cast<int>(c.shape.T* top_k), c.first_expert, c.shape.E, memory<int32_t>(at.plan));

  template <class T>
  T* memory(size_t offset) const {
    return reinterpret_cast<T*>(ws.scratch + offset);
  }
  Slice own(int64_t n, int thread) const { return slice(n, kRows, thread, ws.pool->threads()); }

  // out[p, row] = bf16(row . x(p) + bias) for this thread's rows and all routes p of active expert a.
  template <class X>
  void multiply(int thread, int a, const Matrix& m, X&& x_of, float* out) const {
    uint16_t* unpacked = memory<uint16_t>(at.unpacked);
    const Slice mine = own(m.rows, thread);
    for (int64_t row = mine.begin; row < mine.end; ++row)
      k.unpack_row(m.w + row * (m.n / 2), m.s + row * (m.n / kGroup), static_cast<int>(m.n), unpacked + row * m.n);
    for (int p = plan.begin[a]; p < plan.begin[a + 1]; p += kRoutes) {
      const int count = std::min(kRoutes, plan.begin[a + 1] - p);
      const uint16_t* x[kRoutes];
      for (int i = 0; i < count; ++i) x[i] = x_of(p + i);
      for (int64_t row = mine.begin; row < mine.end; row += kRows) {
        const int64_t height = std::min<int64_t>(kRows, mine.end - row);
        float buffer[kRoutes * kRows];
        k.gemm_rows(unpacked + row * m.n, height, static_cast<int>(m.n), count, x, buffer, kRows);
        for (int i = 0; i < count; ++i)
          for (int64_t j = 0; j < height; ++j)
            out[(p + i) * m.rows + row + j] = round_to_bf16(buffer[i * kRows + j] + (m.bias ? m.bias[row + j] : 0.0f));
      }
    }
  }

  void gate_up(int thread) const {
    for (int a = 0; a < plan.active; ++a) {
      const int64_t row = int64_t{plan.expert[a]} * 2 * I;
      const Weights& w = c.weights;
      multiply(
          thread, a, {w.w13 + row * (K / 2), w.s13 + row * (K / kGroup), w.b13 ? w.b13 + row : nullptr, 2 * I, K},
          [&](int p) { return c.x + plan.order[p] / top_k * K; }, memory<float>(at.gu));
    }
  }

  void activate(int thread) const {
    const ActParams& act = c.variant->act_params;
    const bool interleaved = c.variant->rows == Rows::interleaved;
    const Slice mine = own(I, thread);
    for (int p = 0; p < plan.routes; ++p) {
      const float* gu = memory<float>(at.gu) + int64_t{p} * 2 * I;
      uint16_t* a = memory<uint16_t>(at.a) + p * I;
      for (int64_t i = mine.begin; i < mine.end; ++i) {
        const float g = std::min(gu[interleaved ? 2 * i : i], act.limit);
        const float u = std::clamp(gu[interleaved ? 2 * i + 1 : I + i], -act.limit, act.limit);
        a[i] = f32_to_bf16(g / (1.0f + std::exp(-act.alpha * g)) * (u + act.shift));
      }
    }
  }

  void down(int thread) const {
    for (int a = 0; a < plan.active; ++a) {
      const int64_t row = int64_t{plan.expert[a]} * K;
      const Weights& w = c.weights;
      multiply(
          thread, a, {w.w2 + row * (I / 2), w.s2 + row * (I / kGroup), w.b2 ? w.b2 + row : nullptr, K, I},
          [&](int p) { return memory<uint16_t>(at.a) + p * I; }, memory<float>(at.d));
    }
  }

  void combine(int thread) const {
    const Slice mine = own(K, thread);
    const int64_t rows = c.variant->per_route ? c.shape.T * top_k : c.shape.T;
    float* sum = memory<float>(at.sum);
    for (int64_t t = 0; t < rows; ++t)
      for (int64_t j = mine.begin; j < mine.end; ++j) {
        if (c.variant->per_route)
          store(c, t * K + j, 0.0f);
        else
          sum[t * K + j] = 0.0f;
      }
    for (int p = 0; p < plan.routes; ++p) {
      const int64_t r = plan.order[p];
      const float* d = memory<float>(at.d) + int64_t{p} * K;
      for (int64_t j = mine.begin; j < mine.end; ++j) {
        if (c.variant->per_route)
          store(c, r * K + j, d[j]);
        else
          sum[r / top_k * K + j] += round_to_bf16(routing_weight(c, r) * d[j]);
      }
    }
    if (c.variant->per_route) return;
    for (int64_t t = 0; t < rows; ++t)
      for (int64_t j = mine.begin; j < mine.end; ++j) store(c, t * K + j, sum[t * K + j]);
  }
};

Status run(const Call& call, const Workspace& ws) {
  const Run r{.c = call, .ws = ws};
  ws.pool->parallel([&](int thread) {
    r.gate_up(thread);
    ws.pool->barrier();
    r.activate(thread);
    ws.pool->barrier();
    r.down(thread);
    ws.pool->barrier();
    r.combine(thread);
  });
  return {};
}

}  // namespace

extern const Backend backend_stock;
const Backend backend_stock{"stock",
                            "baseline: unpack touched experts to bf16 in memory, then GEMM",
                            /*automatic=*/false,
                            /*table_limits=*/false,
                            /*stages=*/false,
                            [] { return Status{}; },
                            [](const Variant&, const Shape& max, int) { return Layout(max).bytes; },
                            run};

}  // namespace mxk
