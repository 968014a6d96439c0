// How the GPU sampler is launched: which kernels each schedule has, in which order, with which blocks. For
// the host.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <type_traits>
#include <utility>

#include "gpu/kernel.h"
#include "sampler/cuda/sampler.h"

namespace loader {

namespace gpu {

template <typename P, typename N>
struct Spelled<PlainLists<P, N>> {
  static constexpr Spelling text = spelling<P, N>("loader::PlainLists");
};
template <typename P, typename N>
struct Spelled<HeteroLists<P, N>> {
  static constexpr Spelling text = spelling<P, N>("loader::HeteroLists");
};
template <>
struct Spelled<UniformChoice> {
  static constexpr Spelling text = spelling("loader::UniformChoice");
};
template <>
struct Spelled<WeightedChoice> {
  static constexpr Spelling text = spelling("loader::WeightedChoice");
};
template <>
struct Spelled<TopKChoice> {
  static constexpr Spelling text = spelling("loader::TopKChoice");
};
template <>
struct Spelled<LaborChoice> {
  static constexpr Spelling text = spelling("loader::LaborChoice");
};
template <>
struct Spelled<RaceChoice> {
  static constexpr Spelling text = spelling("loader::RaceChoice");
};
template <>
struct Spelled<ScanChoice> {
  static constexpr Spelling text = spelling("loader::ScanChoice");
};
template <typename Lists, typename Choice>
struct Spelled<SampleArgs<Lists, Choice>> {
  static constexpr Spelling text = spelling<Lists, Choice>("loader::SampleArgs");
};

}  // namespace gpu

// The kernels of kernels.cuh, and the parameters of each behind its SampleArgs.
#define LOADER_SAMPLER_KERNEL(TAG, NAME) LOADER_KERNEL(TAG, "sampler/cuda/kernels.cuh", NAME)
LOADER_SAMPLER_KERNEL(CooperativeKernel, "cooperative_kernel")                   // <Int, Args>
LOADER_SAMPLER_KERNEL(PhasesKernel, "phases_kernel")                             // <Int, Args>
LOADER_SAMPLER_KERNEL(HashedKernel, "hashed_kernel")                             // <Int, Args>
LOADER_KERNEL(HeteroKernel, "sampler/cuda/hetero_kernels.cuh", "hetero_kernel")  // <Int, Bool, Args>
LOADER_SAMPLER_KERNEL(LinedKernel, "lined_kernel")                               // <Int, Args>
LOADER_SAMPLER_KERNEL(StartKernel, "start_kernel")                               // <Bool, Args>
LOADER_SAMPLER_KERNEL(PickKernel, "pick_kernel")                                 // <Int, Bool, Args>, hop
LOADER_SAMPLER_KERNEL(PlacesKernel, "places_kernel")                             // <Int, Args>, hop
LOADER_SAMPLER_KERNEL(FetchKernel, "fetch_kernel")    // <P, N>: LineArgs, hops, hop
LOADER_SAMPLER_KERNEL(TakeKernel, "take_kernel")      // <Bool, Args>, hop
LOADER_SAMPLER_KERNEL(ScanKernel, "scan_kernel")      // <W, Args>, hop
LOADER_SAMPLER_KERNEL(CountKernel, "count_kernel")    // <Bool, Args>, hop
LOADER_SAMPLER_KERNEL(AssignKernel, "assign_kernel")  // <Bool, Args>, hop
LOADER_SAMPLER_KERNEL(FinishKernel, "finish_kernel")  // <Bool, Args>
LOADER_SAMPLER_KERNEL(GroupKernel, "group_kernel")    // <Bool, Args>, hop
LOADER_SAMPLER_KERNEL(RankKernel, "rank_kernel")      // <Bool, Args>, hop
#undef LOADER_SAMPLER_KERNEL

// The percentage of a multiprocessor's first-level memory that the kernels of `hopwise` and `phases` ask for
// as shared memory. All ask for the same (except picks of more than 20 per row, which need more), because a
// multiprocessor is idle while this changes. An epoch of benchmarks/pipeline_gpu.py on an H200, eight
// mini-batches per launch on all multiprocessors, took longer than training alone by 3.5 and 5.1 % with 25,
// at fanouts (15, 10, 5) and (10, 10, 10); by 3.7 and 5.3 % with 50, 5.6 and 7.9 with 100, 3.9 and 6.4 with
// the driver's own choice, which differs from kernel to kernel. One launch of all phases, on half of the
// multiprocessors: 3.7 and 4.7 % with 25 beside 3.3 and 4.6 hop by hop, in one run; 6.6 and 5.2 % with the
// driver's own choice.
constexpr int kSharedPercent = 25;

// Thread blocks that copy lines, of launches whose number of blocks is given: they leave multiprocessors to
// other work. Whatever runs on a multiprocessor whose reads wait for the bus waits with them. On an H200,
// epochs of the shape of ogbn-products within budgets, all lists in host memory, with this many in place of
// all (66), take: 0.282 s in place of 0.308 with a budget of a half, 0.392 in place of 0.398 with a quarter
// that does not change. With a quarter that is renewed: 0.357 in place of 0.376 if 12 blocks read the rows
// (0.358 with 16, 0.371 with 32), and no difference if 16 do. With a tenth, renewed, 0.648 in place of 0.634.
// By itself a mini-batch takes longer with 24, by 11 % at fanouts (10, 10), by 2 to 5 % at (10, 10, 10) and
// (15, 10, 5).
constexpr int kFetchBlocks = 24;

static_assert(kOrderBytes <= 48 * 1024,
              "a kernel that needs more has to ask for it, see Kernel::resident_blocks");

constexpr size_t kMostParameters = 4096;  // bytes of a kernel's parameters

// Shared memory of a block that picks.
template <int Widest, typename Args>
size_t stage_bytes(const Args& args) {
  if (Widest != kWide) return size_t{kBlock} * Widest * sizeof(typename Args::Vertex);
  return static_cast<size_t>(wide_bytes(widest_fanout(args.fanouts, args.hops)));
}

// Shared memory of a block that scans lists.
template <typename Args>
size_t scan_bytes(const Args& args) {
  if constexpr (std::is_same_v<typename Args::Choice, ScanChoice>) {
    if (!args.choice.races) return 0;
  } else if (!std::is_same_v<typename Args::Choice, RaceChoice>) {
    return 0;
  }
  const auto most = widest_fanout(args.fanouts, args.hops);
  return static_cast<size_t>(race_buffer_bytes(most) * race_warps(most, args.shared_bytes));
}

// The kernels of one schedule for fanouts of one width, and their launches on a device, whose context is
// current.
template <int Widest, typename Args>
class SamplerLaunch {
 public:
  SamplerLaunch(int device, gpu::Stream stream, int wanted)
      : device_(device), stream_(stream), wanted_(wanted) {}

