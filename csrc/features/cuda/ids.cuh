// The ids of a gather.
#pragma once

#include <cstdint>

namespace loader {

// Id `i` of arguments that have `ids`, int64 with `wide_ids` and else int32.
template <typename Args>
__device__ __forceinline__ int64_t id_at(const Args& args, int64_t i) {
  return args.wide_ids ? __ldg(static_cast<const long long*>(args.ids) + i)
                       : static_cast<int64_t>(__ldg(static_cast<const int*>(args.ids) + i));
}

// Whether it is one of the `num_rows` rows of a table.
template <typename Table>
__device__ __forceinline__ bool in_range(const Table& table, int64_t id) {
  return static_cast<uint64_t>(id) < static_cast<uint64_t>(table.num_rows);
}

}  // namespace loader
