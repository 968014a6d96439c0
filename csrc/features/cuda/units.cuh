// What one thread moves at a time: a machine word of a row, copied or converted on its way.
#pragma once

#include "words.cuh"

namespace loader {

// A unit of copied bytes.
template <int Bytes>
struct Copied {
  using In = Word<Bytes>;
  using Out = In;
  static __device__ __forceinline__ Out apply(In word) { return word; }
};

// A unit of `Count` elements, converted. float32 holds every value of the two narrow types.
template <typename From, typename To, int Count>
struct Converted {
  using In = Word<Count * sizeof(From)>;
  using Out = Word<Count * sizeof(To)>;
  static __device__ __forceinline__ Out apply(In word) {
    From from[Count];
    To to[Count];
    memcpy(from, &word, sizeof(word));
#pragma unroll
    for (int i = 0; i < Count; ++i) to[i] = narrow<To>(widen(from[i]));
    Out out;
    memcpy(&out, to, sizeof(out));
    return out;
  }
};

}  // namespace loader
