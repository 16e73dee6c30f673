// SPDX-License-Identifier: Apache-2.0
//
// Synthetic tensors and checkpoints: the same bytes everywhere, plausible statistics, nothing left after a failure.
#include "ckpt/synthetic.h"

#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <csignal>

#include "ckpt/ckpt.h"
#include "ckpt_files.h"
#include "core/formats.h"
#include "mxk/moe.h"

namespace mxk::ckpt {
namespace {

TEST(Synthetic, FillersDependOnPositionOnly) {
  std::vector<uint8_t> codes(5000), scales(5000);
  std::vector<uint16_t> normal(1000);
  fill_codes(1, 2, 0, codes);
  fill_scales(1, 2, 0, scales);
  fill_normal_bf16(1, 2, 0, 0.5f, normal);
  // Values that must never change, on any machine.
  const std::vector<uint8_t> first(codes.begin(), codes.begin() + 12);
  std::string hex;
  for (const uint8_t b : first) hex += "0123456789abcdef"[b >> 4], hex += "0123456789abcdef"[b & 15];
  EXPECT_EQ(hex, "b1a7e10b47d0f6d2afa900f5");
  EXPECT_EQ((std::vector<uint16_t>(normal.begin(), normal.begin() + 4)),
            (std::vector<uint16_t>{0x3F2C, 0x3DFD, 0xBE1B, 0x3ED9}));
  for (size_t at : {1u, 7u, 8u, 9u, 1003u})
    for (size_t n : {0u, 1u, 7u, 8u, 30u, 997u}) {
      std::vector<uint8_t> piece(n);
      fill_codes(1, 2, at, piece);
      EXPECT_TRUE(std::equal(piece.begin(), piece.end(), codes.begin() + static_cast<std::ptrdiff_t>(at)));
      fill_scales(1, 2, at, piece);
      EXPECT_TRUE(std::equal(piece.begin(), piece.end(), scales.begin() + static_cast<std::ptrdiff_t>(at)));
    }
  std::vector<uint16_t> tail(100);
  fill_normal_bf16(1, 2, 900, 0.5f, tail);
  EXPECT_TRUE(std::equal(tail.begin(), tail.end(), normal.end() - 100));
  std::vector<uint8_t> other(5000);
  fill_codes(1, 3, 0, other);
  EXPECT_NE(codes, other);
  fill_codes(2, 2, 0, other);
  EXPECT_NE(codes, other);
}

TEST(Synthetic, Statistics) {
  std::vector<uint8_t> codes(1 << 20), scales(codes.size() / 16);
  fill_codes(5, 6, 0, codes);
  fill_scales(5, 6, 0, scales);
  int nibbles[16] = {}, bytes[256] = {};
  for (const uint8_t b : codes) ++nibbles[b & 15], ++nibbles[b >> 4];
  for (const uint8_t b : scales) ++bytes[b];
  for (const int n : nibbles) EXPECT_NEAR(n, codes.size() / 8.0, 3000);
  EXPECT_EQ(bytes[118] + bytes[119] + bytes[120] + bytes[121], static_cast<int>(scales.size()));
  EXPECT_GT(bytes[118], 0);
  EXPECT_GT(bytes[121], 0);
  double sum = 0;
  for (int64_t i = 0; i < static_cast<int64_t>(2 * codes.size()); ++i) {
    const double w = double{e2m1_at(codes.data(), i)} * e8m0(scales[static_cast<size_t>(i) / 32]);
    sum += w * w;
  }
  EXPECT_NEAR(std::sqrt(sum / (2.0 * static_cast<double>(codes.size()))), 0.0226, 0.0005);

  std::vector<uint16_t> normal(200'000);
  fill_normal_bf16(5, 6, 0, 4.0f, normal);
  double mean = 0, square = 0, within = 0;
  for (const uint16_t b : normal) {
    const double v = bf16_to_f32(b);
    mean += v, square += v * v, within += std::abs(v) < 4.0;
  }
  const double n = static_cast<double>(normal.size());
  EXPECT_NEAR(mean / n, 0, 0.04);
  EXPECT_NEAR(std::sqrt(square / n), 4, 0.04);
  EXPECT_NEAR(within / n, 0.6827, 0.01);
}

TEST(Synthetic, EveryVariantLoads) {
  for (const Variant& v : variants()) {
    SCOPED_TRACE(v.name);
    const TempDir dir;
    const std::string path = dir / "model";
    SyntheticOptions o;
    o.layers = 3;
    o.experts = 2;
    o.K = 64;
    o.I = 96;
    const Status made = make_checkpoint(path, v, o);
    ASSERT_TRUE(made.ok()) << made.message;
    std::unique_ptr<Checkpoint> c;
    const Status s = Checkpoint::open(path, &c);
    ASSERT_TRUE(s.ok()) << s.message;
    EXPECT_TRUE(c->warnings().empty()) << c->warnings()[0];
    ASSERT_EQ(c->layers().size(), 3u);
    EXPECT_EQ(c->layers()[2].index, 2);
    EXPECT_EQ(c->layers()[0].format, v.bias ? Format::gptoss_hf : Format::per_expert);
    EXPECT_EQ(c->layers()[0].E, 2);
    EXPECT_EQ(c->layers()[0].K, 64);
    EXPECT_EQ(c->layers()[0].I, 96);
    EXPECT_EQ(c->layers()[0].bias, v.bias);
    Layer l;
    ASSERT_TRUE(c->load(1, v.rows, 0, -1, &l).ok());
    EXPECT_EQ(l.zero_copy(), v.bias);
    EXPECT_EQ(l.weights.b13 != nullptr, v.bias);
    EXPECT_TRUE(std::filesystem::exists(path + "/config.json"));
    EXPECT_TRUE(std::filesystem::exists(path + "/model-00003-of-00003.safetensors"));

    // The same seed gives the same bytes, whatever else is written; another seed does not.
    o.layers = 2;
    ASSERT_TRUE(make_checkpoint(dir / "again", v, o).ok());
    o.seed = 2;
    ASSERT_TRUE(make_checkpoint(dir / "other", v, o).ok());
    const std::string shard = read_bytes(path + "/model-00002-of-00003.safetensors");
    EXPECT_EQ(read_bytes(dir / "again/model-00002-of-00002.safetensors"), shard);
    EXPECT_NE(read_bytes(dir / "other/model-00002-of-00002.safetensors"), shard);
    EXPECT_NE(read_bytes(dir / "again/model-00001-of-00002.safetensors"), shard);
  }
}

TEST(Synthetic, RefusesAndCleansUp) {
  const TempDir dir;
  const Variant& v = *find_variant("gptoss");
  SyntheticOptions o;
  o.experts = 1;
  o.K = o.I = 32;
  write_bytes(dir / "file", "x");
  expect_error(make_checkpoint(dir.path(), v, o), Code::bad_argument, "not an empty directory");
  expect_error(make_checkpoint(dir / "file", v, o), Code::bad_argument, "not an empty directory");
  expect_error(make_checkpoint(dir / "no/such", v, o), Code::io, "cannot create the directory");
  o.layers = 0;
  expect_error(make_checkpoint(dir / "new", v, o), Code::bad_argument, "layers=0 is not in 1 to 99999");
  o.layers = 1;
  o.K = 33;
  expect_error(make_checkpoint(dir / "new", v, o), Code::bad_shape, "K=33");
  EXPECT_EQ(dir.entries(), 1u);

  // The disk gives out in the second shard.
  o = {2, 4, 256, 256, 1};
  struct rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const struct rlimit tight = {1000, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &tight), 0);
  const Status s = make_checkpoint(dir / "new", v, o);
  std::filesystem::create_directory(dir / "empty");
  const Status t = make_checkpoint(dir / "empty", v, o);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  expect_error(s, Code::io, "File too large");
  expect_error(t, Code::io, "File too large");
  EXPECT_FALSE(std::filesystem::exists(dir / "new"));
  EXPECT_TRUE(std::filesystem::is_empty(dir / "empty")) << "a directory that was there stays";
  EXPECT_TRUE(make_checkpoint(dir / "empty", v, o).ok());
}

}  // namespace
}  // namespace mxk::ckpt
