// What kernels use of GPUs of compute capability 8.0 and more: products on tensor cores, and copies from
// global to shared memory that no register holds.
#pragma once

#include <cstdint>

#include "aggregate/cuda/vectors.cuh"

namespace loader {

#ifdef __CUDACC__
// (If kernels run on the host, these come from there.)
#if __CUDA_ARCH__ >= 800
// Adds the product of a [16, 16] and b [16, 8], both bfloat16, to sum [16, 8]. With g = lane / 4, q = lane %
// 4, the lane has a[g, 2q], a[g, 2q + 1] | a[g + 8, same] | a[g, 8 + same] | a[g + 8, 8 + same], b[2q, g],
// b[2q + 1, g] | b[8 + same, g] and sum[g, 2q], sum[g, 2q + 1], sum[g + 8, same]; the first of two is in the
// low half of a word. (PTX ISA, "Matrix fragments for mma.m16n8k16".)
__device__ __forceinline__ void add_product(const uint32_t (&a)[4], uint32_t b_low, uint32_t b_high,
                                            float (&sum)[4]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b_low), "r"(b_high));
}

// Begins to copy 16 bytes to shared memory. Who began a copy sees it after `finish_copies`.
__device__ __forceinline__ void begin_copy(void* to, const void* from) {
  asm volatile(
      "cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(static_cast<uint32_t>(__cvta_generic_to_shared(to))),
      "l"(from)
      : "memory");
}
__device__ __forceinline__ void finish_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// Two numbers as bfloat16, the first in the low half.
__device__ __forceinline__ uint32_t pair_of(float first, float second) {
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  return pair;
}

// Without a branch, which would keep what follows from being done meanwhile.
__device__ __forceinline__ void store_if(bool wanted, void* to, const uint4& words) {
  asm volatile("{.reg .pred p; setp.ne.b32 p, %5, 0; @p st.global.v4.b32 [%0], {%1, %2, %3, %4};}" ::"l"(to),
               "r"(words.x), "r"(words.y), "r"(words.z), "r"(words.w), "r"(static_cast<int>(wanted))
               : "memory");
}

// Waits for the other threads of a team of the block.
template <int kThreads>
__device__ __forceinline__ void meet_team(int team) {
  asm volatile("bar.sync %0, %1;" ::"r"(team + 1), "n"(kThreads) : "memory");  // 0 is the whole block's
}
#endif

// One word of the low halves of two words, or if `odd` of their high halves. The first word gives its low
// half.
__device__ __forceinline__ uint32_t paired(uint32_t first, uint32_t second, bool odd) {
  return __byte_perm(first, second, odd ? 0x7632u : 0x5410u);
}
#endif

// What rounding to bfloat16 leaves of a number.
__device__ __forceinline__ float left_of(float x) { return x - widen(narrow<bfloat16>(x)); }

}  // namespace loader
