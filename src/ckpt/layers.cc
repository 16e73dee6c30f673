// SPDX-License-Identifier: Apache-2.0
#include "ckpt/layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <tuple>

#include "ckpt/file.h"
#include "ckpt/header.h"
#include "core/formats.h"

namespace mxk::ckpt {
namespace {

constexpr int kForeign = 6;  // slot of a tensor that changes what the weights mean
constexpr std::string_view kProjections[][3] = {{"gate_proj", "up_proj", "down_proj"}, {"w1", "w3", "w2"}};
constexpr std::string_view kWeightLeaves[] = {"weight", "weight_packed"};
constexpr std::string_view kScaleLeaves[] = {"weight_scale", "scale"};
constexpr std::string_view kForeignLeaves[] = {"bias", "weight_scale_2", "weight_global_scale", "weight_zero_point"};
constexpr std::string_view kGptoss[] = {"gate_up_proj_blocks", "gate_up_proj_scales", "down_proj_blocks",
                                        "down_proj_scales",    "gate_up_proj_bias",   "down_proj_bias"};
constexpr std::string_view kFused[] = {"w13_weight",      "w13_weight_scale", "w2_weight",
                                       "w2_weight_scale", "w13_bias",         "w2_bias"};

template <class List>
int position(const List& list, std::string_view name) {
  const auto at = std::find(std::begin(list), std::end(list), name);
  return at == std::end(list) ? -1 : static_cast<int>(at - std::begin(list));
}

// Removes and returns the last dot-separated component; the dot stays with `rest`.
std::string_view take_last(std::string_view* rest) {
  const size_t dot = rest->substr(0, rest->empty() ? 0 : rest->size() - 1).rfind('.');
  const size_t start = dot == rest->npos ? 0 : dot + 1;
  std::string_view last = rest->substr(start);
  *rest = rest->substr(0, start);
  if (last.ends_with('.')) last.remove_suffix(1);
  return last;
}

// A number as names carry it: no sign, no leading zero, below a million.
std::optional<int> parse_number(std::string_view text) {
  if (text.empty() || text.size() > 6 || (text[0] == '0' && text.size() > 1)) return {};
  int n = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return {};
    n = n * 10 + (c - '0');
  }
  return n;
}

int layer_number(std::string_view prefix) {  // of the last "layers.<n>."; -1 if there is none
  while (!prefix.empty()) {
    const std::optional<int> n = parse_number(take_last(&prefix));
    std::string_view before = prefix;
    if (n && take_last(&before) == "layers") return *n;
  }
  return -1;
}

struct Name {
  Format format;
  std::string_view prefix;
  int expert, slot;
};

std::optional<Name> parse_name(std::string_view name) {
  std::string_view rest = name;
  const std::string_view leaf = take_last(&rest);
  if (const int slot = position(kGptoss, leaf); slot >= 0) return Name{Format::gptoss_hf, rest, 0, slot};
  for (int slot = 0; slot < 6; ++slot) {  // under any prefix, also one that ends in another mark than a dot
    if (!leaf.ends_with(kFused[slot])) continue;
    const std::string_view prefix = name.substr(0, name.size() - kFused[slot].size());
    if (prefix.empty() || std::string_view("._-/:").find(prefix.back()) != std::string_view::npos)
      return Name{Format::fused, prefix, 0, slot};
  }

  const bool weight = position(kWeightLeaves, leaf) >= 0, scale = position(kScaleLeaves, leaf) >= 0;
  if (!weight && !scale && position(kForeignLeaves, leaf) < 0) return {};
  const std::string_view word = take_last(&rest);
  const int projection = std::max(position(kProjections[0], word), position(kProjections[1], word));
  if (projection < 0) return {};
  const std::optional<int> expert = parse_number(take_last(&rest));
  std::string_view before = rest;
  if (!expert || take_last(&before) != "experts") return {};
  return Name{Format::per_expert, rest, *expert, weight ? 2 * projection : scale ? 2 * projection + 1 : kForeign};
}

bool is_bias(Format f, int slot) { return f != Format::per_expert && slot >= 4; }
bool is_weight(Format f, int slot) { return !is_bias(f, slot) && slot % 2 == 0 && slot != kForeign; }
bool four_bit(Type t) { return t == Type::U8 || t == Type::I8 || t == Type::F4; }
bool e8m0_bytes(Type t) { return t == Type::U8 || t == Type::F8_E8M0; }

std::string named(const Tensor& t) { return "tensor '" + printable(t.name) + "'"; }

// Could this group be MXFP4? Experts of another type (BF16, FP8 with block scales) are none of our business.
bool concerns_us(const FoundLayer& l) {
  bool any_weight = false, any_scale = false;
  for (const Part& p : l.parts) {
    const Type type = p.tensor->type;
    if (is_weight(l.info.format, p.slot)) {
      if (four_bit(type)) return true;
      any_weight = true;
    } else if (p.slot < kForeign && !is_bias(l.info.format, p.slot)) {
      any_scale |= e8m0_bytes(type);
    }
  }
  return any_scale && !any_weight;
}

// The name that tensor (expert, slot) would have, spelled as the layer's other tensors are.
std::string expected_name(const FoundLayer& l, int expert, int slot) {
  const std::string& prefix = l.info.prefix;
  if (l.info.format == Format::gptoss_hf) return prefix + std::string(kGptoss[slot]);
  if (l.info.format == Format::fused) return prefix + std::string(kFused[slot]);
  const std::string_view* projections = kProjections[0];
  std::string_view weight = "weight", scale;
  for (const Part& p : l.parts) {
    std::string_view rest = p.tensor->name;
    const std::string_view leaf = take_last(&rest);
    if (position(kProjections[1], take_last(&rest)) >= 0) projections = kProjections[1];
    if (position(kScaleLeaves, leaf) >= 0) scale = leaf;
    if (position(kWeightLeaves, leaf) >= 0) weight = leaf;
  }
  if (scale.empty()) scale = projections == kProjections[1] && weight == "weight" ? "scale" : "weight_scale";
  return fmt::format("{}{}.{}.{}", prefix, expert, projections[slot / 2], slot % 2 ? scale : weight);
}

// Every (expert, slot) exactly once? Sets E of per_expert, and bias.
std::string check_complete(FoundLayer& l) {
  const auto same = [](const Part& a, const Part& b) { return a.expert == b.expert && a.slot == b.slot; };
  if (const auto twice = std::adjacent_find(l.parts.begin(), l.parts.end(), same); twice != l.parts.end())
    return fmt::format("{} and {} name the same weights", named(*twice[0].tensor), named(*twice[1].tensor));
  const bool per_expert = l.info.format == Format::per_expert;
  l.info.bias = !per_expert && l.parts.back().slot >= 4;
  const size_t slots = per_expert || (l.info.bias && l.info.format == Format::gptoss_hf) ? 6 : 4;
  // Of the fused names, either bias may stand alone.
  const size_t optional = l.info.format == Format::fused ? l.parts.size() - std::min(l.parts.size(), slots) : 0;
  l.info.E = per_expert ? l.parts.back().expert + 1 : 0;
  for (size_t i = 0; i < l.parts.size() - optional || i % slots != 0; ++i) {
    const int expert = static_cast<int>(i / slots), slot = static_cast<int>(i % slots);
    if (i == l.parts.size() || l.parts[i].expert != expert || l.parts[i].slot != slot)
      return "tensor '" + printable(expected_name(l, expert, slot)) + "' is missing";
  }
  return {};
}

// E, K and I from the shapes of the first weights, which are not checked yet.
std::string derive_sizes(FoundLayer& l) {
  const bool per_expert = l.info.format == Format::per_expert;
  const Tensor& w13 = *l.parts[0].tensor;
  const Tensor& w2 = *l.parts[per_expert ? 4 : 2].tensor;
  const size_t row = per_expert ? 0 : 1;  // the dimension that counts rows
  for (const Tensor* t : {&w13, &w2})
    if (t->shape.size() < row + 2 || t->shape.size() > row + 3)
      return fmt::format("{}: {} where packed weights have {} or {} dimensions", named(*t), describe(t->type, t->shape),
                         row + 2, row + 3);
  const int64_t E = per_expert ? l.info.E : w13.shape[0];
  const int64_t K = w2.shape[row];
  const int64_t I = per_expert ? w13.shape[0] : w13.shape[1] / 2;
  const auto check = [](const Tensor& t, const char* what, int64_t value, int multiple, int64_t limit) -> std::string {
    if (value > 0 && value % multiple == 0 && value <= limit) return {};
    return fmt::format("{}: {} says {}={}, not a multiple of {} from {} to {}", named(t), describe(t.type, t.shape),
                       what, value, multiple, multiple, limit);
  };
  if (std::string why = check(w13, "E", E, 1, 1 << 20); !why.empty()) return why;
  if (std::string why = check(w2, "K", K, kGroup, 1 << 24); !why.empty()) return why;
  if (std::string why = check(w13, "I", I, kGroup, 1 << 24); !why.empty()) return why;
  l.info.E = static_cast<int>(E);
  l.info.K = static_cast<int>(K);
  l.info.I = static_cast<int>(I);
  return {};
}

std::string check_shape(const LayerInfo& info, const Part& p) {
  using Shape = std::vector<int64_t>;
  const Tensor& t = *p.tensor;
  const bool first = info.format == Format::per_expert ? p.slot < 4 : p.slot < 2 || p.slot == 4;  // gate, up: [.., K]
  const int64_t columns = first ? info.K : info.I;
  Shape rows;
  if (info.format != Format::per_expert) rows.push_back(info.E);
  rows.push_back(!first ? info.K : info.format == Format::per_expert ? info.I : int64_t{2} * info.I);
  const auto with = [&](std::initializer_list<int64_t> more) {
    Shape s = rows;
    s.insert(s.end(), more);
    return s;
  };
  std::string want;
  if (is_bias(info.format, p.slot)) {
    if ((t.type == Type::BF16 || t.type == Type::F16 || t.type == Type::F32) && t.shape == rows) return {};
    want = "BF16, F16 or " + describe(Type::F32, rows);
  } else if (is_weight(info.format, p.slot)) {
    const int64_t width = t.type == Type::F4 ? 1 : 2;  // the shape counts elements, or bytes of two
    if (four_bit(t.type) && (t.shape == with({columns / width}) || t.shape == with({columns / kGroup, kGroup / width})))
      return {};
    want = "I8 or " + describe(Type::U8, with({columns / 2}));
  } else {
    if (e8m0_bytes(t.type) && t.shape == with({columns / kGroup})) return {};
    if (t.type == Type::F8_E4M3)
      return fmt::format("{}: {} scales are those of NVFP4 (groups of 16), not MXFP4", named(t),
                         describe(t.type, t.shape));
    want = "F8_E8M0 or " + describe(Type::U8, with({columns / kGroup}));
  }
  return fmt::format("{}: {} where {} is needed (K={} I={})", named(t), describe(t.type, t.shape), want, info.K,
                     info.I);
}

std::string inspect(FoundLayer& l) {
  std::sort(l.parts.begin(), l.parts.end(), [](const Part& a, const Part& b) {
    return std::tie(a.expert, a.slot, a.tensor->name) < std::tie(b.expert, b.slot, b.tensor->name);
  });
  for (const Part& p : l.parts)
    if (p.slot == kForeign) return named(*p.tensor) + ": weights with such a tensor are not plain MXFP4";
  if (std::string why = check_complete(l); !why.empty()) {
    // Scales inside the weight rows, 17 bytes a group: the oldest Quark exports.
    const Part& p = l.parts.front();
    if (l.info.format == Format::per_expert && is_weight(l.info.format, p.slot) && p.tensor->shape.size() == 2 &&
        p.tensor->shape[1] > 0 && p.tensor->shape[1] % 17 == 0 && (l.parts.size() == 1 || l.parts[1].slot != 1))
      why += fmt::format(" (rows of {} bytes look like legacy Quark groups of 17 bytes, which are not supported)",
                         p.tensor->shape[1]);
    return why;
  }
  if (std::string why = derive_sizes(l); !why.empty()) return why;
  for (const Part& p : l.parts)
    if (std::string why = check_shape(l.info, p); !why.empty()) return why;
  return {};
}

// Numbers inside names by their value, so that "h.2." comes before "h.10.".
struct NaturalOrder {
  static int compare(std::string_view a, std::string_view b) {
    const auto digits = [](std::string_view s) { return std::min(s.find_first_not_of("0123456789"), s.size()); };
    while (!a.empty() && !b.empty()) {
      const size_t na = digits(a), nb = digits(b);
      int order = 0;
      if (na && nb && na != nb)
        order = na < nb ? -1 : 1;
      else
        order = a.substr(0, std::max<size_t>(na, 1)).compare(b.substr(0, std::max<size_t>(nb, 1)));
      if (order) return order;
      a.remove_prefix(std::max<size_t>(na, 1));
      b.remove_prefix(std::max<size_t>(nb, 1));
    }
    return a.empty() ? (b.empty() ? 0 : -1) : 1;
  }
  using Key = std::pair<std::string_view, Format>;
  bool operator()(const Key& a, const Key& b) const {
    if (const int order = compare(a.first, b.first)) return order < 0;
    return a < b;
  }
};

}  // namespace

