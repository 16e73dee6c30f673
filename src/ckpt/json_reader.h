// SPDX-License-Identifier: Apache-2.0
//
// A streaming JSON reader for files nobody vouches for: no document tree, bounded nesting, and every construct the
// derived reader does not expect is refused. UTF-8, escapes and syntax are checked by the parser below it.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

namespace mxk::ckpt {

class JsonReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  static constexpr int kMaxDepth = 8;

  // What is wrong with `text`; empty if all of it was read.
  std::string read(std::string_view text) {
    // The parser would step over a byte order mark, and takes a NUL byte for the end of the text.
    if (text.starts_with("\xEF\xBB\xBF")) return "starts with a byte order mark";
    if (text.find('\0') != std::string_view::npos) return "holds a NUL byte";
    json_sax* events = this;
    if (!nlohmann::json::sax_parse(text.data(), text.data() + text.size(), events) && problem_.empty())
      problem_ = "is not valid JSON";
    return std::move(problem_);
  }

 protected:
  // Events outside skipped values. `object` false: an array. on_other: null, a boolean, or a number that is not a
  // non-negative 64-bit integer, described by `what`.
  virtual bool on_open(bool object) = 0;
  virtual bool on_close() = 0;
  virtual bool on_key(std::string& key) = 0;
  virtual bool on_string(std::string& value) = 0;
  virtual bool on_unsigned(uint64_t value) = 0;
  virtual bool on_other(const std::string& what) = 0;

  // From on_key: the value that follows is of no interest.
  void skip_value() { skip_ = true; }
  bool refuse(std::string why) {
    problem_ = std::move(why);
    return false;
  }

 private:
  bool skipped() { return skipping_ > 0 || std::exchange(skip_, false); }
  bool open(bool object) {
    if (++depth_ > kMaxDepth) return refuse("nests deeper than " + std::to_string(kMaxDepth) + " levels");
    if (!skipped()) return on_open(object);
    ++skipping_;
    return true;
  }
  bool close() {
    --depth_;
    if (skipping_ == 0) return on_close();
    --skipping_;
    return true;
  }

  bool null() final { return skipped() || on_other("null"); }
  bool boolean(bool) final { return skipped() || on_other("a boolean"); }
  bool number_integer(number_integer_t v) final { return skipped() || on_other(std::to_string(v)); }
  bool number_unsigned(number_unsigned_t v) final { return skipped() || on_unsigned(v); }
  bool number_float(number_float_t, const string_t& text) final { return skipped() || on_other(text.substr(0, 40)); }
  bool string(string_t& v) final { return skipped() || on_string(v); }
  bool binary(binary_t&) final { return false; }
  bool start_object(std::size_t) final { return open(true); }
  bool end_object() final { return close(); }
  bool start_array(std::size_t) final { return open(false); }
  bool end_array() final { return close(); }
  bool key(string_t& v) final { return skipping_ > 0 || on_key(v); }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::json::exception& e) final {
    // Keep the reason; the parser's own text goes on to quote the offending token, which can be the whole file.
    std::string_view why = e.what();
    if (const size_t at = why.find(": "); at != why.npos) why.remove_prefix(at + 2);
    why = why.substr(0, why.find("; last read"));
    return refuse("is not valid JSON at byte " + std::to_string(position) + ": " + std::string(why.substr(0, 160)));
  }

  std::string problem_;
  int depth_ = 0;
  int skipping_ = 0;  // containers open inside a skipped value
  bool skip_ = false;
};

}  // namespace mxk::ckpt
