// SPDX-License-Identifier: Apache-2.0
//
// The safetensors container: every rule of the format, hostile files, and the writer.
#include "ckpt/safetensors.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <csignal>
#include <memory>
#include <random>

#include "ckpt_files.h"

namespace mxk::ckpt {
namespace {

std::string tensor(std::string_view name, std::string_view fields) {
  return "\"" + std::string(name) + "\":{" + std::string(fields) + "}";
}
std::string u8(std::string_view name, int begin, int end) {
  return tensor(name, "\"dtype\":\"U8\",\"shape\":[" + std::to_string(end - begin) + "],\"data_offsets\":[" +
                          std::to_string(begin) + "," + std::to_string(end) + "]");
}
std::string repeat(std::string_view text, size_t n) {
  std::string out;
  for (size_t i = 0; i < n; ++i) out += text;
  return out;
}

TEST(SafeTensorsParse, Accepts) {
  EXPECT_TRUE(Parsed(image("{}")).status.ok());
  EXPECT_TRUE(Parsed(image(" \n{} \t  ")).status.ok());
  EXPECT_TRUE(Parsed(image("{\"__metadata__\":{}}")).status.ok());

  // Any order of keys, unknown fields, a rank-0 tensor, an empty tensor, an empty name, escapes, every dtype width.
  const Parsed p(image("{" + u8("z", 4, 6) +
                           ",\"__metadata__\":{\"format\":\"pt\",\"a\\u0041\":\"\\n\"},"
                           "\"\":{\"data_offsets\":[0,4],\"extra\":[1,{\"shape\":[-1.5,null]}],\"shape\":[],\"more\":"
                           "true,\"dtype\":\"F32\"},"
                           "\"e\\\"\\u00e9\":{\"dtype\":\"F64\",\"shape\":[3,0],\"data_offsets\":[6,6]},"
                           "\"f4\":{\"dtype\":\"F4\",\"shape\":[2,3],\"data_offsets\":[6,9]}}",
                       "012345678"));
  ASSERT_TRUE(p.status.ok()) << p.status.message;
  ASSERT_EQ(p.st.tensors().size(), 4u);
  EXPECT_EQ(p.st.tensors()[0].name, "");
  EXPECT_EQ(p.st.tensors()[0].shape.size(), 0u);
  EXPECT_EQ(p.st.tensors()[0].type, Type::F32);
  const Tensor* z = p.st.find("z");
  ASSERT_NE(z, nullptr);
  EXPECT_EQ(z->bytes, 2u);
  EXPECT_EQ(std::string(reinterpret_cast<const char*>(z->data), 2), "45");
  ASSERT_NE(p.st.find("e\"\xC3\xA9"), nullptr);
  EXPECT_EQ(p.st.find("e\"\xC3\xA9")->bytes, 0u);
  EXPECT_EQ(p.st.find("f4")->bytes, 3u);
  EXPECT_EQ(p.st.find("nope"), nullptr);
  EXPECT_EQ(p.st.find("zz"), nullptr);
  const std::vector<std::pair<std::string, std::string>> metadata = {{"format", "pt"}, {"aA", "\n"}};
  EXPECT_EQ(p.st.metadata(), metadata);
  EXPECT_TRUE(p.st.intact().ok());
}

TEST(SafeTensorsParse, TypeTable) {
  for (int i = 0; i <= static_cast<int>(Type::U64); ++i) {
    const Type t = static_cast<Type>(i);
    const std::string bytes = std::to_string(bits(t));  // eight elements
    const Parsed p(image(std::string("{") +
                             tensor("t", std::string("\"dtype\":\"") + to_string(t) +
                                             "\",\"shape\":[8],\"data_offsets\":[0," + bytes + "]") +
                             "}",
                         std::string(static_cast<size_t>(bits(t)), 'x')));
    ASSERT_TRUE(p.status.ok()) << p.status.message;
    EXPECT_EQ(p.st.tensors()[0].type, t);
  }
  EXPECT_STREQ(to_string(Type::F8_E8M0), "F8_E8M0");
  EXPECT_STREQ(to_string(Type::U64), "U64");
  EXPECT_EQ(bits(Type::F4), 4);
  EXPECT_EQ(bits(Type::F6_E3M2), 6);
  EXPECT_EQ(bits(Type::BF16), 16);
  EXPECT_EQ(bits(Type::C64), 64);
}

struct Bad {
  std::string json;
  size_t data;
  std::string fragment;
};

// One tensor 'a' with the given fields.
Bad bad(const std::string& dtype, const std::string& shape, const std::string& offsets, size_t data,
        std::string fragment) {
  return {"{" + tensor("a", "\"dtype\":" + dtype + ",\"shape\":" + shape + ",\"data_offsets\":" + offsets) + "}", data,
          std::move(fragment)};
}

TEST(SafeTensorsParse, Refuses) {
  const std::string max = "9223372036854775807", over = "9223372036854775808", huge = "18446744073709551615";
  const std::string not_int = "not an integer of 0 to 2^63-1";
  const Bad cases[] = {
      // JSON
      {"", 0, "header is not valid JSON"},
      {"   ", 0, "header is not valid JSON"},
      {"{", 0, "header is not valid JSON"},
      {"{}x", 0, "header is not valid JSON"},
      {"{}{}", 0, "header is not valid JSON"},
      {"{\"a\":}", 0, "header is not valid JSON"},
      {"{/**/}", 0, "header is not valid JSON"},
      {std::string("{}\0", 3), 0, "header holds a NUL byte"},
      {"\xEF\xBB\xBF{}", 0, "header starts with a byte order mark"},
      {"\xEF\xBB", 0, "header is not valid JSON"},
      {"{\"\xFF\":1}", 0, "ill-formed UTF-8"},
      {"{\"\xC0\x80\":1}", 0, "ill-formed UTF-8"},
      {"{\"\xED\xA0\x80\":1}", 0, "ill-formed UTF-8"},
      {"{\"\\ud800\":1}", 0, "surrogate"},
      {"{\"\\udc00\":1}", 0, "surrogate"},
      {"{\"a\nb\":1}", 0, "header is not valid JSON"},
      {"{\"a\\u0000b\":{}}", 0, "name 'a\\x00b' holds a NUL character"},
      {"[]", 0, "header is an array, not an object"},
      {"1", 0, "header is 1, not an object"},
      {"null", 0, "header is null, not an object"},
      {"\"x\"", 0, "header is a string, not an object"},
      {repeat("[", 100000), 0, "header is an array, not an object"},
      {"{\"a\":" + repeat("[", 100000), 0, "tensor 'a': described by an array"},
      {"{\"a\":{\"x\":" + repeat("[", 100000), 0, "nests deeper than 8 levels"},
      {"{\"a\":{\"x\":" + repeat("{\"y\":", 100000), 0, "nests deeper than 8 levels"},
      {"{\"a\":{\"shape\":[[", 0, "shape holds an array"},
      // Structure
      {"{\"a\":1}", 0, "tensor 'a': described by 1, not an object"},
      {"{\"a\":null}", 0, "tensor 'a': described by null"},
      {"{\"a\":\"b\"}", 0, "tensor 'a': described by a string"},
      {"{\"a\":{}}", 0, "tensor 'a': has no dtype"},
      {"{\"a\":{\"dtype\":\"U8\"}}", 0, "tensor 'a': has no shape"},
      {"{\"a\":{\"dtype\":\"U8\",\"shape\":[0]}}", 0, "tensor 'a': has no data_offsets"},
      {"{" + tensor("a", "\"dtype\":\"U8\",\"dtype\":\"U8\"") + "}", 0, "field 'dtype' appears twice"},
      {"{" + tensor("a", "\"shape\":[1],\"shape\":[1]") + "}", 0, "field 'shape' appears twice"},
      bad("\"U9\"", "[1]", "[0,1]", 1, "dtype 'U9' is unknown"),
      bad("\"u8\"", "[1]", "[0,1]", 1, "dtype 'u8' is unknown"),
      bad("\"\"", "[1]", "[0,1]", 1, "dtype '' is unknown"),
      bad("8", "[1]", "[0,1]", 1, "dtype is 8, not a string"),
      bad("[]", "[1]", "[0,1]", 1, "dtype is an array, not a string"),
      bad("\"U8\"", "1", "[0,1]", 1, "shape is 1, not an array"),
      bad("\"U8\"", "{}", "[0,1]", 1, "shape is an object, not an array"),
      bad("\"U8\"", "null", "[0,1]", 1, "shape is null, not an array"),
      bad("\"U8\"", "[1]", "\"0\"", 1, "data_offsets is a string, not an array"),
      // Numbers
      bad("\"U8\"", "[-1]", "[0,1]", 1, "shape holds -1, " + not_int),
      bad("\"U8\"", "[-0]", "[0,0]", 0, "shape holds 0, " + not_int),
      bad("\"U8\"", "[1.0]", "[0,1]", 1, "shape holds 1.0, " + not_int),
      bad("\"U8\"", "[1e0]", "[0,1]", 1, "shape holds 1e0, " + not_int),
      bad("\"U8\"", "[1e999]", "[0,1]", 1, "header is not valid JSON"),
      bad("\"U8\"", "[01]", "[0,1]", 1, "header is not valid JSON"),
      bad("\"U8\"", "[99999999999999999999]", "[0,1]", 1, "shape holds 99999999999999999999, " + not_int),
      bad("\"U8\"", "[" + over + "]", "[0,1]", 1, "shape holds " + over + ", " + not_int),
      bad("\"U8\"", "[true]", "[0,1]", 1, "shape holds a boolean"),
      bad("\"U8\"", "[\"1\"]", "[0,1]", 1, "shape holds a string"),
      bad("\"U8\"", "[1]", "[0,1.5]", 1, "data_offsets holds 1.5, " + not_int),
      bad("\"U8\"", "[1]", "[0,-1]", 1, "data_offsets holds -1, " + not_int),
      bad("\"U8\"", "[1]", "[0," + huge + "]", 1, "data_offsets holds " + huge),
      bad("\"U8\"", "[1]", "[]", 1, "data_offsets holds 0 numbers"),
      bad("\"U8\"", "[1]", "[0]", 1, "data_offsets holds 1 numbers"),
      bad("\"U8\"", "[1]", "[0,1,2]", 1, "data_offsets holds more than 2 numbers"),
      bad("\"U8\"", "[1,1,1,1,1,1,1,1,1]", "[0,1]", 1, "shape has more than 8 dimensions"),
      bad("\"U8\"", "[" + repeat("1,", 999) + "1]", "[0,1]", 1, "shape has more than 8 dimensions"),
      // Sizes
      bad("\"U8\"", "[2," + max + "]", "[0,1]", 1, "overflows 64 bits"),
      bad("\"U8\"", "[0," + max + "," + max + "]", "[0,0]", 0, "overflows 64 bits"),
      bad("\"U8\"", "[0," + huge + "]", "[0,0]", 0, not_int),
      bad("\"F64\"", "[" + max + "]", "[0,1]", 1, "overflows 64 bits"),
      bad("\"F4\"", "[3]", "[0,2]", 2, "F4 [3] is 12 bits, not whole bytes"),
      bad("\"F6_E2M3\"", "[2]", "[0,2]", 2, "F6_E2M3 [2] is 12 bits, not whole bytes"),
      bad("\"U8\"", "[3]", "[0,10]", 10,
          "mem: tensor 'a': offsets [0, 10) hold 10 bytes but U8 [3] needs 3; the file is not read"),
      bad("\"BF16\"", "[3,2]", "[0,6]", 6, "hold 6 bytes but BF16 [3, 2] needs 12"),
      bad("\"F32\"", "[]", "[0,8]", 8, "hold 8 bytes but F32 [] needs 4"),
      // Layout
      bad("\"U8\"", "[3]", "[3,0]", 3, "offsets [3, 0) run backwards"),
      bad("\"U8\"", "[3]", "[0,3]", 2, "offsets [0, 3) exceed the 2 data bytes"),
      bad("\"U8\"", "[" + max + "]", "[0," + max + "]", 8, "exceed the 8 data bytes"),
      bad("\"U8\"", "[3]", "[1,4]", 4, "offsets [1, 4) leave a hole where the previous tensor ends at 0"),
      bad("\"U8\"", "[3]", "[0,3]", 4, "the tensors end at data byte 3 but the file holds 4"),
      {"{}", 1, "the tensors end at data byte 0 but the file holds 1"},
      {"{" + u8("a", 0, 2) + "," + u8("b", 3, 4) + "}", 4, "tensor 'b': offsets [3, 4) leave a hole"},
      {"{" + u8("a", 0, 2) + "," + u8("b", 1, 4) + "}", 4, "tensor 'b': offsets [1, 4) leave an overlap"},
      {"{" + u8("a", 0, 4) + "," + u8("b", 0, 4) + "}", 4, "tensor 'b': offsets [0, 4) leave an overlap"},
      {"{" + u8("a", 0, 2) + "," + u8("a", 2, 4) + "}", 4, "tensor 'a' appears twice"},
      {"{" + u8("a", 0, 2) + "," + u8("a", 0, 2) + "}", 2, "tensor 'a' appears twice"},
      {"{" + u8("a", 0, 2) + "," + u8("\\u0061", 2, 4) + "}", 4, "tensor 'a' appears twice"},
      // Metadata
      {"{\"__metadata__\":[]}", 0, "tensor '__metadata__': described by an array"},
      {"{\"__metadata__\":{\"k\":1}}", 0, "__metadata__ 'k' is 1, not a string"},
      {"{\"__metadata__\":{\"k\":null}}", 0, "__metadata__ 'k' is null, not a string"},
      {"{\"__metadata__\":{\"k\":{}}}", 0, "__metadata__ 'k' is an object, not a string"},
      {"{\"__metadata__\":{\"k\":\"\",\"k\":\"\"}}", 0, "__metadata__ 'k' appears twice"},
      {"{\"__metadata__\":{},\"__metadata__\":{}}", 0, "__metadata__ appears twice"},
  };
  for (const Bad& c : cases) {
    SCOPED_TRACE(c.json.substr(0, 200));
    const Parsed p(image(c.json, std::string(c.data, 'd')));
    expect_error(p.status, Code::corrupt_file, c.fragment);
    EXPECT_TRUE(p.status.message.ends_with("; the file is not read")) << p.status.message;
    EXPECT_TRUE(p.st.tensors().empty());
    EXPECT_LT(p.status.message.size(), 600u);
    for (const char ch : p.status.message) EXPECT_TRUE(ch >= 0x20 && ch < 0x7F) << p.status.message;
  }
}

TEST(SafeTensorsParse, HeaderSize) {
  for (size_t n = 0; n < 8; ++n)
    expect_error(Parsed(std::string(n, '\0')).status, Code::corrupt_file, std::to_string(n) + " bytes are too few");
  expect_error(Parsed(image("{}", "", ~uint64_t{0})).status, Code::corrupt_file,
               "header size 18446744073709551615 exceeds");
  expect_error(Parsed(image("{}", "", ~uint64_t{0} - 7)).status, Code::corrupt_file, "exceeds the limit of 100000000");
  expect_error(Parsed(image("{}", "", 100'000'001)).status, Code::corrupt_file, "exceeds the limit of 100000000");
  expect_error(Parsed(image("{}", "", 100'000'000)).status, Code::corrupt_file, "exceeds the 2 bytes that follow it");
  expect_error(Parsed(image("{}", std::string(50, ' '), 1000)).status, Code::corrupt_file, "exceeds the 52 bytes");
  expect_error(Parsed(image("{}", "", 0)).status, Code::corrupt_file, "header is not valid JSON");
}

TEST(SafeTensorsParse, Bounds) {
  std::string shared = "{";
  for (int i = 0; i < 20'000; ++i) shared += (i ? "," : "") + u8(std::to_string(i), 0, 1);
  expect_error(Parsed(image(shared + "}", "d")).status, Code::corrupt_file, "leave an overlap");

  std::string many = "{";
  for (int i = 0; i <= 1'000'000; ++i) many += (i ? "," : "") + u8(std::to_string(i), 0, 0);
  expect_error(Parsed(image(many + "}")).status, Code::corrupt_file, "lists more than 1000000 tensors");

  std::string metadata = "{\"__metadata__\":{";
  for (int i = 0; i <= 65'536; ++i) metadata += (i ? ",\"" : "\"") + std::to_string(i) + "\":\"\"";
  expect_error(Parsed(image(metadata + "}}")).status, Code::corrupt_file, "__metadata__ holds more than 65536 entries");

  const std::string long_name(5'000'000, 'n');  // legal, but no message repeats it
  EXPECT_TRUE(Parsed(image("{" + u8(long_name, 0, 1) + "}", "d")).status.ok());
  const Status s = Parsed(image("{" + u8(long_name, 0, 2) + "}", "d")).status;
  expect_error(s, Code::corrupt_file, "exceed the 1 data bytes");
  EXPECT_LT(s.message.size(), 600u);
  EXPECT_LT(Parsed(image("{\"a\":{\"dtype\":\"" + long_name + "\"}}")).status.message.size(), 600u);
  EXPECT_LT(Parsed(image("{\"" + long_name + "\xFF")).status.message.size(), 600u);
}

std::string small_file() {
  return image("{" + u8("first", 0, 3) + "," + u8("second", 3, 8) + ",\"__metadata__\":{\"format\":\"pt\"}}",
               "01234567");
}

TEST(SafeTensorsParse, EveryTruncationAndExtensionFails) {
  const std::string whole = small_file();
  ASSERT_TRUE(Parsed(whole).status.ok());
  for (size_t n = 0; n < whole.size(); ++n) {
    const Parsed p(whole.substr(0, n));
    EXPECT_EQ(p.status.code, Code::corrupt_file) << n;
    EXPECT_FALSE(p.status.message.empty());
  }
  expect_error(Parsed(whole + "P").status, Code::corrupt_file, "end at data byte 8 but the file holds 9");
  expect_error(Parsed(whole + whole).status, Code::corrupt_file, "the tensors end at data byte 8");
}

TEST(SafeTensorsParse, RandomDamageNeverCrashes) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 rng(seed);
  const std::string whole = small_file();
  int accepted = 0;
  for (int i = 0; i < 50'000; ++i) {
    std::string damaged = whole;
    for (uint32_t k = 0; k <= rng() % 4; ++k) {
      const size_t at = rng() % damaged.size();
      if (rng() % 2)
        damaged[at] = static_cast<char>(rng());
      else
        damaged[at] = static_cast<char>(damaged[at] ^ (1 << rng() % 8));
    }
    const Parsed p(damaged);
    accepted += p.status.ok();
    touch(p.st);
    EXPECT_EQ(p.status.ok(), p.status.message.empty());
  }
  EXPECT_GT(accepted, 0);  // damage to names and data is legal
}

TEST(SafeTensorsOpen, RegularFilesOnly) {
  const TempDir dir;
  SafeTensors st;
  expect_error(SafeTensors::open(dir / "absent", &st), Code::io, "cannot open: No such file");
  expect_error(SafeTensors::open(dir.path(), &st), Code::io, "is a directory, not a regular file");
  ASSERT_EQ(mkfifo((dir / "fifo").c_str(), 0600), 0);
  expect_error(SafeTensors::open(dir / "fifo", &st), Code::io, "not a regular file");  // and does not wait for a writer
  std::filesystem::create_symlink(dir / "fifo", dir / "to_fifo");
  expect_error(SafeTensors::open(dir / "to_fifo", &st), Code::io, "not a regular file");
  std::filesystem::create_symlink(dir / "absent", dir / "dangling");
  expect_error(SafeTensors::open(dir / "dangling", &st), Code::io, "cannot open");
  std::filesystem::create_symlink(dir / "loop", dir / "loop");
  expect_error(SafeTensors::open(dir / "loop", &st), Code::io, "cannot open");
  expect_error(SafeTensors::open("/dev/null", &st), Code::io, "not a regular file");
  expect_error(SafeTensors::open("", &st), Code::io, "cannot open");
  write_bytes(dir / "empty", "");
  expect_error(SafeTensors::open(dir / "empty", &st), Code::corrupt_file, "0 bytes are too few");

  write_bytes(dir / "good", small_file());
  std::filesystem::create_symlink(dir / "good", dir / "to_good");  // how download caches lay files out
  ASSERT_TRUE(SafeTensors::open(dir / "to_good", &st).ok());
  EXPECT_EQ(touch(st), '0' + '2' + '3' + '7');
  EXPECT_EQ(st.path(), dir / "to_good");
  write_bytes(dir / "bad", small_file() + "x");
  expect_error(SafeTensors::open(dir / "bad", &st), Code::corrupt_file, (dir / "bad") + ": the tensors end");
  EXPECT_EQ(st.tensors().size(), 2u) << "a failed open leaves the target alone";
}

TEST(SafeTensorsOpen, SparseGiantsAreRefusedFromTheirHeader) {
  const TempDir dir;
  write_bytes(dir / "f", image("{}"));
  std::filesystem::resize_file(dir / "f", uint64_t{1} << 40);
  SafeTensors st;
  expect_error(SafeTensors::open(dir / "f", &st), Code::corrupt_file, "the tensors end at data byte 0");
}

TEST(SafeTensorsOpen, ShrinkingAndReplacedFiles) {
  const TempDir dir;
  const std::string path = dir / "f", bytes = small_file();
  write_bytes(path, bytes);
  SafeTensors st;
  ASSERT_TRUE(SafeTensors::open(path, &st).ok());
  EXPECT_TRUE(st.intact().ok());
  // A rename over the path leaves the mapped file alone.
  write_bytes(dir / "g", "short");
  std::filesystem::rename(dir / "g", path);
  EXPECT_TRUE(st.intact().ok());
  EXPECT_EQ(touch(st), '0' + '2' + '3' + '7');

  write_bytes(path, bytes);
  ASSERT_TRUE(SafeTensors::open(path, &st).ok());
  std::filesystem::resize_file(path, bytes.size() - 1);
  expect_error(st.intact(), Code::corrupt_file,
               "bytes when opened and is " + std::to_string(bytes.size() - 1) + " now");
  const SafeTensors copy = st;  // copies share the mapping
  st = {};
  EXPECT_FALSE(copy.intact().ok());
}

// Fills with a pattern of tensor and offset, and checks how it is called.
struct Pattern {
  size_t last_tensor = 0;
  uint64_t next = 0;
  size_t fail_at = SIZE_MAX;
};
Status fill_pattern(void* context, size_t tensor, uint64_t offset, std::span<uint8_t> out) {
  Pattern& p = *static_cast<Pattern*>(context);
  if (tensor == p.fail_at) return error(Code::bad_argument, "source is gone");
  if (tensor != p.last_tensor) p.next = 0;
  EXPECT_GE(tensor, p.last_tensor);
  EXPECT_EQ(offset, p.next);
  EXPECT_EQ(offset % kFillBytes, 0u);
  EXPECT_LE(out.size(), kFillBytes);
  p.last_tensor = tensor;
  p.next = offset + out.size();
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = static_cast<uint8_t>((offset + i) * 7 + tensor * 31 + ((offset + i) >> 12));
  return {};
}

TEST(SafeTensorsWrite, RoundTrip) {
  const TempDir dir;
  const std::string path = dir / "out.safetensors";
  const std::vector<TensorSpec> specs = {{"model.b \"quoted\" \xC3\xA9", Type::U8, {3, 5}},
                                         {"a", Type::BF16, {}},
                                         {"none", Type::F32, {4, 0}},
                                         {"", Type::F4, {2, 7}},
                                         {"big", Type::U8, {2, 9'000'001}}};
  const std::vector<std::pair<std::string, std::string>> metadata = {{"format", "pt"}, {"k\n", "v\x01"}};
  Pattern pattern;
  const Status s = write_safetensors(path, specs, metadata, fill_pattern, &pattern);
  ASSERT_TRUE(s.ok()) << s.message;
  EXPECT_EQ(dir.entries(), 1u) << "no temporary file stays";
  SafeTensors st;
  const Status opened = SafeTensors::open(path, &st);
  ASSERT_TRUE(opened.ok()) << opened.message;
  EXPECT_EQ(st.metadata(), metadata);
  ASSERT_EQ(st.tensors().size(), specs.size());
  EXPECT_EQ(read_bytes(path)[0] % 8, 0) << "data starts at a multiple of 8";
  for (size_t i = 0; i < specs.size(); ++i) {
    const Tensor* t = st.find(specs[i].name);
    ASSERT_NE(t, nullptr);
    EXPECT_EQ(t->type, specs[i].type);
    EXPECT_EQ(t->shape, specs[i].shape);
    std::vector<uint8_t> want(t->bytes);
    Pattern again;
    for (uint64_t at = 0; at < want.size(); at += kFillBytes)
      (void)fill_pattern(&(again = {i, at}), i, at,
                         std::span(want).subspan(at, std::min(want.size() - at, kFillBytes)));
    EXPECT_TRUE(std::equal(want.begin(), want.end(), t->data)) << i;
  }
  ASSERT_TRUE(write_safetensors(path, {}, {}, fill_pattern, nullptr).ok()) << "over an existing file";
  ASSERT_TRUE(SafeTensors::open(path, &st).ok());
  EXPECT_TRUE(st.tensors().empty());
}

TEST(SafeTensorsWrite, RefusesWhatCannotBeRead) {
  const TempDir dir;
  const std::string path = dir / "out";
  const auto refuse = [&](const std::vector<TensorSpec>& specs, std::string_view fragment,
                          const std::vector<std::pair<std::string, std::string>>& metadata = {}) {
    const Status s = write_safetensors(path, specs, metadata, fill_pattern, nullptr);
    expect_error(s, Code::bad_argument, fragment);
    EXPECT_TRUE(s.message.ends_with("; nothing is written")) << s.message;
    EXPECT_EQ(dir.entries(), 0u);
  };
  refuse({{"a", Type::U8, {1}}, {"a", Type::U8, {1}}}, "tensor 'a' appears twice");
  refuse({{"a", Type::U8, {-1}}}, "shape holds -1");
  refuse({{"a", Type::U8, {1, 1, 1, 1, 1, 1, 1, 1, 1}}}, "more than 8 dimensions");
  refuse({{"a", Type::U8, {INT64_MAX, 4}}}, "overflows 64 bits");
  std::vector<TensorSpec> vast;
  for (const char* name : {"a", "b", "c", "d", "e"}) vast.push_back({name, Type::U8, {INT64_MAX / 4}});
  refuse(vast, "not an integer of 0 to 2^63-1");
  for (const char* name : {"f", "g", "h", "i"}) vast.push_back({name, Type::U8, {INT64_MAX / 4}});
  refuse(vast, "the data overflows 64 bits");
  refuse({{"a", Type::F4, {3}}}, "not whole bytes");
  refuse({{std::string("a\0b", 3), Type::U8, {1}}}, "NUL");
  refuse({{"\xFF", Type::U8, {1}}}, "not valid UTF-8");
  refuse({}, "not valid UTF-8", {{"k", "\xC3"}});
  refuse({}, "'k' appears twice", {{"k", "1"}, {"k", "2"}});
  refuse({{"__metadata__", Type::U8, {1}}}, "__metadata__");
}

TEST(SafeTensorsWrite, FailuresLeaveNothingBehind) {
  const TempDir dir;
  const std::string path = dir / "out";
  const std::vector<TensorSpec> specs = {{"a", Type::U8, {1000}}, {"b", Type::U8, {1000}}};
  write_bytes(path, "precious");
  Pattern pattern;
  pattern.fail_at = 1;
  expect_error(write_safetensors(path, specs, {}, fill_pattern, &pattern), Code::bad_argument, "source is gone");
  EXPECT_EQ(read_bytes(path), "precious");
  EXPECT_EQ(dir.entries(), 1u);

  // A write that the system cuts off part way.
  struct rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const struct rlimit tight = {1500, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &tight), 0);
  Pattern fresh;
  const Status s = write_safetensors(path, specs, {}, fill_pattern, &fresh);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  expect_error(s, Code::io, "cannot write: File too large; the file is not written");
  EXPECT_EQ(read_bytes(path), "precious");
  EXPECT_EQ(dir.entries(), 1u);

  Pattern p3;
  expect_error(write_safetensors(dir / "no/such", specs, {}, fill_pattern, &p3), Code::io, "No such file");
  std::filesystem::create_directory(dir / "d");
  expect_error(write_safetensors(dir / "d", specs, {}, fill_pattern, &p3), Code::io, "not a regular file");
  expect_error(write_safetensors("/dev/null", specs, {}, fill_pattern, &p3), Code::io, "not a regular file");
  EXPECT_EQ(dir.entries(), 2u);
}

}  // namespace
}  // namespace mxk::ckpt
