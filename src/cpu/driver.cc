// SPDX-License-Identifier: Apache-2.0
//
// The driver of all CPU backends: two stages over the rows of the touched experts, with a barrier between them.
//   pack     each token's activations into the order of the instruction set, once per call
//   stage 1  a[route] = act(W13 x + b13), rounded to bf16, written in the packed order stage 2 reads
//   stage 2  sum[token] += w * (W2 a + b2) over the experts in ascending order, then one rounding
// Half a call (Stage) ends with a barrier and the activations in the caller's order, or begins with packing those.
// Each output is computed whole by one thread, in an order that does not depend on the thread or on how the rows are
// divided, so the split changes no bit of the result.
#include "cpu/driver.h"

#include <algorithm>
#include <cstring>

#include "core/call.h"
#include "core/formats.h"
#include "core/pool.h"
#include "core/routing.h"
#include "cpu/features.h"

namespace mxk::cpu {
namespace {

// Rows of W2 that are computed into a buffer before they are added to the tokens' sums: a cache line of floats.
constexpr int kSumRows = 16;

// What one call of rows() computes for one thread: g and u of a block of activations for every token.
constexpr int kOutFloats = kMaxTokens * 2 * kBlock;

int64_t packed_bytes(const Kernels& k, int64_t n) { return (n + k.chunk - 1) / k.chunk * k.chunk_bytes; }

// Scratch of one call, in the order of use. Sizes grow with every dimension, so that what the maximum shape needs
// holds any smaller call.
struct Layout {
  size_t plan, x, a, sum, out, bytes;

  Layout(const Kernels& k, const Shape& s, int threads_) {
    const size_t T = s.T, R = T * s.k;
    bytes = 0;
    plan = take(sizeof(int32_t) * route_plan_words(R, s.E));
    x = take(T * packed_bytes(k, s.K));
    a = take(R * packed_bytes(k, s.I));
    sum = take(sizeof(float) * T * s.K);
    out = take(sizeof(float) * kOutFloats * threads_);
  }

 private:
  static size_t round_up(size_t n) { return (n + 63) / 64 * 64; }
  size_t take(size_t n) {
    const size_t at = bytes;
    bytes += round_up(n);
    return at;
  }
};

struct Run {
  const Kernels& k;
  const Call& call;
  const Workspace& ws;
  const int64_t K, I, top_k;
  const int threads;
  const Layout at;
  const RoutePlan plan;

  Run(const Kernels& kernels, const Call& c, const Workspace& w)
      : k(kernels),
        call(c),
        ws(w),
        K(c.shape.K),
        I(c.shape.I),
        top_k(c.shape.k),
        threads(w.pool->threads()),
        at(kernels, c.shape, threads),
        plan(plan_routes(c.topk_ids, c.shape.T * c.shape.k, c.first_expert, c.shape.E,
                         reinterpret_cast<int32_t*>(w.scratch + at.plan))) {}

  unsigned char* x_row(int64_t token) const { return ws.scratch + at.x + token * packed_bytes(k, K); }
  unsigned char* a_row(int64_t position) const { return ws.scratch + at.a + position * packed_bytes(k, I); }
  float* sum_row(int64_t token) const { return reinterpret_cast<float*>(ws.scratch + at.sum) + token * K; }
  float* thread_out(int t) const { return reinterpret_cast<float*>(ws.scratch + at.out) + t * kOutFloats; }

