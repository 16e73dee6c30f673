// SPDX-License-Identifier: Apache-2.0
//
// Writes only what a routed-expert layer needs. A real checkpoint also holds, beside each layer's experts, attention,
// norms, shared experts and (but for gptoss, which has it here) the router, and once per model the embedding and head.
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "ckpt/file.h"
#include "ckpt/safetensors.h"
#include "ckpt/shards.h"
#include "ckpt/synthetic.h"
#include "core/formats.h"
#include "mxk/moe.h"

namespace mxk::ckpt {
namespace {

using Json = nlohmann::ordered_json;

struct Sizes {
  int64_t layers, E, K, I;
  uint64_t seed;
};

enum class Content { codes, scales, normal };

struct Shard {
  uint64_t seed;
  std::vector<TensorSpec> tensors;
  struct Source {
    Content content;
    float rms;
    uint64_t stream;
  };
  std::vector<Source> sources;

  // The stream is the hash (FNV-1a) of the name: a layer's bytes do not depend on what else is written.
  void add(std::string name, Type type, std::vector<int64_t> shape, Content content, float rms = 0) {
    uint64_t hash = 0xCBF29CE484222325u;
    for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
    sources.push_back({content, rms, hash});
    tensors.push_back({std::move(name), type, std::move(shape)});
  }
  // A matrix [rows.., columns] in MXFP4: bytes of two codes, shaped as `tail` says, and a scale per group.
  void add_mxfp4(const std::string& weight, const std::string& scale, Type weight_type, Type scale_type,
                 std::vector<int64_t> rows, int64_t columns, bool blocks) {
    std::vector<int64_t> packed = rows;
    if (blocks)
      packed.insert(packed.end(), {columns / kGroup, kGroup / 2});
    else
      packed.push_back(columns / 2);
    rows.push_back(columns / kGroup);
    add(weight, weight_type, std::move(packed), Content::codes);
    add(scale, scale_type, std::move(rows), Content::scales);
  }
};

Status fill(void* context, size_t tensor, uint64_t offset, std::span<uint8_t> out) {
  const Shard& shard = *static_cast<const Shard*>(context);
  const Shard::Source& s = shard.sources[tensor];
  if (s.content == Content::codes) fill_codes(shard.seed, s.stream, offset, out);
  if (s.content == Content::scales) fill_scales(shard.seed, s.stream, offset, out);
  if (s.content != Content::normal) return {};
  uint16_t values[1024];
  for (size_t at = 0; at < out.size(); at += sizeof values) {
    const std::span<uint16_t> piece(values, std::min(out.size() - at, sizeof values) / 2);
    fill_normal_bf16(shard.seed, s.stream, (offset + at) / 2, s.rms, piece);
    for (size_t i = 0; i < piece.size(); ++i) {
      out[at + 2 * i] = static_cast<uint8_t>(piece[i]);
      out[at + 2 * i + 1] = static_cast<uint8_t>(piece[i] >> 8);
    }
  }
  return {};
}

Shard gptoss_layer(const Sizes& z, int64_t n) {
  Shard s{z.seed, {}, {}};
  const std::string mlp = fmt::format("model.layers.{}.mlp.", n);
  const auto projection = [&](const std::string& name, int64_t rows, int64_t columns) {
    s.add_mxfp4(name + "_blocks", name + "_scales", Type::U8, Type::U8, {z.E, rows}, columns, true);
    s.add(name + "_bias", Type::BF16, {z.E, rows}, Content::normal, 0.1f);
  };
  projection(mlp + "experts.gate_up_proj", 2 * z.I, z.K);
  projection(mlp + "experts.down_proj", z.K, z.I);
  s.add(mlp + "router.weight", Type::BF16, {z.E, z.K}, Content::normal, 1 / std::sqrt(static_cast<float>(z.K)));
  s.add(mlp + "router.bias", Type::BF16, {z.E}, Content::normal, 0.1f);
  return s;
}

Shard per_expert_layer(const Sizes& z, int64_t n, std::string_view model) {
  Shard s{z.seed, {}, {}};
  const bool deepseek = model == "dsv41";
  const std::string_view projections[2][3] = {{"gate_proj", "up_proj", "down_proj"}, {"w1", "w3", "w2"}};
  const std::string_view root = deepseek ? "" : model == "kimi" ? "language_model.model." : "model.";
  const std::string prefix = fmt::format("{}layers.{}.{}.experts.", root, n, deepseek ? "ffn" : "mlp");
  for (int64_t e = 0; e < z.E; ++e)
    for (int p = 0; p < 3; ++p) {
      const std::string name = fmt::format("{}{}.{}.", prefix, e, projections[deepseek][p]);
      s.add_mxfp4(name + "weight", name + (deepseek ? "scale" : "weight_scale"), deepseek ? Type::I8 : Type::U8,
                  deepseek ? Type::F8_E8M0 : Type::U8, {p == 2 ? z.K : z.I}, p == 2 ? z.I : z.K, false);
    }
  return s;
}

Json config(const Variant& v, const Sizes& z) {
  const std::string_view name = v.name;
  const int64_t top_k = std::min<int64_t>(v.serving.top_k, z.E);
  Json c = {{"hidden_size", z.K}, {"num_hidden_layers", z.layers}, {"num_experts_per_tok", top_k}};
  if (name == "gptoss") {
    c.update({{"architectures", {"GptOssForCausalLM"}},
              {"model_type", "gpt_oss"},
              {"intermediate_size", z.I},
              {"num_local_experts", z.E},
              {"swiglu_limit", v.act_params.limit},
              {"quantization_config",
               {{"quant_method", "mxfp4"},
                {"modules_to_not_convert",
                 {"model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"}}}}});
  } else {
    c.update({{"moe_intermediate_size", z.I}, {"n_routed_experts", z.E}, {"hidden_act", "silu"}});
    if (name == "dsv41")
      c.update({{"model_type", "deepseek_v41"},
                {"swiglu_limit", v.act_params.limit},
                {"quantization_config",
                 {{"quant_method", "fp8"},
                  {"scale_fmt", "ue8m0"},
                  {"weight_block_size", {32, 32}},
                  {"expert_dtype", "fp4"}}}});
    else
      c["quantization_config"] = {{"quant_method", "quark"},
                                  {"global_quant_config",
                                   {{"weight",
                                     {{"dtype", "fp4"},
                                      {"qscheme", "per_group"},
                                      {"group_size", kGroup},
                                      {"ch_axis", -1},
                                      {"scale_format", "e8m0"}}}}},
                                  {"export", {{"pack_method", "reorder"}, {"weight_format", "real_quantized"}}}};
  }
  c["mxk_variant"] = v.name;
  c["dtype"] = "bfloat16";
  return c;
}

// The directory, and what to take back unless keep() is called.
class NewDirectory {
 public:
  explicit NewDirectory(std::string path) : path_(std::move(path)) {}
  ~NewDirectory() {
    if (kept_) return;
    for (const std::string& f : files_) unlink(f.c_str());
    if (created_) rmdir(path_.c_str());
  }
  Status prepare() {
    created_ = mkdir(path_.c_str(), 0777) == 0;
    if (created_) return {};
    if (errno != EEXIST) return os_error(path_, "create the directory", errno, "nothing is written");
    std::error_code ec;
    const bool empty = std::filesystem::is_empty(path_, ec) && std::filesystem::is_directory(path_, ec);
    if (ec) return os_error(path_, "list the directory", ec.value(), "nothing is written");
    if (empty) return {};
    return error(Code::bad_argument,
                 printable(path_, 1000) + ": exists and is not an empty directory; nothing is written");
  }
  // A file that is about to be written.
  const std::string& add(const std::string& name) {
    return files_.emplace_back(path_ + (path_.ends_with('/') ? "" : "/") + name);
  }
  void keep() { kept_ = true; }

