// SPDX-License-Identifier: Apache-2.0
//
// What this CPU and operating system can run, asked once.
#pragma once

#include <string>

namespace mxk::cpu {

// One flag per set of kernels: all that its file is compiled for.
struct Features {
  bool any = true;
  bool avx2 = false;        // AVX2 and FMA
  bool avx512 = false;      // and AVX-512 F, BW, DQ, VL
  bool avx512bf16 = false;  // and AVX-512 BF16
  bool neon = false;

  // Prefetch weights into L2 and let the loads fetch them from there, instead of all the way into L1. Measured on AMD
  // Zen 4 with the access pattern of rows(): 11 GB/s a core through L1, 21 through L2, where arithmetic is the limit.
  // CPUs on which this was not measured prefetch into L1.
  bool prefetch_to_l2 = false;
};
const Features& features();

// The same as words for people: "avx2 avx512 ...".
std::string describe(const Features&);

}  // namespace mxk::cpu
