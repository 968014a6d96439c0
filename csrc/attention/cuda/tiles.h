// Sizes of what the kernels of tiles.cuh have in shared memory.
#pragma once

#include <cstdint>

#include "host_device.h"

namespace loader {

// Rows and entries of a tile, warps of the team that works on it, and teams of a block at most: a thread may
// have 128 registers.
constexpr int kTileRows = 4, kTileEntries = 16, kTeamWarps = 4, kMostTeams = 4;

// In elements of bfloat16, if nothing else is said. Rows lie so that no two of the lanes that read at the
// same time need the same bank.
struct TileRoom {
  int columns;      // dim, up to a whole multiple of what a step reads
  int slot;         // from a row of x to the next: 32 bytes more than a multiple of 128
  int vector;       // from a vector to the next: 64 bytes more
  int slots_bytes;  // the rows of x of a tile
  int table_bytes;  // a number for each entry and head: one of the team, and one of each of its warps
  int sums_bytes;   // float32, for each head and column

  explicit LOADER_HD TileRoom(int64_t dim)
      : columns(static_cast<int>((dim + 31) / 32 * 32)),
        slot((columns + 63) / 64 * 64 + 16),
        vector(slot + 16),
        slots_bytes(kTileEntries * slot * 2),
        table_bytes(kTileEntries * 4 * 4 * (1 + kTeamWarps)),
        sums_bytes(4 * columns * 4) {}

  // Of the forward kernel's block with this many teams, and of the backward one's.
  LOADER_HD int64_t forward_bytes(int64_t teams) const {
    return 8 * vector * 2 + teams * (slots_bytes + table_bytes);
  }
  LOADER_HD int64_t backward_bytes(int64_t teams) const {
    return teams * (slots_bytes + table_bytes + sums_bytes);
  }
};

}  // namespace loader
