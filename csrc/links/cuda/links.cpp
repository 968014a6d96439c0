#include "links/cuda/links.h"

#include <algorithm>

#include "gpu/all_kernels.h"
#include "gpu/kernel.h"

namespace loader {
namespace {

LOADER_KERNEL(LinkEndsKernel, "links/cuda/ends.cuh", "link_ends_kernel")
LOADER_KERNEL(DistinctEndsKernel, "links/cuda/ends.cuh", "distinct_ends_kernel")
LOADER_KERNEL(InsertEdgesKernel, "links/cuda/without.cuh", "insert_edges_kernel")
LOADER_KERNEL(FindEdgesKernel, "links/cuda/without.cuh", "find_edges_kernel")
LOADER_KERNEL(DropEntriesKernel, "links/cuda/without.cuh", "drop_entries_kernel")
LOADER_KERNEL(DropFromListsKernel, "links/cuda/without.cuh", "drop_from_lists_kernel")

constexpr unsigned kMostBlocks = 1024;  // of a kernel whose threads take several edges each

gpu::Shape shape_of(int64_t threads, gpu::Stream stream) {
  return {gpu::blocks_for(threads, kLinkThreads, "links"), kLinkThreads, 0, stream};
}

}  // namespace

template <typename P, typename N>
void find_ends(const LinkEnds& ends, const KnownEdges<P, N>& known, int device, gpu::Stream stream) {
  const int64_t threads = std::max(ends.links, ends.negatives);
  if (threads == 0) return;
  gpu::launch<LinkEnds, KnownEdges<P, N>>(gpu::kernel<LinkEndsKernel, P, N>(), device,
                                          shape_of(threads, stream), ends, known);
}

template <typename N>
void distinct_ends(const int64_t* ends, int64_t count, int64_t num_nodes, N* seeds, int64_t* local,
                   DistinctEnds* outcome, int device, gpu::Stream stream) {
  gpu::launch<const int64_t*, int64_t, int64_t, N*, int64_t*, DistinctEnds*>(
      gpu::kernel<DistinctEndsKernel, N>(), device, {1, kSortThreads, 0, stream}, ends, count, num_nodes,
      seeds, local, outcome);
}

void insert_edges(const EdgeSet& set, const int64_t* sources, const int64_t* targets, int64_t count,
                  bool reverse, int device, gpu::Stream stream) {
  if (count == 0) return;
  gpu::launch<EdgeSet, const int64_t*, const int64_t*, int64_t, bool>(gpu::kernel<InsertEdgesKernel>(),
                                                                      device, shape_of(2 * count, stream),
                                                                      set, sources, targets, count, reverse);
}

template <typename P, typename N>
void find_edges(const EdgeSet& set, const P* indptr, const N* sources, const N* destinations,
                int64_t num_edges, P* gone, unsigned long long* found, int device, gpu::Stream stream) {
  if (num_edges == 0) return;
  gpu::Shape shape = shape_of(num_edges, stream);
  shape.blocks = std::min(shape.blocks, kMostBlocks);
  gpu::launch<EdgeSet, const P*, const N*, const N*, int64_t, P*, unsigned long long*>(
      gpu::kernel<FindEdgesKernel, P, N>(), device, shape, set, indptr, sources, destinations, num_edges,
      gone, found);
}

template <typename T, typename P>
void drop_entries(const T* in, int64_t count, const P* gone, int64_t num_gone, T* out, int device,
                  gpu::Stream stream) {
  if (count == 0) return;
  gpu::launch<const T*, int64_t, const P*, int64_t, T*>(gpu::kernel<DropEntriesKernel, T, P>(), device,
                                                        shape_of(count, stream), in, count, gone, num_gone,
                                                        out);
}

template <typename P>
void drop_from_lists(const P* indptr, int64_t count, const P* gone, int64_t num_gone, P* out, int device,
                     gpu::Stream stream) {
  gpu::launch<const P*, int64_t, const P*, int64_t, P*>(gpu::kernel<DropFromListsKernel, P>(), device,
                                                        shape_of(count, stream), indptr, count, gone,
                                                        num_gone, out);
}

#define LOADER_LINKS(P, N)                                                                   \
  template void find_ends<P, N>(const LinkEnds&, const KnownEdges<P, N>&, int, gpu::Stream); \
  template void find_edges<P, N>(const EdgeSet&, const P*, const N*, const N*, int64_t, P*,  \
                                 unsigned long long*, int, gpu::Stream);
LOADER_LINKS(int32_t, int32_t)
LOADER_LINKS(int64_t, int32_t)
LOADER_LINKS(int64_t, int64_t)
#undef LOADER_LINKS
#define LOADER_LINKS(T)                                                                              \
  template void distinct_ends<T>(const int64_t*, int64_t, int64_t, T*, int64_t*, DistinctEnds*, int, \
                                 gpu::Stream);                                                       \
  template void drop_from_lists<T>(const T*, int64_t, const T*, int64_t, T*, int, gpu::Stream);
LOADER_LINKS(int32_t)
LOADER_LINKS(int64_t)
#undef LOADER_LINKS
#define LOADER_LINKS(T, P) \
  template void drop_entries<T, P>(const T*, int64_t, const P*, int64_t, T*, int, gpu::Stream);
LOADER_LINKS(int32_t, int32_t)
LOADER_LINKS(int32_t, int64_t)
LOADER_LINKS(int64_t, int32_t)
LOADER_LINKS(int64_t, int64_t)
#undef LOADER_LINKS

std::vector<gpu::Kernel*> link_kernels() {
  return {&gpu::kernel<LinkEndsKernel, int32_t, int32_t>(),
          &gpu::kernel<LinkEndsKernel, int64_t, int32_t>(),
          &gpu::kernel<LinkEndsKernel, int64_t, int64_t>(),
          &gpu::kernel<DistinctEndsKernel, int32_t>(),
          &gpu::kernel<DistinctEndsKernel, int64_t>(),
          &gpu::kernel<InsertEdgesKernel>(),
          &gpu::kernel<FindEdgesKernel, int32_t, int32_t>(),
          &gpu::kernel<FindEdgesKernel, int64_t, int32_t>(),
          &gpu::kernel<FindEdgesKernel, int64_t, int64_t>(),
          &gpu::kernel<DropEntriesKernel, int32_t, int32_t>(),
          &gpu::kernel<DropEntriesKernel, int32_t, int64_t>(),
          &gpu::kernel<DropEntriesKernel, int64_t, int32_t>(),
          &gpu::kernel<DropEntriesKernel, int64_t, int64_t>(),
          &gpu::kernel<DropFromListsKernel, int32_t>(),
          &gpu::kernel<DropFromListsKernel, int64_t>()};
}

}  // namespace loader
