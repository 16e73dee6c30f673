// SPDX-License-Identifier: Apache-2.0
//
// `mxk run`: one call on files.
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>

#include "core/formats.h"
#include "core/routing.h"
#include "environment.h"
#include "layers.h"

namespace mxk::cli {
namespace {

struct RunOptions {
  std::string variant, layer, input, output, backend, out_dtype = "bf16";
  int layer_index = -1, first_expert = 0, threads = 0;
};

// The input file, copied: its tensors may have any alignment.
struct Input {
  int T = 0, k = 0, K = 0;
  std::vector<uint16_t> x;
  std::vector<int32_t> ids;
  std::vector<uint8_t> weights;
  Dtype weights_dtype = Dtype::f32;
};

std::string shape_text(const ckpt::Tensor& t) { return fmt::format("[{}]", fmt::join(t.shape, ", ")); }

// The tensor, of one of the two types and two-dimensional; failures name file, tensor and what it is instead.
const ckpt::Tensor& tensor_of(const ckpt::SafeTensors& file, const char* name, ckpt::Type a, ckpt::Type b) {
  const ckpt::Tensor* t = file.find(name);
  if (!t) fail("{}: tensor '{}' is missing", file.path(), name);
  if (t->type != a && t->type != b)
    fail("{}: '{}' is {}, expected {} or {}", file.path(), name, ckpt::to_string(t->type), ckpt::to_string(a),
         ckpt::to_string(b));
  if (t->shape.size() != 2) fail("{}: '{}' has shape {}, expected two dimensions", file.path(), name, shape_text(*t));
  for (const int64_t n : t->shape)
    if (n > std::numeric_limits<int32_t>::max())
      fail("{}: '{}' has shape {}, too large", file.path(), name, shape_text(*t));
  return *t;
}

template <class T>
std::vector<T> values(const ckpt::Tensor& t) {
  std::vector<T> v(t.bytes / sizeof(T));
  if (!v.empty()) std::memcpy(v.data(), t.data, v.size() * sizeof(T));
  return v;
}

// Values that a bf16 cannot hold are rounded, as the semantics take bf16; the user is told.
std::vector<uint16_t> round_to_bf16(const std::string& path, const std::vector<float>& x) {
  std::vector<uint16_t> rounded(x.size());
  size_t changed = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    rounded[i] = f32_to_bf16(x[i]);
    const float back = bf16_to_f32(rounded[i]);
    changed += !(back == x[i] || (std::isnan(back) && std::isnan(x[i])));
  }
  if (changed) warn(fmt::format("{}: {} of {} F32 values of 'x' were rounded to bf16", path, changed, x.size()));
  return rounded;
}

// An id outside int32 names no local expert, like -1.
std::vector<int32_t> narrow(const std::vector<int64_t>& ids) {
  std::vector<int32_t> out(ids.size());
  for (size_t i = 0; i < ids.size(); ++i)
    out[i] = ids[i] == static_cast<int32_t>(ids[i]) ? static_cast<int32_t>(ids[i]) : -1;
  return out;
}

Input read_input(const std::string& path) {
  using ckpt::Type;
  ckpt::SafeTensors file;
  require(ckpt::SafeTensors::open(path, &file));
  const ckpt::Tensor& x = tensor_of(file, "x", Type::BF16, Type::F32);
  const ckpt::Tensor& ids = tensor_of(file, "topk_ids", Type::I32, Type::I64);
  const ckpt::Tensor& weights = tensor_of(file, "topk_weights", Type::F32, Type::BF16);
  if (ids.shape[0] != x.shape[0])
    fail("{}: 'x' is {} but 'topk_ids' is {}: token counts differ", path, shape_text(x), shape_text(ids));
  if (weights.shape != ids.shape)
    fail("{}: 'topk_weights' is {} but 'topk_ids' is {}", path, shape_text(weights), shape_text(ids));
  require(file.intact());
  Input in;
  in.T = static_cast<int>(x.shape[0]);
  in.K = static_cast<int>(x.shape[1]);
  in.k = static_cast<int>(ids.shape[1]);
  in.x = x.type == Type::BF16 ? values<uint16_t>(x) : round_to_bf16(path, values<float>(x));
  in.ids = ids.type == Type::I32 ? values<int32_t>(ids) : narrow(values<int64_t>(ids));
  in.weights = values<uint8_t>(weights);
  in.weights_dtype = weights.type == Type::F32 ? Dtype::f32 : Dtype::bf16;
  return in;
}

void write_output(const std::string& path, const Variant& variant, const Input& in, Dtype dtype, void* y) {
  std::vector<int64_t> shape = {in.T, in.K};
  if (variant.per_route) shape.insert(shape.begin() + 1, in.k);
  const auto fill = [](void* bytes, size_t, uint64_t offset, std::span<uint8_t> out) -> Status {
    if (!out.empty()) std::memcpy(out.data(), static_cast<const uint8_t*>(bytes) + offset, out.size());
    return {};
  };
  require(ckpt::write_safetensors(path, {{"y", dtype == Dtype::f32 ? ckpt::Type::F32 : ckpt::Type::BF16, shape}}, {},
                                  fill, y));
}

void run(const RunOptions& o) {
  const Variant& variant = *find_variant(o.variant);
  const Dtype dtype = o.out_dtype == "f32" ? Dtype::f32 : Dtype::bf16;
  const auto checkpoint = open_checkpoint(o.layer);
  const ckpt::LayerInfo& info = pick_layer(*checkpoint, o.layer_index);
  require_readable(variant, info, o.layer);
  const Input in = read_input(o.input);
  if (in.K != info.K) fail("{}: 'x' has K={} but the layer has K={}; nothing was computed", o.input, in.K, info.K);

  ckpt::Layer layer;
  require(checkpoint->load(info.index, variant.rows, 0, -1, &layer));
  const Shape shape{in.T, in.k, layer.experts, info.K, info.I};
  std::unique_ptr<Engine> engine;
  require(Engine::create(variant, shape, {o.backend, o.threads}, &engine));

  const size_t rows = static_cast<size_t>(in.T) * (variant.per_route ? in.k : 1);
  std::vector<float> y(rows * in.K);  // room and alignment for either type
  Call call;
  call.variant = &variant;
  call.shape = shape;
  call.weights = layer.weights;
  call.x = in.x.data();
  call.topk_ids = in.ids.data();
  call.topk_weights = in.weights.data();
  call.weights_dtype = in.weights_dtype;
  call.first_expert = o.first_expert;
  call.y = y.data();
  call.out_dtype = dtype;
  require(engine->run(call));
  write_output(o.output, variant, in, dtype, y.data());

  std::vector<int32_t> storage(route_plan_words(in.ids.size(), layer.experts));
  const RoutePlan plan =
      plan_routes(in.ids.data(), static_cast<int>(in.ids.size()), o.first_expert, layer.experts, storage.data());
  fmt::print("{}: {} tokens, {} of {} routes local, {} experts, backend {}, {} threads\n", o.output, in.T, plan.routes,
             in.ids.size(), plan.active, engine->backend().name, engine->threads());
}

}  // namespace

