#include "sampler/cpu/pick_batch.h"

#include "sampler/cpu/wide.h"

namespace loader {

LOADER_WIDE void philox_lanes(int64_t lanes, const uint64_t* v, const uint32_t* hop, const uint32_t* index,
                              uint64_t key, uint32_t* words) {
  constexpr int kLanes = 16;
  for (int64_t base = 0; base < lanes; base += kLanes) {
    const int count = lanes - base < kLanes ? static_cast<int>(lanes - base) : kLanes;
    uint32_t c0[kLanes] = {}, c1[kLanes] = {}, c2[kLanes] = {}, c3[kLanes] = {};
    for (int i = 0; i < count; ++i) {
      c0[i] = static_cast<uint32_t>(v[base + i]);
      c1[i] = static_cast<uint32_t>(v[base + i] >> 32);
      c2[i] = hop[base + i];
      c3[i] = index[base + i];
    }
    PhiloxKey k(key);
    for (int round = 0; round < kPhiloxRounds; ++round, k.bump())
      for (int i = 0; i < kLanes; ++i) philox_round(c0[i], c1[i], c2[i], c3[i], k);
    for (int i = 0; i < count; ++i) {
      uint32_t* const out = words + 4 * (base + i);
      out[0] = c0[i];
      out[1] = c1[i];
      out[2] = c2[i];
      out[3] = c3[i];
    }
  }
}

LOADER_WIDE void philox_columns(int count, const uint64_t* v, const uint32_t* hop, uint64_t key,
                                uint32_t* words, int stride) {
  constexpr int kLanes = 16;
  for (int base = 0; base < count; base += kLanes) {
    uint32_t c0[kLanes], c1[kLanes], c2[kLanes], c3[kLanes] = {};
    for (int i = 0; i < kLanes; ++i) {
      c0[i] = static_cast<uint32_t>(v[base + i]);
      c1[i] = static_cast<uint32_t>(v[base + i] >> 32);
      c2[i] = hop[base + i];
    }
    PhiloxKey k(key);
    for (int round = 0; round < kPhiloxRounds; ++round, k.bump())
      for (int i = 0; i < kLanes; ++i) philox_round(c0[i], c1[i], c2[i], c3[i], k);
    uint32_t* const out = words + base;
    for (int i = 0; i < kLanes; ++i) out[i] = c0[i];
    for (int i = 0; i < kLanes; ++i) out[stride + i] = c1[i];
    for (int i = 0; i < kLanes; ++i) out[2 * stride + i] = c2[i];
    for (int i = 0; i < kLanes; ++i) out[3 * stride + i] = c3[i];
  }
}

LOADER_WIDE void positions_wide(const Draws& draws, const uint32_t* words, uint32_t degree, uint32_t fanout,
                                bool replace, uint32_t* out) {
  positions_from_words(draws, words, degree, fanout, replace, out);
}

}  // namespace loader
