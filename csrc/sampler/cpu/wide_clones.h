// LOADER_WIDE: one clone of a function for each vector unit, chosen when the library is loaded. Not under a
// sanitizer: the choice runs before the sanitizer's runtime is up.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define LOADER_WIDE __attribute__((target_clones("arch=skylake-avx512", "avx2", "default"), flatten))
#else
#define LOADER_WIDE
#endif
