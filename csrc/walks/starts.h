// Where the walkers of the GPU start.
#pragma once

#include <cstdint>

namespace loader {

struct WalkStarts {
  const void* ids;  // [count]
  bool wide;        // int64, else int32
  int64_t num_nodes;
  int64_t* bad;       // [2], in memory that the host sees: 1 and the id, if an id is no vertex
  int together = 32;  // walkers of a warp, see walkers_together
};

}  // namespace loader
