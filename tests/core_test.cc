// SPDX-License-Identifier: Apache-2.0
//
// Number formats against ldexp, the variant table, limits, the choice of a backend, and what an Engine refuses.
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <thread>

#include "allocations.h"
#include "core/formats.h"
#include "core/pool.h"
#include "layer.h"
#include "mxk/moe.h"
#include "reference/exact.h"

namespace mxk {
namespace {

// ---- formats -------------------------------------------------------------------------------------------------------

TEST(Formats, EveryCodeTimesEveryScale) {
  for (int e = 0; e < 256; ++e)
    for (int code = 0; code < 16; ++code) {
      const float got = kE2M1[code] * e8m0(static_cast<uint8_t>(e));
      const double want = exact_e2m1(code) * exact_e8m0(e);
      if (e == 255) {
        EXPECT_TRUE(std::isnan(got)) << code;
      } else if (std::abs(want) >= 0x1p128) {
        EXPECT_EQ(got, std::copysign(std::numeric_limits<float>::infinity(), static_cast<float>(want)));
      } else {
        EXPECT_EQ(double{got}, want) << "code " << code << " scale " << e;
        EXPECT_EQ(std::signbit(got), code >= 8) << "code " << code << " scale " << e;
      }
    }
  EXPECT_EQ(e8m0(0), 0x1p-127f) << "0x00 is a subnormal, not zero";
}

TEST(Formats, LowNibbleIsTheEvenElement) {
  const uint8_t row[] = {0x71, 0xF9};
  EXPECT_EQ(e2m1_at(row, 0), 0.5f);
  EXPECT_EQ(e2m1_at(row, 1), 6.0f);
  EXPECT_EQ(e2m1_at(row, 2), -0.5f);
  EXPECT_EQ(e2m1_at(row, 3), -6.0f);
}

TEST(Formats, EveryBf16RoundTrips) {
  for (int b = 0; b < 65536; ++b) {
    const float f = bf16_to_f32(static_cast<uint16_t>(b));
    const double want = exact_bf16(b);
    if (std::isnan(want)) {
      EXPECT_TRUE(std::isnan(f)) << b;
      EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(f)))) << b << ": NaN must stay NaN";
    } else {
      EXPECT_EQ(double{f}, want) << b;
      EXPECT_EQ(f32_to_bf16(f), b);
    }
  }
}

void expect_rounds_to_even(float f) {
  const uint16_t got = f32_to_bf16(f);
  if (std::isnan(f)) {
    EXPECT_TRUE(std::isnan(exact_bf16(got))) << std::bit_cast<uint32_t>(f);
    return;
  }
  EXPECT_EQ(exact_bf16(got), round_to_bf16(double{f})) << f << " bits " << std::bit_cast<uint32_t>(f);
  EXPECT_EQ(got >> 15, std::signbit(f) ? 1 : 0) << f;
}

TEST(Formats, Bf16RoundsToNearestEven) {
  // Around every bf16: exact, just above, just below the middle to the next, the middle, just above it, just below
  // next.
  for (uint32_t high = 0; high < 65536; ++high)
    for (uint32_t low : {0x0000u, 0x0001u, 0x7FFFu, 0x8000u, 0x8001u, 0xFFFFu})
      expect_rounds_to_even(std::bit_cast<float>(high << 16 | low));
  test::Random random(4000);
  for (int i = 0; i < 100000; ++i) expect_rounds_to_even(std::bit_cast<float>(static_cast<uint32_t>(random.next())));
  EXPECT_EQ(f32_to_bf16(std::numeric_limits<float>::max()), 0x7F80) << "overflow goes to infinity";
  EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x7F800001u)) & 0x7FC0, 0x7FC0) << "a NaN that would lose its mantissa";
}

// ---- the variant table ---------------------------------------------------------------------------------------------

struct Row {
  const char *name, *w13_kernel, *w2_kernel;
  Rows rows;
  Act act;
  bool deq, bias, x_tail, per_route;
  Limits limits;
  Variant::Serving serving;
};

