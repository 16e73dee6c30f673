// SPDX-License-Identifier: Apache-2.0
//
// The CPU backends: one row each, what it needs and why it says no.
#include "cpu/driver.h"
#include "cpu/features.h"

namespace mxk {
namespace {

Status require(bool has, const char* what) {
  if (has) return {};
  return error(Code::unsupported_cpu,
               "this CPU lacks " + std::string(what) + " (it has: " + cpu::describe(cpu::features()) + ")");
}

template <const cpu::Kernels& kernels>
constexpr Backend cpu_backend(const char* name, const char* description, Status (*supported)()) {
  return {name,
          description,
          /*automatic=*/true,
          /*table_limits=*/false,
          /*stages=*/true,
          supported,
          [](const Variant&, const Shape& max, int threads) { return cpu::scratch_bytes(kernels, max, threads); },
          [](const Call& call, const Workspace& ws) { return cpu::run(kernels, call, ws); }};
}

}  // namespace

#define MXK_CPU_BACKEND(symbol, description, has, needs) \
  namespace cpu {                                        \
  extern const Kernels kernels_##symbol;                 \
  }                                                      \
  extern const Backend backend_##symbol;                 \
  const Backend backend_##symbol =                       \
      cpu_backend<cpu::kernels_##symbol>(#symbol, description, [] { return require(cpu::features().has, needs); });

MXK_CPU_BACKEND(generic, "portable C++, 16-byte vectors", any, "nothing")
#if defined(__x86_64__)
MXK_CPU_BACKEND(avx2, "AVX2 and FMA, fp32 arithmetic", avx2, "AVX2 or FMA")
MXK_CPU_BACKEND(avx512, "AVX-512 F/BW/DQ/VL, fp32 arithmetic", avx512, "AVX-512 F, BW, DQ or VL")
MXK_CPU_BACKEND(avx512bf16, "AVX-512 BF16 dot products, fp32 sums", avx512bf16, "AVX-512 BF16")
#elif defined(__aarch64__)
MXK_CPU_BACKEND(neon, "Arm Advanced SIMD, fp32 arithmetic", neon, "Advanced SIMD")
#endif

namespace cpu {

const Kernels& best_kernels() {
#if defined(__x86_64__)
  if (features().avx512bf16) return kernels_avx512bf16;
  if (features().avx512) return kernels_avx512;
  if (features().avx2) return kernels_avx2;
#elif defined(__aarch64__)
  if (features().neon) return kernels_neon;
#endif
  return kernels_generic;
}

}  // namespace cpu
}  // namespace mxk
