// SPDX-License-Identifier: Apache-2.0
//
// Products and fused sums on 64 lanes of fp32 bits: one rounding, to nearest even. `flip` is 0, or the sign bit to
// negate the product.
#pragma once

#include <cstdint>

namespace mxk::emu {

void fma64(const uint32_t* a, const uint32_t* b, const uint32_t* c, uint32_t flip, uint32_t* out);
void mul64(const uint32_t* a, const uint32_t* b, uint32_t* out);

// 128 lanes of bf16 as 64 words: `even` and `odd` take the products of the low and of the high halves.
void bf16_fma(const uint32_t* a, const uint32_t* b, const uint32_t* even_sum, const uint32_t* odd_sum, uint32_t flip,
              uint32_t* even, uint32_t* odd);
// Whether all 128 products are exact and normal in fp32, or zeros, with operands as they are.
bool plain_products(const uint32_t* a, const uint32_t* b);
void bf16_mul(const uint32_t* a, const uint32_t* b, uint32_t* even, uint32_t* odd);

}  // namespace mxk::emu
