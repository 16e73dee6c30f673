// SPDX-License-Identifier: Apache-2.0
//
// The semantics of a layer, in fp32 and in the order of the formulas. Every other backend is measured against this
// file, so it is written to be read; threads only divide the rows.
#include <algorithm>
#include <cmath>

#include "core/call.h"
#include "core/formats.h"
#include "core/pool.h"
#include "core/routing.h"
#include "mxk/backend.h"
#include "mxk/moe.h"

namespace mxk {
namespace {

// One packed row times one activation row: the codes of a group are summed first, then scaled, so that a scale at the
// end of its range overflows only if the result does.
float dot(const uint8_t* w, const uint8_t* s, const float* x, int n) {
  float sum = 0;
  for (int group = 0; group < n / kGroup; ++group) {
    float part = 0;
    for (int i = group * kGroup; i < (group + 1) * kGroup; ++i) part += e2m1_at(w, i) * x[i];
    sum += e8m0(s[group]) * part;
  }
  return sum;
}

// Written so that NaN stays NaN.
float activate(float g, float u, const ActParams& p) {
  g = g > p.limit ? p.limit : g;
  u = u > p.limit ? p.limit : u < -p.limit ? -p.limit : u;
  return g / (1.0f + std::exp(-p.alpha * g)) * (u + p.shift);
}

float round_to_bf16(float f) { return bf16_to_f32(f32_to_bf16(f)); }

struct Memory {
  float* x;  // [T, K]
  float* a;  // [R, I] activations, rounded to bf16
  float* d;  // [R, K] W2 a + b2 of every local route
  int32_t* plan;
  static size_t bytes(const Shape& s) {
    const size_t R = size_t(s.T) * s.k;
    return sizeof(float) * (size_t(s.T) * s.K + R * s.I + R * s.K) + sizeof(int32_t) * route_plan_words(R, s.E);
  }
  Memory(const Shape& s, unsigned char* scratch) {
    const size_t R = size_t(s.T) * s.k;
    x = reinterpret_cast<float*>(scratch);
    a = x + size_t(s.T) * s.K;
    d = a + R * s.I;
    plan = reinterpret_cast<int32_t*>(d + R * s.K);
  }
};

Status run(const Call& c, const Workspace& ws) {
  const Variant& v = *c.variant;
  const int64_t T = c.shape.T, k = c.shape.k, K = c.shape.K, I = c.shape.I, R = T * k;
  const Memory m(c.shape, ws.scratch);
  const RoutePlan plan = plan_routes(c.topk_ids, R, c.first_expert, c.shape.E, m.plan);
  for (int64_t i = 0; i < T * K; ++i) m.x[i] = bf16_to_f32(c.x[i]);

  const auto stage = [&](int thread, auto&& row_of_expert, int64_t rows) {
    const Slice own = slice(rows, 1, thread, ws.pool->threads());
    for (int a = 0; a < plan.active; ++a)
      for (int64_t row = own.begin; row < own.end; ++row)
        for (int p = plan.begin[a]; p < plan.begin[a + 1]; ++p)
          row_of_expert(int64_t{plan.expert[a]}, row, int64_t{plan.order[p]});
  };

  ws.pool->parallel([&](int thread) {
    stage(
        thread,
        [&](int64_t e, int64_t i, int64_t r) {
          const float* x = m.x + r / k * K;
          const auto w13 = [&](int64_t j) {  // row j of expert e
            const int64_t row = e * 2 * I + j;
            return dot(c.weights.w13 + row * (K / 2), c.weights.s13 + row * (K / kGroup), x, K) +
                   (c.weights.b13 ? c.weights.b13[row] : 0.0f);
          };
          const bool interleaved = v.rows == Rows::interleaved;
          const float g = w13(interleaved ? 2 * i : i), u = w13(interleaved ? 2 * i + 1 : I + i);
          m.a[r * I + i] = round_to_bf16(activate(g, u, v.act_params));
        },
        I);

    ws.pool->barrier();

    stage(
        thread,
        [&](int64_t e, int64_t j, int64_t r) {
          const int64_t row = e * K + j;
          m.d[r * K + j] = dot(c.weights.w2 + row * (I / 2), c.weights.s2 + row * (I / kGroup), m.a + r * I, I) +
                           (c.weights.b2 ? c.weights.b2[row] : 0.0f);
        },
        K);
  });

  // The sum over a token's routes runs in plan order: ascending local expert, ties by slot.
  float* sum = m.x;  // the activations are no longer needed
  std::fill_n(sum, T * K, 0.0f);
  if (v.per_route)
    for (int64_t i = 0; i < R * K; ++i) store(c, i, 0.0f);
  for (int p = 0; p < plan.routes; ++p) {
    const int64_t r = plan.order[p];
    for (int64_t j = 0; j < K; ++j) {
      if (v.per_route)
        store(c, r * K + j, m.d[r * K + j]);
      else
        sum[r / k * K + j] += routing_weight(c, r) * m.d[r * K + j];
    }
  }
  if (!v.per_route)
    for (int64_t i = 0; i < T * K; ++i) store(c, i, sum[i]);
  return {};
}

}  // namespace

extern const Backend backend_ref;
const Backend backend_ref{"ref",
                          "plain fp32 loops: the semantics",
                          false,
                          false,
                          false,
                          [] { return Status{}; },
                          [](const Variant&, const Shape& max, int) { return Memory::bytes(max); },
                          run};

}  // namespace mxk
