#include "sampler/cpu/race_scan.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <stdexcept>

#include "sampler/cpu/philox_lanes.h"
#include "sampler/cpu/vector_unit.h"

namespace loader {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// What a first look at the weights of a list tells.
struct Look {
  double sum = 0;         // roughly
  uint32_t positive = 0;  // weights above 0
  bool good = true;       // all are finite and at least 0
};

template <typename W>
void look_on(const W* weights, uint32_t begin, uint32_t degree, Look& look) {
  for (uint32_t i = begin; i < degree; ++i) {
    look.good &= weights[i] >= 0 && weights[i] <= std::numeric_limits<W>::max();
    look.positive += weights[i] > 0;
    look.sum += static_cast<double>(weights[i]);
  }
}

// An entry whose number is y arrives after 1.44 / 2^7 * y / weight. So it comes before `limit` only if
// kLeast times the upper 31 bits of y is at most limit * weight, by a margin that exceeds what rounding does.
constexpr double kLeast = 1.44 / 128 * 8589934592.0;

// Writes to `early` the entries that may arrive before `limit`, from `begin` to `count`, and returns the end
// of what it wrote. Words 2 * i and 2 * i + 1 are the number of entry i.
template <typename W>
uint32_t* early_on(const uint32_t* words, const W* weights, uint32_t begin, uint32_t count, W limit,
                   uint32_t* early) {
  for (uint32_t i = begin; i < count; ++i) {
    *early = i;
    early += static_cast<W>(kLeast) * static_cast<W>(words[2 * i + 1] >> 1) <= limit * weights[i];
  }
  return early;
}

#ifdef LOADER_X86
constexpr uint32_t kSoon = 256;  // weights that memory is asked for ahead: a kilobyte

LOADER_AVX512 uint32_t look_avx512(const float* weights, uint32_t degree, Look& look) {
  const __m512 zero = _mm512_setzero_ps(), most = _mm512_set1_ps(std::numeric_limits<float>::max());
  __m512 sum = zero;
  uint32_t i = 0;
  uint32_t good = 0xffff;
  for (; i + 16 <= degree; i += 16) {
    __builtin_prefetch(weights + i + kSoon);
    const __m512 w = _mm512_loadu_ps(weights + i);
    good &= _mm512_cmp_ps_mask(w, zero, _CMP_GE_OQ) & _mm512_cmp_ps_mask(w, most, _CMP_LE_OQ);
    look.positive += static_cast<uint32_t>(__builtin_popcount(_mm512_cmp_ps_mask(w, zero, _CMP_GT_OQ)));
    sum = _mm512_add_ps(sum, w);
  }
  look.good = good == 0xffff;
  look.sum = static_cast<double>(_mm512_reduce_add_ps(sum));
  return i;
}

LOADER_AVX2 uint32_t look_avx2(const float* weights, uint32_t degree, Look& look) {
  const __m256 zero = _mm256_setzero_ps(), most = _mm256_set1_ps(std::numeric_limits<float>::max());
  __m256 sum = zero;
  uint32_t i = 0;
  int good = 0xff;
  for (; i + 8 <= degree; i += 8) {
    __builtin_prefetch(weights + i + kSoon);
    const __m256 w = _mm256_loadu_ps(weights + i);
    good &= _mm256_movemask_ps(
        _mm256_and_ps(_mm256_cmp_ps(w, zero, _CMP_GE_OQ), _mm256_cmp_ps(w, most, _CMP_LE_OQ)));
    look.positive += static_cast<uint32_t>(
        __builtin_popcount(static_cast<uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(w, zero, _CMP_GT_OQ)))));
    sum = _mm256_add_ps(sum, w);
  }
  float sums[8];
  _mm256_storeu_ps(sums, sum);
  look.good = good == 0xff;
  look.sum = std::accumulate(sums, sums + 8, 0.0);
  return i;
}

uint32_t* write_bits(uint32_t bits, uint32_t first, uint32_t* out) {
  for (; bits; bits &= bits - 1) *out++ = first + static_cast<uint32_t>(__builtin_ctz(bits));
  return out;
}

LOADER_AVX512 uint32_t* early_avx512(const uint32_t* words, const float* weights, uint32_t count, float limit,
                                     uint32_t* early) {
  const __m512 least = _mm512_set1_ps(static_cast<float>(kLeast)), limits = _mm512_set1_ps(limit);
  const __m512i high = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
  uint32_t i = 0;
  for (; i + 16 <= count; i += 16) {
    const __m512i number = _mm512_permutex2var_epi32(_mm512_loadu_si512(words + 2 * i), high,
                                                     _mm512_loadu_si512(words + 2 * i + 16));
    const __m512 x = _mm512_mul_ps(least, _mm512_cvtepi32_ps(_mm512_srli_epi32(number, 1)));
    const __m512 wx = _mm512_mul_ps(limits, _mm512_loadu_ps(weights + i));
    early = write_bits(_mm512_cmp_ps_mask(x, wx, _CMP_LE_OQ), i, early);
  }
  return early_on(words, weights, i, count, limit, early);
}

LOADER_AVX2 uint32_t* early_avx2(const uint32_t* words, const float* weights, uint32_t count, float limit,
                                 uint32_t* early) {
  const __m256 least = _mm256_set1_ps(static_cast<float>(kLeast)), limits = _mm256_set1_ps(limit);
  uint32_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const auto* const at = reinterpret_cast<const float*>(words + 2 * i);
    const __m256 halves = _mm256_shuffle_ps(_mm256_loadu_ps(at), _mm256_loadu_ps(at + 8), 0xdd);
    const __m256i number = _mm256_permute4x64_epi64(_mm256_castps_si256(halves), 0xd8);
    const __m256 x = _mm256_mul_ps(least, _mm256_cvtepi32_ps(_mm256_srli_epi32(number, 1)));
    const __m256 wx = _mm256_mul_ps(limits, _mm256_loadu_ps(weights + i));
    early = write_bits(static_cast<uint32_t>(_mm256_movemask_ps(_mm256_cmp_ps(x, wx, _CMP_LE_OQ))), i, early);
  }
  return early_on(words, weights, i, count, limit, early);
}
#endif

