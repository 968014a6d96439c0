// Bindings of the aggregation and of links on the GPU as a module of the host. The kernels of links are as
// they are, with a stand-in for CUDA; in place of those of the aggregation, which other tests compare, is
// plain code.
#include "device_code.h"
// The stand-in above comes first.
#include "gpu/kernel.h"
#include "links/cuda/ends.cuh"
#include "links/cuda/links.h"
#include "links/cuda/without.cuh"

namespace loader {
namespace {

struct LinkEndsKernel;
struct DistinctEndsKernel;
struct InsertEdgesKernel;
struct FindEdgesKernel;
struct DropEntriesKernel;
struct DropFromListsKernel;

}  // namespace

namespace gpu {

template <typename P, typename N>
struct Compiled<LinkEndsKernel, P, N> {
  static constexpr auto* function = link_ends_kernel<P, N>;
};
template <typename N>
struct Compiled<DistinctEndsKernel, N> {
  static constexpr auto* function = distinct_ends_kernel<N>;
};
template <>
struct Compiled<InsertEdgesKernel> {
  static constexpr auto* function = insert_edges_kernel;
};
template <typename P, typename N>
struct Compiled<FindEdgesKernel, P, N> {
  static constexpr auto* function = find_edges_kernel<P, N>;
};
template <typename T, typename P>
struct Compiled<DropEntriesKernel, T, P> {
  static constexpr auto* function = drop_entries_kernel<T, P>;
};
template <typename P>
struct Compiled<DropFromListsKernel, P> {
  static constexpr auto* function = drop_from_lists_kernel<P>;
};

}  // namespace gpu
}  // namespace loader

#include "bindings/links_cuda.cpp"
#include "links/cuda/links.cpp"

// The bindings of the aggregation, and what they launch.
#include "bindings/aggregate_cuda.cpp"

namespace loader {

int64_t mean_forward_workspace(int64_t num_edges) { return 8 * (1 + num_edges); }
int64_t mean_backward_workspace(int64_t num_src, int64_t num_edges) { return 4 * (num_src + num_edges); }

void write_captured_blocks(const CapturedBlock* blocks, int count, CapturedBlock* to,
                           const CapturedCopy& copy, int, gpu::Stream) {
  std::copy_n(blocks, count, to);
  std::memcpy(copy.to, copy.from, static_cast<size_t>(copy.bytes));
}

// What a captured block says in place of the launch.
template <typename P, typename I>
DeviceBlock<P, I> found(const DeviceBlock<P, I>& block) {
  if (!block.captured) return block;
  const CapturedBlock& captured = *block.captured;
  return {static_cast<const P*>(captured.indptr),
          static_cast<const I*>(captured.indices),
          captured.num_dst,
          block.num_src,
          captured.num_edges,
          nullptr};
}

template <typename P, typename I, typename T, typename O>
void launch_mean_forward(const DeviceBlock<P, I>& block, StridedRows<const T> x, const I* nodes, int64_t dim,
                         StridedRows<O> mean, StridedRows<O> own, int padding, Activation activation, void*,
                         int, gpu::Stream, Scales) {
  if constexpr (std::is_same_v<T, O> && std::is_floating_point_v<T>) {
    const DeviceBlock<P, I> edges = found(block);
    if (block.captured && block.captured->x) {
      x = {static_cast<const T*>(block.captured->x), block.captured->x_stride};
      nodes = static_cast<const I*>(block.captured->nodes);
    }
    const auto element = [&](int64_t source, int64_t column) {
      const T value = x.data[(nodes ? int64_t{nodes[source]} : source) * x.stride + column];
      return activation.relu && value < 0 ? T{0} : value;
    };
    for (int64_t i = 0; i < block.num_dst; ++i) {
      const int64_t list = block.order ? block.order[i] : i;
      const int64_t to = block.at ? block.at[i] : i * mean.stride;
      for (int64_t column = 0; column < dim; ++column) {
        T sum = 0;
        const bool there = i < edges.num_dst;
        const int64_t begin = there ? edges.indptr[list] : 0, end = there ? edges.indptr[list + 1] : 0;
        for (int64_t e = begin; e < end; ++e) sum += element(edges.indices[e], column);
        const T count = block.sums ? T{1} : static_cast<T>(end - begin);
        mean.data[to + column] = begin < end ? sum / count : T{0};
        if (own.data) own.data[i * own.stride + column] = there ? element(i, column) : T{0};
      }
      for (int column = 0; column < padding; ++column)
        mean.data[i * mean.stride + dim + column] = column == 0;
    }
  } else {
    throw std::runtime_error("the host has no such numbers");
  }
}

template <typename P, typename I, typename T>
void launch_mean_backward(const DeviceBlock<P, I>& block, const I* sorted_sources, const int64_t* order,
                          StridedRows<const T> grad_mean, StridedRows<const T> grad_own,
                          StridedRows<const T> x, int64_t dim, StridedRows<T> grad_x, Activation activation,
                          void*, int, gpu::Stream) {
  if constexpr (std::is_floating_point_v<T>) {
    const DeviceBlock<P, I> edges = found(block);
    for (int64_t s = 0; s < block.num_src; ++s)
      for (int64_t column = 0; column < dim; ++column)
        grad_x.data[s * grad_x.stride + column] =
            grad_own.data && s < edges.num_dst ? grad_own.data[s * grad_own.stride + column] : T{0};
    std::vector<int64_t> of_edge(static_cast<size_t>(edges.num_edges));
    for (int64_t i = 0; i < edges.num_dst; ++i)
      for (int64_t e = edges.indptr[i]; e < edges.indptr[i + 1]; ++e) of_edge[static_cast<size_t>(e)] = i;
    const int64_t count = grad_mean.data ? int64_t{edges.indptr[edges.num_dst]} : 0;
    for (int64_t k = 0; k < count; ++k) {
      const int64_t e = order ? order[k] : k;
      const I source = sorted_sources ? sorted_sources[k] : edges.indices[e];
      const int64_t i = of_edge[static_cast<size_t>(e)];
      const T degree = block.sums ? T{1} : static_cast<T>(edges.indptr[i + 1] - edges.indptr[i]);
      for (int64_t column = 0; column < dim; ++column)
        grad_x.data[source * grad_x.stride + column] +=
            grad_mean.data[i * grad_mean.stride + column] / degree;
    }
    for (int64_t s = 0; activation.relu && s < block.num_src; ++s)
      for (int64_t column = 0; column < dim; ++column)
        if (x.data[s * x.stride + column] <= 0) grad_x.data[s * grad_x.stride + column] = 0;
  } else {
    throw std::runtime_error("the host has no such numbers");
  }
}

}  // namespace loader

