// Elements of every type as vectors of up to 16 bytes, and how wide they may be for a layout.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "aggregate/cuda/mean.h"
#include "words.cuh"

namespace loader {

template <typename T>
using Sum = Wide<T>;

// The block that a kernel works on, with all that is live looked up.
template <typename P, typename I>
__device__ __forceinline__ DeviceBlock<P, I> settled(const DeviceBlock<P, I>& block) {
  if (block.live == nullptr) return block;
  const LiveBlock& now = *block.live;
  return {static_cast<const P*>(now.indptr),
          static_cast<const I*>(now.indices),
          now.num_dst,
          block.num_src,
          now.num_edges,
          block.live};
}

template <typename T, int N>
struct alignas(sizeof(T) * N) Vector {
  T v[N];
};

// As one word: the 16-bit types are classes, which the compiler would copy one by one.
template <typename T, int N>
__device__ __forceinline__ Vector<T, N> load(const T* p) {
  const auto word = *reinterpret_cast<const Word<sizeof(T) * N>*>(p);
  Vector<T, N> out;
  memcpy(&out, &word, sizeof(word));
  return out;
}

template <typename T, int N>
__device__ __forceinline__ void store(T* p, const Vector<T, N>& vector) {
  Word<sizeof(T) * N> word;
  memcpy(&word, &vector, sizeof(word));
  *reinterpret_cast<decltype(word)*>(p) = word;
}

template <typename T, int N, typename S>
__device__ __forceinline__ void store_scaled(T* p, const S (&sum)[N], S scale) {
  Vector<T, N> out;
#pragma unroll
  for (int i = 0; i < N; ++i) out.v[i] = narrow<T>(sum[i] * scale);
  store(p, out);
}

// Elements of the widest vector that suits a number of columns and every array it was shown: all of them are
// multiples of it, counted in elements of their own type.
class Alignment {
 public:
  explicit Alignment(int64_t dim) : bits_(static_cast<uint64_t>(dim)) {}

  template <typename T>
  Alignment& of(const StridedRows<T>& rows) {
    if (rows.data != nullptr)
      bits_ |= reinterpret_cast<uint64_t>(rows.data) / sizeof(T) | static_cast<uint64_t>(rows.stride);
    return *this;
  }

  bool allows(uint64_t elements) const { return bits_ % elements == 0; }

 private:
  uint64_t bits_;
};

// Calls `f` with the width of the vectors, as a constant.
template <typename T, typename F>
cudaError_t with_vectors(const Alignment& alignment, const F& f) {
  constexpr int kWidest = 16 / sizeof(T);
  if (alignment.allows(kWidest)) return f(std::integral_constant<int, kWidest>{});
  if constexpr (kWidest > 2) {
    if (alignment.allows(kWidest / 2)) return f(std::integral_constant<int, kWidest / 2>{});
  }
  return f(std::integral_constant<int, 1>{});
}

}  // namespace loader
