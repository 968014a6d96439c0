// What one thread moves at a time: a machine word of a row, copied, converted or decoded on its way.
#pragma once

#include "features/cuda/gather.h"
#include "machine_words.cuh"

namespace loader {

// Of units that go by nothing but the bytes of a row, back to back with the next one.
struct Uncoded {
  using Args = GatherArgs;
  struct Scale {};
  static __device__ __forceinline__ int64_t pitch(const Args&, int64_t row_bytes) { return row_bytes; }
  static __device__ __forceinline__ Scale scale(const Args&, int64_t) { return {}; }
};

// A unit of copied bytes.
template <int Bytes>
struct Copied : Uncoded {
  using In = Word<Bytes>;
  using Out = In;
  static __device__ __forceinline__ Out apply(const Args&, In word, Scale, int64_t) { return word; }
};

// A unit of `Count` elements, converted. float32 holds every value of the two narrow types.
template <typename From, typename To, int Count>
struct Converted : Uncoded {
  using In = Word<Count * sizeof(From)>;
  using Out = Word<Count * sizeof(To)>;
  static __device__ __forceinline__ Out apply(const Args&, In word, Scale, int64_t) {
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

// A unit of `Count` codes, decoded. Codes of zero bits, as those of an id out of range, are zeros.
template <typename From, typename To, int Count>
struct Decoded {
  using Args = CodedArgs;
  using In = Word<Count * sizeof(From)>;
  using Out = Word<Count * sizeof(To)>;
  using Scale = float;  // of the row, if there is one for each
  static __device__ __forceinline__ int64_t pitch(const Args& args, int64_t) { return args.pitch; }
  static __device__ __forceinline__ Scale scale(const Args& args, int64_t id) {
    return args.scales.by_row ? __ldg(args.scales.of + id) : 0.0f;
  }
  // `unit`: its number in the row.
  static __device__ __forceinline__ Out apply(const Args& args, In word, Scale of_row, int64_t unit) {
    From from[Count];
    To to[Count];
    float scales[Count];
    memcpy(from, &word, sizeof(word));
#pragma unroll
    for (int i = 0; i < Count; ++i) scales[i] = of_row;
    if (!args.scales.by_row) {
      const auto some = __ldg(reinterpret_cast<const Word<Count * sizeof(float)>*>(args.scales.of) + unit);
      memcpy(scales, &some, sizeof(some));
    }
#pragma unroll
    for (int i = 0; i < Count; ++i) to[i] = narrow<To>(scaled(value_of(from[i]), scales[i]));
    Out out;
    memcpy(&out, to, sizeof(out));
    return out;
  }
};

}  // namespace loader
