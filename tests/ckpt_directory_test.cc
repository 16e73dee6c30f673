// SPDX-License-Identifier: Apache-2.0
//
// Checkpoint directories: shards, their index, and hostile versions of both.
#include <sys/stat.h>

#include <random>

#include "ckpt/ckpt.h"
#include "ckpt_layers.h"

namespace mxk::ckpt {
namespace {

std::string index_json(const std::vector<std::pair<std::string, std::string>>& map,
                       const std::string& metadata = "{}") {
  std::string out = "{\"metadata\":" + metadata + ",\"weight_map\":{";
  for (size_t i = 0; i < map.size(); ++i) out += (i ? ",\"" : "\"") + map[i].first + "\":\"" + map[i].second + "\"";
  return out + "}}";
}
const char* const kIndex = "model.safetensors.index.json";

TEST(Directory, ShardsWithAndWithoutIndex) {
  const TempDir dir;
  const std::vector<Item> one = gptoss("model.layers.0.mlp.experts."), two = gptoss("model.layers.1.mlp.experts.");
  // Layer 0's scales live with layer 1.
  std::vector<Item> a = one, b = two;
  b.push_back(named(a, "gate_up_proj_scales"));
  drop(a, "gate_up_proj_scales");
  write_bytes(dir / "model-00000-of-00001.safetensors", image(a));
  write_bytes(dir / "model-00001-of-00001.safetensors", image(b));
  std::unique_ptr<Checkpoint> c;
  ASSERT_TRUE(Checkpoint::open(dir.path(), &c).ok());
  EXPECT_EQ(c->layers().size(), 2u);
  EXPECT_EQ(c->path(), dir.path());
  EXPECT_TRUE(c->warnings().empty());

  std::vector<std::pair<std::string, std::string>> map;
  uint64_t total = 0;
  for (const Item& i : a) map.emplace_back(i.spec.name, "model-00000-of-00001.safetensors"), total += i.data.size();
  for (const Item& i : b) map.emplace_back(i.spec.name, "model-00001-of-00001.safetensors"), total += i.data.size();
  const auto open = [&](const std::string& json) {
    write_bytes(dir / kIndex, json);
    const Status s = Checkpoint::open(dir.path() + "/", &c);
    EXPECT_TRUE(s.ok()) << s.message;
    EXPECT_EQ(c->layers().size(), 2u);
    Layer l;
    EXPECT_TRUE(c->load(0, Rows::interleaved, 0, -1, &l).ok());
    expect_fused_weights(l, 0, E);
  };
  open(index_json(map, "{\"total_size\":" + std::to_string(total) + ",\"total_parameters\":1.5,\"x\":[{}]}"));
  EXPECT_TRUE(c->warnings().empty()) << c->warnings()[0];
  open("{\"extra\":{\"weight_map\":1}," + index_json(map).substr(1));
  EXPECT_TRUE(c->warnings().empty());
  open(index_json(map, "{\"total_size\":1}"));
  ASSERT_EQ(c->warnings().size(), 1u);
  EXPECT_NE(c->warnings()[0].find("total_size is 1 but the tensors take " + std::to_string(total)), std::string::npos);
  write_bytes(dir / "consolidated.safetensors", "never read");
  open(index_json(map, "{\"total_size\":1e9}"));
  ASSERT_EQ(c->warnings().size(), 1u);
  EXPECT_NE(c->warnings()[0].find("consolidated.safetensors: not in the index and not read"), std::string::npos);
}

TEST(Directory, HostileIndexes) {
  const TempDir dir;
  std::unique_ptr<Checkpoint> c;
  write_bytes(dir / "a.safetensors", image({item("x", Type::U8, {2}, 0), item("y", Type::U8, {2}, 0)}));
  const auto refuse = [&](const std::string& json, std::string_view fragment, Code code = Code::corrupt_file) {
    SCOPED_TRACE(json.substr(0, 200));
    write_bytes(dir / kIndex, json);
    expect_error(Checkpoint::open(dir.path(), &c), code, fragment);
    EXPECT_EQ(c, nullptr);
  };
  for (const std::string name : {"../a.safetensors", "/etc/passwd", "..", ".", "", "sub/a.safetensors", "a\\\\b",
                                 "a.safetensors\\u0000x", "./a.safetensors", "a.safetensors/"})
    refuse(index_json({{"x", name}}), "maps tensor 'x' to '");
  refuse(index_json({{"x", "b.safetensors"}, {"y", "a.safetensors"}}), "b.safetensors: cannot open", Code::io);
  refuse(index_json({{"x", kIndex}}), "header size");
  refuse(index_json({{"x", "a.safetensors"}}), "tensor 'y' of 'a.safetensors' is not in the index");
  refuse(index_json({{"x", "a.safetensors"}, {"y", "a.safetensors"}, {"z", "a.safetensors"}}),
         "tensor 'z' is not in 'a.safetensors', where the index has it");
  refuse(index_json({{"x", "a.safetensors"}, {"xx", "a.safetensors"}, {"y", "a.safetensors"}}),
         "tensor 'xx' is not in 'a.safetensors'");
  refuse(index_json({{"a", "a.safetensors"}, {"x", "a.safetensors"}, {"y", "a.safetensors"}}),
         "tensor 'a' is not in 'a.safetensors'");
  refuse(index_json({{"x", "a.safetensors"}, {"x", "a.safetensors"}, {"y", "a.safetensors"}}), "maps tensor 'x' twice");
  refuse(index_json({}), "no tensor in its index", Code::bad_argument);
  refuse("{}", "has no weight_map");
  refuse("", "is not valid JSON");
  refuse("[]", "is an array, not an object");
  refuse("{\"weight_map\":[]}", "'weight_map' is an array");
  refuse("{\"weight_map\":1}", "'weight_map' is 1");
  refuse("{\"metadata\":\"x\",\"weight_map\":{}}", "'metadata' is a string");
  refuse("{\"weight_map\":{\"x\":1}}", "'x' is 1");
  refuse("{\"weight_map\":{\"x\":null}}", "'x' is null");
  refuse("{\"weight_map\":{\"x\":{}}}", "'x' is an object");
  refuse("{\"metadata\":{\"total_size\":{}},\"weight_map\":{}}", "'total_size' is an object");
  refuse("{\"weight_map\":{},\"weight_map\":{}}", "holds two weight_maps");
  refuse("\xEF\xBB\xBF" + index_json({{"x", "a.safetensors"}}), "byte order mark");
  refuse("{\"q\":" + std::string(100000, '['), "nests deeper than 8 levels");
  refuse(index_json({{"x", "a.safetensors\xFF"}}), "ill-formed UTF-8");
  const std::string whole = index_json({{"x", "a.safetensors"}, {"y", "a.safetensors"}});
  for (size_t n = 0; n < whole.size(); ++n) refuse(whole.substr(0, n), kIndex);
  write_bytes(dir / kIndex, whole);
  EXPECT_TRUE(Checkpoint::open(dir.path(), &c).ok());
  c.reset();
  std::filesystem::resize_file(dir / kIndex, 100'000'001);
  expect_error(Checkpoint::open(dir.path(), &c), Code::corrupt_file, "100000001 bytes exceed the limit of 100000000");
  std::filesystem::remove(dir / kIndex);
  std::filesystem::create_symlink(dir / "gone", dir / kIndex);
  expect_error(Checkpoint::open(dir.path(), &c), Code::io, "cannot open");
  std::filesystem::remove(dir / kIndex);
  ASSERT_EQ(mkfifo((dir / kIndex).c_str(), 0600), 0);
  expect_error(Checkpoint::open(dir.path(), &c), Code::io, "not a regular file");
}

TEST(Directory, HostileShards) {
  std::unique_ptr<Checkpoint> c;
  {
    const TempDir dir;
    expect_error(Checkpoint::open(dir.path(), &c), Code::bad_argument, "no safetensors file in this directory");
    expect_error(Checkpoint::open(dir / "absent", &c), Code::io, "No such file");
    write_bytes(dir / "a.safetensors", image({item("x", Type::U8, {2}, 0)}));
    write_bytes(dir / "b.safetensors", image({item("x", Type::U8, {2}, 0)}));
    expect_error(Checkpoint::open(dir.path(), &c), Code::corrupt_file, "b.safetensors' too");
    write_bytes(dir / kIndex, index_json({{"x", "a.safetensors"}}));
    EXPECT_TRUE(Checkpoint::open(dir.path(), &c).ok()) << "the index names one of them";
    ASSERT_EQ(c->warnings().size(), 1u);
    c.reset();
  }
  for (const std::string kind : {"fifo", "directory", "dangling", "truncated"}) {
    SCOPED_TRACE(kind);
    const TempDir dir;
    write_bytes(dir / "a.safetensors", image({item("x", Type::U8, {2}, 0)}));
    const std::string bad = dir / "b.safetensors";
    if (kind == "fifo") {
      ASSERT_EQ(mkfifo(bad.c_str(), 0600), 0);
    } else if (kind == "directory") {
      std::filesystem::create_directory(bad);
    } else if (kind == "dangling") {
      std::filesystem::create_symlink(dir / "gone", bad);
    } else {
      write_bytes(bad, image({item("y", Type::U8, {2}, 0)}).substr(0, 60));
    }
    const Code code = kind == "truncated" ? Code::corrupt_file : Code::io;
    expect_error(Checkpoint::open(dir.path(), &c), code, "b.safetensors");
    write_bytes(dir / kIndex, index_json({{"x", "a.safetensors"}, {"y", "b.safetensors"}}));
    expect_error(Checkpoint::open(dir.path(), &c), code, "b.safetensors");
    EXPECT_EQ(c, nullptr);
  }
}

TEST(Checkpoint, RandomDamageNeverCrashes) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 rng(seed);
  const TempDir dir;
  const std::string whole = image(per_expert("layers.0.ffn.experts."));
  const size_t header = 8 + static_cast<size_t>(static_cast<uint8_t>(whole[0]) | static_cast<uint8_t>(whole[1]) << 8);
  int loaded = 0, opened = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string damaged = whole;
    for (uint32_t k = 0; k <= rng() % 2; ++k) {
      // Mostly a digit for a digit or a letter for a letter, which gets past the JSON.
      char& at = damaged[8 + rng() % (header - 8)];
      at = rng() % 8 == 0           ? static_cast<char>(rng())
           : at >= '0' && at <= '9' ? static_cast<char>('0' + rng() % 10)
           : at >= 'a' && at <= 'z' ? static_cast<char>('a' + rng() % 26)
                                    : at;
    }
    write_bytes(dir / "f.safetensors", damaged);
    std::unique_ptr<Checkpoint> c;
    if (!Checkpoint::open(dir / "f.safetensors", &c).ok()) continue;
    ++opened;
    Layer l;
    loaded += c->load(0, Rows::interleaved, 0, -1, &l).ok();
  }
  EXPECT_GT(opened, 0);
  EXPECT_LE(loaded, opened);
}

}  // namespace
}  // namespace mxk::ckpt