  int launches() const { return launches_; }

  void cooperative(const Args& args) {
    one(gpu::kernel<CooperativeKernel, gpu::Int<Widest>, Args>(), stage_bytes<Widest>(args), args);
  }

  // The phases of `hopwise` in one launch.
  void phases(const Args& args) {
    gpu::Kernel& kernel = gpu::kernel<PhasesKernel, gpu::Int<Widest>, Args>();
    prepare({&kernel}, true);
    one(kernel, stage_bytes<Widest>(args), args);
  }

  // With a hash set: the vertices are put in order in the same launch.
  void hashed(const Args& args) {
    one(gpu::kernel<HashedKernel, gpu::Int<Widest>, Args>(),
        std::max({stage_bytes<Widest>(args), kOrderBytes, scan_bytes(args)}), args);
  }

  // Lists by vertex and relation.
  template <bool Hashed>
  void hetero(const Args& args) {
    one(gpu::kernel<HeteroKernel, gpu::Int<Widest>, gpu::Bool<Hashed>, Args>(),
        std::max({Args::Choice::kCountsByDegree ? stage_bytes<Widest>(args) : scan_bytes(args),
                  Hashed ? kOrderBytes : 0}),
        args, kHeteroBlocksPerMultiprocessor<Widest, typename Args::Choice>);
  }

  // Lists that are read by the line, in one launch.
  void lined(const Args& args) {
    gpu::Kernel& kernel = gpu::kernel<LinedKernel, gpu::Int<kPlaces>, Args>();
    prepare({&kernel}, true);
    one(kernel, places_bytes(args), args);
  }

