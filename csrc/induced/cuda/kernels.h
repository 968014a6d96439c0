// The kernels of induced.cuh by name.
#pragma once

#include "gpu/kernel.h"

namespace loader {

#define LOADER_INDUCED_KERNEL(TAG, NAME) LOADER_KERNEL(TAG, "induced/cuda/induced.cuh", NAME)
LOADER_INDUCED_KERNEL(InducedTableKernel, "induced_table_kernel")  // <P, N>, as the others
LOADER_INDUCED_KERNEL(InducedSumsKernel, "induced_sums_kernel")    // <>
LOADER_INDUCED_KERNEL(InducedCountKernel, "induced_count_kernel")
LOADER_INDUCED_KERNEL(InducedEdgesKernel, "induced_edges_kernel")
#undef LOADER_INDUCED_KERNEL

}  // namespace loader
