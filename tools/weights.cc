// SPDX-License-Identifier: Apache-2.0
#include "weights.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "ckpt/synthetic.h"
#include "core/formats.h"
#include "layers.h"
#include "machine.h"

namespace mxk::cli {
namespace {

constexpr uint64_t kHugePage = uint64_t{2} << 20;
constexpr uint64_t kCacheLine = 64;

// Streams of the seed; batches use numbers from 1000 on.
enum Stream : uint64_t { kW13 = 1, kS13, kW2, kS2, kB13, kB2 };

std::vector<float> random_bias(uint64_t seed, Stream stream, size_t n) {
  std::vector<uint16_t> b(n);
  ckpt::fill_normal_bf16(seed, stream, 0, 0.1f, b);
  std::vector<float> wide(n);
  std::transform(b.begin(), b.end(), wide.begin(), bf16_to_f32);
  return wide;
}

// Bytes of one expert in each of the four tensors.
struct Parts {
  uint64_t w13, s13, w2, s2;
  Parts(uint64_t K, uint64_t I) : w13(I * K), s13(I * K / 16), w2(K * I / 2), s2(K * I / 32) {}
  uint64_t sum() const { return w13 + s13 + w2 + s2; }
};

}  // namespace

void add_source(CLI::App* app, SourceOptions* o) {
  add_variant(app, &o->variant);
  CLI::Option* checkpoint = app->add_option(
      "--checkpoint", o->checkpoint, "Checkpoint to take weights from; default: random ones of the serving shape");
  app->add_option("--layer", o->layer, "Layer of the checkpoint; default: its first")
      ->check(CLI::Range(0, 1 << 20))
      ->needs(checkpoint);
  app->add_option("--e-local", o->e_local,
                  "Experts of this rank; default: all of the checkpoint's, else what a rank serves")
      ->check(CLI::Range(1, 4096));
  add_seed(app, &o->seed);
}

Source::Source(const SourceOptions& o) : variant_(find_variant(o.variant)), seed_(o.seed) {
  const Variant::Serving& serving = variant_->serving;
  int total = serving.e_total;
  if (o.checkpoint.empty()) {
    I_ = serving.I;
    space_ = {serving.top_k, 0, o.e_local ? o.e_local : serving.e_local, 0, serving.K};
    if (variant_->bias) {
      random_b13_ = random_bias(seed_, kB13, size_t{2} * space_.E * I_);
      random_b2_ = random_bias(seed_, kB2, static_cast<size_t>(space_.E) * space_.K);
      b13_ = random_b13_.data();
      b2_ = random_b2_.data();
    }
  } else {
    checkpoint_ = open_checkpoint(o.checkpoint);
    if (checkpoint_->layers().empty()) fail("{}: no MXFP4 mixture-of-experts layer in it", o.checkpoint);
    const ckpt::LayerInfo& info =
        pick_layer(*checkpoint_, o.layer >= 0 ? o.layer : checkpoint_->layers().front().index);
    if (o.e_local > info.E)
      usage("--e-local {}: layer {} of {} has {} experts", o.e_local, info.index, o.checkpoint, info.E);
    require_readable(*variant_, info, o.checkpoint);
    I_ = info.I;
    space_ = {serving.top_k, 0, o.e_local ? o.e_local : info.E, 0, info.K};
    total = std::max(total, info.E);
    require(checkpoint_->load(info.index, variant_->rows, 0, space_.E, &layer_));
    path_ = fmt::format("{} layer {}", o.checkpoint, info.index);
    b13_ = layer_.weights.b13;
    b2_ = layer_.weights.b2;
  }
  space_.total = std::max(total, space_.E);
  // Any rank but the first where there is one: a wrong offset must show.
  space_.first = 2 * space_.E <= space_.total ? space_.E : 0;
}

uint64_t Source::expert_bytes() const { return cli::expert_bytes(space_.K, I_); }

std::string Source::describe() const { return path_.empty() ? fmt::format("random weights, seed {}", seed_) : path_; }

Json Source::to_json() const {
  return {{"variant", variant_->name},
          {"K", space_.K},
          {"I", I_},
          {"E", space_.E},
          {"e_total", space_.total},
          {"first_expert", space_.first},
          {"k", space_.k},
          {"weights", describe()},
          {"seed", seed_}};
}

Call Source::call(const Weights& weights, const Batch& batch, void* y, Dtype dtype) const {
  Call c;
  c.variant = variant_;
  c.shape = shape(batch.T);
  c.weights = weights;
  c.x = batch.x.data();
  c.topk_ids = batch.ids.data();
  c.topk_weights = batch.weights.data();
  c.first_expert = space_.first;
  c.y = y;
  c.out_dtype = dtype;
  return c;
}

void Source::fill(int expert, const Weights& at) const {
  const Parts n(space_.K, I_);
  const auto put = [&](const uint8_t* to, const uint8_t* from, uint64_t bytes, Stream stream, auto random) {
    const uint64_t offset = expert * bytes;
    uint8_t* out = const_cast<uint8_t*>(to) + offset;
    if (from)
      std::memcpy(out, from + offset, bytes);
    else
      random(seed_, stream, offset, std::span<uint8_t>(out, bytes));
  };
  const Weights& w = layer_.weights;
  put(at.w13, w.w13, n.w13, kW13, ckpt::fill_codes);
  put(at.s13, w.s13, n.s13, kS13, ckpt::fill_scales);
  put(at.w2, w.w2, n.w2, kW2, ckpt::fill_codes);
  put(at.s2, w.s2, n.s2, kS2, ckpt::fill_scales);
}

Copies::Copies(const Source& source, int copies)
    : source_(source),
      copies_(copies),
      layer_bytes_((source.expert_bytes() * source.space().E + kCacheLine - 1) / kCacheLine * kCacheLine),
      mapped_(layer_bytes_ * copies + kHugePage),
      wanted_(static_cast<size_t>(copies) * source.space().E) {
  // Address space only: pages appear where experts are filled in.
  void* p = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED)
    fail("cannot map {} for {} copies of the layer: {}", bytes_text(mapped_), copies, std::strerror(errno));
  madvise(p, mapped_, MADV_HUGEPAGE);  // advice only; what comes of it, the read floor shares
  memory_ = static_cast<uint8_t*>(p);
}