Look look_at(const float* weights, uint32_t degree) {
  Look look;
  uint32_t seen = 0;
#ifdef LOADER_X86
  if (vector_unit() == VectorUnit::kAvx512) seen = look_avx512(weights, degree, look);
  if (vector_unit() == VectorUnit::kAvx2) seen = look_avx2(weights, degree, look);
#endif
  look_on(weights, seen, degree, look);
  return look;
}

Look look_at(const double* weights, uint32_t degree) {
  Look look;
  look_on(weights, 0, degree, look);
  return look;
}

uint32_t* find_early(const uint32_t* words, const float* weights, uint32_t count, double limit,
                     uint32_t* early) {
  const float bound = limit > std::numeric_limits<float>::max() ? std::numeric_limits<float>::infinity()
                                                                : static_cast<float>(limit);
#ifdef LOADER_X86
  if (vector_unit() == VectorUnit::kAvx512) return early_avx512(words, weights, count, bound, early);
  if (vector_unit() == VectorUnit::kAvx2) return early_avx2(words, weights, count, bound, early);
#endif
  return early_on(words, weights, 0, count, bound, early);
}

uint32_t* find_early(const uint32_t* words, const double* weights, uint32_t count, double limit,
                     uint32_t* early) {
  return early_on(words, weights, 0, count, limit, early);
}

// A time before which more than `most` of the entries arrive with a probability near 1, unless weights are
// very uneven. If a share x of entries of equal weight has arrived, the race has run for -log(1 - x) over
// their weight; a few terms of the series do.
double guess(const Look& look, size_t most) {
  const double wanted = static_cast<double>(most) + 2 * std::sqrt(static_cast<double>(most)) + 1;
  const double x = wanted / look.positive;
  if (x > 0.9 || !(look.sum > 0)) return kNever;
  return wanted * (1 + x / 2 + x * x) * (0x1p57 / 0.6931471805599453) / look.sum;
}

template <typename W>
[[noreturn]] void refuse(const W* weights, int64_t begin, uint32_t degree) {
  for (uint32_t i = 0; i < degree; ++i)
    if (!(weights[i] >= 0 && weights[i] <= std::numeric_limits<W>::max()))
      throw_bad_weight(begin + i, static_cast<double>(weights[i]));
  throw std::logic_error("a weight was refused that is none of these");
}

}  // namespace

template <typename W>
int64_t RaceScan::race(const W* weights, int64_t begin, const Draws& draws, uint32_t degree, int64_t fanout) {
  const Look look = look_at(weights, degree);
  if (!look.good) refuse(weights, begin, degree);
  const size_t most = fanout == kAllNeighbors ? degree : static_cast<size_t>(fanout);
  picked_.clear();
  if (look.positive <= most) {
    for (uint32_t i = 0; i < degree; ++i)
      if (weights[i] > 0) picked_.push_back(i);
    return look.positive;
  }
  const double limit = guess(look, most);
  run(weights, draws, degree, most, limit);
  if (arrived_.size() < most && limit < kNever) run(weights, draws, degree, most, kNever);
  for (const auto& [time, entry] : arrived_) picked_.push_back(entry);
  std::sort(picked_.begin(), picked_.end());
  return static_cast<int64_t>(picked_.size());
}

template <typename W>
void RaceScan::run(const W* weights, const Draws& draws, uint32_t degree, size_t most, double limit) {
  const auto keep_first = [&] {
    if (arrived_.size() <= most) return;
    const auto last = arrived_.begin() + static_cast<std::ptrdiff_t>(most) - 1;
    std::nth_element(arrived_.begin(), last, arrived_.end());
    limit = last->first;  // one that arrives together with it comes after it in the list
    arrived_.resize(most);
  };
  arrived_.clear();
  const uint32_t lanes = std::min(degree + 1, kTogether) / 2;
  std::fill_n(lane_, lanes, draws.lane);
  std::fill_n(step_, lanes, draws.step);
  for (uint32_t first = 0; first < degree; first += kTogether) {
    const uint32_t count = std::min(kTogether, degree - first), blocks = (count + 1) / 2;
    std::iota(index_, index_ + blocks, first / 2);
    philox_lanes(blocks, lane_, step_, index_, draws.key, words_);
    const uint32_t* const end = find_early(words_, weights + first, count, limit, early_);
    for (const uint32_t* at = early_; at < end; ++at) {
      const uint32_t i = *at;
      const auto weight = static_cast<double>(weights[first + i]);
      if (!(weight > 0) || kLeast * (words_[2 * i + 1] >> 1) > limit * weight) continue;
      const double time = arrival(words_[2 * i] | uint64_t{words_[2 * i + 1]} << 32, weight);
      if (!(time < limit)) continue;
      arrived_.emplace_back(time, first + i);
      if (arrived_.size() >= 2 * most + 32) keep_first();
    }
  }
  keep_first();
}

template int64_t RaceScan::race(const float*, int64_t, const Draws&, uint32_t, int64_t);
template int64_t RaceScan::race(const double*, int64_t, const Draws&, uint32_t, int64_t);

}  // namespace loader
