// SPDX-License-Identifier: Apache-2.0
#include "cpu/features.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <stdint.h>
#endif

namespace mxk::cpu {
namespace {

#if defined(__x86_64__)

// Register state the operating system saves: a CPU that has AVX under a system that does not save it must say no.
uint64_t saved_state() {
  uint32_t eax, ebx, ecx, edx;
  if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || !(ecx & bit_OSXSAVE)) return 0;
  uint32_t low, high;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return uint64_t{high} << 32 | low;
}

Features detect() {
  Features f;
  const uint64_t state = saved_state();
  const bool ymm = (state & 0x06) == 0x06, zmm = (state & 0xE6) == 0xE6;
  uint32_t eax, ebx, ecx, edx;
  const bool fma = __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx & bit_FMA);
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) {
    constexpr uint32_t kAvx512 = bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL;
    f.avx2 = ymm && fma && (ebx & bit_AVX2);
    f.avx512 = zmm && f.avx2 && (ebx & kAvx512) == kAvx512;
  }
  if (__get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx)) f.avx512bf16 = f.avx512 && (eax & 1u << 5);
  const uint32_t max_leaf = __get_cpuid_max(0, &ebx);
  if (max_leaf >= 1 && ebx == signature_AMD_ebx && __get_cpuid(1, &eax, &ebx, &ecx, &edx)) {
    const uint32_t family = (eax >> 8 & 15) + (eax >> 20 & 255);
    f.prefetch_to_l2 = family <= 0x19;  // up to Zen 4
  }
  return f;
}

#elif defined(__aarch64__)

Features detect() {
  Features f;
  f.neon = true;  // part of the base architecture
  return f;
}

#else

Features detect() { return {}; }

#endif

}  // namespace

const Features& features() {
  static const Features f = detect();
  return f;
}

std::string describe(const Features& f) {
  std::string words;
  const auto add = [&](bool has, const char* name) {
    if (!has) return;
    if (!words.empty()) words += ' ';
    words += name;
  };
  add(f.avx2, "avx2");
  add(f.avx512, "avx512");
  add(f.avx512bf16, "avx512bf16");
  add(f.neon, "neon");
  if (words.empty()) words = "none of the instruction sets known here";
  return words;
}

}  // namespace mxk::cpu
