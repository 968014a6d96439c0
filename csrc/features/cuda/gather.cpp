#include "features/cuda/gather.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "gpu/all_kernels.h"
#include "gpu/kernel.h"

namespace loader {

namespace {

constexpr int kDeviceThreads = 256, kHostThreads = 1024;
// Loads of one thread under way at once. On an H200, of one, two, four and eight: two of 16 bytes were the
// best or within 2 % of it for rows of 128 to 1024 bytes, four of 4 and of 2 bytes were the best.
template <int Bytes>
constexpr int kDeviceLoads = Bytes >= 16 ? 2 : 4;
// Over the bus lines under way count, and a line takes more threads where they read less than 16 bytes each.
template <int Bytes>
constexpr int kHostLoads = Bytes >= 16 ? 2 : 4;
constexpr int kCachedLoads = 4;  // some of these are read by the other blocks
// Thread blocks that read over the bus, large ones on few multiprocessors: reads that wait for the bus fill
// the queues between a multiprocessor and memory, and whatever else runs there waits with them. On an H200
// (PCIe 5, 16 lanes) 12 of them have all of its bandwidth. An epoch beside training takes
// 5.05 ms per mini-batch with them, as with 48 of 256 threads. A training step takes 1.16 ms beside them,
// 1.31 ms beside 48 of 256 threads, and 0.93 ms by itself.
// Where a thread reads less than 16 bytes, a block has fewer lines under way: 400,000 rows of 128 bytes of
// int8 take 1.74 ms with 12 of them, 1.13 with 20.
template <int Bytes>
constexpr int kHostBlocks = Bytes >= 16 ? 12 : 20;
// With a cache. An epoch of the shape of ogbn-products with a quarter of rows and lists in GPU memory takes
// 0.438 s with 8 of them, 0.409 with 12, 0.405 with 16, 0.415 with 24 and 0.433 with 32.
// Beside a cache that is renewed (launch_mark_misses) 0.360 s with 16 and 0.350 with 24, but if the sampler's
// lists come over the bus, too, 0.377 with 16 and 0.402 with 24.
constexpr int kMissBlocks = 16;
// Of a table that is larger than the bus can look up the pages of fast enough: more read from more pages at a
// time, and take more of the bus from the copies of rows that threads of the host gather. An epoch of the
// shape of ogbn-papers100M in 16 GiB takes 3.94 s with 6 of them, 4.16 with 12, 4.38 with 24 and 4.45
// with 48.
constexpr int kLargeMissBlocks = 6;
constexpr int kMissTurns = 4;  // of a block, at least
constexpr int64_t kLargeTableBytes = int64_t{8} << 30;
// For rows in device memory. These blocks are done long before the others.
constexpr int kMultiprocessorsPerHitBlock = 2;
constexpr int64_t kMaxBlocks = 0x7fffffff;
// With at least this many ids and a table of at least this many bytes, rows are read in the order in which
// they lie in the table. Measured on an H200 (benchmarks/gather_gpu.py --large-gib --ids) with rows of 400
// bytes, for tables of 0.5, 1, 2, 4 and 8 GB: 500,000 ids in random order are gathered 1.0, 1.2, 2.2, 2.9
// and 3.5 times as fast, 65,536 ids 1.0, 1.1, 2.0, 2.2 and 1.9 times, 16,384 ids 0.9, 1.0, 1.6, 1.7 and 1.7
// times. Ids that are in order already lose the 12 microseconds of the check. Beside training they lose
// 0.1 ms, because the check waits for thread blocks of the training.
constexpr int64_t kOrderedIds = 32768, kOrderedTableBytes = int64_t{768} << 20;

// Segments that a row at `base` + a multiple of `pitch` touches at most. All starts are congruent modulo
// the greatest common divisor, and the worst is as far into a segment as that allows.
int64_t most_segments(const uint8_t* base, int64_t in_bytes, int64_t pitch, int segment) {
  const int64_t step = std::gcd(pitch, static_cast<int64_t>(segment));
  const int64_t worst = segment - step + static_cast<int64_t>(reinterpret_cast<uintptr_t>(base) % step);
  return (worst + in_bytes + segment - 1) / segment;
}

// What one thread moves at a time, see row_units.cuh: its bytes in a row of the table.
template <int Bytes>
struct Copied {
  using Args = GatherArgs;
  static constexpr int kIn = Bytes;
};
template <typename From, typename To, int Count>
struct Converted {
  using Args = GatherArgs;
  static constexpr int kIn = Count * static_cast<int>(sizeof(From));
};

template <typename From, typename To, int Count>
struct Decoded {
  using Args = CodedArgs;
  static constexpr int kIn = Count * static_cast<int>(sizeof(From));
};

LOADER_KERNEL(ByOutput, "features/cuda/gather_kernels.cuh", "by_output")
LOADER_KERNEL(ByLine, "features/cuda/gather_kernels.cuh", "by_line")
LOADER_KERNEL(CountIds, "features/cuda/order.cuh", "count_ids")
LOADER_KERNEL(FindMisses, "features/cuda/misses.cuh", "find_misses")
LOADER_KERNEL(MarkMisses, "features/cuda/misses.cuh", "mark_misses")
LOADER_KERNEL(PlaceIds, "features/cuda/order.cuh", "place_ids")

}  // namespace

namespace gpu {

template <int Bytes>
struct Spelled<Copied<Bytes>> {
  static constexpr Spelling text = spelling<Int<Bytes>>("loader::Copied");
};
template <typename From, typename To, int Count>
struct Spelled<Converted<From, To, Count>> {
  static constexpr Spelling text = spelling<From, To, Int<Count>>("loader::Converted");
};
template <typename From, typename To, int Count>
struct Spelled<Decoded<From, To, Count>> {
  static constexpr Spelling text = spelling<From, To, Int<Count>>("loader::Decoded");
};

}  // namespace gpu

namespace {

Tiling tiling(int64_t parts_a_row, int64_t parts_a_tile) {
  const auto parts = static_cast<uint32_t>(parts_a_row);
  return {std::max<int64_t>(1, parts_a_tile / parts_a_row),
          parts,
          {parts, parts > 1 ? 0xffffffffu / parts + 1 : 0}};
}

template <typename Unit>
void launch(const typename Unit::Args& args, const RowFormat& format, Placement placement, int device,
            gpu::Stream stream) {
  using Args = typename Unit::Args;
  if (placement == Placement::kDevice) {
    constexpr int kLoads = kDeviceLoads<Unit::kIn>;
    const Tiling tiles = tiling(format.in_bytes / Unit::kIn, kDeviceThreads * kLoads);
    const int64_t grid = (args.n + tiles.rows - 1) / tiles.rows;
    if (grid > kMaxBlocks)
      throw std::overflow_error(std::to_string(args.n) + " rows are too many for one gather");
    gpu::Kernel& kernel = gpu::kernel<ByOutput, Unit, gpu::Int<kDeviceThreads>, gpu::Int<kLoads>>();
    return gpu::launch<Args, Tiling>(kernel, device, {static_cast<unsigned>(grid), kDeviceThreads, 0, stream},
                                     args, tiles);
  }
  const bool cached = placement == Placement::kCached;
  constexpr int kSegment = Group<Unit::kIn>::kSegment, kGroups = kHostThreads / Group<Unit::kIn>::kLanes;
  const int64_t pitch = format.coded ? format.pitch : format.in_bytes;
  int64_t segments = most_segments(args.table, format.in_bytes, pitch, kSegment);
  if (cached) segments = std::max(segments, most_segments(args.cache, format.in_bytes, pitch, kSegment));
  const Tiling tiles = tiling(segments, kGroups * (cached ? kCachedLoads : kHostLoads<Unit::kIn>));
  const int64_t all = (args.n + tiles.rows - 1) / tiles.rows;
  const auto at_most = [&](int blocks) { return static_cast<unsigned>(std::min<int64_t>(all, blocks)); };
  const auto launch_lines = [&](gpu::Kernel& kernel, unsigned grid, MissBlocks misses) {
    gpu::launch<Args, Tiling, int64_t, MissBlocks>(kernel, device, {grid, kHostThreads, 0, stream}, args,
                                                   tiles, format.in_bytes, misses);
  };
  using Threads = gpu::Int<kHostThreads>;
  if (!cached) {
    const unsigned grid = at_most(args.blocks > 0 ? args.blocks : kHostBlocks<Unit::kIn>);
    return launch_lines(
        gpu::kernel<ByLine, Unit, gpu::Bool<false>, Threads, gpu::Int<kHostLoads<Unit::kIn>>>(), grid, {});
  }
  const int processors = gpu::attribute(device, gpu::Attribute::kMultiprocessors);
  const bool large = args.num_rows * pitch > kLargeTableBytes;
  const int most_blocks = large ? kLargeMissBlocks : kMissBlocks;
  MissBlocks misses{0, 1};
  if (args.misses_below > 0) {
    const int64_t blocks = args.blocks > 0 ? args.blocks : most_blocks;
    // A few turns for each block, so that all are done at about the same time.
    const int64_t rows =
        std::clamp(args.n / (kMissTurns * blocks) / kWarp * kWarp, int64_t{kWarp}, int64_t{kHostThreads});
    misses.rows = static_cast<uint32_t>(tiles.rows == 1 ? 1 : rows);
    misses.blocks = static_cast<uint32_t>(std::min((args.n + misses.rows - 1) / misses.rows, blocks));
  }
  const unsigned hit_blocks = args.marks ? 0 : at_most(std::max(1, processors / kMultiprocessorsPerHitBlock));
  launch_lines(gpu::kernel<ByLine, Unit, gpu::Bool<true>, Threads, gpu::Int<kCachedLoads>>(),
               misses.blocks + hit_blocks, misses);
}

// The widest unit that every address and the length of a row are multiples of.
bool fits(const GatherArgs& args, const RowFormat& format, int in, int out) {
  const auto source = reinterpret_cast<uintptr_t>(args.table) | reinterpret_cast<uintptr_t>(args.cache) |
                      static_cast<uintptr_t>(format.in_bytes) | static_cast<uintptr_t>(format.pitch);
  return source % in == 0 && reinterpret_cast<uintptr_t>(args.out) % out == 0;
}

template <typename From, typename To>
void launch_converted(const GatherArgs& args, const RowFormat& format, Placement placement, int device,
                      gpu::Stream stream) {
  if constexpr (std::is_same_v<From, To>) {
    throw std::logic_error("rows of one type are copied");
  } else {
    if (fits(args, format, 4 * sizeof(From), 4 * sizeof(To)))
      return launch<Converted<From, To, 4>>(args, format, placement, device, stream);
    if (fits(args, format, 2 * sizeof(From), 2 * sizeof(To)))
      return launch<Converted<From, To, 2>>(args, format, placement, device, stream);
    launch<Converted<From, To, 1>>(args, format, placement, device, stream);
  }
}

void launch_copied(const GatherArgs& args, const RowFormat& format, Placement placement, int device,
                   gpu::Stream stream) {
  if (fits(args, format, 16, 16)) return launch<Copied<16>>(args, format, placement, device, stream);
  if (fits(args, format, 8, 8)) return launch<Copied<8>>(args, format, placement, device, stream);
  if (fits(args, format, 4, 4)) return launch<Copied<4>>(args, format, placement, device, stream);
  if (fits(args, format, 2, 2)) return launch<Copied<2>>(args, format, placement, device, stream);
  launch<Copied<1>>(args, format, placement, device, stream);
}

template <typename From>
void launch_from(const GatherArgs& args, const RowFormat& format, Placement placement, int device,
                 gpu::Stream stream) {
  switch (format.to) {
    case ElementType::kFloat32:
      return launch_converted<From, float>(args, format, placement, device, stream);
    case ElementType::kFloat16:
      return launch_converted<From, half>(args, format, placement, device, stream);
    case ElementType::kBFloat16:
      return launch_converted<From, bfloat16>(args, format, placement, device, stream);
  }
}

template <typename From, typename To>
void launch_decoded(const CodedArgs& args, const RowFormat& format, Placement placement, int device,
                    gpu::Stream stream) {
  if (fits(args, format, 4 * sizeof(From), 4 * sizeof(To)))
    return launch<Decoded<From, To, 4>>(args, format, placement, device, stream);
  if (fits(args, format, 2 * sizeof(From), 2 * sizeof(To)))
    return launch<Decoded<From, To, 2>>(args, format, placement, device, stream);
  launch<Decoded<From, To, 1>>(args, format, placement, device, stream);
}

template <typename From>
void launch_codes(const CodedArgs& args, const RowFormat& format, Placement placement, int device,
                  gpu::Stream stream) {
  switch (format.to) {
    case ElementType::kFloat32:
      return launch_decoded<From, float>(args, format, placement, device, stream);
    case ElementType::kFloat16:
      return launch_decoded<From, half>(args, format, placement, device, stream);
    case ElementType::kBFloat16:
      return launch_decoded<From, bfloat16>(args, format, placement, device, stream);
  }
}

// Sets `args.positions` to an order that is made in `args.scratch`.
void launch_order(GatherArgs& args, int device, gpu::Stream stream) {
  auto* const order = static_cast<Order*>(args.scratch);
  auto* const positions = reinterpret_cast<uint32_t*>(order + 1);
  gpu::Kernel &count = gpu::kernel<CountIds>(), &place = gpu::kernel<PlaceIds>();
  gpu::load(device, {&count, &place});
  gpu::set_bytes(order, 0, sizeof(Order), stream);
  const int64_t rows_a_bucket = std::max<int64_t>(1, (args.num_rows + kBuckets - 1) / kBuckets);
  const auto blocks = static_cast<unsigned>((args.n + kIdsABlock - 1) / kIdsABlock);
  const gpu::Shape shape{blocks, kOrderThreads, 0, stream};
  gpu::launch<GatherArgs, int64_t, Order*>(count, device, shape, args, rows_a_bucket, order);
  gpu::launch<GatherArgs, int64_t, Order*, uint32_t*>(place, device, shape, args, rows_a_bucket, order,
                                                      positions);
  args.positions = positions;
}

}  // namespace

int64_t gather_order_from(int64_t table_bytes, Placement placement) {
  const bool far = placement != Placement::kDevice && table_bytes >= kOrderedTableBytes;
  return far ? kOrderedIds : std::numeric_limits<int64_t>::max();
}

size_t gather_scratch(int64_t n, Placement placement) {
  const bool none = placement == Placement::kDevice || n > kMostInOrder;
  return none ? 0 : sizeof(Order) + static_cast<size_t>(n) * sizeof(uint32_t);
}

void launch_find_misses(const GatherArgs& args, int64_t from, const MissIds& to, int device,
                        gpu::Stream stream) {
  if (args.n == 0) return;
  const unsigned blocks = gpu::blocks_for(args.n, kOrderThreads, "ids");
  gpu::launch<GatherArgs, int64_t, MissIds>(gpu::kernel<FindMisses>(), device,
                                            {blocks, kOrderThreads, 0, stream}, args, from, to);
}

void launch_mark_misses(const GatherArgs& args, uint32_t* marks, int device, gpu::Stream stream) {
  if (args.n == 0) return;
  const unsigned blocks = gpu::blocks_for(args.n, kOrderThreads, "ids");
  gpu::launch<GatherArgs, uint32_t*>(gpu::kernel<MarkMisses>(), device, {blocks, kOrderThreads, 0, stream},
                                     args, marks);
}

void launch_gather(GatherArgs args, const RowFormat& format, Placement placement, int device,
                   gpu::Stream stream) {
  if (args.n == 0 || format.in_bytes == 0) return;
  args.positions = nullptr;
  if (args.scratch) launch_order(args, device, stream);
  if (format.coded) {
    const CodedArgs coded{args, format.codes.scales, format.pitch};
    if (format.codes.code == Code::kInt8) return launch_codes<int8>(coded, format, placement, device, stream);
    return launch_codes<float8>(coded, format, placement, device, stream);
  }
  if (!format.convert || format.from == format.to)
    return launch_copied(args, format, placement, device, stream);
  switch (format.from) {
    case ElementType::kFloat32:
      return launch_from<float>(args, format, placement, device, stream);
    case ElementType::kFloat16:
      return launch_from<half>(args, format, placement, device, stream);
    case ElementType::kBFloat16:
      return launch_from<bfloat16>(args, format, placement, device, stream);
  }
}

namespace {

template <typename Unit>
void add(std::vector<gpu::Kernel*>& all) {
  using Threads = gpu::Int<kHostThreads>;
  all.insert(all.end(),
             {&gpu::kernel<ByOutput, Unit, gpu::Int<kDeviceThreads>, gpu::Int<kDeviceLoads<Unit::kIn>>>(),
              &gpu::kernel<ByLine, Unit, gpu::Bool<false>, Threads, gpu::Int<kHostLoads<Unit::kIn>>>(),
              &gpu::kernel<ByLine, Unit, gpu::Bool<true>, Threads, gpu::Int<kCachedLoads>>()});
}

template <typename From, typename To>
void add_decoding(std::vector<gpu::Kernel*>& all) {
  add<Decoded<From, To, 4>>(all);
  add<Decoded<From, To, 2>>(all);
  add<Decoded<From, To, 1>>(all);
}

template <typename From, typename To>
void add_conversion(std::vector<gpu::Kernel*>& all) {
  add<Converted<From, To, 4>>(all);
  add<Converted<From, To, 2>>(all);
  add<Converted<From, To, 1>>(all);
}

}  // namespace

std::vector<gpu::Kernel*> gather_kernels() {
  std::vector<gpu::Kernel*> all{&gpu::kernel<CountIds>(), &gpu::kernel<PlaceIds>(),
                                &gpu::kernel<FindMisses>(), &gpu::kernel<MarkMisses>()};
  add<Copied<16>>(all);
  add<Copied<8>>(all);
  add<Copied<4>>(all);
  add<Copied<2>>(all);
  add<Copied<1>>(all);
  add_conversion<float, half>(all);
  add_conversion<float, bfloat16>(all);
  add_conversion<half, float>(all);
  add_conversion<half, bfloat16>(all);
  add_conversion<bfloat16, float>(all);
  add_conversion<bfloat16, half>(all);
  add_decoding<int8, float>(all);
  add_decoding<int8, half>(all);
  add_decoding<int8, bfloat16>(all);
  add_decoding<float8, float>(all);
  add_decoding<float8, half>(all);
  add_decoding<float8, bfloat16>(all);
  return all;
}

}  // namespace loader