  // With a hash set, or if lists are scanned, the vertices of a hop become rows in two launches more, and the
  // last sizes are known by then.
  template <bool Hashed>
  void hopwise(const Args& args) {
    constexpr bool kScans = !Args::Choice::kCountsByDegree, kRowsFirst = Hashed || kScans;
    using Set = gpu::Bool<Hashed>;
    using Rows = gpu::Bool<kRowsFirst>;  // these are counted alike
    const Counted counted = counted_of(args);
    gpu::Kernel& start = gpu::kernel<StartKernel, Set, Counted>();
    gpu::Kernel& pick = gpu::kernel<PickKernel, gpu::Int<Widest>, Set, Args>();
    gpu::Kernel& count = gpu::kernel<CountKernel, Rows, Counted>();
    gpu::Kernel& assign = gpu::kernel<AssignKernel, Rows, Counted>();
    gpu::Kernel& finish = gpu::kernel<FinishKernel, Set, Counted>();
    gpu::Kernel *group = nullptr, *rank = nullptr, *scan = nullptr;
    if constexpr (kRowsFirst) {
      group = &gpu::kernel<GroupKernel, Set, Counted>();
      rank = &gpu::kernel<RankKernel, Set, Counted>();
    }
    if constexpr (kScans) scan = &gpu::kernel<ScanKernel, float, Args>();
    if constexpr (std::is_same_v<typename Args::Choice, RaceChoice>)
      if (args.choice.doubles) scan = &gpu::kernel<ScanKernel, double, Args>();
    const Lined lined = lined_kernels<Hashed>(args);
    gpu::Kernel* const picks = lined.places ? nullptr : &pick;
    prepare(
        {&start, picks, lined.places, lined.fetch, lined.take, &count, &assign, &finish, group, rank, scan},
        true);
    const size_t shared = lined.places ? lined.shared : stage_bytes<Widest>(args);
    choose_blocks(lined.places ? *lined.places : pick, shared, args.num_batches);
    const size_t scanning = scan_bytes(args);
    const int scan_blocks = scan ? blocks_of_scan(*scan, scanning, args) : 0;
    const auto scan_lists = [&](int hop) { launch_blocks(scan_blocks, *scan, scanning, args, hop); };
    launch(start, 0, counted);
    if constexpr (kScans) {
      scan_lists(0);
      launch(count, 0, counted, 0);
    }
    launch(assign, 0, counted, 0);
    for (int hop = 1; hop <= args.hops; ++hop) {
      if (!lined.places) launch(pick, shared, args, hop);
      if constexpr (!kScans) {
        if (lined.places) launch(*lined.places, shared, args, hop);
        if (lined.fetch)
          launch_blocks(args.lines.blocks_that_fetch(blocks_), *lined.fetch, 0, args.lines, args.hops, hop);
        if (lined.take) launch(*lined.take, 0, counted, hop);
      }
      if constexpr (kRowsFirst) {
        launch(*group, kOrderBytes, counted, hop);
        launch(*rank, kOrderBytes, counted, hop);
        if (hop == args.hops) break;
      }
      if constexpr (kScans) scan_lists(hop);
      launch(count, 0, counted, hop);
      launch(assign, 0, counted, hop);
    }
    launch(finish, 0, counted);
  }

 private:
  using Lists = typename Args::Lists;
  using Counted = SampleArgs<Lists, decltype(counted_as(std::declval<typename Args::Choice>()))>;

  // The arguments of kernels that pick nothing. They are compiled only for the choice that all with the same
  // number of picks share.
  static Counted counted_of(const Args& args) {
    Counted counted{};
    static_cast<CommonArgs<Lists>&>(counted) = args;
    counted.choice = counted_as(args.choice);
    return counted;
  }

  // The width of the kernels that pick places, and the shared memory of their blocks.
  static constexpr int kPlaces =
      places_width<typename Args::Vertex>(Widest, std::is_same_v<typename Args::Choice, UniformChoice>);
  static size_t places_bytes(const Args& args) { return kPlaces == kWide ? stage_bytes<kWide>(args) : 0; }

  // The kernels that pick from lists that are read by the line, in place of the one that reads words; null
  // pointers if words are read.
  struct Lined {
    gpu::Kernel *places = nullptr, *fetch = nullptr, *take = nullptr;
    size_t shared = 0;  // of `places`
  };