const char* to_string(Format format) {
  switch (format) {
    case Format::gptoss_hf: return "gptoss_hf";
    case Format::fused: return "fused";
    case Format::per_expert: return "per_expert";
  }
  return "?";
}

std::vector<FoundLayer> find_layers(std::span<const SafeTensors> files) {
  std::map<std::pair<std::string_view, Format>, FoundLayer, NaturalOrder> groups;
  for (uint32_t f = 0; f < files.size(); ++f)
    for (const Tensor& t : files[f].tensors())
      if (const std::optional<Name> n = parse_name(t.name))
        groups[{n->prefix, n->format}].parts.push_back({n->expert, n->slot, f, &t});

  std::vector<FoundLayer> layers;
  bool numbered = false;
  for (auto& [key, layer] : groups) {
    layer.info.prefix = key.first;
    layer.info.format = key.second;
    if (!concerns_us(layer)) continue;
    layer.info.index = layer_number(key.first);
    numbered |= layer.info.index >= 0;
    layer.problem = inspect(layer);
    layers.push_back(std::move(layer));
  }
  int next = 0;
  for (FoundLayer& l : layers) {
    if (l.info.index >= 0) continue;
    if (!numbered)
      l.info.index = next++;
    else if (l.problem.empty())
      l.problem = fmt::format("tensors '{}*' carry no layer number while others do", printable(l.info.prefix));
  }
  std::stable_sort(layers.begin(), layers.end(),
                   [](const FoundLayer& a, const FoundLayer& b) { return a.info.index < b.info.index; });
  const FoundLayer* last = nullptr;
  for (FoundLayer& l : layers) {
    if (!l.problem.empty()) continue;
    if (last && last->info.index == l.info.index)
      l.problem = fmt::format("tensors '{}*' are a second layer {}; '{}*' is used", printable(l.info.prefix),
                              l.info.index, printable(last->info.prefix));
    else
      last = &l;
  }
  return layers;
}

}  // namespace mxk::ckpt
