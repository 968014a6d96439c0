// What a scan of lists keeps until the picks are taken: how many of each list are picked, and the first of
// them.
#pragma once

#include "sampler/cuda/picking.cuh"

namespace loader {

// `Phases`: a Picking whose choice scans. `hop`: at which is picked.
template <typename Phases>
struct ScannedLists {
  using P = typename Phases::Edge;
  static constexpr bool kRaces = std::is_same_v<typename Phases::Choice, RaceChoice>;

  const Phases& phases;
  const int hop;
  const int64_t fanout;
  const uint32_t width;  // picks that are kept of a list
  const uint32_t lane;

  // `fanout` is that of all lists of the hop, or the largest of them.
  __device__ ScannedLists(const Phases& phases, int hop)
      : ScannedLists(phases, hop, phases.args.fanouts[hop - 1]) {}
  __device__ ScannedLists(const Phases& phases, int hop, int64_t fanout)
      : phases(phases),
        hop(hop),
        fanout(fanout),
        width(fanout == kAllNeighbors ? 0 : static_cast<uint32_t>(phases.args.scan.width)),
        lane(phases.lane) {}

  struct List {
    P begin;
    uint32_t degree;
    bool whole;
    int64_t fanout;  // of the row, see fanout_of
  };

  __device__ List list_of(int64_t row) const {
    const uint32_t degree = phases.row_degree()[row];
    const int64_t own = fanout_of(row);
    return {phases.row_begin()[row], degree, phases.choice().whole(degree, own), own};
  }

  __device__ int64_t fanout_of(int64_t row) const {
    if constexpr (Phases::kHetero)
      return phases.fanout(phases.row_kind()[row], hop);
    else
      return fanout;
  }

  __device__ int64_t fanout_of(const List& list) const {
    if constexpr (Phases::kHetero)
      return list.fanout;
    else
      return fanout;
  }

  // Picks of a list that are kept.
  __device__ uint32_t width_of(const List& list) const {
    if constexpr (Phases::kHetero)
      return list.fanout == kAllNeighbors ? 0 : width;
    else
      return width;
  }

  // Where the picks of a list are kept, or those of a piece: their places in the list, and when they arrive.
  struct PickArrays {
    uint32_t* places;
    uint64_t* times;
  };

  __device__ uint32_t* stored() const {
    return phases.args.scan.places + phases.slot * phases.args.rows_capacity * phases.args.scan.width;
  }
  __device__ PickArrays arrays_of(int64_t piece) const {
    const ScanArgs& scan = phases.args.scan;
    const int64_t at = (phases.slot * scan.pieces_capacity + piece) * scan.width;
    return {scan.piece_places + at, kRaces ? scan.piece_times + at : nullptr};
  }
};

}  // namespace loader
