// Where the search for a vertex in a hash table begins.
#pragma once

#include <cstdint>

namespace loader {

// The bits of a key, mixed (Appleby, MurmurHash3: fmix32, fmix64), since ids of a real graph come in rows and
// in strides.
template <typename Key>
__device__ __forceinline__ Key mixed_bits(Key x) {
  static_assert(sizeof(Key) == 4 || sizeof(Key) == 8);
  if constexpr (sizeof(Key) == 4) {
    x = (x ^ x >> 16) * 0x85EBCA6Bu;
    x = (x ^ x >> 13) * 0xC2B2AE35u;
    x ^= x >> 16;
  } else {
    x = (x ^ x >> 33) * 0xFF51AFD7ED558CCDull;
    x = (x ^ x >> 33) * 0xC4CEB9FE1A85EC53ull;
    x ^= x >> 33;
  }
  return x;
}

}  // namespace loader