  template <bool Hashed>
  static Lined lined_kernels(const Args& args) {
    using P = typename Args::Edge;
    using N = typename Args::Vertex;
    Lined lined;
    if constexpr (Args::Choice::kCountsByDegree) {
      if (!args.lines.places) return lined;
      lined.places = &gpu::kernel<PlacesKernel, gpu::Int<kPlaces>, Args>();
      lined.shared = places_bytes(args);
      if (args.lines.marks) lined.fetch = &gpu::kernel<FetchKernel, P, N>();
      lined.take = &gpu::kernel<TakeKernel, gpu::Bool<Hashed>, Counted>();
    }
    return lined;
  }

  // Compiles what is needed for the first time, all at once. Null pointers are passed over.
  void prepare(std::initializer_list<gpu::Kernel*> kernels, bool alike) {
    gpu::load(device_, kernels);
    if (!alike) return;
    for (gpu::Kernel* const kernel : kernels)
      if (kernel) kernel->prefer_shared(device_, kSharedPercent);
  }

  int resident(gpu::Kernel& kernel, size_t shared, int per_multiprocessor = kBlocksPerMultiprocessor) const {
    return std::min(kMaxBlocks,
                    kernel.resident_blocks(device_, kBlock, shared, per_multiprocessor, kDeclaredBytes));
  }

  // Blocks of a launch: those resident at once, or as many as are wanted, and one for each mini-batch at
  // least.
  void choose_blocks(gpu::Kernel& kernel, size_t shared, int batches) {
    blocks_ = resident(kernel, shared);
    if (wanted_ > 0) blocks_ = std::min(blocks_, wanted_);
    blocks_ = std::max(blocks_, batches);
  }

  // The same of a launch that scans lists. Beside other work it has as many as the others.
  int blocks_of_scan(gpu::Kernel& scan, size_t shared, const Args& args) const {
    constexpr int kEach = kScanBlocksPerMultiprocessor<typename Args::Choice>;
    const int blocks = std::min(resident(scan, shared, kEach), wanted_ > 0 ? blocks_ : kEach * blocks_);
    return std::max(blocks, args.num_batches);
  }

  template <typename... Arguments>
  void launch(gpu::Kernel& kernel, size_t shared, const Arguments&... arguments) {
    launch_blocks(blocks_, kernel, shared, arguments...);
  }
  template <typename... Arguments>
  void launch_blocks(int blocks, gpu::Kernel& kernel, size_t shared, const Arguments&... arguments) {
    gpu::launch<Arguments...>(kernel, device_, {static_cast<unsigned>(blocks), kBlock, shared, stream_},
                              arguments...);
    ++launches_;
  }

  // Launches `kernel` with blocks that are resident together: once, or if there are fewer such blocks than
  // mini-batches, with this many mini-batches at a time.
  void one(gpu::Kernel& kernel, size_t shared, const Args& args,
           int per_multiprocessor = kBlocksPerMultiprocessor) {
    const int most = resident(kernel, shared, per_multiprocessor);
    const auto launch_some = [&](const Args& some) {
      const int blocks = std::max(wanted_ > 0 ? std::min(most, wanted_) : most, some.num_batches);
      gpu::launch<Args>(kernel, device_, {static_cast<unsigned>(blocks), kBlock, shared, stream_, true},
                        some);
      ++launches_;
    };
    if (args.num_batches <= most) return launch_some(args);
    Args some = args;
    for (int first = 0; first < args.num_batches; first += most) {
      some.num_batches = std::min(most, args.num_batches - first);
      std::copy_n(args.batches + first, some.num_batches, some.batches);
      launch_some(some);
    }
  }

