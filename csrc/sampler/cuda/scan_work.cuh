// Which warp scans which entries of which lists, for whatever is done with a list: long lists were cut into
// pieces when their vertices were found (Space::cut_list), and a warp that is done takes the next piece or
// the next lists. Node splitting is a strategy of Raval, Nasre, Kumar, Vasudevan, Vadhiyar and Pingali,
// "Dynamic load balancing strategies for graph applications on GPUs" (2017).
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

  __device__ int64_t slot(uint32_t part) const { return slots + int64_t{part}; }
};

constexpr int kMostShift = 3;  // a warp takes up to 2^3 lists together

// Calls `scan(work)` with all entries of the lists of the first `rows` vertices, by warps: of each block the
// first `active` ones, all lanes with the same arguments. `soon(begin, degree)` before: of lists that the
// warp scans one after the other.
//
// If `scan` has `kGroups`, and one launch has not all hops (`OneLaunch`), lists go to `scan.group(row, count,
// begin, degree)` first, those that a warp takes together: `row` is the first one's, and lane i has list i.
// It returns those that `scan(work)` is to be called with, as bits.
template <bool OneLaunch, typename Phases, typename Soon, typename F>
__device__ __forceinline__ void for_each_list(const Phases& phases, int64_t num_rows, int active,
                                              const Soon& soon, const F& scan) {
  const auto own = static_cast<int>(threadIdx.x / 32);
  const auto rows = static_cast<uint32_t>(num_rows);  // 32 bits hold a mini-batch, and save registers
  if (own >= active || rows == 0) return;
  using P = typename Phases::Edge;
  const ScanArgs& args = phases.args.scan;
  constexpr bool kGroups = F::kGroups && !OneLaunch;
  const uint32_t warps = phases.blocks * active, warp = own * phases.blocks + phases.block;
  // Pieces come first, since they are long. Few rows are spread over all warps; of many a warp takes some
  // together.
  const auto cut =
      static_cast<uint32_t>(min(static_cast<int64_t>(phases.state().tail.value), args.pieces_capacity));
  const int shift = rows > 32 * warps ? kMostShift : rows > 8 * warps ? 2 : rows > 4 * warps ? 1 : 0;
  const uint32_t each = 1u << shift;
  const uint32_t groups = cut + ((rows + each - 1) >> shift);
  for (uint32_t at = warp; at < groups;) {
    // The first ticket is the warp's number; the next one is on its way while the warp works.
    unsigned long long next = 0;
    if (phases.lane == 0) next = atomicAdd(&phases.state().head.value, 1ull);
    const bool is_piece = at < cut;
    uint32_t row = is_piece ? phases.pieces()[at].row : (at - cut) << shift;
    const uint32_t end = is_piece ? row + 1 : min(row + each, rows);
    P own_begin{};  // lane i has list i of those that follow
    uint32_t own_degree = 0;
    if (row + phases.lane < end) {
      own_begin = phases.row_begin()[row + phases.lane];
      own_degree = phases.row_degree()[row + phases.lane];
    }
#pragma unroll 1
    for (int i = 1; i < static_cast<int>(end - row); ++i)
      soon(__shfl_sync(kFullMask, own_begin, i), __shfl_sync(kFullMask, own_degree, i));
    uint32_t chosen = ~0u;
    if constexpr (kGroups)
      if (!is_piece) chosen = scan.group(row, end - row, own_begin, own_degree);
    for (int i = 0; row < end; ++row, ++i) {
      if (kGroups && !(chosen >> i & 1)) continue;
      const P list = __shfl_sync(kFullMask, own_begin, i);
      const uint32_t degree = __shfl_sync(kFullMask, own_degree, i);
      ScanWork<P> work{row, list, degree, 0, degree, 0, 1, 0};
      if (is_piece) {
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
    at = warps + __shfl_sync(kFullMask, static_cast<uint32_t>(next), 0);
  }
}

}  // namespace loader