TEST(Variants, AreThoseOfTheModels) {
  const Row rows[] = {
      {"gptoss",
       "mxk_w13xib",
       "mxk_w2xb",
       Rows::interleaved,
       Act::swiglu_oai,
       false,
       true,
       false,
       false,
       {32, 3072, 32, 3072, 32, 128, 128},
       {2880, 2880, 32, 128, 4}},
      {"glm",
       "mxk_w13x",
       "mxk_w2x",
       Rows::stacked,
       Act::silu,
       true,
       false,
       false,
       false,
       {512, 6144, 512, 3072, 16, 128, 128},
       {6144, 1024, 64, 256, 8}},
      {"dsv41",
       "mxk_w13xi",
       "mxk_w2x",
       Rows::interleaved,
       Act::swiglu_clamp,
       false,
       false,
       false,
       false,
       {512, 6144, 256, 3072, 16, 128, 128},
       {5120, 2304, 48, 384, 6}},
      {"muse",
       "mxk_w13x",
       "mxk_w2xr",
       Rows::stacked,
       Act::silu,
       false,
       false,
       false,
       true,
       {512, 6144, 512, 3072, 16, 128, 128},
       {4096, 1024, 128, 256, 8}},
      {"kimi",
       "mxk_w13xt",
       "mxk_w2x",
       Rows::stacked,
       Act::silu,
       false,
       false,
       true,
       false,
       {512, 8192, 512, 3072, 16, 128, 128},
       {7168, 2048, 48, 384, 8}},
  };
  ASSERT_EQ(variants().size(), std::size(rows));
  for (size_t i = 0; i < std::size(rows); ++i) {
    const Row& want = rows[i];
    const Variant& v = variants()[i];
    SCOPED_TRACE(want.name);
    EXPECT_STREQ(v.name, want.name);
    EXPECT_EQ(find_variant(want.name), &v);
    EXPECT_STRNE(v.models, "");
    EXPECT_STREQ(v.w13_kernel, want.w13_kernel);
    EXPECT_STREQ(v.w2_kernel, want.w2_kernel);
    EXPECT_EQ(v.rows, want.rows);
    EXPECT_EQ(v.act, want.act);
    EXPECT_EQ(v.deq, want.deq);
    EXPECT_EQ(v.bias, want.bias);
    EXPECT_EQ(v.x_tail, want.x_tail);
    EXPECT_EQ(v.per_route, want.per_route);
    EXPECT_EQ(std::memcmp(&v.limits, &want.limits, sizeof want.limits), 0);
    EXPECT_EQ(std::memcmp(&v.serving, &want.serving, sizeof want.serving), 0);
    const ActParams p = v.act_params;
    EXPECT_EQ(p.limit, want.act == Act::swiglu_oai ? 7.0f : want.act == Act::swiglu_clamp ? 10.0f : INFINITY);
    EXPECT_EQ(p.alpha, want.act == Act::swiglu_oai ? 1.702f : 1.0f);
    EXPECT_EQ(p.shift, want.act == Act::swiglu_oai ? 1.0f : 0.0f);
    EXPECT_TRUE(check(v, {4, v.serving.top_k, v.serving.e_local, v.serving.K, v.serving.I}).ok()) << "it is served";
  }
  EXPECT_EQ(find_variant("GPTOSS"), nullptr);
  EXPECT_EQ(find_variant(""), nullptr);
}

TEST(Variants, NamesOfEnums) {
  EXPECT_STREQ(to_string(Rows::interleaved), "interleaved");
  EXPECT_STREQ(to_string(Rows::stacked), "stacked");
  EXPECT_STREQ(to_string(Act::swiglu_oai), "swiglu_oai");
  EXPECT_STREQ(to_string(Act::silu), "silu");
  EXPECT_STREQ(to_string(Act::swiglu_clamp), "swiglu_clamp");
  EXPECT_STREQ(to_string(Code::ok), "ok");
  EXPECT_STREQ(to_string(Code::io), "io");
}

// ---- limits --------------------------------------------------------------------------------------------------------

void expect_refused(const Status& s, const Variant& v, const char* what, int64_t value, const std::string& limit) {
  EXPECT_EQ(s.code, Code::bad_shape) << s.message;
  for (const std::string& part : {std::string(v.name), what + ("=" + std::to_string(value)), limit})
    EXPECT_NE(s.message.find(part), std::string::npos) << "'" << s.message << "' lacks '" << part << "'";
}