  const int device_;
  const gpu::Stream stream_;
  const int wanted_;
  int blocks_ = 0, launches_ = 0;
};

// In one launch lists are read by the line for uniform picks with bitmaps only, see `lined_schedule`.
template <typename Launch, typename Args>
void launch_lined(Launch& launch, const Args& args) {
  if constexpr (std::is_same_v<typename Args::Choice, UniformChoice>)
    launch.lined(args);
  else
    throw std::invalid_argument("these picks are read by the line hop by hop only");
}

template <int Widest, typename Args>
int launch_width(const Args& args, Schedule schedule, int blocks, int device, gpu::Stream stream) {
  SamplerLaunch<Widest, Args> launch(device, stream, blocks);
  const bool hash = args.vertex_set == VertexSet::kHash;
  switch (schedule) {
    case Schedule::kCooperative:
      if (hash)
        launch.hashed(args);
      else if (args.lines.places)
        launch_lined(launch, args);
      else if constexpr (Widest != kWide && std::is_same_v<typename Args::Choice, UniformChoice>)
        launch.cooperative(args);
      else
        launch.phases(args);
      break;
    case Schedule::kPhases:
      launch.phases(args);
      break;
    case Schedule::kHopwise:
      hash ? launch.template hopwise<true>(args) : launch.template hopwise<false>(args);
      break;
  }
  return launch.launches();
}

template <typename Args>
int launch_widths(const Args& args, Schedule schedule, int blocks, int device, gpu::Stream stream) {
  const int width = kernel_width<typename Args::Vertex>(args.fanouts, args.hops, args.shared_bytes);
  if constexpr (sizeof(typename Args::Vertex) == 4) {
    if (width == 10) return launch_width<10>(args, schedule, blocks, device, stream);
    if (width == 15) return launch_width<15>(args, schedule, blocks, device, stream);
    if (width == 20) return launch_width<20>(args, schedule, blocks, device, stream);
    if (width == 32) return launch_width<32>(args, schedule, blocks, device, stream);
  }
  return launch_width<kWide>(args, schedule, blocks, device, stream);
}

// Launches the sampling of `num_batches` mini-batches on a stream of a device, whose context is the current
// one. `blocks`: of the launch, 0 for as many as are resident at once, which also is the most. Returns the
// number of kernels launched. A hash set: kCooperative and kHopwise only. Throws std::runtime_error if a
// kernel cannot be compiled or a launch is refused.
template <typename Args>
int launch_sample(const Args& args, Schedule schedule, int blocks, int device, gpu::Stream stream) {
  if (args.num_batches < 1 || args.num_batches > kMaxBatchesPerLaunch ||
      (args.vertex_set == VertexSet::kHash && schedule == Schedule::kPhases))
    throw std::invalid_argument("this schedule does not launch " + std::to_string(args.num_batches) +
                                " mini-batches");
  if constexpr (!Args::Choice::kCountsByDegree) {
    const bool hash = args.vertex_set == VertexSet::kHash;
    if (!hash && schedule != Schedule::kHopwise)
      throw std::invalid_argument("picks that need a scan have bitmaps only hop by hop");
    SamplerLaunch<kWide, Args> launch(device, stream, blocks);
    if (schedule == Schedule::kCooperative)
      launch.hashed(args);
    else
      hash ? launch.template hopwise<true>(args) : launch.template hopwise<false>(args);
    return launch.launches();
  } else {
    return launch_widths(args, schedule, blocks, device, stream);
  }
}

// The widths of kernels of HeteroLists: fewer, since such graphs have several fanouts at once.
template <typename Choice>
constexpr int hetero_width(int width) {
  if (!std::is_same_v<Choice, UniformChoice>) return kWide;
  return width == 10 ? 10 : width == 15 || width == 20 ? 20 : kWide;
}

// The same of HeteroLists, in one launch. Picks that need a scan have a hash set.
template <typename Args>
int launch_hetero(const Args& args, int blocks, int device, gpu::Stream stream) {
  static_assert(sizeof(Args) <= kMostParameters);
  if (args.num_batches < 1 || args.num_batches > kMaxBatchesPerLaunch)
    throw std::invalid_argument("there are " + std::to_string(args.num_batches) + " mini-batches");
  const auto launch = [&](auto width) {
    SamplerLaunch<decltype(width)::value, Args> kernels(device, stream, blocks);
    if constexpr (Args::Choice::kCountsByDegree) {
      args.vertex_set == VertexSet::kHash ? kernels.template hetero<true>(args)
                                          : kernels.template hetero<false>(args);
    } else {
      if (args.vertex_set != VertexSet::kHash)
        throw std::invalid_argument("picks of HeteroLists that need a scan have a hash set");
      kernels.template hetero<true>(args);
    }
    return kernels.launches();
  };
  using Choice = typename Args::Choice;
  if constexpr (std::is_same_v<Choice, UniformChoice> && sizeof(typename Args::Vertex) == 4) {
    int width =
        hetero_width<Choice>(kernel_width<typename Args::Vertex>(args.fanouts, args.hops, args.shared_bytes));
    if (args.takes_all) width = kWide;
    if (width == 10) return launch(gpu::Int<10>());
    if (width == 20) return launch(gpu::Int<20>());
  }
  return launch(gpu::Int<kWide>());
}

}  // namespace loader
