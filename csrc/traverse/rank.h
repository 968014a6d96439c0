// Shares of 1 as integers: sums of them are exact, so their order does not matter. For CPU and GPU.
#pragma once

#include <cstdint>

#include "host_device.h"

namespace loader {

constexpr int kShareBits = 62;
constexpr uint64_t kWhole = uint64_t{1} << kShareBits;  // stands for 1

// The product of two shares, rounded down.
LOADER_HD uint64_t share_of(uint64_t x, uint64_t y) {
#ifdef __CUDA_ARCH__
  return __umul64hi(x, y) << (64 - kShareBits) | x * y >> kShareBits;
#else
  __extension__ using Wide = unsigned __int128;
  return static_cast<uint64_t>(static_cast<Wide>(x) * y >> kShareBits);
#endif
}

LOADER_HD double as_number(uint64_t share) {
  return static_cast<double>(share) * (1.0 / static_cast<double>(kWhole));
}

// PageRank: the rank of a vertex is what it has by itself, and `damping` of what the vertices before it pass
// on.
struct RankLaw {
  uint64_t damping;     // a share
  uint64_t even;        // what each vertex has by itself if `own` is null, before damping
  const uint64_t* own;  // [num_nodes]
  uint64_t close;       // ends as soon as the ranks change by less, in sum
  int32_t most_iterations;

  LOADER_HD uint64_t own_of(int64_t v) const { return own ? own[v] : even; }

  // Of vertex v, to which the vertices before it pass `passed`. Those that nothing follows pass `loose` in
  // sum to all vertices.
  LOADER_HD uint64_t rank(int64_t v, uint64_t passed, uint64_t loose) const {
    const uint64_t by_itself = own_of(v);
    return share_of(passed + share_of(loose, by_itself), damping) + share_of(by_itself, kWhole - damping);
  }
};

// How the ranks came to be.
struct RankResult {
  uint64_t change;  // of the last iteration
  uint64_t iterations;
};

}  // namespace loader
