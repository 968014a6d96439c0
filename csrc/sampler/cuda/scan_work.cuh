// Which warp scans which entries of which lists: ScanSchedule, for whatever is done with a list.
//
// Node-based (a warp a list), node splitting and workload decomposition are strategies of Raval, Nasre,
// Kumar, Vasudevan, Vadhiyar and Pingali, "Dynamic load balancing strategies for graph applications on GPUs"
// (2017). The merge path (Merrill and Garland, "Merge-based parallel sparse matrix-vector multiplication", SC
// 2016) decomposes lists and entries together: so a warp has neither too many entries nor too many lists.
//
// For node splitting long lists were cut into pieces when their vertices were found (Space::cut_list).
#pragma once

#include "sampler/cuda/picking.cuh"

namespace loader {

// A part of a list, or all of it. The parts of a list that is cut keep what they find in ListParts.
template <typename P>
struct ScanWork {
  int64_t row;
  P begin;  // of the list
  uint32_t degree;
  uint32_t first, count;   // entries
  uint32_t number, parts;  // which part of how many
  int64_t slots;           // the piece of part 0
  bool spread;             // of the merge path: each warp has two pieces

  __device__ int64_t slot(uint32_t part) const {
    return slots + (spread && part > 0 ? 2 * int64_t{part} - 1 : int64_t{part});
  }
};

constexpr int kMostShift = 3;  // a warp takes up to 2^3 lists together

// The inverse of `share`: of the parts of [0, n) the one that has i.
__device__ __forceinline__ int64_t share_of(int64_t n, int64_t parts, int64_t i) {
  const int64_t each = n / parts, rest = n % parts, longer = (each + 1) * rest;
  return i < longer ? i / (each + 1) : rest + (i - longer) / each;
}

// Calls `scan(work)` with all entries of the lists of the first `rows` vertices, by warps: of each block the
// first `active` ones, all lanes with the same arguments. `soon(begin, degree)` before: of lists that the
// warp scans one after the other. The merge path is known only where one launch has all hops (`OneLaunch`).
//
// If `scan` has `kGroups`, and there is no merge path, lists go to `scan.group(row, count, begin, degree)`
// first, those that a warp takes together: `row` is the first one's, and lane i has list i. It returns
// those that `scan(work)` is to be called with, as bits.
template <bool OneLaunch, typename Phases, typename Soon, typename F>
__device__ __forceinline__ void for_each_list(const Phases& phases, int64_t num_rows, int active,
                                              const Soon& soon, const F& scan) {
  const auto own = static_cast<int>(threadIdx.x / 32);
  const auto rows = static_cast<uint32_t>(num_rows);  // 32 bits hold a mini-batch, and save registers
  if (own >= active || rows == 0) return;
  using P = typename Phases::Edge;
  const ScanArgs& args = phases.args.scan;
  constexpr bool kGroups = F::kGroups && !OneLaunch;
  const bool by_path = OneLaunch && args.schedule == ScanSchedule::kMergePath;
  const bool by_tickets = args.schedule == ScanSchedule::kTickets;
  const uint32_t warps = phases.blocks * active, warp = own * phases.blocks + phases.block;
  // Pieces come first, since they are long. Few rows are spread over all warps; of many a warp takes some
  // together. By the path a warp has one share of everything.
  const auto cut =
      static_cast<uint32_t>(min(static_cast<int64_t>(phases.state().tail.value), args.pieces_capacity));
  const int shift = rows > 32 * warps ? kMostShift : rows > 8 * warps ? 2 : rows > 4 * warps ? 1 : 0;
  const uint32_t each = 1u << shift;
  const uint32_t groups = by_path ? warps : cut + ((rows + each - 1) >> shift);
  const int64_t* const ends = by_path ? phases.row_ends() : nullptr;
  for (uint32_t at = warp; at < groups;) {
    // The first ticket is the warp's number; the next one is on its way while the warp works.
    unsigned long long next = 0;
    if (by_tickets && phases.lane == 0) next = atomicAdd(&phases.state().head.value, 1ull);
    const bool is_piece = !by_path && at < cut;
    Share entries{0, 0};
    uint32_t row, end;
    P own_begin{};  // lane i has list i of those that follow
    uint32_t own_degree = 0;
    if (by_path) {
      entries = share(ends[rows - 1], warps, warp);
      // The first that ends behind it.
      row = static_cast<uint32_t>(phases.row_of(ends, -1, int64_t{rows} - 1, entries.begin) + 1);
      end = entries.begin < entries.end ? rows : row;
    } else {
      row = is_piece ? phases.pieces()[at].row : (at - cut) << shift;
      end = is_piece ? row + 1 : min(row + each, rows);
      if (row + phases.lane < end) {
        own_begin = phases.row_begin()[row + phases.lane];
        own_degree = phases.row_degree()[row + phases.lane];
      }
#pragma unroll 1
      for (int i = 1; i < static_cast<int>(end - row); ++i)
        soon(__shfl_sync(kFullMask, own_begin, i), __shfl_sync(kFullMask, own_degree, i));
    }
    uint32_t chosen = ~0u;
    if constexpr (kGroups)
      if (!is_piece) chosen = scan.group(row, end - row, own_begin, own_degree);
    for (int i = 0; row < end; ++row, ++i) {
      if (kGroups && !(chosen >> i & 1)) continue;
      const P list = by_path ? phases.row_begin()[row] : __shfl_sync(kFullMask, own_begin, i);
      const uint32_t degree = by_path ? phases.row_degree()[row] : __shfl_sync(kFullMask, own_degree, i);
      ScanWork<P> work{row, list, degree, 0, degree, 0, 1, 0, by_path};
      if (by_path) {
        // A list counts as an entry more than it has. It is cut at even ones.
        const int64_t begin = row > 0 ? ends[row - 1] : 0;
        if (begin >= entries.end) break;
        const auto cut_at = [&](int64_t place) {
          return place >= degree ? degree : static_cast<uint32_t>(place) / 2 * 2;
        };
        work.first = cut_at(max(entries.begin - begin, int64_t{0}));
        work.count = cut_at(entries.end - begin) - work.first;
        const int64_t first_warp = share_of(ends[rows - 1], warps, begin);
        work.number = static_cast<uint32_t>(warp - first_warp);
        work.parts = static_cast<uint32_t>(share_of(ends[rows - 1], warps, begin + degree) - first_warp + 1);
        work.slots = 2 * first_warp + 1;
      } else if (is_piece) {
        work.number = phases.pieces()[at].number;
        work.parts = (degree - 1) / args.piece + 1;
        work.slots = int64_t{at} - work.number;
        work.first = work.number * args.piece;
        work.count = min(args.piece, degree - work.first);
      } else if (degree > args.piece) {
        continue;
      }
      scan(work);
    }
    __syncwarp();
    at = by_tickets ? warps + __shfl_sync(kFullMask, static_cast<uint32_t>(next), 0) : at + warps;
  }
}

// For the merge path: the entries of all rows up to each one, with it, and with the rows themselves. All
// blocks of the mini-batch; `sync` is their barrier.
template <typename Phases, typename Sync>
__device__ __forceinline__ void lay_merge_path(const Phases& phases, int64_t rows, const Sync& sync) {
  __shared__ int64_t partial[kWarps];
  const Share groups = phases.own_groups(rows);
  int64_t entries = 0;
#pragma unroll 1
  for (int64_t row = groups.begin * 32 + phases.lane; row < min(groups.end * 32, rows); row += 32)
    entries += int64_t{phases.row_degree()[row]} + 1;
  phases.write_totals(entries, partial);
  sync();
  int64_t before, total;
  phases.prefix(before, total);
  int64_t at = before;
  for (int64_t group = groups.begin; group < groups.end; ++group) {
    const int64_t row = group * 32 + phases.lane;
    int64_t own = row < rows ? int64_t{phases.row_degree()[row]} + 1 : 0;
#pragma unroll 1
    for (uint32_t offset = 1; offset < 32; offset *= 2) {
      const int64_t below = __shfl_up_sync(kFullMask, own, offset);
      if (phases.lane >= offset) own += below;
    }
    if (row < rows) phases.row_ends()[row] = at + own;
    at += __shfl_sync(kFullMask, own, 31);
  }
  sync();
}

}  // namespace loader
