// SPDX-License-Identifier: Apache-2.0
//
// One backend against `ref`: every variant, batch size, routing and edge shape, with inputs that crash when they are
// read past their end or written. ctest runs this once per backend (MXK_BACKEND); without it, all that this machine
// has are tested. Exit status 77: this machine cannot run the backend.
//
// Gates. fp32 output: rel_l2 <= 2e-4 against ref, and <= 1e-5 against double precision with the flips of activations
// set aside, which is what is left of rounding alone. bf16 output is first held to be the fp32 output rounded once, bit
// for bit. What rounding to bf16 costs is 1.66e-3 in the mean, whatever the scale, but over n elements it scatters by a
// share of about 0.5 / sqrt(n): the gate of 1.75e-3 says something from some thousand elements on. Smaller outputs are
// therefore gated together, all calls of one variant in one sum, and alone only to the limit for single rows.
#include <gtest/gtest.h>

#include <span>

#include "gate.h"
#include "layer.h"

namespace mxk::test {
namespace {

std::vector<const Backend*> backends_under_test() {
  const char* forced = std::getenv("MXK_BACKEND");
  std::vector<const Backend*> list;
  for (const Backend* b : backends())
    if (forced && *forced ? std::string_view(forced) == b->name : b->supported().ok()) list.push_back(b);
  return list;
}

// The name is left to MXK_BACKEND where that is set, so that the variable itself is tested.
std::unique_ptr<Engine> engine_under_test(const Backend& b, const Variant& v, const Shape& max) {
  const char* forced = std::getenv("MXK_BACKEND");
  auto engine = make_engine(v, max, forced && *forced ? "" : b.name);
  EXPECT_STREQ(engine->backend().name, b.name);
  return engine;
}

struct Param {
  const Backend* backend;
  const Variant* variant;
};
std::vector<Param> params() {
  std::vector<Param> all;
  for (const Backend* b : backends_under_test())
    for (const Variant& v : variants()) all.push_back({b, &v});
  return all;
}

class Parity : public testing::TestWithParam<Param> {
 protected:
  const Backend& backend = *GetParam().backend;
  const Variant& variant = *GetParam().variant;
  const bool stock = std::string_view(backend.name) == "stock";
  bool takes(const Shape& s) const { return !backend.table_limits || check(variant, s).ok(); }
  // The largest shape with these dimensions that the backend takes; T = 0 if none.
  Shape largest(Shape s) const {
    while (s.T > 0 && !takes(s)) s.k > 1 ? --s.k : --s.T;
    return s;
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, Parity, testing::ValuesIn(params()), [](const auto& info) {
  std::string name = std::string(info.param.backend->name) + "_" + info.param.variant->name;
  for (char& c : name)
    if (c == '-') c = '_';
  return name;
});

void expect_ok(const Verdict& v, const std::string& what) { EXPECT_TRUE(v.ok) << what << ": " << v.why; }

// The fp32 output rounded once must be the bf16 output.
void expect_rounded_once(const std::vector<float>& f32, const std::vector<float>& bf16) {
  ASSERT_EQ(f32.size(), bf16.size());
  for (size_t i = 0; i < f32.size(); ++i) {
    const double want = round_to_bf16(double{f32[i]});
    ASSERT_TRUE(double{bf16[i]} == want || (std::isnan(bf16[i]) && std::isnan(want)))
        << "element " << i << ": " << f32[i] << " became " << bf16[i];
  }
}

// Rows without a local route are zero, whatever the gate says.
void expect_zero_rows(const Call& c, const std::vector<float>& y) {
  const int64_t per_row = c.variant->per_route ? 1 : c.shape.k;
  for (int64_t row = 0; row < output_rows(c); ++row) {
    bool local = false;
    for (int64_t r = row * per_row; r < (row + 1) * per_row; ++r) local |= is_local(c, r);
    if (local) continue;
    for (int64_t j = 0; j < c.shape.K; ++j)
      ASSERT_EQ(y[static_cast<size_t>(row * c.shape.K + j)], 0.0f) << "row " << row;
  }
}

// What rounding to bf16 cost over one or more calls, each scaled to a mean square of 1, and how many elements of equal
// size would say as much: heavy tails count for less, and the equal routes of a token, per route, count once.
struct Pool {
  double error = 0, all = 0, fourth = 0;

