#include <algorithm>
#include <limits>
#include <numeric>

#include "features/cuda/gather.h"
#include "features/cuda/kernels.cuh"
#include "features/cuda/order.cuh"

namespace loader {
namespace {

constexpr int kDeviceThreads = 256, kHostThreads = 1024;
// Loads of one thread under way at once. On an H200, of one, two, four and eight: two of 16 bytes were the
// best or within 2 % of it for rows of 128 to 1024 bytes, four of 4 and of 2 bytes were the best.
template <int Bytes>
constexpr int kDeviceInFlight = Bytes >= 16 ? 2 : 4;
constexpr int kHostInFlight = 2;
constexpr int kCachedInFlight = 4;  // of which some are for the other blocks to read
// Thread blocks that read over the bus, large ones on few multiprocessors: reads that wait for the bus fill
// the queues between a multiprocessor and memory, and whatever else runs there waits with them. On an H200
// (PCIe 5, 16 lanes) 12 of them have all of its bandwidth. An epoch beside training takes 5.05 ms a
// mini-batch with them and with 48 of 256 threads; its training step, 0.93 ms alone, takes 1.16 and 1.31.
constexpr int kHostBlocks = 12;
// With a cache, half of what such a block looks at is left to the others. In the same epoch, with fanouts
// (15, 10, 5) and (10, 10, 10), a mini-batch takes 2.21 and 2.94 ms with 96 blocks of 256 threads (a training
// step 2.40 and 2.09), 2.20 and 2.92 with 32 of 1024 (1.88 and 1.85), 2.25 and 3.00 with 16 (1.40 and 1.27).
constexpr int kColdBlocks = 32;
// Those for rows in device memory, beside the others: they are done long before.
constexpr int kMultiprocessorsPerHotBlock = 2;
constexpr int64_t kMaxBlocks = 0x7fffffff;
// From so many ids on, and for tables from so many bytes on, the rows are read by where they lie. On an
// H200 (benchmarks/gather_gpu.py --large-gib --ids), rows of 400 bytes: ids in random order gain 1.0,
// 1.2, 2.2, 2.9 and 3.5 times with 500,000 of them over 0.5, 1, 2, 4 and 8 GB, 1.0, 1.1, 2.0, 2.2 and 1.9
// with 65,536, 0.9, 1.0, 1.6, 1.7 and 1.7 with 16,384. Those that lie in order lose the 12 microseconds
// in which that is found, and 0.1 ms beside training, whose thread blocks it waits for.
constexpr int64_t kOrderedIds = 32768, kOrderedTableBytes = int64_t{768} << 20;

cudaError_t multiprocessors(int* count) {
  constexpr int kMaxDevices = 64;
  static int known[kMaxDevices];  // asked for once a device; a launch must not wait for the driver
  int device = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error != cudaSuccess) return error;
  if (device >= kMaxDevices) return cudaErrorInvalidDevice;
  if (known[device] == 0) {
    error = cudaDeviceGetAttribute(&known[device], cudaDevAttrMultiProcessorCount, device);
    if (error != cudaSuccess) return error;
  }
  *count = known[device];
  return cudaSuccess;
}

// Segments that a row at `base` + a multiple of `in_bytes` touches at most. All starts are congruent modulo
// the greatest common divisor, and the worst is as far into a segment as that allows.
int64_t most_segments(const uint8_t* base, int64_t in_bytes, int segment) {
  const int64_t step = std::gcd(in_bytes, static_cast<int64_t>(segment));
  const int64_t worst = segment - step + static_cast<int64_t>(reinterpret_cast<uintptr_t>(base) % step);
  return (worst + in_bytes + segment - 1) / segment;
}

template <typename Unit>
cudaError_t launch(const GatherArgs& args, const RowFormat& format, Placement placement,
                   cudaStream_t stream) {
  using In = typename Unit::In;
  if (placement == Placement::kDevice) {
    constexpr int kInFlight = kDeviceInFlight<sizeof(In)>;
    const Tiling tiling(format.in_bytes / static_cast<int64_t>(sizeof(In)), kDeviceThreads * kInFlight);
    const int64_t grid = (args.n + tiling.rows - 1) / tiling.rows;
    if (grid > kMaxBlocks) return cudaErrorInvalidConfiguration;
    by_output<Unit, kDeviceThreads, kInFlight>
        <<<static_cast<unsigned>(grid), kDeviceThreads, 0, stream>>>(args, tiling);
    return cudaGetLastError();
  }
  const bool cached = placement == Placement::kCached;
  constexpr int kSegment = Group<Unit>::kSegment, kGroups = kHostThreads / Group<Unit>::kLanes;
  int64_t segments = most_segments(args.table, format.in_bytes, kSegment);
  if (cached) segments = std::max(segments, most_segments(args.cache, format.in_bytes, kSegment));
  const Tiling tiling(segments, kGroups * (cached ? kCachedInFlight : kHostInFlight));
  const int64_t tiles = (args.n + tiling.rows - 1) / tiling.rows;
  const auto at_most = [&](int blocks) { return static_cast<unsigned>(std::min<int64_t>(tiles, blocks)); };
  if (!cached) {
    const unsigned grid = at_most(args.blocks > 0 ? args.blocks : kHostBlocks);
    by_line<Unit, false, kHostThreads, kHostInFlight>
        <<<grid, kHostThreads, 0, stream>>>(args, tiling, format.in_bytes, grid);
    return cudaGetLastError();
  }
  int processors = 0;
  if (const cudaError_t error = multiprocessors(&processors); error != cudaSuccess) return error;
  const unsigned cold = at_most(args.blocks > 0 ? args.blocks : kColdBlocks);
  const unsigned hot = at_most(std::max(1, processors / kMultiprocessorsPerHotBlock));
  by_line<Unit, true, kHostThreads, kCachedInFlight>
      <<<cold + hot, kHostThreads, 0, stream>>>(args, tiling, format.in_bytes, cold);
  return cudaGetLastError();
}

// The widest unit that every address and the length of a row are multiples of.
bool fits(const GatherArgs& args, const RowFormat& format, int in, int out) {
  const auto source = reinterpret_cast<uintptr_t>(args.table) | reinterpret_cast<uintptr_t>(args.cache) |
                      static_cast<uintptr_t>(format.in_bytes);
  return source % in == 0 && reinterpret_cast<uintptr_t>(args.out) % out == 0;
}

template <typename From, typename To>
cudaError_t launch_converted(const GatherArgs& args, const RowFormat& format, Placement placement,
                             cudaStream_t stream) {
  if constexpr (std::is_same_v<From, To>) {
    return cudaErrorInvalidValue;  // that is a copy
  } else {
    if (fits(args, format, 4 * sizeof(From), 4 * sizeof(To)))
      return launch<Converted<From, To, 4>>(args, format, placement, stream);
    if (fits(args, format, 2 * sizeof(From), 2 * sizeof(To)))
      return launch<Converted<From, To, 2>>(args, format, placement, stream);
    return launch<Converted<From, To, 1>>(args, format, placement, stream);
  }
}

cudaError_t launch_copied(const GatherArgs& args, const RowFormat& format, Placement placement,
                          cudaStream_t stream) {
  if (fits(args, format, 16, 16)) return launch<Copied<16>>(args, format, placement, stream);
  if (fits(args, format, 8, 8)) return launch<Copied<8>>(args, format, placement, stream);
  if (fits(args, format, 4, 4)) return launch<Copied<4>>(args, format, placement, stream);
  if (fits(args, format, 2, 2)) return launch<Copied<2>>(args, format, placement, stream);
  return launch<Copied<1>>(args, format, placement, stream);
}

template <typename From>
cudaError_t launch_from(const GatherArgs& args, const RowFormat& format, Placement placement,
                        cudaStream_t stream) {
  switch (format.to) {
    case ElementType::kFloat32:
      return launch_converted<From, float>(args, format, placement, stream);
    case ElementType::kFloat16:
      return launch_converted<From, __half>(args, format, placement, stream);
    case ElementType::kBFloat16:
      return launch_converted<From, __nv_bfloat16>(args, format, placement, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace

int64_t gather_order_from(int64_t table_bytes, Placement placement) {
  const bool far = placement != Placement::kDevice && table_bytes >= kOrderedTableBytes;
  return far ? kOrderedIds : std::numeric_limits<int64_t>::max();
}

size_t gather_scratch(int64_t n, Placement placement) {
  return placement == Placement::kDevice || n > kMostInOrder ? 0 : order_bytes(n);
}

cudaError_t launch_gather(GatherArgs args, const RowFormat& format, Placement placement,
                          cudaStream_t stream) {
  if (args.n == 0 || format.in_bytes == 0) return cudaSuccess;
  args.positions = nullptr;
  if (args.scratch)
    if (const cudaError_t error = launch_order(args, stream); error != cudaSuccess) return error;
  if (!format.convert || format.from == format.to) return launch_copied(args, format, placement, stream);
  switch (format.from) {
    case ElementType::kFloat32:
      return launch_from<float>(args, format, placement, stream);
    case ElementType::kFloat16:
      return launch_from<__half>(args, format, placement, stream);
    case ElementType::kBFloat16:
      return launch_from<__nv_bfloat16>(args, format, placement, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace loader
