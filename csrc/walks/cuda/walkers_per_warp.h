// How many walkers share a warp.
#pragma once

#include <cstdint>

#include "gpu/kernel.h"
#include "walks/cuda/thread_blocks.h"

namespace loader {

// As few as there are warps for, of which a multiprocessor has `blocks` blocks. A step of a warp takes as
// long as that of its slowest walker: on an H200, where 80 steps of one walker take 68 us, those of a warp of
// 32 take 98.
inline int walkers_together(int64_t count, int blocks, int device) {
  const int64_t warps = int64_t{gpu::attribute(device, gpu::Attribute::kMultiprocessors)} * blocks *
                        (kWalkThreads / kWarpWalkers);
  int together = 1;
  while (together < kWarpWalkers && warps * together < count) together *= 2;
  return together;
}

// Thread blocks of the walkers.
inline unsigned walk_blocks(int64_t count, int together) {
  return gpu::blocks_for(count, int64_t{kWalkThreads} / kWarpWalkers * together, "walkers");
}

}  // namespace loader
