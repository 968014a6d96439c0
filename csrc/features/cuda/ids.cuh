// The ids of a gather.
#pragma once

#include "features/cuda/gather.h"

namespace loader {

__device__ __forceinline__ int64_t id_at(const GatherArgs& args, int64_t i) {
  return args.wide_ids ? __ldg(static_cast<const long long*>(args.ids) + i)
                       : static_cast<int64_t>(__ldg(static_cast<const int*>(args.ids) + i));
}

__device__ __forceinline__ bool in_range(const GatherArgs& args, int64_t id) {
  return static_cast<uint64_t>(id) < static_cast<uint64_t>(args.num_rows);
}

}  // namespace loader
