// SPDX-License-Identifier: Apache-2.0
//
// A counter-based generator: word j of a stream is the SplitMix64 finalizer of key + j * gamma, so any piece of any
// stream can be made alone. Integer arithmetic and one float multiply: no libm, no difference between machines.
#include "ckpt/synthetic.h"

#include <bit>
#include <cstring>

#include "core/formats.h"

namespace mxk::ckpt {
namespace {

constexpr uint64_t kGamma = 0x9E3779B97F4A7C15u;

constexpr uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

struct Stream {
  uint64_t key;
  Stream(uint64_t seed, uint64_t stream) : key(mix(mix(seed + kGamma) + stream)) {}
  uint64_t word(uint64_t j) const { return mix(key + (j + 1) * kGamma); }
};

// Byte i is byte i % 8, counted from the low end, of word(i / 8).
template <class Word>
void fill_bytes(uint64_t i, std::span<uint8_t> out, Word word) {
  uint8_t* p = out.data();
  uint8_t* const end = p + out.size();
  const auto single = [&] {
    *p++ = static_cast<uint8_t>(word(i / 8) >> (8 * (i % 8)));
    ++i;
  };
  while (p != end && i % 8) single();
  if constexpr (std::endian::native == std::endian::little) {
    for (; end - p >= 8; p += 8, i += 8) {
      const uint64_t w = word(i / 8);
      std::memcpy(p, &w, 8);
    }
  }
  while (p != end) single();
}

}  // namespace

void fill_codes(uint64_t seed, uint64_t stream, uint64_t offset, std::span<uint8_t> out) {
  fill_bytes(offset, out, [s = Stream(seed, stream)](uint64_t j) { return s.word(j); });
}

void fill_scales(uint64_t seed, uint64_t stream, uint64_t offset, std::span<uint8_t> out) {
  // Each byte is 118 plus the number of ones in three random bits; no sum carries into the next byte.
  constexpr uint64_t kOnes = 0x0101010101010101u;
  fill_bytes(offset, out, [s = Stream(seed, stream)](uint64_t j) {
    const uint64_t w = s.word(j);
    return 118 * kOnes + (w & kOnes) + (w >> 1 & kOnes) + (w >> 2 & kOnes);
  });
}

void fill_normal_bf16(uint64_t seed, uint64_t stream, uint64_t offset, float rms, std::span<uint16_t> out) {
  const Stream s(seed, stream);
  // The sum of eight uniform 16-bit integers is close to normal; twice it, centred, has this standard deviation.
  constexpr float kSigma = 107020.24f;  // 2^17 * sqrt(8 / 12)
  const float unit = rms / kSigma;
  for (uint64_t i = 0; i < out.size(); ++i) {
    int32_t sum = -8 * 65535;
    for (uint64_t half = 0; half < 2; ++half)
      for (uint64_t w = s.word(2 * (offset + i) + half); w; w >>= 16) sum += 2 * static_cast<int32_t>(w & 0xFFFF);
    out[i] = f32_to_bf16(static_cast<float>(sum) * unit);
  }
}

}  // namespace mxk::ckpt