void add_run_command(CLI::App& app) {
  CLI::App* sub = app.add_subcommand("run", "Run one layer on the tensors of a file");
  auto o = std::make_shared<RunOptions>();
  add_variant(sub, &o->variant);
  sub->add_option("--layer", o->layer, "Safetensors file or checkpoint directory with the layer")->required();
  sub->add_option("--layer-index", o->layer_index, "Which layer; needed if there are several")
      ->check(CLI::Range(0, 1 << 20));
  sub->add_option("--input", o->input,
                  "Safetensors file: x BF16|F32 [T,K], topk_ids I32|I64 [T,k], topk_weights F32|BF16 [T,k]")
      ->required();
  sub->add_option("--output", o->output, "Safetensors file to write: y [T,K], or [T,k,K] for per-route variants")
      ->required();
  sub->add_option("--first-expert", o->first_expert, "Global id of the layer's first expert; ids outside are skipped")
      ->check(CLI::Range(0, std::numeric_limits<int32_t>::max()))
      ->capture_default_str();
  add_backend(sub, &o->backend);
  add_threads(sub, &o->threads);
  sub->add_option("--out-dtype", o->out_dtype, "Element type of y")
      ->check(CLI::IsMember({"bf16", "f32"}))
      ->capture_default_str();
  sub->footer(
      "Example:\n  mxk run --variant gptoss --layer /models/gpt-oss-20b --layer-index 3 \\\n"
      "          --input in.safetensors --output out.safetensors");
  sub->callback([o] {
    warn_unknown_variables();
    run(*o);
  });
}

}  // namespace mxk::cli