  void add(const Call& call, const std::vector<float>& got, const std::vector<float>& want) {
    double e = 0, squares = 0, fourths = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      const double w = double{want[i]} * double{want[i]};
      e += std::pow(double{got[i]} - double{want[i]}, 2);
      squares += w;
      fourths += w * w;
    }
    if (squares == 0) return;
    const double scale = static_cast<double>(got.size()) / squares, copies = call.variant->per_route ? call.shape.k : 1;
    error += e * scale;
    all += squares * scale;
    fourth += fourths * scale * scale * copies;
  }
  void add(const Pool& p) {
    error += p.error;
    all += p.all;
    fourth += p.fourth;
  }
  bool enough() const { return all * all >= 4096 * fourth && all > 0; }
  double rel_l2() const { return all > 0 ? std::sqrt(error / all) : 0; }
};

struct Dimensions {
  int K, I, E;
};

// One shape in all its calls.
struct Sweep {
  std::unique_ptr<Engine> engine;
  Engine& ref;
  bool stock;
  Pool bf16;         // outputs too small to gate alone
  Verdict worst;     // fp32 output
  double exact = 0;  // fp32 output against double precision

  void one(const Call& call, const std::string& what) {
    SCOPED_TRACE(what);
    const std::vector<float> want = run(ref, call, Dtype::f32), f32 = run(*engine, call, Dtype::f32),
                             b16 = run(*engine, call, Dtype::bf16);
    const Verdict v = gate(call, f32, want, stock ? kGateStock : kGateF32);
    expect_ok(v, "fp32 output");
    worst.rel_l2 = std::max(worst.rel_l2, v.rel_l2);
    worst.worst_row = std::max(worst.worst_row, v.worst_row);
    expect_rounded_once(f32, b16);
    expect_zero_rows(call, f32);
    Pool alone;
    alone.add(call, b16, want);
    if (!alone.enough()) bf16.add(call, b16, want);
    const double limit = stock ? kGateStock : alone.enough() ? kGateBf16 : kGateRow * kGateBf16;
    expect_ok(gate(call, b16, want, limit), "bf16 output");
    const double work = 3.0 * call.shape.T * call.shape.k * call.shape.K * call.shape.I;
    if (stock || work > (small() ? 2e5 : 5e6)) return;
    const Exact f64 = reference_f64(call);
    const Verdict tight = compare(f32, f64.y, call.shape.K, kGateTight, f64.slack);
    expect_ok(tight, "fp32 output against double precision");
    exact = std::max(exact, tight.worst_row);
  }
};

// Not multiples of 64, 128, 256 or 512, multiples of all, and long or short in one direction only.
constexpr Dimensions kAll[] = {{32, 32, 1},   {32, 96, 3},    {96, 32, 5},   {160, 224, 4}, {544, 160, 2},
                               {512, 512, 3}, {1024, 736, 2}, {2880, 64, 3}, {64, 1056, 4}, {1536, 512, 2}};
constexpr Dimensions kSmall[] = {{32, 32, 1}, {96, 160, 3}, {544, 96, 2}, {512, 64, 2}, {64, 512, 2}};
// For kernels that are bound to limits of a variant: each of these is beyond some, or at the end of what one takes.
constexpr Dimensions kAtLimits[] = {{32, 32, 128},  {32, 736, 3},   {96, 160, 3},    {544, 768, 2},  {2880, 96, 2},
                                    {64, 2880, 2},  {32, 3072, 1},  {1024, 1472, 2}, {3072, 768, 1}, {512, 512, 128},
                                    {1024, 768, 2}, {2560, 512, 2}, {512, 1536, 2},  {512, 3072, 1}, {4608, 512, 2},
                                    {6144, 512, 1}, {8192, 512, 1}};
constexpr Dimensions kSmallAtLimits[] = {{32, 32, 128}, {544, 96, 2},  {1024, 64, 2}, {32, 1472, 2},
                                         {512, 512, 3}, {512, 256, 2}, {2560, 512, 1}};

std::span<const Dimensions> edge_shapes(bool limits) {
  if (limits) return small() ? std::span<const Dimensions>(kSmallAtLimits) : kAtLimits;
  return small() ? std::span<const Dimensions>(kSmall) : kAll;
}

TEST_P(Parity, EdgeShapes) {
  static constexpr int kTokens[] = {1, 2, 3, 4, 5, 7, 8, 16, 32, 40};
  static constexpr int kSlots[] = {1, 4, 8, 2, 3, 5, 6, 7};
  static constexpr double kRms[] = {1, 4, 40};
  static constexpr size_t kTails[] = {0, 1, 0, 3};

  const bool limits = backend.table_limits;
  Pool pool;
  int shapes = 0, calls = 0;
  for (const Dimensions& d : edge_shapes(limits)) {
    const int number = shapes++;
    const size_t tail = kTails[number % 4];  // at the end of the page, or at odd addresses
    const Shape max{40, 8, d.E, d.K, d.I};
    if (largest(max).T == 0) continue;
    Random random(static_cast<uint64_t>(number * 100 + (&variant - variants().data())));
    auto ref = make_engine(variant, max, "ref");
    const Layer layer(variant, max, random, tail, number % 2 ? 12 : 4);
    Sweep sweep{limits ? nullptr : engine_under_test(backend, variant, max), *ref, stock, {}, {}, 0};
    const int size = d.K * d.I;
    const bool light = size <= (small() ? 4096 : 40000);  // every routing at every size, else one at each
    int turn = number;
    for (int T : kTokens) {
      if (small() && (T == 2 || T == 7 || T == 16 || T == 32 || (T == 40 && !light))) continue;
      if (limits && size > 500000 && T > 1 && T % 5 != number % 5 && T < variant.limits.tokens) continue;
      for (Routing routing : kRoutings) {
        if (!light && routing != kRoutings[turn % 5]) continue;
        Shape s{T, light || T <= 8 ? kSlots[turn % 8] : 2, d.E, d.K, d.I};
        if (limits && T >= 16 && size < 500000) s.k = variant.limits.routes / T;
        const double rms = kRms[turn % 3];
        const Dtype dtype = turn % 2 ? Dtype::bf16 : Dtype::f32;
        turn += light ? 1 : 0;
        if (!takes(s)) continue;
        // Tokens and slots of an engine each have a limit, and so has their product: no engine has the most of both.
        if (limits) sweep.engine = engine_under_test(backend, variant, s);
        const Batch batch(s, routing, rms, dtype, random, tail != 0);
        sweep.one(make_call(variant, s, layer, batch),
                  "T=" + std::to_string(T) + " k=" + std::to_string(s.k) + " E=" + std::to_string(d.E) +
                      " K=" + std::to_string(d.K) + " I=" + std::to_string(d.I) + " " + to_string(routing) + " RMS " +
                      std::to_string(rms) + (dtype == Dtype::f32 ? " f32" : " bf16") + " weights");
        if (HasFailure()) return;  // one is enough to look at
        ++calls;
      }
      if (!light) ++turn;
    }
    std::printf("  K=%-4d I=%-4d f32 rel_l2 <= %.1e, row <= %.1e, to double <= %.1e\n", d.K, d.I, sweep.worst.rel_l2,
                sweep.worst.worst_row, sweep.exact);
    pool.add(sweep.bf16);
  }
  EXPECT_GT(calls, 0) << "no shape was tested";
  EXPECT_TRUE(pool.enough() || small());
  EXPECT_LE(pool.rel_l2(), (stock ? kGateStock : kGateBf16) * (pool.enough() ? 1 : kGateRow));
  std::printf("  bf16 rel_l2 %.2e\n", pool.rel_l2());
}

// ---- every scale byte ----------------------------------------------------------------------------------------------

// Expert e has scale byte e, token t goes to expert t % 256: each row is one byte, and is gated alone, since the rows
// differ by hundreds of binades. An expert has several tokens, since kernels for one and for more differ. Activations
// are normal bf16 numbers and so are all their products and sums: bf16 dot product instructions take subnormal inputs
// for zero and flush subnormal results, which the semantics leave open.
struct Bytes {
  Random random;
  Shape shape;
  Layer layer;
  Batch batch;
  int nan_at = 0;  // where expert 255 has its 0xFF