Copies::~Copies() { munmap(memory_, mapped_); }

Weights Copies::at(int copy) const {
  const Parts n(source_.K(), source_.I());
  const uint64_t E = source_.space().E;
  const uint64_t misaligned = reinterpret_cast<uintptr_t>(memory_) % kHugePage;
  Weights w;
  w.w13 = memory_ + (misaligned ? kHugePage - misaligned : 0) + layer_bytes_ * copy;
  w.s13 = w.w13 + E * n.w13;
  w.w2 = w.s13 + E * n.s13;
  w.s2 = w.w2 + E * n.w2;
  w.b13 = source_.b13();
  w.b2 = source_.b2();
  return w;
}

uint64_t Copies::bytes() const {
  const Parts n(source_.K(), source_.I());
  std::vector<bool> pages(mapped_ / kHugePage + 1);
  for (int copy = 0; copy < copies_; ++copy) {
    const Weights w = at(copy);
    for (int e = 0; e < source_.space().E; ++e) {
      if (!wanted_[static_cast<size_t>(copy) * source_.space().E + e]) continue;
      for (const auto& [base, bytes] : {std::pair{w.w13, n.w13}, {w.s13, n.s13}, {w.w2, n.w2}, {w.s2, n.s2}}) {
        const uint64_t at = static_cast<uint64_t>(base - memory_) + e * bytes;
        for (uint64_t page = at / kHugePage; page <= (at + bytes - 1) / kHugePage; ++page) pages[page] = true;
      }
    }
  }
  return std::count(pages.begin(), pages.end(), true) * kHugePage;
}

void Copies::fill(ThreadPool& pool) {
  const uint64_t need = bytes(), have = read_machine().memory_available;
  if (have && need > have)
    fail(
        "{} copies of the weights take {} but {} of memory are available; use fewer experts (--e-local) or more tokens",
        copies_, bytes_text(need), bytes_text(have));
  std::vector<std::pair<int, int>> list;
  for (size_t i = 0; i < wanted_.size(); ++i)
    if (wanted_[i]) list.emplace_back(static_cast<int>(i / source_.space().E), static_cast<int>(i % source_.space().E));
  pool.parallel([&](int t) {
    for (size_t i = t; i < list.size(); i += pool.threads()) source_.fill(list[i].second, at(list[i].first));
  });
}

}  // namespace mxk::cli
