// Hop by hop with bitmaps, where only a scan of the lists tells how many are picked. As with a hash set the
// vertices of a hop are rows before their lists are scanned, and edges are counted after that:
//
//   pick    takes what the scan of the rows' lists kept, and marks the new vertices
//   group   new vertices of each warp's share of the bitmap
//   rank    prefix sums over those: local ids in ascending order of vertex, and rows
//   scan    what all rows pick at the next hop (list_scan.cuh)
//   count   edges of the next hop of each warp's share of the rows
//   assign  prefix sums over those: the next hop's indptr
//
// with a barrier after each, which is the end of a kernel. The last three are those of a hash set
// (hash_set_phases.cuh): rows are rows.
#pragma once

#include "sampler/cuda/hopwise.cuh"

namespace loader {

template <typename Args>
struct ScannedPhases : HopwisePhases<Args> {
  using Base = HopwisePhases<Args>;
  using Base::Base;
  static_assert(Base::kScans);

  __device__ void group(int hop, int64_t& rows, uint32_t*) const { Base::count(hop, rows); }

  // The vertices found at `hop` become rows, behind the `old_rows`.
  __device__ void rank(int hop, int64_t old_rows, int64_t /*rows*/, uint32_t*) const {
    int64_t none = 0;
    Base::assign(hop, old_rows, none);
  }

  __device__ void finish() const {
    Base::finish();
    if (this->thread() == 0) this->state().tail.value = 0;  // no piece is left
  }

  // After a failure: leaves bitmaps and pieces as the next launch wants them.
  __device__ void clean() const {
    Base::clean();
    this->clean_pieces();
  }
};

}  // namespace loader
