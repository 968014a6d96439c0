// The launches of attend.h.
#include "attention/cuda/attend.h"

#include <algorithm>
#include <type_traits>

#include "attention/cuda/tiles.h"
#include "gpu/all_kernels.h"
#include "gpu/kernel.h"
#include "gpu/narrow.h"

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

// Teams of a block of a kernel of tiles.cuh, of which n need `bytes(n)` of shared memory. 0 where the kernels
// of attend.cuh are to run: two teams need more than there is, or the GPU came before compute capability 8.0.
template <typename T, typename Bytes>
int tile_teams(const AttendedRows<T>& rows, int device, const Bytes& bytes) {
  if (!std::is_same_v<T, bfloat16> || !rows.tensor_cores) return 0;
  if (gpu::attribute(device, gpu::Attribute::kMajor) < 8) return 0;
  const int64_t room = gpu::attribute(device, gpu::Attribute::kSharedMemoryPerBlockOptin);
  int teams = kMostTeams;
  while (teams > 0 && bytes(teams) > room) --teams;
  return teams < 2 ? 0 : teams;
}

template <typename T>
int forward_teams(const AttendedRows<T>& rows, int device) {
  const TileRoom room(rows.dim);
  return tile_teams<T>(rows, device, [&](int teams) { return room.forward_bytes(teams); });
}
template <typename T>
int backward_teams(const AttendedRows<T>& rows, int device) {
  const TileRoom room(rows.dim);
  return tile_teams<T>(rows, device, [&](int teams) { return room.backward_bytes(teams); });
}

}  // namespace

template <typename T>
int64_t attend_parts(const AttendedRows<T>& rows, int device) {
  const int teams = backward_teams(rows, device);
  const int64_t most =
      teams > 0 ? gpu::attribute(device, gpu::Attribute::kMultiprocessors) : blocks_at_once(device);
  const int each = teams > 0 ? teams : kWarps;
  return std::min(most, (rows.count + each - 1) / each);
}

template <typename T>
void launch_attend(const AttendForward<T>& args, int device, gpu::Stream stream) {
  if (args.count == 0) return;
  if constexpr (std::is_same_v<T, bfloat16>) {
    if (const int teams = forward_teams(args, device)) {
      gpu::Kernel& tiles = gpu::kernel<AttendTiles, T>();
      const auto shared = static_cast<size_t>(TileRoom(args.dim).forward_bytes(teams));
      const unsigned threads = 32u * kTeamWarps * static_cast<unsigned>(teams);
      const int64_t most = tiles.resident_blocks(device, static_cast<int>(threads), shared, 1, kMostDeclared);
      const int64_t blocks = std::min(most, (args.count + teams - 1) / teams) * groups_of(args.heads);
      gpu::launch<AttendForward<T>>(tiles, device,
                                    {gpu::blocks_for(blocks, 1, "blocks"), threads, shared, stream}, args);
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
    if (const int teams = backward_teams(args, device)) {
      gpu::Kernel& tiles = gpu::kernel<AttendTilesGradient, T>();
      const auto shared = static_cast<size_t>(TileRoom(args.dim).backward_bytes(teams));
      const unsigned threads = 32u * kTeamWarps * static_cast<unsigned>(teams);
      // Grants the memory.
      tiles.resident_blocks(device, static_cast<int>(threads), shared, 1, kMostDeclared);
      gpu::launch<AttendBackward<T>>(tiles, device, {blocks, threads, shared, stream}, args);
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
