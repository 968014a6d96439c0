// Which warp scans which lists: the schedules of ScanSchedule, for whatever is done with a list.
//
// Node-based (a warp a list) and node splitting are strategies of Raval, Nasre, Kumar, Vasudevan, Vadhiyar
// and Pingali, "Dynamic load balancing strategies for graph applications on GPUs" (2017). Long lists were cut
// into pieces when their vertices were found (Space::cut_list), so that a hub is scanned by many warps.
#pragma once

#include "sampler/cuda/space.cuh"

namespace loader {

// Calls `whole(row)` for the rows whose lists are not cut, and `part(at)` for pieces. By warps: of each block
// the first `active` ones, all lanes with the same arguments. Pieces come first, since they are long.
template <typename Space, typename Whole, typename Part>
__device__ __forceinline__ void for_each_list(const Space& space, int64_t rows, int active,
                                              const Whole& whole, const Part& part) {
  const auto own = static_cast<int>(threadIdx.x / 32);
  if (own >= active) return;
  const int64_t warps = int64_t{space.blocks} * active;
  const uint32_t most = space.args.scan.piece;
  const int64_t cut = min(static_cast<int64_t>(space.state().tail.value), space.args.scan.pieces_capacity);
  // Few rows are spread over all warps; of many a warp takes some together.
  const int64_t each = rows > 16 * warps ? 4 : 1, groups = cut + (rows + each - 1) / each;
  const auto work = [&](int64_t at) {
    if (at < cut) return part(at);
    const int64_t first = (at - cut) * each, end = min(first + each, rows);
    for (int64_t row = first; row < end; ++row)
      if (space.row_degree()[row] <= most) whole(row);
  };
  const int64_t warp = int64_t{own} * space.blocks + space.block;
  if (space.args.scan.schedule != ScanSchedule::kTickets) {
    for (int64_t at = warp; at < groups; at += warps) work(at);
    return;
  }
  // The first ticket is the warp's number; the next one is on its way while a warp works.
  auto* const tickets = &space.state().head.value;
  for (int64_t at = warp; at < groups;) {
    unsigned long long next = 0;
    if (space.lane == 0) next = atomicAdd(tickets, 1ull);
    work(at);
    __syncwarp();
    at = warps + static_cast<int64_t>(__shfl_sync(kFullMask, next, 0));
  }
}

}  // namespace loader
