// Walks by weight: a proposal from the alias table of a list (sampler/weighted.h), by one read.
//
// The cell that is drawn holds both vertices that it may give, so nothing else is read.
#pragma once

#include <cstdint>

#include "walks/walk.h"

namespace loader {

// The first `threshold` of 2^32 belong to this edge, the others to the one that is `shift` places further on.
template <typename N>
struct alignas(sizeof(N) == 4 ? 16 : 8) WalkCell {
  uint32_t threshold;
  int32_t shift;
  N own, other;  // neighbors
};

template <typename N>
struct WeightedProposal {
  static constexpr int kWords = 2;
  static constexpr bool kFolds = false;

  const WalkCell<N>* cells;  // [num_edges]

  template <typename P>
  LOADER_HD P aim(const Draws& draws, ListOf<P> list, uint32_t word, uint32_t i) const {
    return static_cast<P>(list.begin + draws.bounded(word, list.degree(), i));
  }
  template <class Lists>
  LOADER_HD void prefetch(const Lists&, typename Lists::Edge at) const {
#ifndef __CUDA_ARCH__
    __builtin_prefetch(cells + at);
#endif
  }
  template <class Lists>
  LOADER_HD Move<typename Lists::Edge, N> take(const Lists&, typename Lists::Edge at, uint32_t side) const {
    using P = typename Lists::Edge;
    const WalkCell<N> cell = read(cells + at);
    if (side < cell.threshold) return {cell.own, at};
    return {cell.other, static_cast<P>(at + cell.shift)};
  }

 private:
  LOADER_HD static WalkCell<N> read(const WalkCell<N>* at) {
#ifdef __CUDA_ARCH__
    if constexpr (sizeof(N) == 4) {
      const int4 all = __ldg(reinterpret_cast<const int4*>(at));
      return {static_cast<uint32_t>(all.x), all.y, all.z, all.w};
    } else {
      const auto* const words = reinterpret_cast<const long long*>(at);
      const long long first = __ldg(words);
      return {static_cast<uint32_t>(first), static_cast<int32_t>(first >> 32), __ldg(words + 1),
              __ldg(words + 2)};
    }
#else
    return *at;
#endif
  }
};

}  // namespace loader
