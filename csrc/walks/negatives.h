// Vertices at random, all alike: negative samples of walks. Written once for host and device.
#pragma once

#include <cstdint>

#include "sampler/pick.h"

namespace loader {

// Vertices 4 * block to 4 * block + 3 of a walker; `key` is the mini-batch's for negatives. num_nodes < 2^32.
struct Negatives {
  uint64_t key;
  uint32_t num_nodes;

  template <typename N>
  LOADER_HD void four(uint64_t walker, uint32_t block, N* out) const {
    const Draws draws{key, walker, 0};
    const Words words = draws.block(block);
    for (uint32_t i = 0; i < 4; ++i)
      out[i] = static_cast<N>(draws.bounded(words.w[i], num_nodes, 4 * block + i));
  }
};

}  // namespace loader
