#include "walks/cpu/negatives.h"

#include <algorithm>

namespace loader {
namespace {

constexpr int64_t kPart = 1 << 15;  // fewer are not worth another thread

}  // namespace

template <typename N>
void draw_negatives(const Negatives& law, uint64_t first_lane, int64_t walkers, int64_t count, N* out,
                    ThreadPool& pool) {
  if (count == 0) return;
  pool.share(walkers, kPart / count + 1, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i)
      for (int64_t begin = 0; begin < count; begin += 4) {
        N four[4];
        law.four(first_lane + static_cast<uint64_t>(i), static_cast<uint32_t>(begin / 4), four);
        std::copy_n(four, std::min<int64_t>(4, count - begin), out + i * count + begin);
      }
  });
}

template void draw_negatives(const Negatives&, uint64_t, int64_t, int64_t, int32_t*, ThreadPool&);
template void draw_negatives(const Negatives&, uint64_t, int64_t, int64_t, int64_t*, ThreadPool&);

}  // namespace loader
