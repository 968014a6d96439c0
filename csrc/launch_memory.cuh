// The shared memory that a launch asked for.
#pragma once

namespace loader {

#ifdef __CUDACC__
// (If kernels run on the host, it comes from there.)
__device__ __forceinline__ unsigned char* launch_memory() {
  extern __shared__ __align__(16) unsigned char memory[];
  return memory;
}
#endif

}  // namespace loader