TEST(Check, EachLimitJustInsideAndJustOutside) {
  for (const Variant& v : variants()) {
    SCOPED_TRACE(v.name);
    const Limits& l = v.limits;
    const Shape good{1, 1, 1, l.k_multiple, l.i_multiple};
    EXPECT_TRUE(check(v, good).ok());
    const auto with = [&](int Shape::* field, int value) {
      Shape s = good;
      s.*field = value;
      return check(v, s);
    };
    EXPECT_TRUE(with(&Shape::K, l.k_max / l.k_multiple * l.k_multiple).ok());
    expect_refused(with(&Shape::K, (l.k_max / l.k_multiple + 1) * l.k_multiple), v, "K",
                   (l.k_max / l.k_multiple + 1) * l.k_multiple, std::to_string(l.k_max));
    expect_refused(with(&Shape::K, l.k_multiple + 16), v, "K", l.k_multiple + 16, "multiple of 32");
    if (l.k_multiple > 32)
      expect_refused(with(&Shape::K, l.k_multiple + 32), v, "K", l.k_multiple + 32, std::to_string(l.k_multiple));
    EXPECT_TRUE(with(&Shape::I, l.i_max / l.i_multiple * l.i_multiple).ok());
    expect_refused(with(&Shape::I, (l.i_max / l.i_multiple + 1) * l.i_multiple), v, "I",
                   (l.i_max / l.i_multiple + 1) * l.i_multiple, std::to_string(l.i_max));
    if (l.i_multiple > 32)
      expect_refused(with(&Shape::I, l.i_multiple + 32), v, "I", l.i_multiple + 32, std::to_string(l.i_multiple));
    EXPECT_TRUE(with(&Shape::T, 0).ok());
    EXPECT_TRUE(with(&Shape::T, l.tokens).ok());
    expect_refused(with(&Shape::T, l.tokens + 1), v, "T", l.tokens + 1, std::to_string(l.tokens));
    EXPECT_TRUE(with(&Shape::k, l.routes).ok());
    expect_refused(with(&Shape::k, l.routes + 1), v, "T*k", l.routes + 1, std::to_string(l.routes));
    Shape s = good;
    s.T = l.tokens;
    s.k = l.routes / l.tokens;
    EXPECT_TRUE(check(v, s).ok());
    ++s.k;
    expect_refused(check(v, s), v, "T*k", int64_t{s.T} * s.k, std::to_string(l.routes));
    EXPECT_TRUE(with(&Shape::E, l.experts).ok());
    expect_refused(with(&Shape::E, l.experts + 1), v, "E", l.experts + 1, std::to_string(l.experts));
  }
}

TEST(Check, ShapeThatNoBackendTakes) {
  for (const Variant& v : variants()) {
    const Shape good{1, 1, 1, 32, 32};
    EXPECT_TRUE(check_shape(v, good).ok());
    EXPECT_TRUE(check_shape(v, {1 << 20, 8, 1 << 12, 1 << 24, 1 << 24}).ok()) << "offsets are 64-bit";
    struct Bad {
      int Shape::* field;
      const char* what;
      int value;
      const char* limit;
    };
    const Bad bads[] = {{&Shape::T, "T", -1, "at least 0"},          {&Shape::k, "k", 0, "at least 1"},
                        {&Shape::k, "k", -5, "at least 1"},          {&Shape::E, "E", 0, "at least 1"},
                        {&Shape::E, "E", (1 << 20) + 1, "1048576"},  {&Shape::K, "K", 0, "multiple of 32"},
                        {&Shape::K, "K", -32, "multiple of 32"},     {&Shape::K, "K", 33, "multiple of 32"},
                        {&Shape::K, "K", 16, "multiple of 32"},      {&Shape::K, "K", (1 << 24) + 32, "16777216"},
                        {&Shape::I, "I", 0, "multiple of 32"},       {&Shape::I, "I", 48, "multiple of 32"},
                        {&Shape::I, "I", (1 << 24) + 32, "16777216"}};
    for (const Bad& bad : bads) {
      Shape s = good;
      s.*bad.field = bad.value;
      expect_refused(check_shape(v, s), v, bad.what, bad.value, bad.limit);
      expect_refused(check(v, s), v, bad.what, bad.value, bad.limit);
    }
    expect_refused(check_shape(v, {INT32_MAX, INT32_MAX, 1, 32, 32}), v, "T*k", int64_t{INT32_MAX} * INT32_MAX,
                   "536870911");
  }
}

