#include "walks/cpu/weight_cells.h"

namespace loader {
namespace {

constexpr int64_t kPartEdges = 1 << 14;  // less is not worth another thread

}  // namespace

template <typename P, typename N>
void make_walk_cells(const PlainLists<P, N>& lists, int64_t num_nodes, const AliasCell* cells,
                     WalkCell<N>* out, ThreadPool& pool) {
  pool.share(count_entries(lists, num_nodes), kPartEdges, [&](int64_t first, int64_t last) {
    int64_t v = vertex_at(lists, num_nodes, first);
    for (int64_t at = first; at < last; ++at) {
      while (lists.list({v}).end <= at) ++v;
      const int64_t other = lists.list({v}).begin + int64_t{cells[at].alias};
      out[at] = {cells[at].threshold, static_cast<int32_t>(other - at), lists.read(static_cast<P>(at)),
                 lists.read(static_cast<P>(other))};
    }
  });
}

template void make_walk_cells(const PlainLists<int32_t, int32_t>&, int64_t, const AliasCell*,
                              WalkCell<int32_t>*, ThreadPool&);
template void make_walk_cells(const PlainLists<int64_t, int32_t>&, int64_t, const AliasCell*,
                              WalkCell<int32_t>*, ThreadPool&);
template void make_walk_cells(const PlainLists<int64_t, int64_t>&, int64_t, const AliasCell*,
                              WalkCell<int64_t>*, ThreadPool&);

}  // namespace loader
