#include "walks/cpu/edge_filter.h"

#include <algorithm>

namespace loader {
namespace {

constexpr int64_t kPartEdges = 1 << 14;  // less is not worth another thread
constexpr int kAhead = 32;               // marks under way

}  // namespace

template <typename P, typename N>
void fill_filter(const PlainLists<P, N>& lists, int64_t num_nodes, const EdgeFilter& filter,
                 ThreadPool& pool) {
  const int64_t num_edges = count_entries(lists, num_nodes);
  pool.share(num_edges, kPartEdges, [&](int64_t first, int64_t last) {
    EdgeFilter::Mark marks[kAhead];
    int64_t v = vertex_at(lists, num_nodes, first);
    for (int64_t at = first; at < last;) {
      const int count = static_cast<int>(std::min<int64_t>(kAhead, last - at));
      for (int i = 0; i < count; ++i, ++at) {
        while (lists.list({v}).end <= at) ++v;
        marks[i] =
            filter.mark(static_cast<uint64_t>(v), static_cast<uint64_t>(lists.read(static_cast<P>(at))));
        __builtin_prefetch(filter.words + marks[i].word, 1);
      }
      for (int i = 0; i < count; ++i)
        __atomic_fetch_or(filter.words + marks[i].word, marks[i].bits, __ATOMIC_RELAXED);
    }
  });
}

template void fill_filter(const PlainLists<int32_t, int32_t>&, int64_t, const EdgeFilter&, ThreadPool&);
template void fill_filter(const PlainLists<int64_t, int32_t>&, int64_t, const EdgeFilter&, ThreadPool&);
template void fill_filter(const PlainLists<int64_t, int64_t>&, int64_t, const EdgeFilter&, ThreadPool&);

}  // namespace loader
