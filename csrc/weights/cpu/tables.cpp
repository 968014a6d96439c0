#include "weights/cpu/tables.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

namespace loader {
namespace {

constexpr int64_t kPartEdges = 1 << 15;
constexpr uint64_t kCellMass = uint64_t{1} << 32;

// f(first list, last list), in parts of about the same number of edges.
template <typename P>
void in_parts(const P* indptr, int64_t num_lists, ThreadPool& pool,
              const std::function<void(int64_t, int64_t)>& f) {
  const int64_t edges = indptr[num_lists];
  const int64_t parts = std::clamp<int64_t>(edges / kPartEdges, 1, 0xffff);
  const auto list_at = [&](int64_t edge) {
    return std::lower_bound(indptr, indptr + num_lists, static_cast<P>(edge)) - indptr;
  };
  pool.each(parts, [&](int part, int) {
    const int64_t first = part == 0 ? 0 : list_at(edges * part / parts);
    f(first, part + 1 == parts ? num_lists : list_at(edges * (part + 1) / parts));
  });
}

// The sums of the masses of one list, in `ends` [degree].
template <typename W>
void sum_masses(const W* weights, int64_t degree, uint64_t* ends) {
  int exponent;
  std::frexp(static_cast<double>(*std::max_element(weights, weights + degree)), &exponent);
  double sum = 0;
  for (int64_t i = 0; i < degree; ++i) sum += std::ldexp(static_cast<double>(weights[i]), -exponent);
  int of_sum;
  std::frexp(sum, &of_sum);
  const int bits = 62 - of_sum;
  uint64_t all = 0;
  for (int64_t i = 0; i < degree; ++i)
    ends[i] = all += static_cast<uint64_t>(std::ldexp(static_cast<double>(weights[i]), bits - exponent));
  const uint64_t shared = static_cast<uint64_t>(degree) * (kCellMass - 1);
  for (int64_t i = 0; i < degree; ++i)
    ends[i] = static_cast<uint64_t>(i) + 1 +
              static_cast<uint64_t>(static_cast<unsigned __int128>(ends[i]) * shared / all);
}

// Deals the masses of a list to its cells. The next light entry, one that does not fill its cell, gets the
// rest of it from the next heavy one, which is as good as light once that took its surplus. So two places
// that move on through the list are all that is needed (Huebschle-Schneider and Sanders, "Parallel weighted
// random sampling", ACM TOMS 2022).
void deal(const uint64_t* ends, int64_t degree, AliasCell* cells) {
  const auto mass = [&](int64_t i) { return ends[i] - (i ? ends[i - 1] : 0); };
  const auto next = [&](int64_t i, bool heavy) {
    while (i < degree && (mass(i) > kCellMass) != heavy) ++i;
    return i;
  };
  int64_t light = next(0, false), heavy = next(0, true);
  const auto take_light = [&](int64_t alias) {
    const uint64_t own = mass(light);  // all of the cell: then it does not matter whose the rest is
    cells[light] = {static_cast<uint32_t>(std::min(own, kCellMass - 1)),
                    static_cast<uint32_t>(own == kCellMass ? light : alias)};
    light = next(light + 1, false);
    return kCellMass - own;
  };
  if (heavy < degree) {
    for (uint64_t left = mass(heavy);;) {
      if (left > kCellMass) {
        left -= take_light(heavy);
        continue;
      }
      const int64_t full = heavy;
      heavy = next(heavy + 1, true);
      const bool last = heavy == degree;  // all that is left is one cell
      cells[full] = {static_cast<uint32_t>(std::min(left, kCellMass - 1)),
                     static_cast<uint32_t>(last || left == kCellMass ? full : heavy)};
      if (last) break;
      left = mass(heavy) - (kCellMass - left);
    }
  }
  while (light < degree) take_light(light);
}

}  // namespace

template <typename P, typename W>
void make_tables(const P* indptr, int64_t num_lists, const W* weights, AliasCell* cells, uint64_t* ends,
                 ThreadPool& pool) {
  in_parts(indptr, num_lists, pool, [&](int64_t first, int64_t last) {
    for (int64_t v = first; v < last; ++v) {
      const int64_t begin = indptr[v], degree = indptr[v + 1] - begin;
      if (degree == 0) continue;
      sum_masses(weights + begin, degree, ends + begin);
      deal(ends + begin, degree, cells + begin);
    }
  });
}

template <typename P, typename W>
void order_by_weight(const P* indptr, int64_t num_lists, const W* weights, uint32_t* order,
                     ThreadPool& pool) {
  in_parts(indptr, num_lists, pool, [&](int64_t first, int64_t last) {
    for (int64_t v = first; v < last; ++v) {
      const int64_t begin = indptr[v], end = indptr[v + 1];
      std::iota(order + begin, order + end, 0u);
      std::stable_sort(order + begin, order + end,
                       [&](uint32_t a, uint32_t b) { return weights[begin + a] > weights[begin + b]; });
    }
  });
}

#define LOADER_TABLES(P, W)                                                                   \
  template void make_tables(const P*, int64_t, const W*, AliasCell*, uint64_t*, ThreadPool&); \
  template void order_by_weight(const P*, int64_t, const W*, uint32_t*, ThreadPool&);
LOADER_TABLES(int32_t, float)
LOADER_TABLES(int32_t, double)
LOADER_TABLES(int64_t, float)
LOADER_TABLES(int64_t, double)
#undef LOADER_TABLES

}  // namespace loader
