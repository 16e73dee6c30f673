// SPDX-License-Identifier: Apache-2.0
//
// `mxk bench --compare`: two measurements side by side.
#include <algorithm>
#include <fstream>

#include "bench.h"
#include "cli.h"

namespace mxk::cli {
namespace {

Json read_report(const std::string& path) {
  std::ifstream in(path);
  if (!in) fail("{}: cannot be read", path);
  Json j = Json::parse(in, nullptr, false);
  if (j.is_discarded() || !j.is_object() || !j.contains("rows") || !j.contains("problem"))
    fail("{}: not a file of `mxk bench --json`", path);
  if (j.contains("meaning"))
    fail("{}: {}; only times are compared", path, j["meaning"].dump(-1, ' ', false, Json::error_handler_t::replace));
  return j;
}

// What must be equal for times to be comparable. The weights' values and the backend may differ.
void refuse_different(const Json& a, const Json& b) {
  static const std::pair<const char*, const char*> kSame[] = {{"/problem/variant", "variant"},
                                                              {"/problem/K", "K"},
                                                              {"/problem/I", "I"},
                                                              {"/problem/E", "experts"},
                                                              {"/problem/e_total", "experts of the layer"},
                                                              {"/problem/k", "top-k"},
                                                              {"/problem/seed", "seed"},
                                                              {"/routing", "routing"},
                                                              {"/threads", "threads"},
                                                              {"/env/machine/cpu", "CPU"},
                                                              {"/env/machine/cpus_usable", "usable CPUs"},
                                                              {"/llc_bytes", "last-level cache"}};
  std::string differing;
  for (const auto& [pointer, what] : kSame) {
    const Json::json_pointer p(pointer);
    if (a.at(p) == b.at(p)) continue;
    differing += fmt::format("{}{} {} and {}", differing.empty() ? "" : "; ", what, a.at(p).dump(), b.at(p).dump());
  }
  if (!differing.empty()) fail("the two files cannot be compared, they differ in: {}", differing);
}

std::string label(const Json& j) {
  const std::string impl = j.at("impl"), backend = j.at("backend");
  return impl == "kernel" ? backend : impl;
}

Json pair_rows(const Json& base, const Json& other) {
  Json rows = Json::array();
  for (const Json& a : base.at("rows"))
    for (const Json& b : other.at("rows")) {
      if (a.at("T") != b.at("T")) continue;
      if (a.at("bytes") != b.at("bytes")) fail("T={}: the two files read different experts", a.at("T").get<int>());
      rows.push_back({{"T", a.at("T")},
                      {"routes", b.at("routes")},
                      {"experts", b.at("experts")},
                      {"baseline_us", a.at("us")},
                      {"us", b.at("us")},
                      {"speedup", a.at("us").get<double>() / b.at("us").get<double>()},
                      {"gbps", b.at("gbps")},
                      {"floor_percent", b.at("floor_percent")},
                      {"baseline_rel_l2", a.at("rel_l2")},
                      {"rel_l2", b.at("rel_l2")}});
    }
  if (rows.empty()) fail("the two files have no token count in common");
  return rows;
}

}  // namespace

void compare_benches(const std::string& path_a, const std::string& path_b, const std::string& json) try {
  Json a = read_report(path_a), b = read_report(path_b);
  if (b.at("impl") == "stock" && a.at("impl") != "stock") std::swap(a, b);  // the baseline goes first
  refuse_different(a, b);
  const Json rows = pair_rows(a, b);
  const std::string base = label(a), other = label(b);
  if (a.at("env").at("version") != b.at("env").at("version"))
    warn(fmt::format("versions differ: {} and {}", a["env"]["version"].dump(), b["env"]["version"].dump()));
  const Json report = {{"baseline", base},
                       {"compared", other},
                       {"problem", b.at("problem")},
                       {"routing", b.at("routing")},
                       {"threads", b.at("threads")},
                       {"cpu", b["env"]["machine"]["cpu"]},
                       {"rows", rows}};
  if (json == "-") return print(report);
  if (!json.empty()) {
    std::ofstream file(json);
    file << report.dump(2, ' ', false, Json::error_handler_t::replace) << "\n";
    file.close();
    if (!file) fail("{}: write failed", json);
  }
  const Json& p = b.at("problem");
  fmt::print("{}: K {}, I {}, {} experts of {}, top-{}, routing {}; {} threads, {}\n",
             p.at("variant").get<std::string>(), p.at("K").get<int>(), p.at("I").get<int>(), p.at("E").get<int>(),
             p.at("e_total").get<int>(), p.at("k").get<int>(), b.at("routing").get<std::string>(),
             b.at("threads").get<int>(), b["env"]["machine"]["cpu"].get<std::string>());
  fmt::print("{} of {}, {} of {}\n\n", base, a.at("date").get<std::string>(), other, b.at("date").get<std::string>());
  // Columns as wide as the names ask for.
  const std::string base_us = base + " us", other_us = other + " us", ratio = "x " + base;
  const std::string base_error = base + " rel_l2", other_error = other + " rel_l2";
  const auto width = [](const std::string& head, size_t least) { return std::max(head.size(), least); };
  const size_t w1 = width(base_us, 9), w2 = width(other_us, 9), w3 = width(ratio, 7), w4 = width(base_error, 8),
               w5 = width(other_error, 8);
  fmt::print("{:>4} {:>8}  {:>{}}  {:>{}}  {:>{}}  {:>6} {:>8}  {:>{}}  {:>{}}\n", "T", "experts", base_us, w1,
             other_us, w2, ratio, w3, "GB/s", "% floor", base_error, w4, other_error, w5);
  for (const Json& r : rows) {
    const auto d = [&](const char* name) { return r.at(name).get<double>(); };
    fmt::print("{:>4} {:>8.1f}  {:>{}.0f}  {:>{}.0f}  {:>{}.2f}  {:>6.1f} {:>6.0f} %  {:>{}.2e}  {:>{}.2e}\n",
               r.at("T").get<int>(), d("experts"), d("baseline_us"), w1, d("us"), w2, d("speedup"), w3, d("gbps"),
               d("floor_percent"), d("baseline_rel_l2"), w4, d("rel_l2"), w5);
  }
} catch (const Json::exception& e) {
  fail("{} or {}: not a complete file of `mxk bench --json` ({})", path_a, path_b, e.what());
}

}  // namespace mxk::cli
