// Which warp scans which lists: the schedules of ScanSchedule, for whatever is done with a list.
//
// Node-based (a warp a list) and node splitting are strategies of Raval, Nasre, Kumar, Vasudevan, Vadhiyar
// and Pingali, "Dynamic load balancing strategies for graph applications on GPUs" (2017). Long lists were cut
// into pieces when their vertices were found (Space::cut_list), so that a hub is scanned by many warps.
#pragma once

#include "sampler/cuda/space.cuh"

namespace loader {

// Calls `scan(row, piece)` for the lists of the first `rows` vertices: once if a list is not cut, with -1,
// else for each of its pieces. By warps: of each block the first `active` ones, all lanes with the same
// arguments. Pieces come first, since they are long.
template <typename Space, typename F>
__device__ __forceinline__ void for_each_list(const Space& space, int64_t rows, int active, const F& scan) {
  const auto own = static_cast<int>(threadIdx.x / 32);
  if (own >= active) return;
  const int64_t warps = int64_t{space.blocks} * active;
  const uint32_t most = space.args.scan.piece;
  const bool by_tickets = space.args.scan.schedule == ScanSchedule::kTickets;
  const int64_t cut = min(static_cast<int64_t>(space.state().tail.value), space.args.scan.pieces_capacity);
  // Few rows are spread over all warps; of many a warp takes some together.
  const int64_t each = rows > 16 * warps ? 4 : 1, groups = cut + (rows + each - 1) / each;
  for (int64_t at = int64_t{own} * space.blocks + space.block; at < groups;) {
    // The first ticket is the warp's number; the next one is on its way while the warp works.
    unsigned long long next = 0;
    if (by_tickets && space.lane == 0) next = atomicAdd(&space.state().head.value, 1ull);
    const bool is_piece = at < cut;
    const int64_t first = is_piece ? space.pieces()[at].row : (at - cut) * each;
    const int64_t end = is_piece ? first + 1 : min(first + each, rows);
    for (int64_t row = first; row < end; ++row)
      if (is_piece || space.row_degree()[row] <= most) scan(row, is_piece ? at : int64_t{-1});
    __syncwarp();
    at = by_tickets ? warps + static_cast<int64_t>(__shfl_sync(kFullMask, next, 0)) : at + warps;
  }
}

}  // namespace loader
