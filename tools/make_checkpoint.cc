// SPDX-License-Identifier: Apache-2.0
//
// `mxk make-checkpoint`: a checkpoint of a variant's real format and shape, from a seed.
#include <memory>

#include "ckpt/synthetic.h"
#include "layers.h"
#include "machine.h"

namespace mxk::cli {
namespace {

struct MakeOptions {
  std::string directory, variant;
  ckpt::SyntheticOptions synthetic;
};

void make(const MakeOptions& o) {
  const Variant& variant = *find_variant(o.variant);
  const Status status = ckpt::make_checkpoint(o.directory, variant, o.synthetic);
  if (status.code == Code::bad_shape) usage("{}", status.message);
  require(status);
  const auto checkpoint = open_checkpoint(o.directory);
  const ckpt::LayerInfo& l = checkpoint->layers().at(0);
  fmt::print("{}: {}, {} layer(s) of {} experts, K {}, I {}, format {}, {} tensors, {}, seed {}\n", o.directory,
             variant.name, checkpoint->layers().size(), l.E, l.K, l.I, ckpt::to_string(l.format),
             checkpoint->tensor_count(), bytes_text(checkpoint->tensor_bytes()), o.synthetic.seed);
}

}  // namespace

void add_make_checkpoint_command(CLI::App& app) {
  CLI::App* sub = app.add_subcommand("make-checkpoint", "Write a checkpoint made from a seed");
  auto o = std::make_shared<MakeOptions>();
  sub->add_option("directory", o->directory, "Where to write; must be absent or empty")->required();
  add_variant(sub, &o->variant);
  sub->add_option("--layers", o->synthetic.layers, "Layers")->check(CLI::Range(1, 1024))->capture_default_str();
  sub->add_option("--experts", o->synthetic.experts, "Experts of a layer; default: what one rank of the variant serves")
      ->check(CLI::Range(1, 4096));
  sub->add_option("--hidden", o->synthetic.K, "Hidden size K; default: the variant's")->check(CLI::Range(32, 1 << 20));
  sub->add_option("--intermediate", o->synthetic.I, "Intermediate size I; default: the variant's")
      ->check(CLI::Range(32, 1 << 20));
  add_seed(sub, &o->synthetic.seed);
  sub->footer("Example:\n  mxk make-checkpoint gptoss-layers --variant gptoss --layers 2 --experts 32");
  sub->callback([o] { make(*o); });
}

}  // namespace mxk::cli
