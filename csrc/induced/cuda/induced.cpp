#include "induced/cuda/induced.h"

#include <algorithm>

#include "gpu/all_kernels.h"
#include "gpu/kernel.h"
#include "induced/cuda/kernels.h"

namespace loader {
namespace {

constexpr int kBlocksAProcessor = 8;  // of those that read the lists, where each reads several tiles

gpu::Shape shape_for(int64_t threads, gpu::Stream stream) {
  return {gpu::blocks_for(threads, kInducedThreads, "entries"), kInducedThreads, 0, stream};
}

}  // namespace

template <typename P, typename N>
void find_induced(const InducedCall<P, N>& call, int device, gpu::Stream stream) {
  using Call = InducedCall<P, N>;
  gpu::Kernel &table = gpu::kernel<InducedTableKernel, P, N>(), &sums = gpu::kernel<InducedSumsKernel>(),
              &count = gpu::kernel<InducedCountKernel, P, N>(),
              &edges = gpu::kernel<InducedEdgesKernel, P, N>();
  gpu::load(device,
            {&table, &sums, &count, &edges});  // compiled at the same time, when they are first needed
  gpu::set_bytes(call.report, 0,
                 reinterpret_cast<uintptr_t>(call.places) - reinterpret_cast<uintptr_t>(call.report), stream);
  const auto add_up = [&](const InducedSums& of) {
    gpu::launch<InducedSums>(sums, device, {1, kInducedThreads, 0, stream}, of);
  };
  gpu::launch<Call>(table, device, shape_for(std::max(call.asked.num_nodes, call.asked.num_rows), stream),
                    call);
  InducedReport* const report = call.report;
  add_up({call.list_sums, call.blocks_of_lists(), nullptr, 0, &report->entries});
  const int64_t most = int64_t{gpu::attribute(device, gpu::Attribute::kMultiprocessors)} * kBlocksAProcessor;
  const auto blocks = static_cast<unsigned>(std::clamp<int64_t>(induced_tiles(call.room), 1, most));
  gpu::launch<Call>(count, device, {blocks, kInducedThreads, 0, stream}, call);
  add_up({call.tile_sums, -1, &report->entries, call.room, &report->edges});
}

template <typename P, typename N>
void write_induced(const InducedCall<P, N>& call, int64_t entries, int device, gpu::Stream stream) {
  gpu::launch<InducedCall<P, N>>(gpu::kernel<InducedEdgesKernel, P, N>(), device,
                                 shape_for(induced_tiles(entries) * kInducedThreads, stream), call);
}

#define INSTANTIATE(P, N)                                                 \
  template void find_induced(const InducedCall<P, N>&, int, gpu::Stream); \
  template void write_induced(const InducedCall<P, N>&, int64_t, int, gpu::Stream);
INSTANTIATE(int32_t, int32_t)
INSTANTIATE(int64_t, int32_t)
INSTANTIATE(int64_t, int64_t)
#undef INSTANTIATE

namespace {

template <typename P, typename N>
void add_induced(std::vector<gpu::Kernel*>& all) {
  all.push_back(&gpu::kernel<InducedTableKernel, P, N>());
  all.push_back(&gpu::kernel<InducedCountKernel, P, N>());
  all.push_back(&gpu::kernel<InducedEdgesKernel, P, N>());
}

}  // namespace

std::vector<gpu::Kernel*> induced_kernels() {
  std::vector<gpu::Kernel*> all{&gpu::kernel<InducedSumsKernel>()};
  add_induced<int32_t, int32_t>(all);
  add_induced<int64_t, int32_t>(all);
  add_induced<int64_t, int64_t>(all);
  return all;
}

}  // namespace loader