// The bindings of walks, and what they launch: the CPU's walks.
#include "bindings/walks_cuda.cpp"
#include "sampler/cpu/philox_lanes.cpp"
#include "sampler/cpu/pick_batch.cpp"
#include "walks/cpu/edge_filter.cpp"
#include "walks/cpu/walk.cpp"

namespace loader {

template <class Law, class Lists>
void walk_on_gpu(const Law& law, const Lists& lists,
                 const WalkOut<typename Lists::Edge, typename Lists::Vertex>& out, const WalkStarts& starts,
                 int, gpu::Stream) {
  std::vector<typename Lists::Vertex> from;
  for (int64_t w = 0; w < out.count; ++w)
    from.push_back(static_cast<typename Lists::Vertex>(starts.wide
                                                           ? static_cast<const int64_t*>(starts.ids)[w]
                                                           : static_cast<const int32_t*>(starts.ids)[w]));
  auto by = out;
  by.starts = from.data();
  ThreadPool pool(1);
  walk_on_cpu(law, lists, by, pool);
}

// Of the whole walks, that step of the walkers in `order`.
template <class Law, class Lists>
void step_on_gpu(const Law& law, const Lists& lists,
                 const WalkOut<typename Lists::Edge, typename Lists::Vertex>& out, const WalkStarts& starts,
                 const int64_t* order, uint32_t step, int device, gpu::Stream stream) {
  const int64_t length = out.length;
  std::vector<typename Lists::Vertex> vertices(static_cast<size_t>(out.count * (length + 1)));
  std::vector<typename Lists::Edge> places(static_cast<size_t>(out.count * length));
  auto whole = out;
  whole.vertices = vertices.data();
  whole.places = places.data();
  walk_on_gpu(law, lists, whole, starts, device, stream);
  for (int64_t i = 0; i < out.count; ++i) {
    const int64_t vertex = order[i] * (length + 1) + step, place = order[i] * length + step;
    out.vertices[vertex] = whole.vertices[vertex];
    out.vertices[vertex + 1] = whole.vertices[vertex + 1];
    if (out.places) out.places[place] = whole.places[place];
  }
}

template <typename P, typename N>
void fill_filter_on_gpu(const PlainLists<P, N>&, int64_t, int64_t, const EdgeFilter&, int, gpu::Stream) {}

template <typename N>
void draw_negatives_on_gpu(const Negatives&, uint64_t, int64_t, int64_t, N*, int, gpu::Stream) {}

template <typename P, typename N>
void walk_custom_on_gpu(const std::string&, const CustomRules&, const CustomLists<P, N>&,
                        const WalkOut<P, N>& out, const WalkStarts& starts, Fault* fault, int* reported, int,
                        gpu::Stream) {
  for (int64_t w = 0; w < out.count; ++w)
    for (int64_t step = 0; step <= out.length; ++step)
      out.vertices[w * (out.length + 1) + step] =
          static_cast<N>(starts.wide ? static_cast<const int64_t*>(starts.ids)[w]
                                     : static_cast<const int32_t*>(starts.ids)[w]);
  static_cast<void>(fault);
  *reported = 1;
}

}  // namespace loader

