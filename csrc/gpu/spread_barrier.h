// The memory of a barrier of many blocks, see grid_barrier.cuh.
#pragma once

namespace loader {

// Zero before the first use. Blocks arrive at one word; the last one writes to several, each in a line of its
// own, and a block looks at one of these.
struct SpreadBarrier {
  struct alignas(128) Line {
    unsigned value;
  };
  Line arrived, passed[16];
};

}  // namespace loader
