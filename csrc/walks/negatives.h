// Numbers at random, all alike: vertices, or places that say which vertices are the negative samples of
// walks. Written once for host and device.
#pragma once

#include <cstdint>

#include "sampler/pick.h"

namespace loader {

// Numbers 4 * block to 4 * block + 3 of a walker, each in [0, bound); `key` is the mini-batch's for
// negatives.
struct Negatives {
  uint64_t key;
  uint32_t bound;

  template <typename N>
  LOADER_HD void four(uint64_t walker, uint32_t block, N* out) const {
    const Draws draws{key, walker, 0};
    const Words words = draws.block(block);
    for (uint32_t i = 0; i < 4; ++i) out[i] = static_cast<N>(draws.bounded(words.w[i], bound, 4 * block + i));
  }
};

}  // namespace loader
