// Breadth-first search by CPU threads.
#pragma once

#include <cstdint>

#include "graph/lists.h"
#include "parallel.h"

namespace loader {

// The number of edges from the nearest source to each vertex, -1 if there is no path of at most `most` edges.
// `onward` has the vertices that follow a vertex, `back` those that it follows, or is null. With it a step
// that would read most edges asks every vertex that was not reached for one neighbor that was
// (direction-optimizing: Beamer, Asanovic, Patterson, SC 2012).
template <typename P, typename N>
void bfs_on_cpu(const PlainGraph<P, N>& onward, const PlainGraph<P, N>* back, const N* sources, int64_t count,
                int32_t most, int32_t* distance, Workers& workers);

// Of each vertex that was reached by an edge, the smallest vertex that it was reached from; else -1.
template <typename P, typename N>
void bfs_predecessors_on_cpu(const PlainGraph<P, N>& back, const int32_t* distance, N* predecessors,
                             Workers& workers);

}  // namespace loader
