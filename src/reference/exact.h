// SPDX-License-Identifier: Apache-2.0
//
// A second reference, in double precision, written from docs/semantics.md and sharing no code with the library: number
// formats by ldexp, the activations by their formulas, plain loops.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "mxk/types.h"

namespace mxk {

inline double exact_e2m1(int code) {
  const int exponent = code >> 1 & 3, mantissa = code & 1;
  const double magnitude = exponent == 0 ? 0.5 * mantissa : std::ldexp(1 + 0.5 * mantissa, exponent - 1);
  return code & 8 ? -magnitude : magnitude;
}

inline double exact_e8m0(int e) { return e == 255 ? std::numeric_limits<double>::quiet_NaN() : std::ldexp(1, e - 127); }

inline double exact_bf16(int bits) {
  const int exponent = bits >> 7 & 255, mantissa = bits & 127;
  double v = exponent == 0 ? std::ldexp(mantissa, -126 - 7) : std::ldexp(128 + mantissa, exponent - 127 - 7);
  if (exponent == 255)
    v = mantissa ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity();
  return bits >> 15 ? -v : v;
}

// Round to nearest even to 8 significant bits, fewer below 2^-126.
inline double round_to_bf16(double v) {
  if (!std::isfinite(v) || v == 0) return v;
  const int ulp = std::max(std::ilogb(v), -126) - 7;
  const double r = std::ldexp(std::nearbyint(std::ldexp(v, -ulp)), ulp);
  return std::abs(r) >= 0x1p128 ? std::copysign(std::numeric_limits<double>::infinity(), r) : r;
}

inline double exact_activation(Act act, double g, double u) {
  const auto sigmoid = [](double z) { return 1 / (1 + std::exp(-z)); };
  const auto clamp = [](double z, double limit) { return z > limit ? limit : z < -limit ? -limit : z; };
  const auto at_most = [](double z, double limit) { return z > limit ? limit : z; };
  switch (act) {
    case Act::swiglu_oai: g = at_most(g, 7); return g * sigmoid(1.702 * g) * (clamp(u, 7) + 1);
    case Act::silu: return g * sigmoid(g) * u;
    case Act::swiglu_clamp: g = at_most(g, 10); return g * sigmoid(g) * clamp(u, 10);
  }
  return 0;
}

// y, and how far each element may be off because an activation lies so near to the middle of two bf16 that the fp32
// error of g and u decides which it becomes. Such a flip moves the activation by a whole bf16 ulp: in a layer with few
// of them that alone is more than the gates allow, though nothing is wrong.
struct Exact {
  std::vector<double> y, slack;
};

struct ExactRow {
  std::vector<double> w;
  ExactRow(const uint8_t* codes, const uint8_t* scales, int64_t n) : w(static_cast<size_t>(n)) {
    double e2m1[16];
    for (int c = 0; c < 16; ++c) e2m1[c] = exact_e2m1(c);
    for (int64_t i = 0; i < n; ++i) {
      const int code = i % 2 == 0 ? codes[i / 2] & 15 : codes[i / 2] >> 4;
      w[static_cast<size_t>(i)] = e2m1[code] * exact_e8m0(scales[i / 32]);
    }
  }
  struct Sum {
    double value, magnitude;  // of the products, and of their absolute values
  };
  Sum dot(const double* x) const {
    double sum[4] = {}, magnitude[4] = {};
    for (size_t i = 0; i < w.size(); i += 4)
      for (size_t j = 0; j < 4; ++j) {
        const double p = w[i + j] * x[i + j];
        sum[j] += p;
        magnitude[j] += std::abs(p);
      }
    return {sum[0] + sum[1] + sum[2] + sum[3], magnitude[0] + magnitude[1] + magnitude[2] + magnitude[3]};
  }
};

inline Exact reference_f64(const Call& c) {
  const int64_t T = c.shape.T, k = c.shape.k, E = c.shape.E, K = c.shape.K, I = c.shape.I;
  const auto at = [](int64_t i) { return static_cast<size_t>(i); };
  std::vector<double> x(at(T * K));
  for (size_t i = 0; i < x.size(); ++i) x[i] = exact_bf16(c.x[i]);
  const int64_t rows = c.variant->per_route ? T * k : T;
  Exact out{std::vector<double>(at(rows * K)), std::vector<double>(at(rows * K), 0x1p-147)};

  for (int64_t e = 0; e < E; ++e) {
    std::vector<int64_t> routes;
    for (int64_t r = 0; r < T * k; ++r)
      if (int64_t{c.topk_ids[r]} == c.first_expert + e) routes.push_back(r);
    if (routes.empty()) continue;
    std::vector<double> a(routes.size() * at(I)), flip(a.size());

    for (int64_t i = 0; i < I; ++i) {
      const bool stacked = c.variant->rows == Rows::stacked;
      const int64_t gate = e * 2 * I + (stacked ? i : 2 * i), up = e * 2 * I + (stacked ? I + i : 2 * i + 1);
      const ExactRow gate_row(c.weights.w13 + gate * K / 2, c.weights.s13 + gate * K / 32, K);
      const ExactRow up_row(c.weights.w13 + up * K / 2, c.weights.s13 + up * K / 32, K);
      for (size_t p = 0; p < routes.size(); ++p) {
        auto [g, g_error] = gate_row.dot(&x[at(routes[p] / k * K)]);
        auto [u, u_error] = up_row.dot(&x[at(routes[p] / k * K)]);
        if (c.weights.b13) {
          g += c.weights.b13[gate];
          u += c.weights.b13[up];
          g_error += std::abs(g);
          u_error += std::abs(u);
        }
        // fp32 sums are off by a random walk of about half of 2^-24 of the magnitudes; four times 2^-24 holds them all.
        g_error *= 0x1p-22;
        u_error *= 0x1p-22;
        const double h = round_to_bf16(exact_activation(c.variant->act, g, u));
        double furthest = 0;
        for (int corner = 0; corner < 4; ++corner) {
          const double gc = g + (corner & 1 ? g_error : -g_error), uc = u + (corner & 2 ? u_error : -u_error);
          // The fp32 activation itself adds a few units in the last place.
          for (double side : {1 - 0x1p-21, 1 + 0x1p-21})
            furthest = std::max(furthest, std::abs(round_to_bf16(side * exact_activation(c.variant->act, gc, uc)) - h));
        }
        a[p * at(I) + at(i)] = h;
        flip[p * at(I) + at(i)] = furthest;
      }
    }

    for (int64_t j = 0; j < K; ++j) {
      const int64_t row = e * K + j;
      const ExactRow w2(c.weights.w2 + row * I / 2, c.weights.s2 + row * I / 32, I);
      for (size_t p = 0; p < routes.size(); ++p) {
        const int64_t r = routes[p];
        const double weight = c.variant->per_route ? 1
                              : c.weights_dtype == Dtype::f32
                                  ? double{static_cast<const float*>(c.topk_weights)[r]}
                                  : exact_bf16(static_cast<const uint16_t*>(c.topk_weights)[r]);
        const size_t to = at((c.variant->per_route ? r : r / k) * K + j);
        const double d = w2.dot(&a[p * at(I)]).value + (c.weights.b2 ? c.weights.b2[row] : 0.0);
        out.y[to] += weight * d;
        for (int64_t i = 0; i < I; ++i)
          if (const double f = flip[p * at(I) + at(i)]; f > 0) out.slack[to] += std::abs(weight * w2.w[at(i)]) * f;
      }
    }
  }
  return out;
}

}  // namespace mxk
