// What code for both the CPU and the GPU is marked with, and how it reads what no kernel writes.
#pragma once

#ifdef __CUDACC__
#define LOADER_HD __host__ __device__ __forceinline__
#else
#define LOADER_HD inline
#endif

namespace loader {

// A load of what no kernel writes.
template <typename T>
LOADER_HD T load(const T* at) {
#ifdef __CUDA_ARCH__
  return __ldg(at);
#else
  return *at;
#endif
}

// Asks memory for what is read soon.
LOADER_HD void prefetch(const void* at) {
#ifdef __CUDA_ARCH__
  asm volatile("prefetch.global.L2 [%0];" ::"l"(at));
#else
  __builtin_prefetch(at);
#endif
}

}  // namespace loader
