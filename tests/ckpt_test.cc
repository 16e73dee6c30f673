// SPDX-License-Identifier: Apache-2.0
//
// Expert layers in one file: every spelling of the tensors, how they are loaded, what is refused and how.
#include "ckpt/ckpt.h"

#include <cmath>
#include <cstring>

#include "ckpt_layers.h"
#include "core/formats.h"

namespace mxk::ckpt {
namespace {

struct Opened {
  explicit Opened(const std::vector<Item>& items, int pad = 0) {
    write_bytes(dir / "layer.safetensors", image(items, pad));
    status = Checkpoint::open(dir / "layer.safetensors", &c);
    EXPECT_TRUE(status.ok()) << status.message;
  }
  Layer load(int index = 0, Rows rows = Rows::stacked, int first = 0, int n = -1) const {
    Layer l;
    const Status s = c->load(index, rows, first, n, &l);
    EXPECT_TRUE(s.ok()) << s.message;
    return l;
  }
  // The layer is not listed, a warning says why, and loading it says the same.
  void expect_problem(std::string_view fragment, int index = 0) const {
    EXPECT_TRUE(c->layers().empty());
    ASSERT_EQ(c->warnings().size(), 1u);
    EXPECT_NE(c->warnings()[0].find(fragment), std::string::npos) << c->warnings()[0];
    Layer l;
    expect_error(c->load(index, Rows::stacked, 0, -1, &l), Code::corrupt_file, fragment);
    EXPECT_EQ(l.weights.w13, nullptr);
  }
  TempDir dir;
  std::unique_ptr<Checkpoint> c;
  Status status;
};

TEST(Layers, GptossNames) {
  for (const bool rank4 : {true, false})
    for (const char* prefix : {"", "model.layers.7.mlp.experts."}) {
      const Opened o(gptoss(prefix, rank4));
      ASSERT_EQ(o.c->layers().size(), 1u);
      const LayerInfo& info = o.c->layers()[0];
      EXPECT_EQ(info.format, Format::gptoss_hf);
      EXPECT_EQ(info.prefix, prefix);
      EXPECT_EQ(info.index, *prefix ? 7 : 0);
      EXPECT_EQ(info.E, E);
      EXPECT_EQ(info.K, K);
      EXPECT_EQ(info.I, I);
      EXPECT_TRUE(info.bias);
      EXPECT_TRUE(o.c->warnings().empty());
      EXPECT_EQ(o.c->tensor_count(), 6u);
      EXPECT_EQ(o.c->tensor_bytes(), E * (I * K + 2 * I * K / 32 + K * I / 2 + K * I / 32 + 2 * 2 * I + 2 * K));
      expect_fused_weights(o.load(info.index), 0, E);
      expect_fused_weights(o.load(info.index, Rows::interleaved, 1), 1, E - 1);
      expect_fused_weights(o.load(info.index, Rows::interleaved, 1, 1), 1, 1);
    }
  EXPECT_STREQ(to_string(Format::gptoss_hf), "gptoss_hf");
}

TEST(Layers, BiasesOfEveryTypeWiden) {
  const std::string all = [] {  // every 16-bit pattern, cut to what the layer holds
    std::string s;
    for (int i = 0; i < E * 2 * I; ++i) {
      const int h = i * 977 % 65536;
      s += static_cast<char>(h);
      s += static_cast<char>(h >> 8);
    }
    return s;
  }();
  const auto half = [&](int i) {
    uint16_t h;
    std::memcpy(&h, all.data() + 2 * i, 2);
    return h;
  };
  for (const Type type : {Type::BF16, Type::F16, Type::F32})
    for (int pad = 0; pad < 4; ++pad) {  // data at every alignment
      std::vector<Item> items = gptoss("");
      replace(items, "gate_up_proj_bias", type, {E, 2 * I});
      replace(items, "down_proj_bias", type, {E, K});
      std::string& raw = named(items, "gate_up_proj_bias").data;
      if (type == Type::F32)
        for (int i = 0; i < E * 2 * I; ++i) {
          const float f = static_cast<float>(i) * 0.37f - 5;
          std::memcpy(raw.data() + 4 * i, &f, 4);
        }
      else
        raw = all;
      const Opened o(items, pad);
      const Layer l = o.load(0, Rows::interleaved, 1, 2);
      ASSERT_EQ(l.b13.size(), 2u * 2 * I);
      ASSERT_EQ(l.b2.size(), 2u * K);
      ASSERT_EQ(l.weights.b13, l.b13.data());
      ASSERT_EQ(l.weights.b2, l.b2.data());
      for (int i = 0; i < 2 * 2 * I; ++i) {
        const int at = 2 * I + i;
        float want = static_cast<float>(at) * 0.37f - 5;
        if (type == Type::BF16) want = bf16_to_f32(half(at));
        if (type == Type::F16) {
          const int e = half(at) >> 10 & 31, m = half(at) & 1023;
          want = e == 31 ? (m ? NAN : INFINITY)
                 : e     ? std::ldexp(1 + static_cast<float>(m) / 1024, e - 15)
                         : std::ldexp(static_cast<float>(m), -24);
          if (half(at) >> 15) want = -want;
        }
        const float got = l.b13[static_cast<size_t>(i)];
        if (std::isnan(want))
          EXPECT_TRUE(std::isnan(got)) << at;
        else
          EXPECT_EQ(got, want) << at;
      }
      expect_fused_weights(l, 1, 2);
    }
}

TEST(Layers, MovedLayersKeepTheirPointers) {
  const Opened o(gptoss("")), p(per_expert("experts."));
  Layer l = o.load(), moved = std::move(l);
  EXPECT_EQ(moved.weights.b13, moved.b13.data());
  Layer g = p.load();
  moved = std::move(g);
  EXPECT_EQ(moved.weights.w13, moved.owned.data());
}

TEST(Layers, FusedNames) {
  for (const char* prefix :
       {"", "x.", "language_model.model.layers.12.mlp.experts.", "model.layers.3.ffn.experts.routed_experts."})
    for (const Type weight : {Type::U8, Type::I8, Type::F4})
      for (const Type scale : {Type::U8, Type::F8_E8M0}) {
        const Opened o(fused(prefix, weight, scale), 3);
        ASSERT_EQ(o.c->layers().size(), 1u);
        EXPECT_EQ(o.c->layers()[0].format, Format::fused);
        EXPECT_EQ(o.c->layers()[0].prefix, prefix);
        EXPECT_FALSE(o.c->layers()[0].bias);
        const Layer l = o.load(o.c->layers()[0].index);
        expect_fused_weights(l, 0, E);
        EXPECT_EQ(l.weights.b13, nullptr);
        EXPECT_EQ(l.weights.b2, nullptr);
      }
  const Opened with_bias(
      fused("") + std::vector<Item>{item("w13_bias", Type::F32, {E, 2 * I}, 0), item("w2_bias", Type::F16, {E, K}, 0)});
  ASSERT_EQ(with_bias.c->layers().size(), 1u);
  EXPECT_TRUE(with_bias.c->layers()[0].bias);
  EXPECT_EQ(with_bias.load().b13.size(), static_cast<size_t>(E * 2 * I));
}

// What a gather of experts [first, first + n) must give, from the tensors' own bytes.
void expect_gathered(const Layer& l, Rows rows, int first, int n) {
  std::string w13, s13, w2, s2;
  for (int e = first; e < first + n; ++e) {
    const auto join = [&](int slot, size_t row) {
      const std::string gate = bytes(I * row, 10 * e + slot), up = bytes(I * row, 10 * e + slot + 2);
      if (rows == Rows::stacked) return gate + up;
      std::string out;
      for (size_t i = 0; i < I; ++i) out += gate.substr(i * row, row) + up.substr(i * row, row);
      return out;
    };
    w13 += join(0, K / 2);
    s13 += join(1, K / 32);
    w2 += bytes(K * I / 2, 10 * e + 4);
    s2 += bytes(K * I / 32, 10 * e + 5);
  }
  EXPECT_EQ(view(l.weights.w13, w13.size()), w13);
  EXPECT_EQ(view(l.weights.s13, s13.size()), s13);
  EXPECT_EQ(view(l.weights.w2, w2.size()), w2);
  EXPECT_EQ(view(l.weights.s2, s2.size()), s2);
  EXPECT_FALSE(l.zero_copy());
  EXPECT_EQ(l.owned.size(), w13.size() + s13.size() + w2.size() + s2.size());
  EXPECT_EQ(l.first_expert, first);
  EXPECT_EQ(l.experts, n);
}

TEST(Layers, PerExpertNames) {
  const Spelling deepseek{"w1", "w3", "w2", "weight", "scale", Type::I8, Type::F8_E8M0};
  const Spelling packed{"gate_proj", "up_proj", "down_proj", "weight_packed", "weight_scale"};
  const Spelling kimi{"w1", "w3", "w2", "weight_packed", "weight_scale"};
  const std::vector<Item> sources[] = {per_expert("model.layers.5.mlp.experts."),
                                       per_expert("layers.5.ffn.experts.", deepseek),
                                       per_expert("language_model.model.layers.5.mlp.experts.", packed),
                                       per_expert("model.layers.5.block_sparse_moe.experts.", kimi)};
  for (const std::vector<Item>& items : sources)
    for (const Rows rows : {Rows::stacked, Rows::interleaved}) {
      SCOPED_TRACE(items[0].spec.name);
      std::vector<Item> reversed(items.rbegin(), items.rend());
      const Opened o(reversed, 1);
      EXPECT_TRUE(o.c->warnings().empty());
      ASSERT_EQ(o.c->layers().size(), 1u);
      EXPECT_EQ(o.c->layers()[0].format, Format::per_expert);
      EXPECT_EQ(o.c->layers()[0].index, 5);
      EXPECT_EQ(o.c->layers()[0].E, E);
      EXPECT_EQ(o.c->layers()[0].K, K);
      EXPECT_EQ(o.c->layers()[0].I, I);
      expect_gathered(o.load(5, rows), rows, 0, E);
      expect_gathered(o.load(5, rows, 1), rows, 1, E - 1);
      expect_gathered(o.load(5, rows, 2, 1), rows, 2, 1);
    }
}

TEST(Layers, ExpertsBeyondNineSortAsNumbers) {
  std::vector<Item> items;
  for (const int e : {10, 2, 0, 1, 9, 8, 7, 6, 5, 4, 3, 11})
    for (Item i : per_expert("experts."))
      if (i.spec.name.starts_with("experts.0.")) {
        i.spec.name.replace(8, 1, std::to_string(e));
        i.data.assign(i.data.size(), static_cast<char>(e));
        items.push_back(std::move(i));
      }
  const Opened o(items);
  ASSERT_EQ(o.c->layers().size(), 1u);
  EXPECT_EQ(o.c->layers()[0].E, 12);
  const Layer l = o.load();
  for (size_t e = 0; e < 12; ++e) EXPECT_EQ(l.weights.w13[e * I * K], e);
}

TEST(Layers, LoadChecksItsArguments) {
  const Opened o(gptoss("model.layers.4.mlp.experts."));
  Layer l;
  const auto refuse = [&](int index, int first, int n, std::string_view fragment) {
    expect_error(o.c->load(index, Rows::stacked, first, n, &l), Code::bad_argument, fragment);
    EXPECT_EQ(l.experts, 0);
  };
  refuse(0, 0, -1, "no MXFP4 expert layer 0 among its 1 layers 4 to 4");
  refuse(-1, 0, -1, "no MXFP4 expert layer -1");
  refuse(4, -1, 1, "experts [-1, 0) are not in its [0, 3)");
  refuse(4, 0, 0, "experts [0, 0)");
  refuse(4, 0, 4, "experts [0, 4)");
  refuse(4, 3, -1, "experts [3, 3)");
  refuse(4, 1, INT32_MAX, "experts [1, 2147483648)");
  refuse(4, INT32_MAX, INT32_MAX, "experts [2147483647, 4294967294)");
  refuse(4, INT32_MIN, -1, "experts [-2147483648, 3)");
}

TEST(Layers, MissingTensorsAreNamed) {
  for (const auto& [ending, bias] : {std::pair{"gate_up_proj_blocks", true},
                                     {"gate_up_proj_scales", true},
                                     {"down_proj_blocks", false},
                                     {"down_proj_scales", true},
                                     {"gate_up_proj_bias", true},
                                     {"down_proj_bias", true}}) {
    std::vector<Item> items = gptoss("model.layers.2.mlp.experts.", true, bias);
    drop(items, ending);
    Opened(items).expect_problem("layer 2: tensor 'model.layers.2.mlp.experts." + std::string(ending) + "' is missing",
                                 2);
  }
  std::vector<Item> items = fused("");
  drop(items, "w2_weight_scale");
  Opened(items).expect_problem("tensor 'w2_weight_scale' is missing");

  const std::string p = "layers.0.ffn.experts.";
  const Spelling deepseek{"w1", "w3", "w2", "weight", "scale", Type::I8, Type::F8_E8M0};
  for (const char* name : {"0.w1.weight", "0.w1.scale", "1.w3.weight", "1.w2.scale", "2.w2.scale"}) {
    items = per_expert(p, deepseek);
    drop(items, p + name);
    Opened(items).expect_problem("tensor '" + p + name + "' is missing");
  }
  items = per_expert("experts.", {"gate_proj", "up_proj", "down_proj", "weight_packed", "weight_scale"});
  drop(items, "1.up_proj.weight_packed");
  Opened(items).expect_problem("tensor 'experts.1.up_proj.weight_packed' is missing");
  items = per_expert("experts.");
  std::erase_if(items, [](const Item& i) { return i.spec.name.starts_with("experts.1."); });
  Opened(items).expect_problem("tensor 'experts.1.gate_proj.weight' is missing");
  // One tensor of an expert far away costs no memory for those between.
  items = per_expert("experts.") + std::vector<Item>{item("experts.999999.up_proj.weight", Type::U8, {I, K / 2}, 0)};
  Opened(items).expect_problem("tensor 'experts.3.gate_proj.weight' is missing");
}

TEST(Layers, EitherFusedBiasMayStandAlone) {
  for (const bool of_w13 : {true, false}) {
    const Opened o(fused("") + std::vector<Item>{of_w13 ? item("w13_bias", Type::F32, {E, 2 * I}, 1)
                                                        : item("w2_bias", Type::F32, {E, K}, 1)});
    Layer l;
    ASSERT_TRUE(o.c->load(0, Rows::stacked, 1, 1, &l).ok());
    EXPECT_EQ(l.weights.b13 != nullptr, of_w13);
    EXPECT_EQ(l.weights.b2 != nullptr, !of_w13);
    EXPECT_EQ(of_w13 ? l.b13.size() : l.b2.size(), static_cast<size_t>(of_w13 ? 2 * I : K));
  }
}

TEST(Layers, MisshapenTensorsAreNamed) {
  const auto problem = [](std::vector<Item> items, std::string_view ending, Type type, std::vector<int64_t> shape,
                          std::string_view fragment) {
    const std::string name = "tensor '" + named(items, ending).spec.name + "'";
    replace(items, ending, type, std::move(shape));
    const Opened o(items);
    o.expect_problem(fragment);
    ASSERT_EQ(o.c->warnings().size(), 1u);
    EXPECT_NE(o.c->warnings()[0].find(name), std::string::npos) << o.c->warnings()[0];
  };
  const std::vector<Item> g = gptoss(""), f = fused(""), p = per_expert("experts.");
  problem(g, "gate_up_proj_scales", Type::U8, {E, 2 * I, K / 16},
          "U8 [3, 64, 4] where F8_E8M0 or U8 [3, 64, 2] is needed (K=64 I=32)");
  problem(g, "gate_up_proj_scales", Type::F32, {E, 2 * I, K / 32},
          "F32 [3, 64, 2] where F8_E8M0 or U8 [3, 64, 2] is needed");
  problem(g, "gate_up_proj_blocks", Type::U8, {E, 2 * I, K / 32, 8}, "is needed");
  problem(g, "gate_up_proj_blocks", Type::U8, {E * 2 * I * K / 2}, "packed weights have 3 or 4 dimensions");
  problem(g, "gate_up_proj_blocks", Type::U8, {E, 2 * I + 1, K / 2}, "is needed");
  problem(g, "gate_up_proj_blocks", Type::U8, {E, 2 * I + 2, K / 2}, "says I=33, not a multiple of 32");
  problem(g, "gate_up_proj_blocks", Type::U8, {0, 2 * I, K / 2}, "says E=0");
  problem(g, "gate_up_proj_blocks", Type::U8, {E, 0, K / 2}, "says I=0");
  problem(g, "gate_up_proj_blocks", Type::BF16, {E, 2 * I, K / 2},
          "BF16 [3, 64, 32] where I8 or U8 [3, 64, 32] is needed");
  problem(g, "down_proj_blocks", Type::U8, {E + 1, K, I / 2}, "U8 [4, 64, 16] where I8 or U8 [3, 64, 16] is needed");
  problem(g, "down_proj_blocks", Type::U8, {E, K + 8, I / 2}, "says K=72, not a multiple of 32");
  problem(g, "gate_up_proj_bias", Type::BF16, {E, I}, "BF16 [3, 32] where BF16, F16 or F32 [3, 64] is needed");
  problem(g, "down_proj_bias", Type::F64, {E, K}, "F64 [3, 64] where BF16, F16 or F32 [3, 64] is needed");
  problem(f, "w13_weight_scale", Type::F8_E4M3, {E, 2 * I, K / 16}, "NVFP4 (groups of 16), not MXFP4");
  problem(f, "w2_weight", Type::F4, {E, K, I / 2}, "is needed");
  problem(p, "1.up_proj.weight", Type::U8, {I, K / 2 - 1}, "U8 [32, 31] where I8 or U8 [32, 32] is needed");
  problem(p, "2.down_proj.weight_scale", Type::U8, {K, 2}, "U8 [64, 2] where F8_E8M0 or U8 [64, 1] is needed");
  problem(p, "0.gate_proj.weight_scale", Type::F8_E4M3, {I, K / 16}, "NVFP4");
  problem(p, "0.down_proj.weight", Type::U8, {K}, "packed weights have 2 or 3 dimensions");
  // Sizes whose products would overflow, on tensors without bytes.
  problem(g, "gate_up_proj_blocks", Type::U8, {int64_t{1} << 40, int64_t{1} << 15, 0}, "says E=1099511627776");
  problem(g, "down_proj_blocks", Type::U8, {0, int64_t{1} << 40, 0}, "says K=1099511627776");
}

TEST(Layers, OtherQuantizationsAreRefusedByName) {
  Opened(per_expert("experts.") + std::vector<Item>{item("experts.0.gate_proj.weight_scale_2", Type::F32, {}, 0)})
      .expect_problem("tensor 'experts.0.gate_proj.weight_scale_2': weights with such a tensor are not plain MXFP4");
  Opened(per_expert("experts.") + std::vector<Item>{item("experts.1.up_proj.bias", Type::F32, {I}, 0)})
      .expect_problem("tensor 'experts.1.up_proj.bias'");
  Opened(per_expert("experts.") + std::vector<Item>{item("experts.1.gate_proj.weight_packed", Type::U8, {I, K / 2}, 0)})
      .expect_problem(
          "tensor 'experts.1.gate_proj.weight' and tensor 'experts.1.gate_proj.weight_packed' name the same weights");
  Opened(per_expert("experts.") + std::vector<Item>{item("experts.1.w1.weight", Type::U8, {I, K / 2}, 0)})
      .expect_problem("name the same weights");
  std::vector<Item> legacy;
  for (const char* projection : {"gate_proj", "up_proj", "down_proj"}) {
    const bool down = projection[0] == 'd';
    legacy.push_back(item(std::string("experts.0.") + projection + ".weight", Type::U8,
                          {down ? K : I, (down ? I : K) / 32 * 17}, 0));
  }
  Opened(legacy).expect_problem(
      "tensor 'experts.0.gate_proj.weight_scale' is missing (rows of 34 bytes look like legacy Quark");
}

TEST(Layers, ExpertsOfOtherTypesAreNotListed) {
  std::vector<Item> bf16, fp8;
  for (const char* projection : {"gate_proj", "up_proj", "down_proj"}) {
    const std::string name = std::string("model.layers.0.mlp.experts.0.") + projection;
    bf16.push_back(item(name + ".weight", Type::BF16, {32, 32}, 0));
    fp8.push_back(item(name + ".weight", Type::F8_E4M3, {32, 32}, 0));
    fp8.push_back(item(name + ".scale", Type::F8_E8M0, {1, 1}, 0));
  }
  const std::vector<Item> transposed = {item("model.layers.0.mlp.experts.gate_up_proj", Type::BF16, {1, 32, 64}, 0),
                                        item("model.layers.0.mlp.experts.gate_up_proj_bias", Type::BF16, {1, 64}, 0)};
  const std::vector<Item> near = {item("model.layers.0.mlp.shared_experts.gate_proj.weight", Type::U8, {32, 16}, 0),
                                  item("model.layers.0.self_attn.q_proj.weight_scale", Type::U8, {32, 1}, 0),
                                  item("experts.01.gate_proj.weight", Type::U8, {32, 16}, 0),
                                  item("experts.-1.gate_proj.weight", Type::U8, {32, 16}, 0),
                                  item("experts.1234567.gate_proj.weight", Type::U8, {32, 16}, 0),
                                  item("myexperts.1.gate_proj.weight", Type::U8, {32, 16}, 0),
                                  item("xw13_weight", Type::U8, {32, 16}, 0),
                                  item("gate_proj.weight", Type::U8, {32, 16}, 0),
                                  item("weight", Type::U8, {32, 16}, 0),
                                  item("", Type::U8, {32, 16}, 0),
                                  item("...", Type::U8, {32, 16}, 0),
                                  item(".weight", Type::U8, {32, 16}, 0),
                                  item("weight.", Type::U8, {32, 16}, 0)};
  for (const std::vector<Item>& items : {bf16, fp8, transposed, near}) {
    const Opened o(items);
    EXPECT_TRUE(o.c->layers().empty());
    EXPECT_TRUE(o.c->warnings().empty()) << o.c->warnings()[0];
    Layer l;
    expect_error(o.c->load(0, Rows::stacked, 0, -1, &l), Code::bad_argument, "holds no MXFP4 expert layer");
  }
  // A mixed model: layer 0 in BF16, layer 1 in MXFP4.
  const Opened mixed(bf16 + per_expert("model.layers.1.mlp.experts."));
  ASSERT_EQ(mixed.c->layers().size(), 1u);
  EXPECT_EQ(mixed.c->layers()[0].index, 1);
}

TEST(Layers, Numbering) {
  const Opened numbered(gptoss("model.layers.10.mlp.experts.") + gptoss("model.layers.9.mlp.experts.") +
                        fused("model.layers.0.mlp.experts.") + fused("mtp.0.ffn.experts."));
  ASSERT_EQ(numbered.c->layers().size(), 3u);
  EXPECT_EQ(numbered.c->layers()[0].index, 0);
  EXPECT_EQ(numbered.c->layers()[1].index, 9);
  EXPECT_EQ(numbered.c->layers()[2].index, 10);
  ASSERT_EQ(numbered.c->warnings().size(), 1u);
  EXPECT_NE(numbered.c->warnings()[0].find("'mtp.0.ffn.experts.*' carry no layer number"), std::string::npos);

  const Opened bare(fused("b.") + gptoss("a.") + fused("layers.x.") + per_expert("c.experts."));
  ASSERT_EQ(bare.c->layers().size(), 4u);
  const char* prefixes[] = {"a.", "b.", "c.experts.", "layers.x."};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(bare.c->layers()[i].prefix, prefixes[i]);
    EXPECT_EQ(bare.c->layers()[i].index, static_cast<int>(i));
  }

