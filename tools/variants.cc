// SPDX-License-Identifier: Apache-2.0
//
// `mxk variants`: the table of include/mxk/variants.inc, for people and (--json) for other languages.
#include <cmath>
#include <memory>

#include "cli.h"
#include "mxk/mxk.h"

namespace mxk::cli {
namespace {

// The shortest decimal of the float, not the long one of its double. No limit (infinity) has no JSON number: null.
Json number(float f) { return std::isfinite(f) ? Json(std::stod(fmt::format("{}", f))) : Json(nullptr); }

Json to_json(const Variant& v) {
  const Limits& l = v.limits;
  const Variant::Serving& s = v.serving;
  return {{"name", v.name},
          {"models", v.models},
          {"w13_kernel", v.w13_kernel},
          {"w2_kernel", v.w2_kernel},
          {"deq", v.deq},
          {"rows", to_string(v.rows)},
          {"act", to_string(v.act)},
          {"act_params",
           {{"limit", number(v.act_params.limit)},
            {"alpha", number(v.act_params.alpha)},
            {"shift", number(v.act_params.shift)}}},
          {"bias", v.bias},
          {"x_tail", v.x_tail},
          {"per_route", v.per_route},
          {"limits",
           {{"k_multiple", l.k_multiple},
            {"k_max", l.k_max},
            {"i_multiple", l.i_multiple},
            {"i_max", l.i_max},
            {"tokens", l.tokens},
            {"routes", l.routes},
            {"experts", l.experts}}},
          {"serving", {{"K", s.K}, {"I", s.I}, {"e_local", s.e_local}, {"e_total", s.e_total}, {"top_k", s.top_k}}}};
}

void show_variants(bool json) {
  if (json) {
    Json list = Json::array();
    for (const Variant& v : variants()) list.push_back(to_json(v));
    print({{"version", mxk_version()}, {"variants", list}});
    return;
  }
  fmt::print("{:<8} {:<12} {:<13} {:<5} {:<6} {:<11} {:<11} {:>6}  {:<11} {:<10} {}\n", "variant", "rows", "activation",
             "bias", "output", "K", "I", "tokens", "served K,I", "experts", "top-k");
  for (const Variant& v : variants()) {
    const Limits& l = v.limits;
    const Variant::Serving& s = v.serving;
    fmt::print("{:<8} {:<12} {:<13} {:<5} {:<6} {:<11} {:<11} {:>6}  {:<11} {:<10} {:>5}\n", v.name, to_string(v.rows),
               to_string(v.act), v.bias ? "yes" : "no", v.per_route ? "route" : "token",
               fmt::format("x{} <={}", l.k_multiple, l.k_max), fmt::format("x{} <={}", l.i_multiple, l.i_max), l.tokens,
               fmt::format("{},{}", s.K, s.I), fmt::format("{} of {}", s.e_local, s.e_total), s.top_k);
  }
  fmt::print("\nmodels\n");
  for (const Variant& v : variants()) fmt::print("  {:<8} {}\n", v.name, v.models);
  fmt::print(
      "\nLimits are those of the accelerator kernels. CPU backends take any K and I that are multiples of 32.\n");
}

}  // namespace

void add_variants_command(CLI::App& app) {
  CLI::App* sub = app.add_subcommand("variants", "List the variants: models, semantics, limits, serving shapes");
  auto json = std::make_shared<bool>(false);
  sub->add_flag("--json", *json, "Print JSON");
  sub->footer("Example:\n  mxk variants --json");
  sub->callback([json] { show_variants(*json); });
}

}  // namespace mxk::cli