 private:
  std::string path_;
  std::vector<std::string> files_;
  bool created_ = false, kept_ = false;
};

}  // namespace

Status make_checkpoint(const std::string& directory, const Variant& v, const SyntheticOptions& o) {
  const int E = o.experts ? o.experts : v.serving.e_local;
  const int K = o.K ? o.K : v.serving.K, I = o.I ? o.I : v.serving.I;
  if (Status s = check_shape(v, {1, 1, E, K, I}); !s.ok()) return s;
  if (o.layers < 1 || o.layers > 99999)
    return error(Code::bad_argument, fmt::format("layers={} is not in 1 to 99999; nothing is written", o.layers));
  const Sizes z{o.layers, E, K, I, o.seed};
  NewDirectory dir(directory);
  if (Status s = dir.prepare(); !s.ok()) return s;

  const auto shard_of = [&](int n) {
    return std::string_view(v.name) == "gptoss" ? gptoss_layer(z, n) : per_expert_layer(z, n, v.name);
  };
  const auto name_of = [&](int n) { return fmt::format("model-{:05}-of-{:05}.safetensors", n + 1, o.layers); };
  // The index comes first: a directory that was not finished is then short of shards, and says so when it is opened.
  nlohmann::json weight_map = nlohmann::json::object();  // by name: up to 140,000 of them
  uint64_t total = 0;
  for (int n = 0; n < o.layers; ++n)
    for (const TensorSpec& t : shard_of(n).tensors) {
      uint64_t elements = 1;
      for (const int64_t d : t.shape) elements *= static_cast<uint64_t>(d);
      total += elements * static_cast<uint64_t>(bits(t.type)) / 8;
      weight_map[t.name] = name_of(n);
    }
  const nlohmann::json index = {{"metadata", {{"total_size", total}}}, {"weight_map", std::move(weight_map)}};
  if (Status s = write_file(dir.add(kIndexName), index.dump(2) + "\n"); !s.ok()) return s;
  if (Status s = write_file(dir.add("config.json"), config(v, z).dump(2) + "\n"); !s.ok()) return s;
  for (int n = 0; n < o.layers; ++n) {
    Shard shard = shard_of(n);
    if (Status s = write_safetensors(dir.add(name_of(n)), shard.tensors, {{"format", "pt"}}, fill, &shard); !s.ok())
      return s;
  }
  dir.keep();
  return {};
}

}  // namespace mxk::ckpt
