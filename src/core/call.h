// SPDX-License-Identifier: Apache-2.0
//
// Element access of a Call, for backends.
#pragma once

#include "core/formats.h"
#include "mxk/types.h"

namespace mxk {

inline float routing_weight(const Call& c, int64_t route) {
  if (c.weights_dtype == Dtype::f32) return static_cast<const float*>(c.topk_weights)[route];
  return bf16_to_f32(static_cast<const uint16_t*>(c.topk_weights)[route]);
}

inline void store(const Call& c, int64_t at, float v) {
  if (c.out_dtype == Dtype::f32)
    static_cast<float*>(c.y)[at] = v;
  else
    static_cast<uint16_t*>(c.y)[at] = f32_to_bf16(v);
}

}  // namespace mxk
