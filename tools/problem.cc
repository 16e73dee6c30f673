// SPDX-License-Identifier: Apache-2.0
#include "problem.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "ckpt/synthetic.h"
#include "core/formats.h"

namespace mxk::cli {
namespace {

// splitmix64: the same numbers with every standard library.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = state_ += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  int below(int n) { return static_cast<int>(next() % static_cast<uint64_t>(n)); }
  float uniform() { return static_cast<float>(next() >> 40) * 0x1p-24f; }

 private:
  uint64_t state_;
};

// The first `count` places of `from` become a random choice of distinct elements.
void choose(Random& random, std::vector<int>& from, int count) {
  for (int i = 0; i < count; ++i) std::swap(from[i], from[i + random.below(static_cast<int>(from.size()) - i)]);
}

}  // namespace

const char* to_string(Routing routing) {
  return routing == Routing::random ? "random" : routing == Routing::local ? "local" : "hot";
}
std::vector<std::string> routing_names() { return {"random", "local", "hot"}; }
Routing routing_of(const std::string& name) {
  return name == "random" ? Routing::random : name == "local" ? Routing::local : Routing::hot;
}

Batch make_batch(const Space& s, int T, Routing routing, float rms, uint64_t seed, uint64_t stream) {
  Batch b;
  b.T = T;
  b.k = s.k;
  b.x.resize(static_cast<size_t>(T) * s.K);
  ckpt::fill_normal_bf16(seed, stream, 0, rms, b.x);
  b.ids.assign(static_cast<size_t>(T) * s.k, -1);
  b.weights.resize(b.ids.size());

  Random random(seed * 0x9E3779B97F4A7C15u + stream);
  std::vector<int> pool(routing == Routing::random ? s.total : s.E);
  std::iota(pool.begin(), pool.end(), routing == Routing::random ? 0 : s.first);
  const int hot = s.first + random.below(s.E);
  if (routing == Routing::hot) pool.erase(std::find(pool.begin(), pool.end(), hot));
  std::vector<bool> used(s.E);
  for (int t = 0; t < T; ++t) {
    int32_t* ids = &b.ids[static_cast<size_t>(t) * s.k];
    float* weights = &b.weights[static_cast<size_t>(t) * s.k];
    const bool with_hot = routing == Routing::hot;
    const int others = std::min<int>(s.k - with_hot, static_cast<int>(pool.size()));
    choose(random, pool, others);
    std::copy_n(pool.begin(), others, ids);
    if (with_hot) {  // in any slot
      ids[others] = hot;
      std::swap(ids[random.below(others + 1)], ids[others]);
    }
    float sum = 0;
    for (int i = 0; i < s.k; ++i) sum += weights[i] = std::exp(2 * random.uniform());
    for (int i = 0; i < s.k; ++i) weights[i] /= sum;
  }
  b.routes = 0;
  for (const int32_t id : b.ids) {
    if (id < s.first || id >= s.first + s.E) continue;
    ++b.routes;
    used[id - s.first] = true;
  }
  for (int e = 0; e < s.E; ++e)
    if (used[e]) b.experts.push_back(e);
  return b;
}

Accuracy compare(const float* reference, const void* y, Dtype dtype, int64_t rows, int64_t width) {
  Accuracy a;
  double error = 0, norm = 0;
  for (int64_t r = 0; r < rows; ++r) {
    double row_error = 0, row_norm = 0;
    for (int64_t i = r * width; i < (r + 1) * width; ++i) {
      const double got =
          dtype == Dtype::f32 ? static_cast<const float*>(y)[i] : bf16_to_f32(static_cast<const uint16_t*>(y)[i]);
      const double want = reference[i];
      // Where the reference is not finite (a NaN scale, say) the answer must be the same, and tells nothing else.
      if (!std::isfinite(want) && (got == want || (std::isnan(got) && std::isnan(want)))) {
        ++a.not_finite;
        continue;
      }
      row_error += (got - want) * (got - want);
      row_norm += want * want;
    }
    const double relative = std::isnan(row_error) ? row_error
                            : row_norm > 0        ? std::sqrt(row_error / row_norm)
                            : row_error > 0       ? std::numeric_limits<double>::infinity()
                                                  : std::sqrt(row_error);  // 0, or NaN if either is
    if (!(relative <= a.worst) && !std::isnan(a.worst)) {
      a.worst = relative;
      a.row = r;
    }
    error += row_error;
    norm += row_norm;
  }
  a.rel_l2 = norm > 0 ? std::sqrt(error / norm) : a.worst;
  return a;
}

Gate bf16_gate(const float* reference, int64_t rows, int64_t width) {
  std::vector<uint16_t> rounded(rows * width);
  std::transform(reference, reference + rows * width, rounded.begin(), f32_to_bf16);
  const double floor = compare(reference, rounded.data(), Dtype::bf16, rows, width).rel_l2;
  return {std::max(kGateBf16, 1.02 * floor)};
}

}  // namespace mxk::cli
