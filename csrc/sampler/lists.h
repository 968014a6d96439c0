// Where a sampler reads the lists of neighbours. What samples is written for any `Lists`:
//
//   Edge, Vertex     types of places in the lists (and edge ids), and of vertices
//   list(v)          the list of vertex v, a ListOf<Edge>
//   read(at)         the neighbour at a place of a list
//   read(begin, i)   the neighbour `i` places behind `begin`: where several of one list are read, its address
//   is
//                    worked out once
//
// `list` and `read` only load: a caller asks for several before it looks at the first.
#pragma once

#include <cstdint>

#include "sampler/pick.h"

namespace loader {

// A vertex' list of neighbours: places [begin, end).
template <typename P>
struct ListOf {
  P begin, end;
  LOADER_HD uint32_t degree() const { return static_cast<uint32_t>(end - begin); }  // of the GPU: below 2^32
};

// A load of what no kernel writes.
template <typename T>
LOADER_HD T load(const T* at) {
#ifdef __CUDA_ARCH__
  return __ldg(at);
#else
  return *at;
#endif
}

// Asks memory for what is read soon.
LOADER_HD void prefetch(const void* at) {
#ifdef __CUDA_ARCH__
  asm volatile("prefetch.global.L2 [%0];" ::"l"(at));
#else
  __builtin_prefetch(at);
#endif
}

// All lists one behind the other, in one memory that whoever samples can read.
template <typename P, typename N>
struct PlainLists {
  using Edge = P;
  using Vertex = N;

  const P* indptr;   // [num_nodes + 1]
  const N* indices;  // [num_edges]

  LOADER_HD ListOf<P> list(int64_t v) const { return {load(indptr + v), load(indptr + v + 1)}; }
  LOADER_HD N read(P at) const { return load(indices + at); }
  LOADER_HD N read(P begin, uint32_t i) const { return load(indices + begin + i); }
};

}  // namespace loader
