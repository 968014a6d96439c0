#include "sampler/cpu/philox_lanes.h"

#include <algorithm>

#include "sampler/cpu/vector_unit.h"
#include "sampler/pick.h"

namespace loader {
namespace {

constexpr int kLanes = 16;
constexpr uint32_t kFirst = 0xD2511F53u, kSecond = 0xCD9E8D57u;  // as in philox_round

// All of these run kLanes lanes.
using Run = void (*)(const uint64_t* v, const uint32_t* hop, const uint32_t* index, uint64_t key,
                     uint32_t* words);

void run_plain(const uint64_t* v, const uint32_t* hop, const uint32_t* index, uint64_t key, uint32_t* words) {
  for (int i = 0; i < kLanes; ++i) {
    const Words block =
        philox(static_cast<uint32_t>(v[i]), static_cast<uint32_t>(v[i] >> 32), hop[i], index[i], key);
    std::copy_n(block.w, 4, words + 4 * i);
  }
}

#ifdef LOADER_X86
// A word is the low half of a lane of 64 bits; what the high half holds does not matter. So a product gives
// two words of the next round without a shuffle.

LOADER_AVX512 void run_avx512(const uint64_t* v, const uint32_t* hop, const uint32_t* index, uint64_t key,
                              uint32_t* words) {
  const __m512i first = _mm512_set1_epi64(kFirst), second = _mm512_set1_epi64(kSecond);
  __m512i c[2][4];
  for (int half = 0; half < 2; ++half) {
    c[half][0] = _mm512_loadu_si512(v + 8 * half);
    c[half][1] = _mm512_srli_epi64(c[half][0], 32);
    c[half][2] = _mm512_cvtepu32_epi64(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(hop + 8 * half)));
    c[half][3] =
        _mm512_cvtepu32_epi64(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(index + 8 * half)));
  }
  PhiloxKey k(key);
  for (int round = 0; round < kPhiloxRounds; ++round, k.bump()) {
    const __m512i k0 = _mm512_set1_epi64(k.k0), k1 = _mm512_set1_epi64(k.k1);
    for (__m512i* const w : {c[0], c[1]}) {
      const __m512i p0 = _mm512_mul_epu32(w[0], first), p1 = _mm512_mul_epu32(w[2], second);
      w[0] = _mm512_ternarylogic_epi64(_mm512_srli_epi64(p1, 32), w[1], k0, 0x96);  // of all three: xor
      w[1] = p1;
      w[2] = _mm512_ternarylogic_epi64(_mm512_srli_epi64(p0, 32), w[3], k1, 0x96);
      w[3] = p0;
    }
  }
  const __m512i low = _mm512_set1_epi64(0xffffffff);
  const __m512i front = _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11),
                back = _mm512_setr_epi64(4, 12, 5, 13, 6, 14, 7, 15);
  for (int half = 0; half < 2; ++half) {
    const __m512i* const w = c[half];
    const __m512i w01 = _mm512_or_si512(_mm512_and_si512(w[0], low), _mm512_slli_epi64(w[1], 32));
    const __m512i w23 = _mm512_or_si512(_mm512_and_si512(w[2], low), _mm512_slli_epi64(w[3], 32));
    _mm512_storeu_si512(words + 32 * half, _mm512_permutex2var_epi64(w01, front, w23));
    _mm512_storeu_si512(words + 32 * half + 16, _mm512_permutex2var_epi64(w01, back, w23));
  }
}

LOADER_AVX2 void run_avx2(const uint64_t* v, const uint32_t* hop, const uint32_t* index, uint64_t key,
                          uint32_t* words) {
  const __m256i first = _mm256_set1_epi64x(kFirst), second = _mm256_set1_epi64x(kSecond);
  for (int base = 0; base < kLanes; base += 8) {
    __m256i c[2][4];
    for (int half = 0; half < 2; ++half) {
      const int at = base + 4 * half;
      c[half][0] = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(v + at));
      c[half][1] = _mm256_srli_epi64(c[half][0], 32);
      c[half][2] = _mm256_cvtepu32_epi64(_mm_loadu_si128(reinterpret_cast<const __m128i*>(hop + at)));
      c[half][3] = _mm256_cvtepu32_epi64(_mm_loadu_si128(reinterpret_cast<const __m128i*>(index + at)));
    }
    PhiloxKey k(key);
    for (int round = 0; round < kPhiloxRounds; ++round, k.bump()) {
      const __m256i k0 = _mm256_set1_epi64x(k.k0), k1 = _mm256_set1_epi64x(k.k1);
      for (__m256i* const w : {c[0], c[1]}) {
        const __m256i p0 = _mm256_mul_epu32(w[0], first), p1 = _mm256_mul_epu32(w[2], second);
        w[0] = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(p1, 32), w[1]), k0);
        w[1] = p1;
        w[2] = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(p0, 32), w[3]), k1);
        w[3] = p0;
      }
    }
    for (int half = 0; half < 2; ++half) {
      const __m256i* const w = c[half];
      const __m256i w01 = _mm256_blend_epi32(w[0], _mm256_slli_epi64(w[1], 32), 0xaa);
      const __m256i w23 = _mm256_blend_epi32(w[2], _mm256_slli_epi64(w[3], 32), 0xaa);
      const __m256i even = _mm256_unpacklo_epi64(w01, w23), odd = _mm256_unpackhi_epi64(w01, w23);
      auto* const out = reinterpret_cast<__m256i*>(words + 4 * (base + 4 * half));
      _mm256_storeu_si256(out, _mm256_permute2x128_si256(even, odd, 0x20));
      _mm256_storeu_si256(out + 1, _mm256_permute2x128_si256(even, odd, 0x31));
    }
  }
}
#endif

Run runner() {
#ifdef LOADER_X86
  if (vector_unit() == VectorUnit::kAvx512) return run_avx512;
  if (vector_unit() == VectorUnit::kAvx2) return run_avx2;
#endif
  return run_plain;
}

}  // namespace

void philox_lanes(int64_t lanes, const uint64_t* v, const uint32_t* hop, const uint32_t* index, uint64_t key,
                  uint32_t* words) {
  const Run run = runner();
  int64_t base = 0;
  for (; base + kLanes <= lanes; base += kLanes)
    run(v + base, hop + base, index + base, key, words + 4 * base);
  const int64_t rest = lanes - base;
  if (rest == 0) return;
  uint64_t last_v[kLanes] = {};
  uint32_t last_hop[kLanes] = {}, last_index[kLanes] = {}, last_words[4 * kLanes];
  std::copy_n(v + base, rest, last_v);
  std::copy_n(hop + base, rest, last_hop);
  std::copy_n(index + base, rest, last_index);
  run(last_v, last_hop, last_index, key, last_words);
  std::copy_n(last_words, 4 * rest, words + 4 * base);
}

}  // namespace loader