  void pack_inputs(int thread) const;
  void pack_activations(int thread) const;
  void clear_activations(int thread) const;
  void unpack_activations(int thread) const;
  void stage1(int thread) const;
  void stage2(int thread) const;
  RowStreams w13_streams(int active, int thread, Slice* own) const;
  RowStreams w2_streams(int active, Slice own) const;
  void add_to_sums(int active, int first, int count, int64_t row, int rows, const float* out) const;
  void store_sums(Slice own) const;
};

// The padding of a packed row of n becomes zero.
void pack_zeros(const Kernels& k, void* packed, int64_t n) {
  static constexpr uint16_t kZeros[kBlock] = {};
  for (int64_t i = n; i % k.chunk != 0; i += kBlock) k.pack(kZeros, packed, i, n);
}

void Run::pack_inputs(int thread) const {
  const int64_t blocks = K / kBlock, total = call.shape.T * blocks;
  const Slice own = slice(total, 1, thread, threads);
  for (int64_t b = own.begin; b < own.end; ++b) {
    const int64_t token = b / blocks, i = b % blocks * kBlock;
    k.pack(call.x + token * K + i, x_row(token), i, K);
    if (i + kBlock == K) pack_zeros(k, x_row(token), K);
  }
}

// Rows of call.a, of local routes, from the caller's order.
void Run::pack_activations(int thread) const {
  const Slice own = slice(plan.routes, 1, thread, threads);
  for (int64_t p = own.begin; p < own.end; ++p) {
    for (int64_t i = 0; i < I; i += kBlock) k.pack(call.a + plan.order[p] * I + i, a_row(p), i, I);
    pack_zeros(k, a_row(p), I);
  }
}

void Run::clear_activations(int thread) const {
  const Slice own = slice(call.shape.T * top_k * I, kBlock, thread, threads);
  std::fill(call.a + own.begin, call.a + own.end, uint16_t{0});
}

// And to it.
void Run::unpack_activations(int thread) const {
  const Slice own = slice(plan.routes, 1, thread, threads);
  for (int64_t p = own.begin; p < own.end; ++p)
    for (int64_t i = 0; i < I; i += kBlock) k.unpack(a_row(p), call.a + plan.order[p] * I + i, i, I);
}

// This thread's rows of active expert `a` as four streams: gate, up, gate, up. The slices are rotated from expert to
// expert, so that a thread count that does not divide the blocks does not load the same thread each time.
RowStreams Run::w13_streams(int a, int thread, Slice* own) const {
  *own = slice(I, kBlock, (thread + a) % threads, threads);
  const bool interleaved = call.variant->rows == Rows::interleaved;
  const int64_t base = int64_t{plan.expert[a]} * 2 * I;
  const int64_t gate = base + (interleaved ? 2 * own->begin : own->begin), up = interleaved ? gate + 1 : gate + I;
  const int64_t next_h = interleaved ? 2 : 1;  // rows from one h to the next
  const int64_t row[kTileRows] = {gate, up, gate + next_h, up + next_h};
  RowStreams rs;
  for (int r = 0; r < kTileRows; ++r) {
    rs.w[r] = call.weights.w13 + row[r] * (K / 2);
    rs.s[r] = call.weights.s13 + row[r] * (K / kGroup);
  }
  rs.w_step = 2 * next_h * (K / 2);
  rs.s_step = 2 * next_h * (K / kGroup);
  rs.tiles_left = static_cast<int>((own->end - own->begin) / 2);
  return rs;
}

RowStreams Run::w2_streams(int a, Slice own) const {
  const int64_t row = int64_t{plan.expert[a]} * K + own.begin;
  RowStreams rs;
  for (int r = 0; r < kTileRows; ++r) {
    rs.w[r] = call.weights.w2 + (row + r) * (I / 2);
    rs.s[r] = call.weights.s2 + (row + r) * (I / kGroup);
  }
  rs.w_step = kTileRows * (I / 2);
  rs.s_step = kTileRows * (I / kGroup);
  rs.tiles_left = static_cast<int>((own.end - own.begin) / kTileRows);
  return rs;
}

void set_next(RowStreams& rs, const RowStreams& next) {
  std::copy(next.w, next.w + kTileRows, rs.next_w);
  std::copy(next.s, next.s + kTileRows, rs.next_s);
  rs.prefetch_to_l2 = features().prefetch_to_l2;
}

void advance(RowStreams& rs, int tiles) {
  for (int r = 0; r < kTileRows; ++r) {
    rs.w[r] += tiles * rs.w_step;
    rs.s[r] += tiles * rs.s_step;
  }
  rs.tiles_left -= tiles;
}

void Run::stage1(int thread) const {
  for (int a = 0; a < plan.active; ++a) {
    Slice own, unused;
    RowStreams rs = w13_streams(a, thread, &own);
    if (a + 1 < plan.active) {
      set_next(rs, w13_streams(a + 1, thread, &unused));
    } else if (call.stage == Stage::both) {
      set_next(rs, w2_streams(0, slice(K, kSumRows, thread, threads)));
    } else {
      set_next(rs, w13_streams(a, thread, &unused));
    }
    rs.tiles = kBlock / 2;
    float* out = thread_out(thread);
    for (int64_t h = own.begin; h < own.end; h += kBlock, advance(rs, rs.tiles)) {
      const float* bias = nullptr;
      float pairs[2 * kBlock];
      if (call.weights.b13) {
        const float* b = call.weights.b13 + int64_t{plan.expert[a]} * 2 * I;
        const bool interleaved = call.variant->rows == Rows::interleaved;
        for (int i = 0; i < kBlock; ++i) {
          pairs[2 * i] = interleaved ? b[2 * (h + i)] : b[h + i];
          pairs[2 * i + 1] = interleaved ? b[2 * (h + i) + 1] : b[I + h + i];
        }
        bias = pairs;
      }
      for (int p = plan.begin[a]; p < plan.begin[a + 1]; p += kMaxTokens) {
        const int count = std::min(kMaxTokens, plan.begin[a + 1] - p);
        const void* x[kMaxTokens];
        for (int t = 0; t < count; ++t) x[t] = x_row(plan.order[p + t] / top_k);
        k.rows(rs, static_cast<int>(K), count, x, out, 2 * kBlock);
        const ActParams& act = call.variant->act_params;
        for (int t = 0; t < count; ++t) {
          k.activate(out + t * 2 * kBlock, bias, act.limit, act.alpha, act.shift, a_row(p + t), h, I);
          if (h + kBlock == I) pack_zeros(k, a_row(p + t), I);
        }
      }
    }
  }
}

// w * (out + b2) into the sums of the tokens, or straight to y per route.
void Run::add_to_sums(int a, int first, int count, int64_t row, int rows, const float* out) const {
  const float* b2 = call.weights.b2 ? call.weights.b2 + int64_t{plan.expert[a]} * K + row : nullptr;
  for (int t = 0; t < count; ++t, out += kSumRows) {
    const int64_t r = plan.order[first + t];
    float d[kSumRows];
    for (int j = 0; j < rows; ++j) d[j] = b2 ? out[j] + b2[j] : out[j];
    if (!call.variant->per_route) {
      const float w = routing_weight(call, r);
      float* sum = sum_row(r / top_k) + row;
      for (int j = 0; j < rows; ++j) sum[j] += w * d[j];
    } else {
      for (int j = 0; j < rows; ++j) store(call, r * K + row + j, d[j]);
    }
  }
}

void Run::store_sums(Slice own) const {
  for (int64_t token = 0; token < call.shape.T; ++token) {
    const float* sum = sum_row(token);
    for (int64_t j = own.begin; j < own.end; ++j) store(call, token * K + j, sum[j]);
  }
}

void Run::stage2(int thread) const {
  const Slice own = slice(K, kSumRows, thread, threads);
  const int64_t width = own.end - own.begin;
  if (!call.variant->per_route) {
    for (int64_t token = 0; token < call.shape.T; ++token) std::fill_n(sum_row(token) + own.begin, width, 0.0f);
  } else {  // skipped routes are zero rows
    const size_t size = call.out_dtype == Dtype::f32 ? 4 : 2;
    for (int64_t r = 0; r < call.shape.T * top_k; ++r)
      std::memset(static_cast<char*>(call.y) + (r * K + own.begin) * size, 0, width * size);
  }
  float* out = thread_out(thread);
  for (int a = 0; a < plan.active; ++a) {
    RowStreams rs = w2_streams(a, own);
    set_next(rs, w2_streams(a + 1 < plan.active ? a + 1 : a, own));
    for (int64_t row = own.begin; row < own.end; row += kSumRows, advance(rs, rs.tiles)) {
      const int rows = static_cast<int>(std::min<int64_t>(kSumRows, own.end - row));
      rs.tiles = rows / kTileRows;
      for (int p = plan.begin[a]; p < plan.begin[a + 1]; p += kMaxTokens) {
        const int count = std::min(kMaxTokens, plan.begin[a + 1] - p);
        const void* x[kMaxTokens];
        for (int t = 0; t < count; ++t) x[t] = a_row(p + t);
        k.rows(rs, static_cast<int>(I), count, x, out, kSumRows);
        add_to_sums(a, p, count, row, rows, out);
      }
    }
  }
  if (!call.variant->per_route) store_sums(own);
}

}  // namespace

size_t scratch_bytes(const Kernels& k, const Shape& max, int threads) { return Layout(k, max, threads).bytes; }

Status run(const Kernels& k, const Call& call, const Workspace& ws) {
  const Run r(k, call, ws);
  ws.pool->parallel([&](int thread) {
    if (call.stage == Stage::w2) {
      r.pack_activations(thread);
    } else {
      r.pack_inputs(thread);
      ws.pool->barrier();
      if (call.stage == Stage::w13) r.clear_activations(thread);
      r.stage1(thread);
    }
    ws.pool->barrier();
    if (call.stage == Stage::w13) {
      r.unpack_activations(thread);
    } else {
      r.stage2(thread);
    }
  });
  return {};
}

}  // namespace mxk::cpu
