// SPDX-License-Identifier: Apache-2.0
#include "tpc/host/executor.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>

namespace mxk::tpc {
namespace {

constexpr int kMaxTpcs = 254;  // emu::Tensor::written has room for 1 + the number of a TPC

Status fail(const Instance& in, const std::string& what) {
  return error(Code::bad_argument, in.node.guid + ": " + what);
}

// Kernels are loaded once and stay: their bytes say which is which.
Status entry_of(const Instance& in, emu::Run* out) {
  struct Loaded {
    std::shared_ptr<SharedObject> object;
    emu::Run run;
  };
  static std::mutex mutex;
  static auto& cache = *new std::map<std::vector<uint8_t>, Loaded>;  // never torn down: a thread may still run one
  const std::lock_guard lock(mutex);
  if (const auto it = cache.find(in.elf); it != cache.end()) {
    *out = it->second.run;
    return {};
  }
  Loaded loaded;
  if (Status s = SharedObject::open(in.elf, "the kernel of " + in.node.guid, &loaded.object); !s.ok()) return s;
  loaded.run = reinterpret_cast<emu::Run>(loaded.object->symbol(emu::kRunSymbol));
  if (!loaded.run) return error(Code::io, in.node.guid + ": its kernel is not an emulated one; nothing was computed");
  *out = loaded.run;
  cache.emplace(in.elf, std::move(loaded));
  return {};
}

Status describe(const Instance& in, const std::string& what, const TensorSpec& spec, void* data, emu::Tensor* out) {
  if (spec.sizes.empty() || spec.sizes.size() > kMaxRank || size_of(spec.type) == 0 || spec.bytes() == 0)
    return fail(in, what + " " + to_string(spec) + " is no tensor that the emulation has; nothing was computed");
  if (!data) return fail(in, what + " is null; nothing was computed");
  *out = {};
  out->data = data;
  uint64_t stride = 1;
  for (size_t d = 0; d < kMaxRank; ++d) {
    out->size[d] = d < spec.sizes.size() ? spec.sizes[d] : 1;
    out->stride[d] = stride;
    stride *= out->size[d];
  }
  out->type = static_cast<emu::ElementType>(std::countr_zero(static_cast<uint32_t>(spec.type)));
  return {};
}

// Everything that a launch points to.
struct Operands {
  std::vector<emu::Tensor> tensors;
  std::vector<std::vector<uint8_t>> written;  // of each output
  std::vector<std::vector<uint8_t>> scratch;
};

Status gather(const Instance& in, std::span<const void* const> inputs, std::span<void* const> outputs, Operands* out) {
  const Node& node = in.node;
  if (inputs.size() != node.inputs.size() || outputs.size() != node.outputs.size())
    return fail(in, "called with " + std::to_string(inputs.size()) + " inputs and " + std::to_string(outputs.size()) +
                        " outputs; nothing was computed");
  emu::Tensor t;
  for (size_t i = 0; i < inputs.size(); ++i) {
    void* data = const_cast<void*>(inputs[i]);  // the emulation refuses stores to inputs
    if (Status s = describe(in, "input " + std::to_string(i), node.inputs[i], data, &t); !s.ok()) return s;
    out->tensors.push_back(t);
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (Status s = describe(in, "output " + std::to_string(i), node.outputs[i], outputs[i], &t); !s.ok()) return s;
    out->written.emplace_back(node.outputs[i].elements(), uint8_t{0});
    t.is_output = 1;
    t.written = out->written.back().data();
    out->tensors.push_back(t);
  }
  for (size_t i = 0; i < in.aux.size(); ++i) {
    const Instance::Aux& aux = in.aux[i];
    auto* data = const_cast<uint8_t*>(aux.bytes.data());
    if (aux.bytes.empty()) {
      out->scratch.emplace_back(aux.spec.bytes(), uint8_t{0xFF});
      data = out->scratch.back().data();
    }
    if (Status s = describe(in, "auxiliary tensor " + std::to_string(i), aux.spec, data, &t); !s.ok()) return s;
    out->tensors.push_back(t);
  }
  return {};
}

// The index space is divided along its longest dimension.
std::vector<emu::Launch> divide(const Instance& in, const Operands& operands, const RunOptions& options) {
  const auto longest = std::max_element(in.index_space.begin(), in.index_space.end());
  const auto split = static_cast<size_t>(longest - in.index_space.begin());
  const int64_t points = static_cast<int64_t>(*longest);
  const int64_t n = std::min<int64_t>(options.tpcs, points);
  std::vector<emu::Launch> launches(static_cast<size_t>(n));
  for (int64_t t = 0; t < n; ++t) {
    emu::Launch& l = launches[static_cast<size_t>(t)];
    l = {};
    l.tensors = operands.tensors.data();
    l.tensor_count = static_cast<int32_t>(operands.tensors.size());
    l.scalars = in.scalars.data();
    l.scalar_count = static_cast<int32_t>(in.scalars.size());
    l.tpc = static_cast<int32_t>(t);
    l.unpack_high = options.unpack_high;
    for (size_t d = 0; d < std::size(l.size); ++d)
      l.size[d] = d < in.index_space.size() ? static_cast<int32_t>(in.index_space[d]) : 1;
    l.offset[split] = static_cast<int32_t>(points * t / n);
    l.size[split] = static_cast<int32_t>(points * (t + 1) / n) - l.offset[split];
  }
  return launches;
}

void on_threads(int threads, int n, const std::function<void(int)>& f) {
  std::atomic<int> next{0};
  const auto work = [&] {
    for (int i = next++; i < n; i = next++) f(i);
  };
  std::vector<std::jthread> workers;
  for (int t = 1; t < std::min(threads, n); ++t) workers.emplace_back(work);
  work();
}

Status check_written(const Instance& in, const Operands& operands) {
  for (size_t i = 0; i < in.node.outputs.size(); ++i) {
    uint64_t at = 0;
    const uint64_t holes = emu::unwritten(operands.tensors[in.node.inputs.size() + i], &at);
    if (holes == 0) continue;
    std::string coordinates;  // slowest first, as a shape is written
    for (uint64_t size : in.node.outputs[i].sizes) {
      coordinates.insert(0, std::to_string(at % size) + (coordinates.empty() ? "" : ", "));
      at /= size;
    }
    return fail(in, "output element never written: output " + std::to_string(i) + " " + to_string(in.node.outputs[i]) +
                        ", first at [" + coordinates + "], " + std::to_string(holes) + " in all");
  }
  return {};
}

void add(emu::Slots* sum, const emu::Slots& s) {
  sum->load += s.load;
  sum->spu += s.spu;
  sum->vpu += s.vpu;
  sum->store += s.store;
}

}  // namespace

Status run(const Instance& in, std::span<const void* const> inputs, std::span<void* const> outputs,
           const RunOptions& options, RunStats* stats) {
  if (options.tpcs < 1 || options.tpcs > kMaxTpcs || options.threads < 1)
    return fail(in, std::to_string(options.tpcs) + " TPCs (1 to 254) on " + std::to_string(options.threads) +
                        " threads (at least 1); nothing was computed");
  if (in.index_space.empty() || in.index_space.size() > kMaxRank)
    return fail(in, "no index space; nothing was computed");
  emu::Run kernel;
  if (Status s = entry_of(in, &kernel); !s.ok()) return s;
  Operands operands;
  if (Status s = gather(in, inputs, outputs, &operands); !s.ok()) return s;
  if (options.poison)
    for (size_t i = 0; i < outputs.size(); ++i) std::memset(outputs[i], 0xFF, in.node.outputs[i].bytes());

  std::vector<emu::Launch> launches = divide(in, operands, options);
  std::vector<int> results(launches.size());
  const std::function<void(int)> one = [&](int t) {
    results[static_cast<size_t>(t)] = kernel(&launches[static_cast<size_t>(t)]);
  };
  const int n = static_cast<int>(launches.size());
  options.parallel ? options.parallel(n, one) : on_threads(options.threads, n, one);

  RunStats sum;
  sum.tpcs = n;
  for (const emu::Launch& l : launches) {
    add(&sum.total, l.slots);
    add(&sum.marked, l.marked);
    sum.marked_units += l.marked_units;
    sum.busiest = std::max({sum.busiest, l.slots.load, l.slots.spu, l.slots.vpu, l.slots.store});
  }
  if (stats) *stats = sum;
  for (size_t t = 0; t < launches.size(); ++t)
    if (results[t] != 0)
      return fail(in, std::string(launches[t].message, strnlen(launches[t].message, sizeof launches[t].message)));
  return check_written(in, operands);
}

}  // namespace mxk::tpc
