#include "gpu/all_kernels.h"

#include "sampler/cuda/launch.h"

namespace loader {
namespace {

using gpu::Bool;
using gpu::Int;
using gpu::kernel;

template <int Widest, typename Args>
void add_width(std::vector<gpu::Kernel*>& all) {
  using Width = Int<Widest>;
  all.insert(all.end(), {&kernel<PhasesKernel, Width, Args>(), &kernel<HashedKernel, Width, Args>(),
                         &kernel<PickKernel, Width, Bool<false>, Args>(),
                         &kernel<PickKernel, Width, Bool<true>, Args>()});
  if constexpr (Widest != kWide) all.push_back(&kernel<CooperativeKernel, Width, Args>());
  if constexpr (queue_width(Widest) == Widest)
    all.insert(all.end(),
               {&kernel<QueueKernel, Width, Bool<false>, Args>(),
                &kernel<QueueKernel, Width, Bool<true>, Args>(), &kernel<QueueCountKernel, Width, Args>(),
                &kernel<QueueAssignKernel, Width, Args>(), &kernel<QueueWriteKernel, Width, Args>()});
}

template <bool Hashed, typename Args>
void add_phases(std::vector<gpu::Kernel*>& all) {
  using Set = Bool<Hashed>;
  all.insert(all.end(), {&kernel<StartKernel, Set, Args>(), &kernel<CountKernel, Set, Args>(),
                         &kernel<AssignKernel, Set, Args>(), &kernel<FinishKernel, Set, Args>()});
}

template <typename Args>
void add(std::vector<gpu::Kernel*>& all) {
  add_phases<false, Args>(all);
  add_phases<true, Args>(all);
  all.insert(all.end(), {&kernel<GroupKernel, Bool<true>, Args>(), &kernel<RankKernel, Bool<true>, Args>()});
  all.push_back(&kernel<PlacesKernel, Int<kWide>, Args>());
  add_width<kWide, Args>(all);
  if constexpr (sizeof(typename Args::Vertex) == 4) {  // see kernel_width
    add_width<10, Args>(all);
    add_width<15, Args>(all);
    add_width<20, Args>(all);
    add_width<32, Args>(all);
  }
}

// The phases of what needs a scan that know of the vertex set.
template <bool Hashed, typename Args>
void add_scanning_set(std::vector<gpu::Kernel*>& all) {
  using Set = Bool<Hashed>;
  all.insert(all.end(), {&kernel<StartKernel, Set, Args>(), &kernel<PickKernel, Int<kWide>, Set, Args>(),
                         &kernel<GroupKernel, Set, Args>(), &kernel<RankKernel, Set, Args>(),
                         &kernel<FinishKernel, Set, Args>()});
}

// What needs a scan has one width, and one launch only with a hash set.
template <typename Args>
void add_scanning(std::vector<gpu::Kernel*>& all) {
  add_scanning_set<false, Args>(all);
  add_scanning_set<true, Args>(all);
  all.insert(all.end(),
             {&kernel<ScanKernel, Args>(), &kernel<CountKernel, Bool<true>, Args>(),
              &kernel<AssignKernel, Bool<true>, Args>(), &kernel<HashedKernel, Int<kWide>, Args>()});
}

template <typename P, typename N>
void add_types(std::vector<gpu::Kernel*>& all) {
  using Lists = PlainLists<P, N>;
  using Uniform = SampleArgs<Lists, UniformChoice>;
  add<Uniform>(all);
  if constexpr (sizeof(N) == 4)
    all.insert(all.end(), {&kernel<PlacesKernel, Int<kPlacesWidth>, Uniform>(),
                           &kernel<LinedKernel, Int<kPlacesWidth>, Uniform>()});
  all.insert(all.end(),
             {&kernel<LinedKernel, Int<kWide>, Uniform>(), &kernel<FetchKernel, P, N>(),
              &kernel<TakeKernel, Bool<false>, Uniform>(), &kernel<TakeKernel, Bool<true>, Uniform>()});
  add<SampleArgs<Lists, WeightedChoice>>(all);
  add<SampleArgs<Lists, TopKChoice>>(all);
  add_scanning<SampleArgs<Lists, LaborChoice>>(all);
  add_scanning<SampleArgs<Lists, RaceChoice>>(all);
}

}  // namespace

std::vector<gpu::Kernel*> sampler_kernels() {
  std::vector<gpu::Kernel*> all;
  add_types<int32_t, int32_t>(all);
  add_types<int64_t, int32_t>(all);
  add_types<int64_t, int64_t>(all);
  return all;
}

}  // namespace loader