  const Opened natural(fused("h.10.") + fused("h.9.") + fused("h.0.") + fused("h_2_"));
  ASSERT_EQ(natural.c->layers().size(), 4u);
  const char* in_order[] = {"h.0.", "h.9.", "h.10.", "h_2_"};
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(natural.c->layers()[i].prefix, in_order[i]);

  const Opened twice(fused("model.layers.3.") + gptoss("model.mtp.layers.3."));
  ASSERT_EQ(twice.c->layers().size(), 1u);
  EXPECT_EQ(twice.c->layers()[0].prefix, "model.layers.3.");
  ASSERT_EQ(twice.c->warnings().size(), 1u);
  EXPECT_NE(twice.c->warnings()[0].find("'model.mtp.layers.3.*' are a second layer 3; 'model.layers.3.*' is used"),
            std::string::npos);

  // A broken layer beside good ones.
  std::vector<Item> items = gptoss("model.layers.1.mlp.experts.");
  drop(items, "down_proj_scales");
  const Opened half(gptoss("model.layers.0.mlp.experts.") + items);
  ASSERT_EQ(half.c->layers().size(), 1u);
  Layer l;
  expect_error(half.c->load(1, Rows::stacked, 0, -1, &l), Code::corrupt_file,
               "down_proj_scales' is missing; it is not loaded");
  EXPECT_TRUE(half.c->load(0, Rows::stacked, 0, -1, &l).ok());

  std::vector<Item> fewer = per_expert("model.layers.1.mlp.experts.");
  std::erase_if(fewer, [](const Item& i) { return i.spec.name.find("experts.2.") != std::string::npos; });
  const Opened uneven(per_expert("model.layers.0.mlp.experts.") + fewer);
  ASSERT_EQ(uneven.c->warnings().size(), 1u);
  EXPECT_NE(uneven.c->warnings()[0].find("layer 1: E=2 K=64 I=32 differ from E=3"), std::string::npos);
}

TEST(Layers, ShrunkFilesAreNotRead) {
  const Opened o(gptoss(""));
  const std::string path = o.dir / "layer.safetensors";
  std::filesystem::resize_file(path, 100);
  Layer l;
  expect_error(o.c->load(0, Rows::stacked, 0, -1, &l), Code::corrupt_file, "its data is not used");
}

}  // namespace
}  // namespace mxk::ckpt