// The bindings of gathers, and what they launch. The host's own threads gather nothing here.
#include "bindings/features_cuda.cpp"

namespace loader {

template <typename Id>
void gather_rows(ThreadPool&, const RowTable&, const Id*, int64_t, uint8_t*) {
  throw std::runtime_error("this module has no threads that gather");
}
template <typename Id>
void gather_converted(ThreadPool&, const RowTable&, const Conversion&, const Id*, int64_t, uint8_t*) {
  throw std::runtime_error("this module has no threads that gather");
}
Uploader::Uploader(uint8_t* ring, int64_t buffer_bytes, int, int device)
    : ring_(ring), buffer_bytes_(buffer_bytes), device_(device) {}
template <typename Id>
void Uploader::upload(ThreadPool&, const RowTable&, const Id*, int64_t, uintptr_t, gpu::Stream) {
  throw std::runtime_error("this module has no threads that gather");
}
void Uploader::wait() {}
void require_whole(const void*, int64_t) {}

int64_t gather_order_from(int64_t, Placement) { return 100; }
size_t gather_scratch(int64_t n, Placement) { return static_cast<size_t>(4 * n); }

// f(i, id of a row of the table, whether it is in the cache) of the ids that are in range.
template <typename F>
void for_each_id(const GatherArgs& args, const F& f) {
  for (int64_t i = 0; i < args.n; ++i) {
    const int64_t id =
        args.wide_ids ? static_cast<const int64_t*>(args.ids)[i] : static_cast<const int32_t*>(args.ids)[i];
    if (id >= 0 && id < args.num_rows) f(i, id, args.slots && args.slots[id] >= 0);
  }
}

void launch_find_misses(const GatherArgs& args, int64_t from, const MissIds& to, int, gpu::Stream) {
  for_each_id(args, [&](int64_t i, int64_t id, bool cached) {
    if (cached) return;
    ++to.counts[2 + id / to.rows_a_range];
    if (id < from) return;
    const auto at = static_cast<int64_t>(to.counts[0]++);
    to.positions[at] = i;
    if (args.wide_ids)
      static_cast<int64_t*>(to.ids)[at] = id;
    else
      static_cast<int32_t*>(to.ids)[at] = static_cast<int32_t>(id);
  });
}

void launch_mark_misses(const GatherArgs& args, uint32_t* marks, int, gpu::Stream) {
  std::fill_n(marks, (args.n + 31) / 32, 0U);
  for_each_id(args, [&](int64_t i, int64_t, bool cached) { marks[i / 32] |= uint32_t{!cached} << i % 32; });
}

void launch_gather(GatherArgs args, const RowFormat& format, Placement, int, gpu::Stream) {
  if (args.scratch) std::memset(args.scratch, 1, gather_scratch(args.n, Placement::kHost));
  const auto bytes = static_cast<size_t>(format.out_bytes);
  for_each_id(args, [&](int64_t i, int64_t id, bool cached) {
    uint8_t* const to = args.out + i * format.out_bytes;
    if (args.marks ? (args.marks[i / 32] >> i % 32 & 1) != 0 : !cached && id < args.misses_below)
      std::memcpy(to, args.table + id * format.in_bytes, bytes);
    else if (cached && !args.marks)
      std::memcpy(to, args.cache + args.slots[id] * format.in_bytes, bytes);
  });
}

}  // namespace loader

PYBIND11_MODULE(bindings_on_host, m) {
  on_host::machine.multiprocessors = {2};
  loader::bind_links_cuda(m);
  loader::bind_aggregate_cuda(m);
  loader::bind_walks_cuda(m);
  loader::bind_features_cuda(m);
}
