#include "gpu/all_kernels.h"

#include "sampler/cuda/launch.h"

namespace loader {
namespace {

using gpu::Bool;
using gpu::Int;
using gpu::kernel;

template <int Widest, typename Args>
void add_width(std::vector<gpu::Kernel*>& all) {  // kernels that pick
  using Width = Int<Widest>;
  all.insert(all.end(), {&kernel<PhasesKernel, Width, Args>(), &kernel<HashedKernel, Width, Args>(),
                         &kernel<PickKernel, Width, Bool<false>, Args>(),
                         &kernel<PickKernel, Width, Bool<true>, Args>()});
  if constexpr (Widest != kWide && std::is_same_v<typename Args::Choice, UniformChoice>)
    all.push_back(&kernel<CooperativeKernel, Width, Args>());
}

// Calls `f` with each width (as a type) that picks have.
template <typename Vertex, typename F>
void for_each_width(const F& f) {
  f(Int<kWide>());
  if constexpr (sizeof(Vertex) == 4) {  // see kernel_width
    f(Int<10>());
    f(Int<15>());
    f(Int<20>());
    f(Int<32>());
  }
}

// The phases that pick nothing. If lists are scanned, edges are counted as with a hash set.
template <bool Hashed, typename Counted>
void add_phases(std::vector<gpu::Kernel*>& all) {
  constexpr bool kScans = !Counted::Choice::kCountsByDegree;
  using Set = Bool<Hashed>;
  all.insert(all.end(), {&kernel<StartKernel, Set, Counted>(), &kernel<FinishKernel, Set, Counted>()});
  if constexpr (Hashed || !kScans)
    all.insert(all.end(), {&kernel<CountKernel, Set, Counted>(), &kernel<AssignKernel, Set, Counted>()});
  if constexpr (Hashed || kScans)
    all.insert(all.end(), {&kernel<GroupKernel, Set, Counted>(), &kernel<RankKernel, Set, Counted>()});
}

template <typename Counted>
void add_counted(std::vector<gpu::Kernel*>& all) {
  add_phases<false, Counted>(all);
  add_phases<true, Counted>(all);
}

template <typename Args>
void add(std::vector<gpu::Kernel*>& all) {
  all.push_back(&kernel<PlacesKernel, Int<kWide>, Args>());
  for_each_width<typename Args::Vertex>([&](auto width) { add_width<decltype(width)::value, Args>(all); });
}

// What needs a scan has one width, and one launch only with a hash set.
template <typename Args>
void add_scanning(std::vector<gpu::Kernel*>& all) {
  using Width = Int<kWide>;
  all.insert(all.end(),
             {&kernel<ScanKernel, float, Args>(), &kernel<PickKernel, Width, Bool<false>, Args>(),
              &kernel<PickKernel, Width, Bool<true>, Args>(), &kernel<HashedKernel, Width, Args>()});
}

template <typename P, typename N>
void add_types(std::vector<gpu::Kernel*>& all) {
  using Lists = PlainLists<P, N>;
  using Uniform = SampleArgs<Lists, UniformChoice>;
  add_counted<Uniform>(all);
  add_counted<SampleArgs<Lists, LaborChoice>>(all);
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
  all.push_back(&kernel<ScanKernel, double, SampleArgs<Lists, RaceChoice>>());
}

// Of lists by vertex and relation.
template <int Widest, typename Args>
void add_hetero_width(std::vector<gpu::Kernel*>& all) {
  all.insert(all.end(), {&kernel<HeteroKernel, Int<Widest>, Bool<false>, Args>(),
                         &kernel<HeteroKernel, Int<Widest>, Bool<true>, Args>()});
}
template <typename P, typename N>
void add_hetero(std::vector<gpu::Kernel*>& all) {
  using Lists = HeteroLists<P, N>;
  using Uniform = SampleArgs<Lists, UniformChoice>;
  add_hetero_width<kWide, Uniform>(all);
  add_hetero_width<kWide, SampleArgs<Lists, WeightedChoice>>(all);
  add_hetero_width<kWide, SampleArgs<Lists, TopKChoice>>(all);
  all.push_back(&kernel<HeteroKernel, Int<kWide>, Bool<true>, SampleArgs<Lists, ScanChoice>>());
  if constexpr (sizeof(N) == 4) {
    add_hetero_width<10, Uniform>(all);
    add_hetero_width<20, Uniform>(all);
  }
}

}  // namespace

std::vector<gpu::Kernel*> sampler_kernels() {
  std::vector<gpu::Kernel*> all;
  add_types<int32_t, int32_t>(all);
  add_types<int64_t, int32_t>(all);
  add_types<int64_t, int64_t>(all);
  add_hetero<int32_t, int32_t>(all);
  add_hetero<int64_t, int32_t>(all);
  add_hetero<int64_t, int64_t>(all);
  return all;
}

}  // namespace loader