// ---- choosing a backend --------------------------------------------------------------------------------------------

// MXK_BACKEND for the length of a test.
class Variable {
 public:
  explicit Variable(const char* value) {
    if (const char* e = std::getenv("MXK_BACKEND")) before_ = e;
    value ? setenv("MXK_BACKEND", value, 1) : unsetenv("MXK_BACKEND");
  }
  ~Variable() { before_ ? setenv("MXK_BACKEND", before_->c_str(), 1) : unsetenv("MXK_BACKEND"); }

 private:
  std::optional<std::string> before_;
};

bool contains(const std::string& s, std::string_view part) { return s.find(part) != std::string::npos; }

TEST(SelectBackend, TakesTheFirstAutomaticOneThatRuns) {
  for (const char* none : {static_cast<const char*>(nullptr), ""}) {
    Variable variable(none);
    Selection s;
    ASSERT_TRUE(select_backend("", &s).ok());
    size_t refused = 0;
    for (const Backend* b : backends()) {
      if (!b->automatic) continue;
      if (b == s.backend) break;
      ASSERT_LT(refused, s.refused.size());
      EXPECT_EQ(s.refused[refused].backend, b);
      EXPECT_FALSE(s.refused[refused].reason.empty()) << b->name;
      EXPECT_FALSE(b->supported().ok()) << b->name << " was passed over";
      ++refused;
    }
    EXPECT_EQ(refused, s.refused.size());
    EXPECT_TRUE(s.backend->supported().ok());
  }
}

TEST(SelectBackend, NamedOrByVariableOrNotAtAll) {
  Variable none(nullptr);
  for (const Backend* b : backends()) {
    SCOPED_TRACE(b->name);
    const Status own = b->supported();
    Selection named, by_variable;
    const Status s = select_backend(b->name, &named);
    EXPECT_EQ(s.code, own.code);
    EXPECT_EQ(named.backend, own.ok() ? b : nullptr) << "never another in its place";
    EXPECT_TRUE(named.refused.empty());
    if (!own.ok()) {
      EXPECT_EQ(own.code, Code::unsupported_cpu);
      EXPECT_FALSE(own.message.empty());
      EXPECT_TRUE(contains(s.message, b->name) && contains(s.message, own.message)) << s.message;
    }
    Variable variable(b->name);
    const Status v = select_backend("", &by_variable);
    EXPECT_EQ(v.code, own.code);
    EXPECT_EQ(by_variable.backend, named.backend);
    EXPECT_TRUE(own.ok() || contains(v.message, "MXK_BACKEND")) << v.message;
  }
}

TEST(SelectBackend, UnknownNameIsAnErrorThatListsTheNames) {
  Selection s;
  const Status named = select_backend("no-such", &s);
  EXPECT_EQ(named.code, Code::backend_unknown);
  EXPECT_EQ(s.backend, nullptr);
  EXPECT_TRUE(contains(named.message, "no-such"));
  for (const Backend* b : backends()) EXPECT_TRUE(contains(named.message, b->name)) << named.message;

  Variable variable("no-such");
  const Status by_variable = select_backend("", &s);
  EXPECT_EQ(by_variable.code, Code::backend_unknown);
  EXPECT_TRUE(contains(by_variable.message, "MXK_BACKEND")) << by_variable.message;
  EXPECT_TRUE(select_backend("ref", &s).ok()) << "a name given goes before the variable";
  std::unique_ptr<Engine> engine;
  EXPECT_EQ(Engine::create(variants()[0], {1, 1, 1, 32, 32}, {}, &engine).code, Code::backend_unknown);
  EXPECT_EQ(engine, nullptr);
}

// ---- the engine ----------------------------------------------------------------------------------------------------

