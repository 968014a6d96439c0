// Attention over rows with its bindings as a module of the host, with a stand-in for CUDA.
#include <cmath>

#include "device_code.h"
// The stand-in above comes first; what it lacks of these kernels follows.
inline unsigned __float_as_uint(float x) {
  unsigned bits;
  std::memcpy(&bits, &x, sizeof(bits));
  return bits;
}
#include "attention/cuda/attend.cuh"

namespace loader {

inline uint32_t paired(uint32_t first, uint32_t second, bool odd) {
  return odd ? first >> 16 | (second & 0xFFFF0000u) : (first & 0xFFFFu) | second << 16;
}

// Every lane computes its numbers of the result from what all lanes have of the operands.
inline void add_product(const uint32_t (&a)[4], uint32_t b_low, uint32_t b_high, float (&sum)[4]) {
  uint64_t words[3][32];
  const uint64_t mine[3] = {a[0] | uint64_t{a[1]} << 32, a[2] | uint64_t{a[3]} << 32,
                            b_low | uint64_t{b_high} << 32};
  for (int i = 0; i < 3; ++i)
    on_host::exchange(mine[i], [&](const uint64_t* values) {
      std::memcpy(words[i], values, sizeof(words[i]));
      return values[0];
    });
  const auto half = [](uint64_t word, int which) {  // bfloat16, four of a word
    return __uint_as_float(static_cast<uint32_t>(word >> 16 * which & 0xFFFF) << 16);
  };
  const int lane = static_cast<int>(on_host::lane());
  for (int i = 0; i < 4; ++i) {
    const int row = lane / 4 + 8 * (i / 2), column = lane % 4 * 2 + i % 2;
    for (int k = 0; k < 16; ++k) {
      const int q = k % 8 / 2, upper = k / 8;
      const float x = half(words[upper][row % 8 * 4 + q], 2 * (row / 8) + k % 2);
      sum[i] += x * half(words[2][column * 4 + q], 2 * upper + k % 2);
    }
  }
}

inline uint32_t pair_of(float first, float second) {
  return narrow<bfloat16>(first).bits | uint32_t{narrow<bfloat16>(second).bits} << 16;
}

inline void store_if(bool wanted, void* to, const uint4& words) {
  if (wanted) std::memcpy(to, &words, sizeof(words));
}

// A block is a thread of the operating system.
template <int kThreads>
void meet_team(int team) {
  static thread_local on_host::Meeting meetings[16];
  meetings[team].count = kThreads;
  on_host::meet(meetings[team]);
}

inline void begin_copy(void* to, const void* from) { std::memcpy(to, from, 16); }
inline void finish_copies() {}

}  // namespace loader
#include "attention/cuda/tiles.cuh"
#include "gpu/kernel.h"

namespace loader {
namespace {

struct AttendRows;
struct AttendRowsGradient;
struct AttendSourceRows;
struct AttendTiles;
struct AttendTilesGradient;

}  // namespace

namespace gpu {

template <typename T>
struct Compiled<AttendRows, T> {
  static constexpr auto* function = attend_rows<T>;
};
template <typename T>
struct Compiled<AttendRowsGradient, T> {
  static constexpr auto* function = attend_gradient<T>;
};
template <typename T>
struct Compiled<AttendSourceRows, T> {
  static constexpr auto* function = attend_sources<T>;
};

template <typename T>
struct Compiled<AttendTiles, T> {
  static constexpr auto* function = attend_tiles<T>;
};
template <typename T>
struct Compiled<AttendTilesGradient, T> {
  static constexpr auto* function = attend_tiles_gradient<T>;
};

}  // namespace gpu
}  // namespace loader

#include "attention/cuda/attend.cpp"
#include "bindings/attention_cuda.cpp"

PYBIND11_MODULE(attention_on_host, m) {
  on_host::machine.multiprocessors = {2};
  loader::bind_attention_cuda(m);
}