  Bytes(const Variant& v, int K, int I, uint64_t stream)
      : random(stream),
        shape{256 * (small() ? 2 : 5), 1, 256, K, I},
        layer(v, shape, random),
        batch(shape, Routing::all_local, 1, Dtype::f32, random) {
    // All products of expert 255 are positive, so that infinity in place of NaN would stay infinity.
    for (Buffer* codes : {&layer.w13, &layer.w2}) {
      codes->unseal();
      std::memset(codes->data() + codes->size() / 256 * 255, 0x22, codes->size() / 256);
      codes->seal();
    }
    batch.ids.unseal();
    for (int t = 0; t < shape.T; ++t) batch.ids.as<int32_t>()[t] = kFirstExpert + t % 256;
    batch.ids.seal();
    batch.x.unseal();
    batch.weights.unseal();
    for (int t = 0; t < shape.T; ++t) batch.weights.as<float>()[t] = 1.25f;
  }
  // The scales of expert e become e and, here and there, e - 1. Expert 255 keeps ordinary ones and has one 0xFF.
  void fill(Buffer& scales) {
    scales.unseal();
    const int n = static_cast<int>(scales.size() / 256);
    for (int e = 0; e < 255; ++e)
      for (int i = 0; i < n; ++i)
        scales.data()[e * n + i] = static_cast<uint8_t>(e - (e > 0 && random.below(4) == 0 ? 1 : 0));
    nan_at = random.below(n);
    scales.data()[255 * n + nan_at] = 255;
    scales.seal();
  }
  // x of token t: +-{1, 1.5, 2, 3} * 2^exponent, or zero but for one element.
  void fill_x(int t, int exponent, bool dense) {
    static constexpr double kValues[] = {1, 1.5, 2, 3};
    const int only = random.below(shape.K);
    for (int i = 0; i < shape.K; ++i) {
      const double v = std::ldexp(kValues[random.below(4)] * (t % 256 == 255 || random.below(2) ? 1 : -1), exponent);
      batch.x.as<uint16_t>()[t * shape.K + i] = to_bf16(dense || i == only ? v : 0);
    }
  }
};

// The baseline decodes weights to bf16, where code times scale overflows at one end of the range and products with
// activations are subnormal at the other.
bool covered(bool stock, int byte) { return !stock || (byte >= 32 && byte <= 252) || byte == 255; }

// Elements [nan_begin, nan_end) of a row are what the 0xFF reaches.
void expect_every_byte(Engine& engine, Engine& ref, Bytes& bytes, const Variant& v, bool stock, int nan_begin,
                       int nan_end) {
  const Call call = make_call(v, bytes.shape, bytes.layer, bytes.batch);
  const std::vector<float> want = run(ref, call, Dtype::f32), got = run(engine, call, Dtype::f32);
  expect_rounded_once(got, run(engine, call, Dtype::bf16));
  const Exact exact = reference_f64(call);
  const int K = bytes.shape.K;
  for (int t = 0; t < bytes.shape.T; ++t) {
    if (!covered(stock, t % 256)) continue;
    SCOPED_TRACE("scale byte " + std::to_string(t % 256));
    const auto row = [&](const auto& all) { return std::vector(all.begin() + t * K, all.begin() + (t + 1) * K); };
    const Verdict tight = compare(row(got), row(exact.y), K, stock ? kGateStock : kGateTight, row(exact.slack));
    expect_ok(tight, "double precision");
    const std::vector<float> ref_row = row(want);
    const Verdict close = compare(row(got), {ref_row.begin(), ref_row.end()}, K, stock ? kGateStock : kGateF32);
    // A flip may part it from ref; that it is one, double precision has just shown.
    EXPECT_TRUE(close.ok || (tight.ok && close.rel_l2 < 0x1p-7)) << "ref: " << close.why;

    // 0xFF gives NaN where it is and nowhere else.
    for (int j = 0; j < K; ++j)
      EXPECT_EQ(std::isnan(got[static_cast<size_t>(t * K + j)]), t % 256 == 255 && j >= nan_begin && j < nan_end) << j;

    if (t >= 256) continue;
    Call alone = call;
    alone.shape.T = 1;
    alone.x += t * K;
    alone.topk_ids += t;
    alone.topk_weights = static_cast<const float*>(call.topk_weights) + t;
    const std::vector<float> y = run(engine, alone, Dtype::f32);
    EXPECT_EQ(std::memcmp(y.data(), &got[static_cast<size_t>(t * K)], static_cast<size_t>(K) * 4), 0) << "alone";
  }
}

int count_nan(const std::vector<float>& y, int begin, int end) {
  return static_cast<int>(std::count_if(y.begin() + begin, y.begin() + end, [](float v) { return std::isnan(v); }));
}

TEST_P(Parity, EveryScaleByteOfW13) {
  Bytes bytes(variant, small() ? 160 : 544, 32, 1000);
  if (!takes(bytes.shape)) GTEST_SKIP() << "256 experts are beyond this backend";
  bytes.fill(bytes.layer.s13);
  for (int t = 0; t < bytes.shape.T; ++t) {
    // g and u of about 1. The exponent of x ends where products could be subnormal or sums overflow; beyond, the
    // clamped activations need an x that is nearly all zero, so that they are not all clamped.
    const int e = t % 256, wanted = e == 255 ? 0 : 127 - e - 6, exponent = std::clamp(wanted, -124, 118);
    bytes.fill_x(t, exponent, wanted >= exponent || variant.act == Act::silu);
  }
  auto engine = engine_under_test(backend, variant, bytes.shape);
  auto ref = make_engine(variant, bytes.shape, "ref");
  // A NaN in w13 is in one activation, and from there in the whole row.
  expect_every_byte(*engine, *ref, bytes, variant, stock, 0, bytes.shape.K);
}

TEST_P(Parity, EveryScaleByteOfW2) {
  Bytes bytes(variant, 32, small() ? 160 : 544, 1001);
  if (!takes(bytes.shape)) GTEST_SKIP() << "256 experts are beyond this backend";
  bytes.fill(bytes.layer.s2);
  bytes.layer.b13 = Buffer();  // biases would drown what is scaled
  bytes.layer.b2 = Buffer();
  // Small activations where the scale is large, so that sums fit; else of about 1, where they are just normal.
  for (int t = 0; t < bytes.shape.T; ++t) bytes.fill_x(t, t % 256 >= 64 && t % 256 < 255 ? -12 : -1, true);
  auto engine = engine_under_test(backend, variant, bytes.shape);
  auto ref = make_engine(variant, bytes.shape, "ref");
  const int row = bytes.nan_at / (bytes.shape.I / 32);
  expect_every_byte(*engine, *ref, bytes, variant, stock, row, row + 1);
}

// Products that cancel inside a group whose scale is the largest: their sum is zero however the kernel divides the
// group, although a part of it times the scale would be infinite.
TEST_P(Parity, GroupsThatCancelDoNotOverflow) {
  const Shape s = largest({32, 1, 1, small() ? 96 : 544, 32});
  if (s.T < 16 || stock) GTEST_SKIP() << "the shape is beyond this backend, or it unpacks to infinity";
  Random random(1003);
  Layer layer(variant, s, random);
  Batch batch(s, Routing::one_hot, 1, Dtype::f32, random);
  const auto fill = [](Buffer& b, int value) {
    b.unseal();
    std::memset(b.data(), value, b.size());
  };
  fill(layer.w13, 0x77);  // all weights are 6 * 2^127
  fill(layer.s13, 0xFE);
  layer.b13 = Buffer();
  layer.b2 = Buffer();
  auto engine = engine_under_test(backend, variant, s);
  for (int group : {0, s.K / 32 - 1})
    for (int distance = 1; distance < 32; ++distance) {
      fill(batch.x, 0);
      for (int t = 0; t < s.T; ++t) {
        uint16_t* x = batch.x.as<uint16_t>() + int64_t{t} * s.K + 32 * group;
        x[t % 32] = to_bf16(1);
        x[(t + distance) % 32] = to_bf16(-1);
      }
      const std::vector<float> y = run(*engine, make_call(variant, s, layer, batch), Dtype::f32);
      ASSERT_EQ(std::count(y.begin(), y.end(), 0.0f), static_cast<int64_t>(y.size())) << group << " " << distance;
    }
}

// ---- special activations -------------------------------------------------------------------------------------------

TEST_P(Parity, SpecialActivations) {
  Shape s = largest({9, 3, 3, small() ? 96 : 544, 160});
  if (s.T < 3) s = largest({9, 3, 3, 512, 512});
  if (s.T < 3) GTEST_SKIP() << "the shape is beyond this backend";
  Random random(1002);
  const Layer layer(variant, s, random);
  auto engine = engine_under_test(backend, variant, s);
  auto ref = make_engine(variant, s, "ref");
  Batch batch(s, Routing::all_local, 1, Dtype::f32, random);
  batch.weights.unseal();
  for (int r = 0; r < s.T * s.k; ++r) batch.weights.as<float>()[r] = 0.5f;
  batch.x.unseal();
  uint16_t* x = batch.x.as<uint16_t>();
  const Call call = make_call(variant, s, layer, batch);
  const std::vector<float> before = run(*engine, call, Dtype::f32);
  const double limit = stock ? kGateStock : kGateF32;

  // One element of one token: NaN and infinity reach the rows of that token and no other.
  const int token = s.T / 2;
  const size_t begin = before.size() / static_cast<size_t>(s.T) * static_cast<size_t>(token),
               end = begin + before.size() / static_cast<size_t>(s.T);
  uint16_t& element = x[token * s.K + random.below(s.K)];
  const uint16_t kept = element;
  for (uint16_t value : {0x7FC0, 0xFFC0, 0x7F81, 0x7F80, 0xFF80}) {
    SCOPED_TRACE("element of x with bits " + std::to_string(value));
    element = value;
    const std::vector<float> y = run(*engine, call, Dtype::f32);
    EXPECT_EQ(std::memcmp(y.data(), before.data(), begin * 4), 0);
    EXPECT_EQ(std::memcmp(y.data() + end, before.data() + end, (before.size() - end) * 4), 0);
    const int nan = count_nan(y, static_cast<int>(begin), static_cast<int>(end));
    EXPECT_TRUE((value & 0x7F) == 0 || nan == static_cast<int>(end - begin)) << nan << " elements are NaN";
    expect_ok(gate(call, y, run(*ref, call, Dtype::f32), limit), "against ref");
    expect_rounded_once(y, run(*engine, call, Dtype::bf16));
  }
  element = kept;

  // Zeros of both signs: what is left is the bias, and no zero has a sign that shows.
  for (uint16_t zero : {0x0000, 0x8000}) {
    for (int i = 0; i < s.K; ++i) x[token * s.K + i] = zero;
    const std::vector<float> y = run(*engine, call, Dtype::f32);
    expect_ok(gate(call, y, run(*ref, call, Dtype::f32), limit), "x is zero");
    if (variant.bias) continue;
    for (size_t i = begin; i < end; ++i) EXPECT_EQ(y[i], 0.0f);
  }

  // Far beyond every clamp, and where exp() overflows and vanishes.
  for (int exponent : {7, 40}) {
    for (int i = 0; i < s.T * s.K; ++i) x[i] = to_bf16(std::ldexp(random.normal(), exponent));
    expect_ok(gate(call, run(*engine, call, Dtype::f32), run(*ref, call, Dtype::f32), limit), "large x");
  }
}

}  // namespace
}  // namespace mxk::test

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  mxk::Selection selection;
  const mxk::Status s = mxk::select_backend("", &selection);
  if (!s.ok()) {
    std::printf("%s\n", s.message.c_str());
    return s.code == mxk::Code::unsupported_cpu ? 77 : 1;
  }
  mxk::test::seed();
  return RUN_ALL_TESTS();
}
