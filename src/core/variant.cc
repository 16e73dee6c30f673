// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>

#include "mxk/moe.h"
#include "mxk/variants.inc"

namespace mxk {
namespace {

struct W13Kernel {
  Rows rows;
  Act act;
  bool bias, x_tail;
};
struct W2Kernel {
  bool bias, per_route;
};

#define MXK_DEFINE(name, rows, act, bias, x_tail) constexpr W13Kernel k_##name{Rows::rows, Act::act, bias, x_tail};
MXK_W13_KERNELS(MXK_DEFINE)
#undef MXK_DEFINE
#define MXK_DEFINE(name, bias, per_route) constexpr W2Kernel k_##name{bias, per_route};
MXK_W2_KERNELS(MXK_DEFINE)
#undef MXK_DEFINE
#define MXK_DEFINE(name, K, I, local, total, top_k) \
  constexpr Variant::Serving k_serving_##name{K, I, local, total, top_k};
MXK_SHAPES(MXK_DEFINE)
#undef MXK_DEFINE

constexpr ActParams act_params(Act act) {
  switch (act) {
#define MXK_CASE(name, limit, alpha, shift) \
  case Act::name: return {limit, alpha, shift};
    MXK_ACTS(MXK_CASE)
#undef MXK_CASE
  }
  return {};
}

constexpr Variant kVariants[] = {
#define MXK_ROW(name, w13, w2, deq, k_mult, k_max, i_mult, i_max, tokens, routes, experts, models) \
  {#name,                                                                                          \
   models,                                                                                         \
   #w13,                                                                                           \
   #w2,                                                                                            \
   deq,                                                                                            \
   k_##w13.rows,                                                                                   \
   k_##w13.act,                                                                                    \
   act_params(k_##w13.act),                                                                        \
   k_##w13.bias,                                                                                   \
   k_##w13.x_tail,                                                                                 \
   k_##w2.per_route,                                                                               \
   {k_mult, k_max, i_mult, i_max, tokens, routes, experts},                                        \
   k_serving_##name},
    MXK_VARIANTS(MXK_ROW)
#undef MXK_ROW
};

#define MXK_ASSERT(name, w13, w2, ...) \
  static_assert(k_##w13.bias == k_##w2.bias, #name ": both kernels take biases or neither does");
MXK_VARIANTS(MXK_ASSERT)
#undef MXK_ASSERT

Status refuse(const Variant& v, const char* what, int64_t value, const std::string& limit) {
  return error(Code::bad_shape, std::string(v.name) + ": " + what + "=" + std::to_string(value) +
                                    " is not supported (" + limit + "); nothing was computed");
}

Status check_dimension(const Variant& v, const char* what, int value, int multiple, int max) {
  if (value % multiple == 0 && value <= max) return {};
  return refuse(v, what, value, "a multiple of " + std::to_string(multiple) + ", at most " + std::to_string(max));
}

}  // namespace

std::span<const Variant> variants() { return kVariants; }

const Variant* find_variant(std::string_view name) {
  for (const Variant& v : kVariants)
    if (name == v.name) return &v;
  return nullptr;
}

std::string variants_json() {
  // Seven digits give back every decimal of the table. No limit (infinity) has no JSON number.
  const auto number = [](float f) {
    char text[32];
    std::snprintf(text, sizeof text, "%.7g", double{f});
    return std::isfinite(f) ? std::string(text) : "null";
  };
  std::string out;
  const auto put = [&](const char* key, const std::string& value) {
    out += std::string(out.back() == '{' ? "" : ", ") + '"' + key + "\": " + value;
  };
  const auto text = [&](const char* key, const char* value) { put(key, '"' + std::string(value) + '"'); };
  const auto yes = [&](const char* key, bool value) { put(key, value ? "true" : "false"); };
  const auto object = [&](const char* key, std::initializer_list<std::pair<const char*, std::string>> members) {
    put(key, "{");
    for (const auto& [name, value] : members) put(name, value);
    out += '}';
  };
  const auto i = [](int n) { return std::to_string(n); };
  out = "[";
  for (const Variant& v : kVariants) {
    out += out.size() > 1 ? ",\n {" : "{";
    text("name", v.name);
    text("models", v.models);
    text("w13_kernel", v.w13_kernel);
    text("w2_kernel", v.w2_kernel);
    yes("deq", v.deq);
    text("rows", to_string(v.rows));
    text("act", to_string(v.act));
    object("act_params", {{"limit", number(v.act_params.limit)},
                          {"alpha", number(v.act_params.alpha)},
                          {"shift", number(v.act_params.shift)}});
    yes("bias", v.bias);
    yes("x_tail", v.x_tail);
    yes("per_route", v.per_route);
    const Limits& l = v.limits;
    object("limits", {{"k_multiple", i(l.k_multiple)},
                      {"k_max", i(l.k_max)},
                      {"i_multiple", i(l.i_multiple)},
                      {"i_max", i(l.i_max)},
                      {"tokens", i(l.tokens)},
                      {"routes", i(l.routes)},
                      {"experts", i(l.experts)}});
    const Variant::Serving& s = v.serving;
    object("serving",
           {{"K", i(s.K)}, {"I", i(s.I)}, {"e_local", i(s.e_local)}, {"e_total", i(s.e_total)}, {"top_k", i(s.top_k)}});
    out += '}';
  }
  return out + "]";
}

Status check_shape(const Variant& v, const Shape& s) {
  if (s.T < 0) return refuse(v, "T", s.T, "tokens, at least 0");
  if (s.k < 1) return refuse(v, "k", s.k, "routes per token, at least 1");
  if (s.E < 1) return refuse(v, "E", s.E, "local experts, at least 1");
  if (s.K < 32 || s.K % 32) return refuse(v, "K", s.K, "a positive multiple of 32");
  if (s.I < 32 || s.I % 32) return refuse(v, "I", s.I, "a positive multiple of 32");
  // Row and route numbers are int; byte offsets are 64-bit.
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
  if (int64_t{s.T} * s.k > kMax / 4) return refuse(v, "T*k", int64_t{s.T} * s.k, "at most 536870911 routes");
  if (s.K > (1 << 24)) return refuse(v, "K", s.K, "at most 16777216");
  if (s.I > (1 << 24)) return refuse(v, "I", s.I, "at most 16777216");
  if (s.E > (1 << 20)) return refuse(v, "E", s.E, "at most 1048576");
  if (double{1} * s.E * s.K * s.I > double{1ull << 60})
    return refuse(v, "E", s.E, "at most 2^60 weights with these K and I");
  return {};
}

Status check(const Variant& v, const Shape& s) {
  if (Status st = check_shape(v, s); !st.ok()) return st;
  const Limits& l = v.limits;
  if (Status st = check_dimension(v, "K", s.K, l.k_multiple, l.k_max); !st.ok()) return st;
  if (Status st = check_dimension(v, "I", s.I, l.i_multiple, l.i_max); !st.ok()) return st;
  if (s.T > l.tokens) return refuse(v, "T", s.T, "at most " + std::to_string(l.tokens) + " tokens a call");
  if (int64_t r = int64_t{s.T} * s.k; r > l.routes)
    return refuse(v, "T*k", r, "at most " + std::to_string(l.routes) + " routes a call");
  if (s.E > l.experts) return refuse(v, "E", s.E, "at most " + std::to_string(l.experts) + " local experts");
  return {};
}

const char* to_string(Rows rows) { return rows == Rows::interleaved ? "interleaved" : "stacked"; }

const char* to_string(Act act) {
  switch (act) {
#define MXK_CASE(name, ...) \
  case Act::name: return #name;
    MXK_ACTS(MXK_CASE)
#undef MXK_CASE
  }
  return "?";
}

const char* to_string(Code code) {
  switch (code) {
    case Code::ok: return "ok";
    case Code::bad_argument: return "bad_argument";
    case Code::bad_shape: return "bad_shape";
    case Code::bad_dtype: return "bad_dtype";
    case Code::unsupported_variant: return "unsupported_variant";
    case Code::unsupported_cpu: return "unsupported_cpu";
    case Code::backend_unknown: return "backend_unknown";
    case Code::out_of_memory: return "out_of_memory";
    case Code::corrupt_file: return "corrupt_file";
    case Code::io: return "io";
  }
  return "?";
}

}  // namespace mxk
