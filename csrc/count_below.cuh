// A search in ascending entries.
#pragma once

#include <cstdint>

namespace loader {

// How many of the `n` ascending entries are less than `x`.
template <typename T, typename Count, typename X>
__device__ __forceinline__ Count count_below(const T* entries, Count n, X x) {
  Count low = 0;
  while (low < n) {
    const Count middle = low + (n - low) / 2;
    if (entries[middle] < x)
      low = middle + 1;
    else
      n = middle;
  }
  return low;
}

}  // namespace loader
