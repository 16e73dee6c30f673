// SPDX-License-Identifier: Apache-2.0
//
// Small MXFP4 expert layers under every spelling of their tensors: 3 experts, K=64, I=32, bytes that tell tensors and
// positions apart.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "ckpt/ckpt.h"
#include "ckpt_files.h"

namespace mxk::ckpt {

constexpr int E = 3, K = 64, I = 32;

// Bytes that tell tensors and positions apart.
inline std::string bytes(size_t n, int salt) {
  std::string out(n, '\0');
  for (size_t i = 0; i < n; ++i) out[i] = static_cast<char>(i * 7 + static_cast<size_t>(salt) * 41 + (i >> 8));
  return out;
}
inline size_t count(const std::vector<int64_t>& shape) {
  size_t n = 1;
  for (const int64_t d : shape) n *= static_cast<size_t>(d);
  return n;
}
inline Item item(const std::string& name, Type type, std::vector<int64_t> shape, int salt) {
  const size_t n = count(shape) * static_cast<size_t>(bits(type)) / 8;
  return {{name, type, std::move(shape)}, bytes(n, salt)};
}

inline std::vector<Item> gptoss(const std::string& p, bool rank4 = true, bool bias = true) {
  const auto packed = [&](int64_t rows, int64_t columns) {
    return rank4 ? std::vector<int64_t>{E, rows, columns / 32, 16} : std::vector<int64_t>{E, rows, columns / 2};
  };
  std::vector<Item> out = {item(p + "down_proj_blocks", Type::U8, packed(K, I), 2),
                           item(p + "down_proj_scales", Type::U8, {E, K, I / 32}, 3),
                           item(p + "gate_up_proj_blocks", Type::U8, packed(2 * I, K), 0),
                           item(p + "gate_up_proj_scales", Type::U8, {E, 2 * I, K / 32}, 1)};
  if (bias) {
    out.push_back(item(p + "gate_up_proj_bias", Type::BF16, {E, 2 * I}, 4));
    out.push_back(item(p + "down_proj_bias", Type::BF16, {E, K}, 5));
  }
  return out;
}

inline std::vector<Item> fused(const std::string& p, Type weight = Type::U8, Type scale = Type::U8) {
  const int64_t width = weight == Type::F4 ? 1 : 2;
  return {item(p + "w13_weight", weight, {E, 2 * I, K / width}, 0),
          item(p + "w13_weight_scale", scale, {E, 2 * I, K / 32}, 1),
          item(p + "w2_weight", weight, {E, K, I / width}, 2), item(p + "w2_weight_scale", scale, {E, K, I / 32}, 3)};
}

// Salts are 10 * expert + slot.
struct Spelling {
  std::string gate = "gate_proj", up = "up_proj", down = "down_proj", weight = "weight", scale = "weight_scale";
  Type weight_type = Type::U8, scale_type = Type::U8;
};
inline std::vector<Item> per_expert(const std::string& p, const Spelling& s = {}) {
  std::vector<Item> out;
  for (int e = 0; e < E; ++e) {
    int salt = 10 * e;
    for (const std::string& projection : {s.gate, s.up, s.down}) {
      const int64_t rows = projection == s.down ? K : I, columns = projection == s.down ? I : K;
      const std::string name = p + std::to_string(e) + "." + projection + ".";
      out.push_back(item(name + s.weight, s.weight_type, {rows, columns / 2}, salt++));
      out.push_back(item(name + s.scale, s.scale_type, {rows, columns / 32}, salt++));
    }
  }
  return out;
}

inline Item& named(std::vector<Item>& items, std::string_view ending) {
  for (Item& i : items)
    if (i.spec.name.ends_with(ending)) return i;
  ADD_FAILURE() << ending;
  return items.front();
}
inline void drop(std::vector<Item>& items, std::string_view ending) {
  const size_t at = static_cast<size_t>(&named(items, ending) - items.data());
  items.erase(items.begin() + static_cast<std::ptrdiff_t>(at));
}
inline void replace(std::vector<Item>& items, std::string_view ending, Type type, std::vector<int64_t> shape) {
  Item& i = named(items, ending);
  i = item(i.spec.name, type, std::move(shape), 0);
}
inline std::vector<Item> operator+(std::vector<Item> a, const std::vector<Item>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

inline std::string_view view(const uint8_t* p, size_t n) { return {reinterpret_cast<const char*>(p), n}; }

// The four packed arrays of experts [first, first + n) of tensors made with salts 0 to 3.
inline void expect_fused_weights(const Layer& l, int first, int n) {
  const size_t sizes[4] = {I * K, 2 * I * K / 32, K * I / 2, K * I / 32};  // an expert
  const uint8_t* data[4] = {l.weights.w13, l.weights.s13, l.weights.w2, l.weights.s2};
  for (int i = 0; i < 4; ++i)
    EXPECT_EQ(view(data[i], sizes[i] * static_cast<size_t>(n)),
              bytes(sizes[i] * E, i).substr(sizes[i] * static_cast<size_t>(first), sizes[i] * static_cast<size_t>(n)))
        << i;
  EXPECT_TRUE(l.zero_copy());
  EXPECT_EQ(l.first_expert, first);
  EXPECT_EQ(l.experts, n);
}

}  // namespace mxk::ckpt
