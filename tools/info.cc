// SPDX-License-Identifier: Apache-2.0
//
// `mxk info`: what this machine and a checkpoint are to mxk, and why a model may be slow.
#include <memory>

#include "environment.h"
#include "layers.h"
#include "mxk/mxk.h"

namespace mxk::cli {
namespace {

struct InfoOptions {
  std::string checkpoint;
  bool json = false;
};

std::string join(const std::vector<std::string>& words, const char* separator) {
  return fmt::format("{}", fmt::join(words, separator));
}

Json layer_json(const ckpt::LayerInfo& l) {
  Json covered = Json::array(), refused = Json::array();
  for (const Variant& v : variants()) {
    const Status s = covers(v, l);
    if (s.ok())
      covered.push_back(v.name);
    else
      refused.push_back({{"variant", v.name}, {"reason", s.message}});
  }
  return {{"index", l.index},
          {"prefix", l.prefix},
          {"format", ckpt::to_string(l.format)},
          {"E", l.E},
          {"K", l.K},
          {"I", l.I},
          {"bias", l.bias},
          {"bytes", l.E * expert_bytes(l.K, l.I)},
          {"variants", covered},
          {"refused", refused}};
}

Json checkpoint_json(const ckpt::Checkpoint& c) {
  Json layers = Json::array();
  for (const ckpt::LayerInfo& l : c.layers()) layers.push_back(layer_json(l));
  return {{"path", c.path()},
          {"tensors", c.tensor_count()},
          {"bytes", c.tensor_bytes()},
          {"warnings", c.warnings()},
          {"layers", layers}};
}

void show_machine(const Machine& m) {
  const auto line = [](const char* name, const std::string& text) { fmt::print("{:<14} {}\n", name, text); };
  line("CPU", fmt::format("{} ({})", m.cpu, m.arch));
  line("CPUs", fmt::format("{} of {} usable, {}{}", m.cpus_usable, m.cpus_online,
                           m.cpu_quota > 0 ? fmt::format("quota {:.2f} CPUs", m.cpu_quota) : "no quota",
                           m.numa_nodes > 1 ? fmt::format(", {} NUMA nodes", m.numa_nodes) : ""));
  line("instructions", m.isa.empty() ? "unknown" : join(m.isa, " "));
  std::vector<std::string> caches;
  for (const Machine::Cache& c : m.caches)
    if (c.type != "Instruction")
      caches.push_back(fmt::format("L{}{} {}", c.level, c.type == "Data" ? "d" : "", binary_text(c.bytes)));
  line("caches", caches.empty() ? "unknown"
                                : fmt::format("{}; last level {} over the usable CPUs", join(caches, ", "),
                                              binary_text(m.llc_bytes)));
  line("memory", fmt::format("{}, {} available", binary_text(m.memory_total), binary_text(m.memory_available)));
  line("huge pages", m.huge_pages.empty() ? "unknown" : m.huge_pages);
  line("load", fmt::format("{:.2f}{}", m.load, m.governor.empty() ? "" : ", governor " + m.governor));
}

void show_backends(const BackendChoice& c) {
  fmt::print("\n{:<14} {:<13} {}\n", "backend", "state", "what it is, or why not");
  for (const Backend* b : backends()) {
    const Status s = b->supported();
    const char* state = b == c.chosen ? "chosen" : !s.ok() ? "cannot run" : b->automatic ? "can run" : "by name only";
    fmt::print("{:<14} {:<13} {}\n", b->name, state, s.ok() ? b->description : s.message);
  }
  if (!c.chosen) return;
  fmt::print("\n'{}' is used: {}\n", c.chosen->name,
             c.forced ? "MXK_BACKEND names it" : "the first of the list that this machine can run");
}

bool same_kind(const ckpt::LayerInfo& a, const ckpt::LayerInfo& b) {
  return a.format == b.format && a.E == b.E && a.K == b.K && a.I == b.I && a.bias == b.bias;
}

// One line for each run of layers that differ only in their number.
void show_checkpoint(const ckpt::Checkpoint& c) {
  fmt::print("\ncheckpoint     {}\n{:<14} {} tensors, {}\n", c.path(), "", c.tensor_count(),
             bytes_text(c.tensor_bytes()));
  const auto& layers = c.layers();
  if (layers.empty()) {
    fmt::print("no MXFP4 mixture-of-experts layer in it\n");
    return;
  }
  fmt::print("\n{:<9} {:<10} {:>5} {:>6} {:>6}  {:<5} {:>12}  {}\n", "layers", "format", "E", "K", "I", "bias", "each",
             "variants");
  for (size_t i = 0, j; i < layers.size(); i = j) {
    const ckpt::LayerInfo& l = layers[i];
    for (j = i + 1; j < layers.size() && same_kind(l, layers[j]); ++j) {
    }
    const Json described = layer_json(l);
    std::string covered;
    for (const auto& name : described["variants"]) covered += (covered.empty() ? "" : ", ") + name.get<std::string>();
    const int last = layers[j - 1].index;
    fmt::print("{:<9} {:<10} {:>5} {:>6} {:>6}  {:<5} {:>12}  {}\n",
               last == l.index ? fmt::format("{}", l.index) : fmt::format("{}-{}", l.index, last),
               ckpt::to_string(l.format), l.E, l.K, l.I, l.bias ? "yes" : "no",
               bytes_text(l.E * expert_bytes(l.K, l.I)), covered.empty() ? "none" : covered);
    if (covered.empty())
      for (const auto& r : described["refused"]) fmt::print("  {}\n", r["reason"].get<std::string>());
  }
  fmt::print(
      "\nA variant is listed where row order and biases fit and the shape is within its limits (`mxk variants`), those "
      "of\n"
      "the accelerator kernels; CPU backends run any K and I that are multiples of 32. The file does not name the\n"
      "activation.\n");
}

void show_info(const InfoOptions& o) {
  std::unique_ptr<ckpt::Checkpoint> checkpoint;
  if (!o.checkpoint.empty()) require(ckpt::Checkpoint::open(o.checkpoint, &checkpoint));
  const Machine machine = read_machine();
  const BackendChoice choice = choose_backend();
  std::vector<std::string> problems = find_problems(machine, choice);
  if (checkpoint) {
    uint64_t bytes = 0;
    for (const ckpt::LayerInfo& l : checkpoint->layers()) bytes += l.E * expert_bytes(l.K, l.I);
    if (bytes > machine.memory_available)
      problems.push_back(
          fmt::format("the experts of this checkpoint ({}) exceed available memory ({}): weights will be read "
                      "from disk again and again",
                      bytes_text(bytes), bytes_text(machine.memory_available)));
    problems.insert(problems.end(), checkpoint->warnings().begin(), checkpoint->warnings().end());
  }
  if (o.json) {
    Json j = build_json();
    j["machine"] = to_json(machine);
    j["backend"] = choice.chosen ? Json(choice.chosen->name) : Json(nullptr);
    j["threads"] = machine.cpus_usable;
    j["backends"] = backends_json(choice);
    if (checkpoint) j["checkpoint"] = checkpoint_json(*checkpoint);
    j["warnings"] = problems;
    print(j);
    return;
  }
  fmt::print("mxk {}, {}, {}\n\n", mxk_version(), compiler(), build_type());
  show_machine(machine);
  show_backends(choice);
  if (checkpoint) show_checkpoint(*checkpoint);
  fmt::print("\n{}\n", problems.empty() ? "no warnings" : "warnings");
  for (const std::string& p : problems) fmt::print("  {}\n", p);
}

}  // namespace

void add_info_command(CLI::App& app) {
  CLI::App* sub = app.add_subcommand("info", "Describe this machine, the backends, a checkpoint, and what may be slow");
  auto o = std::make_shared<InfoOptions>();
  sub->add_option("checkpoint", o->checkpoint, "Checkpoint directory or safetensors file");
  sub->add_flag("--json", o->json, "Print JSON");
  sub->footer("Example:\n  mxk info /models/gpt-oss-20b");
  sub->callback([o] { show_info(*o); });
}

}  // namespace mxk::cli
