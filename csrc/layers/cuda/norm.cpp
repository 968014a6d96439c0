// The launches of norm.h.
#include "layers/cuda/norm.h"

#include <algorithm>

#include "gpu/all_kernels.h"
#include "gpu/kernel.h"

namespace loader {
namespace {

LOADER_KERNEL(NormRows, "layers/cuda/norm.cuh", "norm_rows")          // <Int>
LOADER_KERNEL(NormGradient, "layers/cuda/norm.cuh", "norm_gradient")  // <Int>
LOADER_KERNEL(SumTiles, "layers/cuda/norm.cuh", "sum_tiles")

constexpr int kBlocksAProcessor = 16;  // of norm_rows, whose warps have several rows

// f(Int<K>), where a lane has K vectors.
template <typename F>
void with_vectors_a_lane(int64_t dim, const F& f) {
  if (dim <= 128) return f(gpu::Int<1>());
  if (dim <= 256) return f(gpu::Int<2>());
  f(gpu::Int<4>());
}

}  // namespace

void launch_norm(const NormForward& args, int device, gpu::Stream stream) {
  if (args.tiles.rows == 0) return;
  const int64_t most = int64_t{gpu::attribute(device, gpu::Attribute::kMultiprocessors)} * kBlocksAProcessor;
  const auto blocks = static_cast<unsigned>(
      std::min<int64_t>(most, gpu::blocks_for(args.tiles.rows * 32, kNormThreads, "rows")));
  with_vectors_a_lane(args.dim, [&](auto k) {
    gpu::launch<NormForward>(gpu::kernel<NormRows, decltype(k)>(), device, {blocks, kNormThreads, 0, stream},
                             args);
  });
}

void launch_norm_gradient(const NormBackward& args, int device, gpu::Stream stream) {
  if (args.tiles.rows == 0) return;
  const unsigned blocks = gpu::blocks_for(args.tiles.rows, args.tiles.tile / args.parts, "rows");
  with_vectors_a_lane(args.dim, [&](auto k) {
    gpu::launch<NormBackward>(gpu::kernel<NormGradient, decltype(k)>(), device,
                              {blocks, kNormThreads, 0, stream}, args);
  });
}

void launch_tile_sums(const TileSums& args, int device, gpu::Stream stream) {
  const int64_t slices = (args.width + kSumSlice - 1) / kSumSlice;
  if (args.types * slices == 0) return;
  gpu::launch<TileSums>(gpu::kernel<SumTiles>(), device,
                        {gpu::blocks_for(args.types * slices, 1, "slices"), kSumThreads, 0, stream}, args);
}

std::vector<gpu::Kernel*> layer_kernels() {
  return {&gpu::kernel<NormRows, gpu::Int<1>>(),
          &gpu::kernel<NormRows, gpu::Int<2>>(),
          &gpu::kernel<NormRows, gpu::Int<4>>(),
          &gpu::kernel<NormGradient, gpu::Int<1>>(),
          &gpu::kernel<NormGradient, gpu::Int<2>>(),
          &gpu::kernel<NormGradient, gpu::Int<4>>(),
          &gpu::kernel<SumTiles>()};
}

}  // namespace loader
