// What traversals on the GPU are told, and their memory there. For host and device.
#pragma once

#include <cstdint>

#include "host_device.h"

// Warps of a block. Tests on the host take fewer.
#ifndef LOADER_TRAVERSE_WARPS
#define LOADER_TRAVERSE_WARPS 16
#endif
// Entries from which on a warp, and a block, reads a list together.
#ifndef LOADER_TRAVERSE_WARP_LIST
#define LOADER_TRAVERSE_WARP_LIST 32
#endif
#ifndef LOADER_TRAVERSE_BLOCK_LIST
#define LOADER_TRAVERSE_BLOCK_LIST 4096
#endif
// Vertices of a level that the breadth-first search takes as a narrow one.
#ifndef LOADER_TRAVERSE_NARROW
#define LOADER_TRAVERSE_NARROW 8192
#endif

namespace loader {

constexpr int kTraverseWarps = LOADER_TRAVERSE_WARPS, kTraverseThreads = 32 * kTraverseWarps;
constexpr int kTraverseBlocks = 3;  // per multiprocessor
constexpr int kMaxTraverseBlocks = 2048;

// What the blocks tell each other, and the host.
struct GridState {
  struct Totals {
    uint64_t count, edges, least;
  };
  unsigned long long barrier;  // 0 before a launch
  uint64_t result[7];
  Totals totals[kMaxTraverseBlocks];
};

LOADER_HD constexpr int64_t traverse_words(int64_t num_nodes) { return (num_nodes + 1023) / 1024 * 32; }

// The memory of a traversal: sets of vertices as bits, a frontier as a list, and numbers of the vertices.
template <typename P, typename N>
struct TraverseSpace {
  GridState* state;
  uint32_t* sets[4];     // [words] each
  N* queue;              // [num_nodes]
  P* before;             // [num_nodes + 1]: the edges of the vertices in the queue before each
  uint64_t* numbers[4];  // [num_nodes] each, if asked for

  static int64_t bytes(int64_t num_nodes, bool with_numbers) {
    TraverseSpace all{};
    return all.lay_out(nullptr, num_nodes, with_numbers);
  }
  static TraverseSpace at(void* memory, int64_t num_nodes, bool with_numbers) {
    TraverseSpace all{};
    all.lay_out(static_cast<unsigned char*>(memory), num_nodes, with_numbers);
    return all;
  }

 private:
  int64_t lay_out(unsigned char* memory, int64_t num_nodes, bool with_numbers) {
    int64_t used = 0;
    const auto take = [&](auto*& pointer, int64_t count) {
      pointer = reinterpret_cast<decltype(+pointer)>(memory + used);
      used += (count * static_cast<int64_t>(sizeof(*pointer)) + 255) / 256 * 256;
    };
    take(state, 1);
    for (auto& set : sets) take(set, traverse_words(num_nodes));
    take(queue, num_nodes);
    take(before, num_nodes + 1);
    if (with_numbers)
      for (auto& some : numbers) take(some, num_nodes);
    return used;
  }
};

}  // namespace loader
