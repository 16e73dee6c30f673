// SPDX-License-Identifier: Apache-2.0
//
// libFuzzer: any ids, any first expert, any number of experts and routes through plan_routes, and through a tiny layer
// on the backends `generic` and `ref`, which must agree on which rows are zero. Aborts where a property does not hold.
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "core/routing.h"
#include "mxk/moe.h"

namespace {

constexpr int kMaxT = 6, kMaxSlots = 5, kMaxE = 8, kK = 32, kI = 32;

void require(bool holds) {
  if (!holds) std::abort();
}

// Bytes of the input, then zeros.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  template <class T>
  T take() {
    T v{};
    const size_t n = size_ < sizeof v ? size_ : sizeof v;
    if (n) std::memcpy(&v, data_, n);
    data_ += n;
    size_ -= n;
    return v;
  }

 private:
  const uint8_t* data_;
  size_t size_;
};

void check_plan(const std::vector<int32_t>& ids, int first, int E) {
  const int R = static_cast<int>(ids.size());
  // Of exactly the announced size, so that a sanitizer sees a word too many.
  std::unique_ptr<int32_t[]> storage(new int32_t[static_cast<size_t>(mxk::route_plan_words(R, E))]);
  const mxk::RoutePlan plan = mxk::plan_routes(ids.data(), R, first, E, storage.get());
  const auto local = [&](int32_t r) {
    const int64_t e = int64_t{ids[static_cast<size_t>(r)]} - first;
    return e >= 0 && e < E ? e : -1;
  };
  int count = 0;
  for (int32_t r = 0; r < R; ++r) count += local(r) >= 0;
  require(plan.routes == count && plan.active >= 0 && plan.active <= E);
  require(plan.begin[plan.active] == count && (plan.active == 0 || plan.begin[0] == 0));
  for (int a = 0; a < plan.active; ++a) {
    require(plan.begin[a] < plan.begin[a + 1]);
    require(a == 0 || plan.expert[a] > plan.expert[a - 1]);
    for (int p = plan.begin[a]; p < plan.begin[a + 1]; ++p) {
      const int32_t r = plan.order[p];
      require(r >= 0 && r < R && local(r) == plan.expert[a]);
      require(p == plan.begin[a] || r > plan.order[p - 1]);  // ascending, so also no route twice
    }
  }
}

// One layer for all inputs; weights do not matter here, as long as no local row is zero.
struct Layer {
  std::vector<uint8_t> w13 = std::vector<uint8_t>(kMaxE * 2 * kI * kK / 2, 0x21),
                       s13 = std::vector<uint8_t>(kMaxE * 2 * kI, 120),
                       w2 = std::vector<uint8_t>(kMaxE * kK * kI / 2, 0x32), s2 = std::vector<uint8_t>(kMaxE * kK, 125);
  std::vector<uint16_t> x = std::vector<uint16_t>(kMaxT * kK, 0x3F80);
  std::unique_ptr<mxk::Engine> generic, ref;

  explicit Layer(const mxk::Variant& v) {
    const mxk::Shape max{kMaxT, kMaxSlots, kMaxE, kK, kI};
    require(mxk::Engine::create(v, max, {"generic", 1}, &generic).ok());
    require(mxk::Engine::create(v, max, {"ref", 1}, &ref).ok());
  }
};

void check_run(Layer& layer, const mxk::Variant& v, const mxk::Shape& s, const std::vector<int32_t>& ids, int first) {
  const std::vector<float> weights(ids.size(), 0.5f);
  const size_t per_row = v.per_route ? 1 : static_cast<size_t>(s.k), rows = ids.size() / per_row;
  std::vector<float> y[2] = {std::vector<float>(rows * kK, NAN), std::vector<float>(rows * kK, NAN)};
  for (int i = 0; i < 2; ++i) {
    mxk::Call c;
    c.variant = &v;
    c.shape = s;
    c.weights = {layer.w13.data(), layer.s13.data(), layer.w2.data(), layer.s2.data(), nullptr, nullptr};
    c.x = layer.x.data();
    c.topk_ids = ids.data();
    c.topk_weights = weights.data();
    c.first_expert = first;
    c.y = y[i].data();
    c.out_dtype = mxk::Dtype::f32;
    const mxk::Status status = (i == 0 ? layer.generic : layer.ref)->run(c);
    require(status.code == (first < 0 && s.T > 0 ? mxk::Code::bad_argument : mxk::Code::ok));
  }
  if (first < 0) return;
  for (size_t row = 0; row < rows; ++row) {
    int local = 0;
    for (size_t r = row * per_row; r < (row + 1) * per_row; ++r)
      local += int64_t{ids[r]} >= first && int64_t{ids[r]} < int64_t{first} + s.E;
    for (size_t j = row * kK; j < (row + 1) * kK; ++j) {
      require((y[0][j] == 0) == (local == 0));
      require(std::abs(y[0][j] - y[1][j]) <= 1e-2f * std::abs(y[1][j]));
      require(y[0][j] == y[0][row * kK]);  // all rows of the weights are the same
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Input input(data, size);
  const mxk::Variant& v = mxk::variants()[input.take<uint8_t>() % mxk::variants().size()];
  const int T = input.take<uint8_t>() % (kMaxT + 1), k = 1 + input.take<uint8_t>() % kMaxSlots,
            E = 1 + input.take<uint8_t>() % kMaxE;
  const int first = input.take<int32_t>();
  const bool near = input.take<uint8_t>() & 1;  // else a random id is next to never local
  std::vector<int32_t> ids(static_cast<size_t>(T * k));
  for (int32_t& id : ids)
    id = near ? static_cast<int32_t>(static_cast<uint32_t>(first) + input.take<uint8_t>() % 16 - 4)
              : input.take<int32_t>();
  check_plan(ids, first, E);

  static Layer* layers[8] = {};
  Layer*& layer = layers[&v - mxk::variants().data()];
  if (!layer) layer = new Layer(v);
  check_run(*layer, v, {T, k, E, kK, kI}, ids, first);
  return 0;
}
