// Walks on the CPU: threads share out the walkers, and each thread has many under way at a time.
#pragma once

#include <cstdint>

#include "parallel.h"
#include "walks/walk.h"

namespace loader {

// The walks of one call. Row i of `vertices` is the walk of walker `first_lane` + i.
template <typename P, typename N>
struct WalkOut {
  const N* starts;  // [count]
  int64_t count;
  uint64_t first_lane;
  uint32_t length;  // steps
  N* vertices;      // [count, length + 1]; -1 after the end of a walk
  P* places;        // [count, length], or nullptr: of the edges that were followed, -1 for none
};

// Walks by `law` through `lists`; starts are vertices of the graph.
template <class Law, class Lists>
void walk_on_cpu(const Law& law, const Lists& lists,
                 const WalkOut<typename Lists::Edge, typename Lists::Vertex>& out, ThreadPool& pool);

}  // namespace loader
