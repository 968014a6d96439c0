// The ids of a gather.
#pragma once

#include "features/cuda/gather.h"

namespace loader {

__device__ __forceinline__ int64_t id_at(const void* ids, bool wide, int64_t i) {
  return wide ? __ldg(static_cast<const int64_t*>(ids) + i)
              : static_cast<int64_t>(__ldg(static_cast<const int32_t*>(ids) + i));
}

__device__ __forceinline__ int64_t id_at(const GatherArgs& args, int64_t i) {
  return id_at(args.ids, args.wide_ids, i);
}

// Whether it is one of `num_rows` rows.
__device__ __forceinline__ bool in_range(int64_t num_rows, int64_t id) {
  return static_cast<uint64_t>(id) < static_cast<uint64_t>(num_rows);
}

__device__ __forceinline__ bool in_range(const GatherArgs& args, int64_t id) {
  return in_range(args.num_rows, id);
}

}  // namespace loader
