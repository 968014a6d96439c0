// Which vector unit this machine has, for code that is written for each of them.
//
// Loops that compilers turn into vector code by themselves take LOADER_WIDE (wide_clones.h). Philox is not
// among them: its products of 32 by 32 bits come out scalar as soon as the loop around them changes.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__)
#define LOADER_X86 1
// GCC 12 warns of its own header: what it leaves undefined on purpose is "used uninitialized" (its bug
// 105593).
#ifndef __clang__
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#ifndef __clang__
#pragma GCC diagnostic pop
#endif
#define LOADER_AVX2 __attribute__((target("avx2,popcnt")))
#define LOADER_AVX512 __attribute__((target("avx512f,popcnt")))
#endif

namespace loader {

enum class VectorUnit { kNone, kAvx2, kAvx512 };

// Tests set a lesser one, before any thread runs.
inline VectorUnit& vector_unit() {
#ifdef LOADER_X86
  static VectorUnit unit = __builtin_cpu_supports("avx512f") ? VectorUnit::kAvx512
                           : __builtin_cpu_supports("avx2")  ? VectorUnit::kAvx2
                                                             : VectorUnit::kNone;
#else
  static VectorUnit unit = VectorUnit::kNone;
#endif
  return unit;
}

}  // namespace loader
