// The launches of attend.h.
#include "attention/cuda/attend.h"

#include <algorithm>
#include <type_traits>

#include "attention/cuda/tiles.h"
#include "gpu/all_kernels.h"
#include "gpu/kernel.h"
#include "gpu/narrow_floats.h"

namespace loader {
namespace {

LOADER_KERNEL(AttendRows, "attention/cuda/attend.cuh", "attend_rows")                    // <T>
LOADER_KERNEL(AttendRowsGradient, "attention/cuda/attend.cuh", "attend_gradient")        // <T>
LOADER_KERNEL(AttendSourceRows, "attention/cuda/attend.cuh", "attend_sources")           // <T>
LOADER_KERNEL(AttendTiles, "attention/cuda/tiles.cuh", "attend_tiles")                   // <T>
LOADER_KERNEL(AttendTilesGradient, "attention/cuda/tiles.cuh", "attend_tiles_gradient")  // <T>

constexpr int kWarps = kAttendThreads / 32;
constexpr int kBlocksAProcessor = 2;    // of the kernels whose threads have many registers
constexpr size_t kMostDeclared = 1024;  // bytes of shared memory that the driver keeps of each block

int64_t groups_of(int heads) { return (heads + kHeadsAtOnce - 1) / kHeadsAtOnce; }

int64_t blocks_at_once(int device) {
  return int64_t{gpu::attribute(device, gpu::Attribute::kMultiprocessors)} * kBlocksAProcessor;
}

// Blocks of a kernel of tiles.cuh. Without teams the kernels of attend.cuh are to run: two teams need more
// shared memory than there is, or the GPU came before compute capability 8.0.
struct TileBlocks {
  int teams;
  unsigned threads;
  size_t shared;
};

// Of the kernel of whose blocks n teams need `bytes(room, n)` of shared memory.
template <typename T, typename Bytes>
TileBlocks tile_blocks(const AttendedRows<T>& rows, int device, const Bytes& bytes) {
  if (!std::is_same_v<T, bfloat16> || !rows.tensor_cores) return {};
  if (gpu::attribute(device, gpu::Attribute::kMajor) < 8) return {};
  const TileRoom room(rows.dim);
  const int64_t most = gpu::attribute(device, gpu::Attribute::kSharedMemoryPerBlockOptin);
  int teams = kMostTeams;
  while (teams > 0 && bytes(room, teams) > most) --teams;
  if (teams < 2) return {};
  return {teams, 32u * kTeamWarps * static_cast<unsigned>(teams), static_cast<size_t>(bytes(room, teams))};
}

template <typename T>
TileBlocks forward_blocks(const AttendedRows<T>& rows, int device) {
  return tile_blocks(rows, device, [](const TileRoom& room, int teams) { return room.forward_bytes(teams); });
}
template <typename T>
TileBlocks backward_blocks(const AttendedRows<T>& rows, int device) {
  return tile_blocks(rows, device,
                     [](const TileRoom& room, int teams) { return room.backward_bytes(teams); });
}

// Grants a kernel of tiles.cuh its shared memory, and says how many of its blocks run at once.
int64_t granted(gpu::Kernel& kernel, int device, const TileBlocks& tiles) {
  return kernel.resident_blocks(device, static_cast<int>(tiles.threads), tiles.shared, 1, kMostDeclared);
}

}  // namespace

template <typename T>
int64_t attend_parts(const AttendedRows<T>& rows, int device) {
  const int teams = backward_blocks(rows, device).teams;
  const int64_t most =
      teams > 0 ? gpu::attribute(device, gpu::Attribute::kMultiprocessors) : blocks_at_once(device);
  const int each = teams > 0 ? teams : kWarps;
  return std::min(most, (rows.count + each - 1) / each);
}

template <typename T>
void launch_attend(const AttendForward<T>& args, int device, gpu::Stream stream) {
  if (args.count == 0) return;
  if constexpr (std::is_same_v<T, bfloat16>) {
    if (const TileBlocks tiles = forward_blocks(args, device); tiles.teams > 0) {
      gpu::Kernel& kernel = gpu::kernel<AttendTiles, T>();
      const int64_t some = (args.count + tiles.teams - 1) / tiles.teams;
      const int64_t count = std::min(granted(kernel, device, tiles), some) * groups_of(args.heads);
      const unsigned all = gpu::blocks_for(count, 1, "blocks");
      gpu::launch<AttendForward<T>>(kernel, device, {all, tiles.threads, tiles.shared, stream}, args);
      return;
    }
  }
  const int64_t items = std::min(args.count * groups_of(args.heads), blocks_at_once(device) * kWarps);
  const unsigned blocks = gpu::blocks_for(items, kWarps, "rows");
  gpu::launch<AttendForward<T>>(gpu::kernel<AttendRows, T>(), device, {blocks, kAttendThreads, 0, stream},
                                args);
}

template <typename T>
void launch_attend_gradient(const AttendBackward<T>& args, int device, gpu::Stream stream) {
  if (args.count == 0) return;
  const unsigned blocks = gpu::blocks_for(args.parts * groups_of(args.heads), 1, "parts");
  if constexpr (std::is_same_v<T, bfloat16>) {
    if (const TileBlocks tiles = backward_blocks(args, device); tiles.teams > 0) {
      gpu::Kernel& kernel = gpu::kernel<AttendTilesGradient, T>();
      granted(kernel, device, tiles);
      gpu::launch<AttendBackward<T>>(kernel, device, {blocks, tiles.threads, tiles.shared, stream}, args);
      return;
    }
  }
  gpu::launch<AttendBackward<T>>(gpu::kernel<AttendRowsGradient, T>(), device,
                                 {blocks, kAttendThreads, 0, stream}, args);
}

template <typename T>
void launch_attend_sources(const AttendSources<T>& args, int device, gpu::Stream stream) {
  if (args.sources == 0) return;
  gpu::launch<AttendSources<T>>(gpu::kernel<AttendSourceRows, T>(), device,
                                {gpu::blocks_for(args.sources, kWarps, "sources"), kAttendThreads, 0, stream},
                                args);
}

template int64_t attend_parts(const AttendedRows<float>&, int);
template int64_t attend_parts(const AttendedRows<bfloat16>&, int);
template void launch_attend(const AttendForward<float>&, int, gpu::Stream);
template void launch_attend(const AttendForward<bfloat16>&, int, gpu::Stream);
template void launch_attend_gradient(const AttendBackward<float>&, int, gpu::Stream);
template void launch_attend_gradient(const AttendBackward<bfloat16>&, int, gpu::Stream);
template void launch_attend_sources(const AttendSources<float>&, int, gpu::Stream);
template void launch_attend_sources(const AttendSources<bfloat16>&, int, gpu::Stream);

std::vector<gpu::Kernel*> attention_kernels() {
  return {&gpu::kernel<AttendRows, float>(),         &gpu::kernel<AttendRows, bfloat16>(),
          &gpu::kernel<AttendRowsGradient, float>(), &gpu::kernel<AttendRowsGradient, bfloat16>(),
          &gpu::kernel<AttendSourceRows, float>(),   &gpu::kernel<AttendSourceRows, bfloat16>(),
          &gpu::kernel<AttendTiles, bfloat16>(),     &gpu::kernel<AttendTilesGradient, bfloat16>()};
}

}  // namespace loader
