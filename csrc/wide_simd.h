// Wide SIMD that is chosen when the program runs, so that one build serves every x86-64. (Not by
// target_clones: its resolvers run before a sanitizer is ready.) No FMA: results then round the same way on
// every machine.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__)
#define LOADER_AVX2 __attribute__((target("avx2")))
#endif

#if defined(__GNUC__)
#define LOADER_INLINE inline __attribute__((always_inline))
#define LOADER_INLINED __attribute__((always_inline))  // of a lambda: with the instructions of its caller
#else
#define LOADER_INLINE inline
#define LOADER_INLINED
#endif
