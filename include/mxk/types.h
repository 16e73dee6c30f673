// SPDX-License-Identifier: Apache-2.0
//
// Plain data shared by every layer: what a variant is, what a call carries. Letters are used the same way
// everywhere: T tokens, k routes per token (top-k), R = T*k routes, E local experts, K hidden, I intermediate.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace mxk {

// Codes are part of the C ABI (mxk.h) and never renumbered.
enum class Code : int {
  ok = 0,
  bad_argument = 1,         // null pointer, bias where there is none, a thread count or layer that cannot be
  bad_shape = 2,            // a dimension outside what the variant or backend takes
  bad_dtype = 3,            // an element type that is neither f32 nor bf16
  unsupported_variant = 4,  // no such row in variants.inc, or a backend that lacks it
  unsupported_cpu = 5,      // the backend cannot run on this machine
  backend_unknown = 6,      // no backend of that name
  out_of_memory = 7,
  corrupt_file = 8,  // a checkpoint that breaks its format
  io = 9,            // the operating system refused a read or a write
};

// A code and, unless ok, one line: what, limit, value, what happens now.
struct [[nodiscard]] Status {
  Code code = Code::ok;
  std::string message;
  bool ok() const { return code == Code::ok; }
};
inline Status error(Code code, std::string message) { return {code, std::move(message)}; }

enum class Rows { interleaved, stacked };  // w13 rows: gate,up,gate,up... or all gate, then all up
enum class Act { swiglu_oai, silu, swiglu_clamp };
enum class Dtype : int { f32 = 0, bf16 = 1 };  // as mxk_dtype of mxk.h

// g = min(g, limit), u = clamp(u, -limit, limit), h = g * sigmoid(alpha * g) * (u + shift), all in fp32.
struct ActParams {
  float limit, alpha, shift;
};

// Limits of the accelerator kernels of a variant.
struct Limits {
  int k_multiple, k_max;
  int i_multiple, i_max;
  int tokens, routes, experts;
};

// One row of variants.inc.
struct Variant {
  const char* name;
  const char* models;
  const char* w13_kernel;
  const char* w2_kernel;
  bool deq;  // ships the prefill unpack kernel too
  Rows rows;
  Act act;
  ActParams act_params;
  bool bias;       // b13 and b2 are accepted
  bool x_tail;     // accelerator detail, see variants.inc
  bool per_route;  // y is [T, k, K], unweighted
  Limits limits;
  struct Serving {
    int K, I, e_local, e_total, top_k;
  } serving;
};

struct Shape {
  int T;  // tokens in the call
  int k;  // routes per token
  int E;  // local experts
  int K;  // hidden size
  int I;  // intermediate size
};

// Views of the served layout; nothing is owned or copied, no alignment is assumed for the bytes.
struct Weights {
  const uint8_t* w13 = nullptr;  // [E, 2I, K/2]   E2M1 pairs, low nibble = even element
  const uint8_t* s13 = nullptr;  // [E, 2I, K/32]  E8M0
  const uint8_t* w2 = nullptr;   // [E, K, I/2]
  const uint8_t* s2 = nullptr;   // [E, K, I/32]
  const float* b13 = nullptr;    // [E, 2I] in the row order of w13, or null
  const float* b2 = nullptr;     // [E, K], or null
};

// Half a layer, for hosts whose operators are the two projections: w13 writes a, w2 reads it.
enum class Stage { both, w13, w2 };

// One call of one layer. Row-major, dense.
struct Call {
  const Variant* variant = nullptr;
  Shape shape{};
  Weights weights;
  const uint16_t* x = nullptr;         // bf16 [T, K]
  const int32_t* topk_ids = nullptr;   // [T, k] GLOBAL expert ids; outside [first_expert, first_expert + E) is skipped
  const void* topk_weights = nullptr;  // [T, k] of weights_dtype, used as they are
  Dtype weights_dtype = Dtype::f32;
  int first_expert = 0;
  void* y = nullptr;  // [T, K], or [T, k, K] for per-route variants; of out_dtype
  Dtype out_dtype = Dtype::bf16;
  Stage stage = Stage::both;  // anything else needs a backend that has stages
  uint16_t* a = nullptr;      // bf16 [T*k, I] activations, zero for skipped routes; unused by a whole layer
};

}  // namespace mxk