TEST(Pool, SlicesCoverEverythingOnce) {
  for (int64_t n : {0, 1, 31, 32, 33, 160, 2880})
    for (int64_t unit : {1, 16, 32})
      for (int threads : {1, 2, 3, 5, 8, 64}) {
        int64_t at = 0;
        for (int t = 0; t < threads; ++t) {
          const Slice s = slice(n, unit, t, threads);
          EXPECT_EQ(s.begin, at);
          EXPECT_GE(s.end, s.begin);
          EXPECT_TRUE(s.begin % unit == 0 || s.begin == n);
          at = s.end;
        }
        EXPECT_EQ(at, n);
      }
}

TEST(Pool, EveryThreadRunsEveryJobAndBarriersHold) {
  for (int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    std::atomic<int> before{0}, wrong{0};
    for (int job = 1; job <= 200; ++job) {
      pool.parallel([&](int) {
        before.fetch_add(1);
        pool.barrier();
        if (before.load() != job * threads) wrong.fetch_add(1);
        pool.barrier();
      });
    }
    EXPECT_EQ(before.load(), 200 * threads);
    EXPECT_EQ(wrong.load(), 0) << threads << " threads";
  }
}

TEST(Pool, SleepersWake) {  // waits far longer than threads spin, before a job and inside one
  using namespace std::chrono_literals;
  ThreadPool pool(3);
  std::atomic<int> done{0};
  for (int job = 0; job < 20; ++job) {
    std::this_thread::sleep_for(2ms);
    pool.parallel([&](int thread) {
      if (thread == job % 3) std::this_thread::sleep_for(2ms);
      pool.barrier();
      done.fetch_add(1);
    });
  }
  EXPECT_EQ(done.load(), 60);
}

class EngineOf : public testing::TestWithParam<const Backend*> {
 protected:
  test::Random random{4001};
  const Shape shape{4, 2, 2, 64, 32};
};
std::vector<const Backend*> supported_backends() {
  std::vector<const Backend*> list;
  for (const Backend* b : backends())
    if (b->supported().ok() && !b->table_limits) list.push_back(b);
  return list;
}
INSTANTIATE_TEST_SUITE_P(Backends, EngineOf, testing::ValuesIn(supported_backends()),
                         [](const auto& info) { return std::string(info.param->name); });

