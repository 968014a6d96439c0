// The launches of the mean over neighbors and of its gradient.
#include "aggregate/cuda/mean.h"

#include <algorithm>
#include <type_traits>

#include "aggregate/cuda/transpose.h"
#include "gpu/all_kernels.h"
#include "gpu/kernel.h"

namespace loader {
namespace {

// Passes of mean_passes.cuh, of which the host knows what they work on.
template <typename P, typename I, typename T, typename O>
struct MeanPass : MeanArgsOf<P, I, T, O> {
  using In = T;
  static constexpr int kBlocksPerProcessor = kMeanBlocks;
};
template <typename P, typename I, typename T>
struct GradientPass : GradientArgs<P, I, T> {
  using In = T;
  static constexpr int kBlocksPerProcessor = kGradientBlocks;
};

LOADER_KERNEL(SumShortRows, "aggregate/cuda/sum_rows.cuh", "sum_short_rows")        // <Int, pass>
LOADER_KERNEL(SumLongRows, "aggregate/cuda/sum_rows.cuh", "sum_long_rows")          // <Int, pass>
LOADER_KERNEL(SumPlainRows, "aggregate/cuda/sum_plain_rows.cuh", "sum_plain_rows")  // <pass>
LOADER_KERNEL(CountEdges, "aggregate/cuda/transpose.cuh", "count_edges")            // <P, I>
LOADER_KERNEL(PlaceSources, "aggregate/cuda/transpose.cuh", "place_sources")        // <P>
LOADER_KERNEL(Fill, "aggregate/cuda/transpose.cuh", "fill")                         // <P, I>
LOADER_KERNEL(PlaceSorted, "aggregate/cuda/transpose.cuh", "place_sorted")          // <P, I>
LOADER_KERNEL(FillSorted, "aggregate/cuda/transpose.cuh", "fill_sorted")            // <P, I>
LOADER_KERNEL(WriteCaptured, "aggregate/cuda/transpose.cuh", "write_captured")      // <Int>

constexpr int kMaxRowsPerGroup = 8;
// Thread blocks that copy labels: enough for the wide ones of a multilabel mini-batch.
constexpr unsigned kMostCopying = 32;

}  // namespace

namespace gpu {

template <typename P, typename I, typename T, typename O>
struct Spelled<MeanPass<P, I, T, O>> {
  static constexpr Spelling text = spelling<P, I, T, O>("loader::MeanPass");
};
template <typename P, typename I, typename T>
struct Spelled<GradientPass<P, I, T>> {
  static constexpr Spelling text = spelling<P, I, T>("loader::GradientPass");
};

}  // namespace gpu

namespace {

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

// Elements of the widest vectors: 16 bytes of them, or 4 codes; doubles, which are rare, one by one.
template <typename T>
constexpr int kWidestOf = kIsCode<T>                  ? 4
                          : std::is_same_v<T, double> ? 1
                                                      : 16 / static_cast<int>(sizeof(T));

// Calls `f` with the width of the vectors, as a constant.
template <typename T, typename F>
void with_vectors(const Alignment& alignment, const F& f) {
  constexpr int kWidest = kWidestOf<T>;
  if (alignment.allows(kWidest)) return f(std::integral_constant<int, kWidest>{});
  if constexpr (kWidest > 2 && !kIsCode<T>) {
    if (alignment.allows(kWidest / 2)) return f(std::integral_constant<int, kWidest / 2>{});
  }
  return f(std::integral_constant<int, 1>{});
}

// Whether long rows may follow on each other: those of one relation, of the same nodes. In a block of one
// type neighboring rows read the same lines of `indptr` and `indices`, and are better summed by one group.
template <typename P, typename I>
bool in_turns(const DeviceBlock<P, I>& block) {
  return block.sums || block.order != nullptr;
}

// Sums the rows that the kernel of short ones listed; `max_long` bounds their number.
template <int N, typename Pass>
void sum_long_rows(const Pass& pass, const LongRows& long_rows, int64_t max_long, int device,
                   gpu::Stream stream) {
  if (max_long == 0) return;
  const int processors = gpu::attribute(device, gpu::Attribute::kMultiprocessors);
  const int64_t slices = (pass.dim / N + kSliceLanes - 1) / kSliceLanes;
  const auto wanted = static_cast<unsigned>(std::min<int64_t>(max_long * slices, int64_t{processors} * 4));
  gpu::launch<Pass, LongRows>(gpu::kernel<SumLongRows, gpu::Int<N>, Pass>(), device,
                              {wanted, kLongThreads, 0, stream}, pass, long_rows);
}

// As many rows for a group as leave every processor twice the groups that it can hold at a time, up to
// `most`.
int64_t rows_of_group(int64_t num_rows, int64_t groups_per_block, int blocks_per_processor, int device,
                      int64_t most = kMaxRowsPerGroup) {
  const int processors = gpu::attribute(device, gpu::Attribute::kMultiprocessors);
  const int64_t plenty = groups_per_block * blocks_per_processor * processors * 2;
  return std::clamp<int64_t>(num_rows / plenty, 1, most);
}

// Sums all rows; `max_long` bounds the number of long rows, and 0 leaves their kernel out.
template <int N, typename Pass>
void sum_rows(const Pass& pass, int64_t num_rows, const LongRows& long_rows, int64_t max_long, bool in_turns,
              int device, gpu::Stream stream) {
  if (num_rows == 0 || pass.dim == 0) return;
  gpu::Kernel& short_rows = gpu::kernel<SumShortRows, gpu::Int<N>, Pass>();
  gpu::Kernel& all_long = gpu::kernel<SumLongRows, gpu::Int<N>, Pass>();
  if (max_long > 0) gpu::load(device, {&short_rows, &all_long});
  const int64_t vectors = pass.dim / N;
  int log_lanes = 0;
  while (log_lanes < 5 && (int64_t{kVectors<N>} << log_lanes) < vectors) ++log_lanes;
  const int64_t groups_per_block = kShortThreads >> log_lanes;
  const int64_t rows_per_group = rows_of_group(num_rows, groups_per_block, Pass::kBlocksPerProcessor, device);
  gpu::launch<Pass, LongRows, int, int, bool>(
      short_rows, device,
      {gpu::blocks_for(num_rows, groups_per_block * rows_per_group, "rows"), kShortThreads, 0, stream}, pass,
      long_rows, log_lanes, static_cast<int>(rows_per_group), in_turns);
  sum_long_rows<N>(pass, long_rows, max_long, device, stream);
}

// The same by a warp for some rows, of rows as they are, which are wider than half a warp reads at once.
template <typename Pass>
void sum_plain_rows(const Pass& pass, int64_t num_rows, const LongRows& long_rows, int64_t max_long,
                    bool in_turns, int device, gpu::Stream stream) {
  if (num_rows == 0) return;
  gpu::Kernel& short_rows = gpu::kernel<SumPlainRows, Pass>();
  if (max_long > 0)
    gpu::load(device, {&short_rows, &gpu::kernel<SumLongRows, gpu::Int<kPlainColumns>, Pass>()});
  constexpr int64_t kWarps = kShortThreads / 32;
  const int64_t rows_per_warp =
      rows_of_group(num_rows, kWarps, kPlainBlocks<typename Pass::In>, device, kPlainRows);
  gpu::launch<Pass, LongRows, int, bool>(
      short_rows, device,
      {gpu::blocks_for(num_rows, kWarps * rows_per_warp, "rows"), kShortThreads, 0, stream}, pass, long_rows,
      static_cast<int>(rows_per_warp), in_turns);
  sum_long_rows<kPlainColumns>(pass, long_rows, max_long, device, stream);
}

int64_t aligned(int64_t bytes) { return (bytes + 15) / 16 * 16; }

// Lays the arrays out in `workspace` (null to learn the size only) and returns the bytes they take.
template <typename P, typename I>
int64_t lay_out(void* workspace, int64_t num_src, int64_t num_edges, TransposedBlock<P, I>* transposed) {
  int64_t used = 0;
  const auto take = [&](auto*& array, int64_t count) {
    array = reinterpret_cast<std::remove_reference_t<decltype(array)>>(
        reinterpret_cast<uintptr_t>(workspace) + static_cast<uintptr_t>(used));
    used += aligned(count * static_cast<int64_t>(sizeof(*array)));
  };
  TransposedBlock<P, I> t;
  take(t.counters, 2);  // beside `length`: the two are zeroed together
  take(t.length, num_src);
  take(t.begin, num_src);
  take(t.rank, num_edges);
  take(t.destinations, num_edges);
  take(t.long_rows, num_edges / (kLongRow + 1));
  if (transposed != nullptr) *transposed = t;
  return used;
}

// Fills `t`. With `sorted_sources` and `order` (see launch_mean_backward) the destinations of a source are in
// the order of the edges.
template <typename P, typename I>
void transpose(const DeviceBlock<P, I>& block, const I* sorted_sources, const int64_t* order,
               const TransposedBlock<P, I>& t, int device, gpu::Stream stream) {
  if (block.num_src == 0) return;
  using Block = DeviceBlock<P, I>;
  using Transposed = TransposedBlock<P, I>;
  const bool sorted = sorted_sources != nullptr, edges = block.num_edges > 0;
  const auto over = [&](int64_t threads, int64_t per_block = kTransposeThreads) {
    return gpu::Shape{gpu::blocks_for(threads, per_block, "nodes or edges"), kTransposeThreads, 0, stream};
  };
  const auto zeroed = reinterpret_cast<uintptr_t>(sorted ? static_cast<void*>(t.length) : t.begin) -
                      reinterpret_cast<uintptr_t>(t.counters);
  if (sorted) {
    gpu::Kernel &place = gpu::kernel<PlaceSorted, P, I>(), &fill = gpu::kernel<FillSorted, P, I>();
    gpu::load(device, {&place, &fill});
    gpu::set_bytes(t.counters, 0, zeroed, stream);
    gpu::launch<Block, const I*, Transposed>(place, device, over(block.num_src), block, sorted_sources, t);
    if (edges)
      gpu::launch<Block, const int64_t*, Transposed>(fill, device, over(block.num_edges), block, order, t);
    return;
  }
  gpu::Kernel &count = gpu::kernel<CountEdges, P, I>(), &place = gpu::kernel<PlaceSources, P>(),
              &fill = gpu::kernel<Fill, P, I>();
  gpu::load(device, {&count, &place, &fill});
  gpu::set_bytes(t.counters, 0, zeroed, stream);
  if (edges) gpu::launch<Block, P*, P*>(count, device, over(block.num_edges), block, t.length, t.rank);
  gpu::launch<const P*, int64_t, P*, unsigned long long*, int64_t*>(
      place, device, over(block.num_src, kSourcesPerBlock), t.length, block.num_src, t.begin, t.counters,
      t.long_rows);
  if (edges) gpu::launch<Block, Transposed>(fill, device, over(block.num_edges), block, t);
}

}  // namespace

void write_captured_blocks(const CapturedBlock* blocks, int count, CapturedBlock* to,
                           const CapturedCopy& copy, int device, gpu::Stream stream) {
  CapturedBlocks values{};
  std::copy_n(blocks, count, values.of);
  const auto launch = [&](auto bytes) {
    constexpr int kBytes = decltype(bytes)::value;
    const unsigned wanted = gpu::blocks_for(copy.bytes / kBytes, kTransposeThreads, "parts of labels");
    const unsigned grid = std::clamp(wanted, 1U, kMostCopying);
    gpu::launch<CapturedBlocks, int, CapturedBlock*, CapturedCopy>(
        gpu::kernel<WriteCaptured, gpu::Int<kBytes>>(), device, {grid, kTransposeThreads, 0, stream}, values,
        count, to, copy);
  };
  const auto bits = reinterpret_cast<uintptr_t>(copy.from) | reinterpret_cast<uintptr_t>(copy.to) |
                    static_cast<uintptr_t>(copy.bytes);
  if (bits % 16 == 0) return launch(gpu::Int<16>());
  if (bits % 4 == 0) return launch(gpu::Int<4>());
  launch(gpu::Int<1>());
}

int64_t mean_forward_workspace(int64_t num_edges) {
  return static_cast<int64_t>(sizeof(int64_t)) * (1 + num_edges / (kLongRowInTurns + 1));
}

int64_t mean_backward_workspace(int64_t num_src, int64_t num_edges) {
  return lay_out<int32_t, int32_t>(nullptr, num_src, num_edges, nullptr);
}

template <typename P, typename I, typename T, typename O>
void launch_mean_forward(const DeviceBlock<P, I>& block, StridedRows<const T> x, const I* nodes, int64_t dim,
                         StridedRows<O> mean, StridedRows<O> own, int padding, Activation activation,
                         void* workspace, int device, gpu::Stream stream, Scales scales) {
  auto* const words = static_cast<int64_t*>(workspace);
  const LongRows long_rows{reinterpret_cast<unsigned long long*>(words), words + 1};
  const int64_t max_long = block.num_edges / ((in_turns(block) ? kLongRowInTurns : kLongRow) + 1);
  if (max_long > 0) gpu::set_bytes(words, 0, sizeof(*words), stream);
  const MeanArgs<P, I, T, O> args{
      block, x, nodes, mean, own, padding, activation, activation.identity(), dim, block.num_dst};
  MeanPass<P, I, T, O> pass;
  static_cast<MeanArgs<P, I, T, O>&>(pass) = args;
  if constexpr (kIsCode<T>) pass.scales = scales;
  const Alignment alignment = Alignment(dim).of(x).of(mean).of(own);
  if constexpr (!std::is_same_v<T, double>) {
    const bool turns = in_turns(block), alone = !kIsCode<T> && own.data == nullptr && padding == 0;
    if (args.identity && (!turns || alone) && dim > 16 * kPlainColumns && alignment.allows(kPlainColumns))
      return sum_plain_rows(pass, block.num_dst, long_rows, max_long, turns, device, stream);
  }
  with_vectors<T>(alignment, [&](auto width) {
    sum_rows<decltype(width)::value>(pass, block.num_dst, long_rows, max_long, in_turns(block), device,
                                     stream);
  });
}

template <typename P, typename I, typename T>
void launch_mean_backward(const DeviceBlock<P, I>& block, const I* sorted_sources, const int64_t* order,
                          StridedRows<const T> grad_mean, StridedRows<const T> grad_own,
                          StridedRows<const T> x, int64_t dim, StridedRows<T> grad_x, Activation activation,
                          void* workspace, int device, gpu::Stream stream) {
  DeviceBlock<P, I> edges = block;
  if (grad_mean.data == nullptr) edges.num_edges = 0;
  TransposedBlock<P, I> t;
  lay_out<P, I>(workspace, edges.num_src, edges.num_edges, &t);
  transpose(edges, sorted_sources, order, t, device, stream);
  const GradientPass<P, I, T> pass{{block.indptr, block.captured, t.begin, t.length, t.destinations,
                                    block.num_src, block.num_dst, grad_mean, grad_own, x, grad_x, activation,
                                    activation.identity(), dim, block.sums}};
  const LongRows long_rows{t.counters + 1, t.long_rows};
  with_vectors<T>(Alignment(dim).of(grad_mean).of(grad_own).of(x).of(grad_x), [&](auto width) {
    sum_rows<decltype(width)::value>(pass, block.num_src, long_rows, edges.num_edges / (kLongRow + 1),
                                     in_turns(block), device, stream);
  });
}

#define LOADER_FORWARD(P, I, T, O)                                                                     \
  template void launch_mean_forward(const DeviceBlock<P, I>&, StridedRows<const T>, const I*, int64_t, \
                                    StridedRows<O>, StridedRows<O>, int, Activation, void*, int,       \
                                    gpu::Stream, Scales);
#define LOADER_BACKWARD(P, I, T)                                                                       \
  template void launch_mean_backward(const DeviceBlock<P, I>&, const I*, const int64_t*,               \
                                     StridedRows<const T>, StridedRows<const T>, StridedRows<const T>, \
                                     int64_t, StridedRows<T>, Activation, void*, int, gpu::Stream);
#define LOADER_BOTH(P, I)                  \
  LOADER_FORWARD(P, I, float, float)       \
  LOADER_FORWARD(P, I, float, bfloat16)    \
  LOADER_FORWARD(P, I, float, half)        \
  LOADER_FORWARD(P, I, double, double)     \
  LOADER_FORWARD(P, I, half, half)         \
  LOADER_FORWARD(P, I, bfloat16, bfloat16) \
  LOADER_FORWARD(P, I, int8, float)        \
  LOADER_FORWARD(P, I, int8, half)         \
  LOADER_FORWARD(P, I, int8, bfloat16)     \
  LOADER_FORWARD(P, I, float8, float)      \
  LOADER_FORWARD(P, I, float8, half)       \
  LOADER_FORWARD(P, I, float8, bfloat16)   \
  LOADER_BACKWARD(P, I, float)             \
  LOADER_BACKWARD(P, I, double)            \
  LOADER_BACKWARD(P, I, half)              \
  LOADER_BACKWARD(P, I, bfloat16)
LOADER_BOTH(int32_t, int32_t)

namespace {

template <typename Pass>
void add_pass(std::vector<gpu::Kernel*>& all) {
  constexpr int kWidest = kWidestOf<typename Pass::In>;
  const auto add = [&](auto width) {
    using Width = decltype(width);
    all.insert(all.end(),
               {&gpu::kernel<SumShortRows, Width, Pass>(), &gpu::kernel<SumLongRows, Width, Pass>()});
  };
  add(gpu::Int<kWidest>());
  if constexpr (kWidest > 2 && !kIsCode<typename Pass::In>) add(gpu::Int<kWidest / 2>());
  if constexpr (kWidest > 1) add(gpu::Int<1>());
}

template <typename Pass>
void add_mean(std::vector<gpu::Kernel*>& all) {
  add_pass<Pass>(all);
  if constexpr (!std::is_same_v<typename Pass::In, double>) all.push_back(&gpu::kernel<SumPlainRows, Pass>());
}

template <typename P, typename I>
void add_types(std::vector<gpu::Kernel*>& all) {
  add_mean<MeanPass<P, I, float, float>>(all);
  add_mean<MeanPass<P, I, float, bfloat16>>(all);
  add_mean<MeanPass<P, I, float, half>>(all);
  add_mean<MeanPass<P, I, double, double>>(all);
  add_mean<MeanPass<P, I, half, half>>(all);
  add_mean<MeanPass<P, I, bfloat16, bfloat16>>(all);
  add_mean<MeanPass<P, I, int8, float>>(all);
  add_mean<MeanPass<P, I, int8, half>>(all);
  add_mean<MeanPass<P, I, int8, bfloat16>>(all);
  add_mean<MeanPass<P, I, float8, float>>(all);
  add_mean<MeanPass<P, I, float8, half>>(all);
  add_mean<MeanPass<P, I, float8, bfloat16>>(all);
  add_pass<GradientPass<P, I, float>>(all);
  add_pass<GradientPass<P, I, double>>(all);
  add_pass<GradientPass<P, I, half>>(all);
  add_pass<GradientPass<P, I, bfloat16>>(all);
  all.insert(all.end(), {&gpu::kernel<CountEdges, P, I>(), &gpu::kernel<Fill, P, I>(),
                         &gpu::kernel<PlaceSorted, P, I>(), &gpu::kernel<FillSorted, P, I>()});
}

}  // namespace

std::vector<gpu::Kernel*> mean_kernels() {
  std::vector<gpu::Kernel*> all{
      &gpu::kernel<PlaceSources, int32_t>(), &gpu::kernel<WriteCaptured, gpu::Int<16>>(),
      &gpu::kernel<WriteCaptured, gpu::Int<4>>(), &gpu::kernel<WriteCaptured, gpu::Int<1>>()};
  add_types<int32_t, int32_t>(all);
  return all;
}

}  // namespace loader
