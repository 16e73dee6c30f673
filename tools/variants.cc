// SPDX-License-Identifier: Apache-2.0
//
// `mxk variants`: the table of include/mxk/variants.inc, for people and (--json) for other languages.
#include <memory>

#include "cli.h"
#include "mxk/mxk.h"

namespace mxk::cli {
namespace {

void show_variants(bool json) {
  if (json) {
    print({{"version", mxk_version()}, {"variants", Json::parse(variants_json())}});
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