TEST_P(EngineOf, ErrorsLeaveTheOutputAlone) {
  const Variant &oai = *find_variant("gptoss"), &glm = *find_variant("glm");
  const test::Layer layer(oai, shape, random);
  const test::Batch batch(shape, test::Routing::all_local, 1, Dtype::f32, random);
  auto engine = test::make_engine(oai, shape, GetParam()->name);
  auto plain = test::make_engine(glm, shape, GetParam()->name);

  std::vector<float> y(static_cast<size_t>(shape.T * shape.K), 0.5f);
  const std::vector<float> untouched = y;
  Call good = test::make_call(oai, shape, layer, batch);
  good.y = y.data();
  good.out_dtype = Dtype::f32;
  const auto expect_error = [&](Engine& e, Code code, std::string_view part, auto&& change) {
    Call c = good;
    change(c);
    const Status s = e.run(c);
    EXPECT_EQ(s.code, code) << s.message;
    EXPECT_TRUE(contains(s.message, part)) << "'" << s.message << "' lacks '" << part << "'";
    EXPECT_EQ(y, untouched) << s.message;
  };
  expect_error(*engine, Code::bad_argument, "null", [](Call& c) { c.weights.w13 = nullptr; });
  expect_error(*engine, Code::bad_argument, "null", [](Call& c) { c.weights.s13 = nullptr; });
  expect_error(*engine, Code::bad_argument, "first_expert=-2", [](Call& c) { c.first_expert = -2; });
  expect_error(*engine, Code::bad_dtype, "out_dtype=7", [](Call& c) { c.out_dtype = static_cast<Dtype>(7); });
  expect_error(*engine, Code::bad_argument, "null", [](Call& c) { c.weights.w2 = nullptr; });
  expect_error(*engine, Code::bad_argument, "null", [](Call& c) { c.weights.s2 = nullptr; });
  expect_error(*engine, Code::bad_argument, "null", [](Call& c) { c.x = nullptr; });
  expect_error(*engine, Code::bad_argument, "null", [](Call& c) { c.topk_ids = nullptr; });
  expect_error(*engine, Code::bad_argument, "null", [](Call& c) { c.topk_weights = nullptr; });
  expect_error(*engine, Code::bad_argument, "null", [](Call& c) { c.y = nullptr; });
  expect_error(*engine, Code::bad_shape, "T=5", [](Call& c) { c.shape.T = 5; });
  expect_error(*engine, Code::bad_shape, "k=3", [](Call& c) { c.shape.k = 3; });
  expect_error(*engine, Code::bad_shape, "E=3", [](Call& c) { c.shape.E = 3; });
  expect_error(*engine, Code::bad_shape, "K=96", [](Call& c) { c.shape.K = 96; });
  expect_error(*engine, Code::bad_shape, "I=64", [](Call& c) { c.shape.I = 64; });
  expect_error(*engine, Code::bad_shape, "K=48", [](Call& c) { c.shape.K = 48; });
  expect_error(*engine, Code::bad_shape, "T=-1", [](Call& c) { c.shape.T = -1; });
  expect_error(*engine, Code::unsupported_variant, "glm", [&](Call& c) { c.variant = &glm; });
  expect_error(*engine, Code::unsupported_variant, "null", [](Call& c) { c.variant = nullptr; });
  expect_error(*plain, Code::bad_argument, "bias", [&](Call& c) { c.variant = &glm; });
  expect_error(*plain, Code::bad_argument, "bias", [&](Call& c) { c.variant = &glm, c.weights.b2 = nullptr; });

  Call empty = good;  // no tokens: nothing to do, nothing to read
  empty.shape.T = 0;
  empty.x = nullptr;
  EXPECT_TRUE(engine->run(empty).ok());
  EXPECT_EQ(y, untouched);
  EXPECT_TRUE(engine->run(good).ok()) << "and the engine still works";
  EXPECT_NE(y, untouched);
}

TEST_P(EngineOf, CreateRefusesWhatItCannotDo) {
  const Variant& v = variants()[0];
  std::unique_ptr<Engine> engine;
  EXPECT_EQ(Engine::create(v, {1, 1, 1, 48, 32}, {GetParam()->name, 1}, &engine).code, Code::bad_shape);
  EXPECT_EQ(engine, nullptr);
  for (int threads : {-1, 4097})
    EXPECT_EQ(Engine::create(v, shape, {GetParam()->name, threads}, &engine).code, Code::bad_argument) << threads;
  ASSERT_TRUE(Engine::create(v, shape, {GetParam()->name, 0}, &engine).ok());
  EXPECT_EQ(engine->threads(), available_threads());
  EXPECT_STREQ(engine->backend().name, GetParam()->name);
  EXPECT_EQ(engine->selection().backend, &engine->backend());
  EXPECT_EQ(&engine->variant(), &v);
}

TEST_P(EngineOf, RunDoesNotAllocate) {
  ASSERT_GT(test::allocations_during([] {
              void* volatile p = ::operator new(1);  // volatile: a pair that nobody sees may be optimized away
              ::operator delete(p);
            }),
            0)
      << "the count itself";
  for (const Variant& v : variants()) {
    const test::Layer layer(v, shape, random);
    const test::Batch batch(shape, test::Routing::random, 1, Dtype::bf16, random);
    for (Dtype out : {Dtype::f32, Dtype::bf16}) {
      auto engine = test::make_engine(v, shape, GetParam()->name, 2);
      engine->pool().parallel([](int) {});  // threads that are starting allocate
      std::vector<float> y(static_cast<size_t>(shape.T * shape.k * shape.K));
      Call call = test::make_call(v, shape, layer, batch);
      call.y = y.data();
      call.out_dtype = out;
      bool ok = true;
      EXPECT_EQ(test::allocations_during([&] {
                  for (int i = 0; i < 3; ++i) ok &= engine->run(call).ok();
                }),
                0)
          << v.name;
      EXPECT_TRUE(ok);
    }
  }
}

}  // namespace
}  // namespace mxk
