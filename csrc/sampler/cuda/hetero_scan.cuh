// The scan (list_scan.cuh) of lists by vertex and relation: each row has a fanout of its own. One kernel has
// LABOR and races, of weights of either type.
#pragma once

#include "sampler/cuda/list_scan.cuh"

namespace loader {

// The same phases, of whose two choices (ScanChoice) this one is taken.
template <typename Phases, typename ChoiceOf>
struct Chosen : Phases {
  using Choice = ChoiceOf;

  __device__ explicit Chosen(const Phases& phases) : Phases(phases) {}

  __device__ const Choice& choice() const {
    if constexpr (std::is_same_v<Choice, RaceChoice>)
      return this->args.choice.race;
    else
      return this->args.choice.labor;
  }
};

// What a warp does with the work that for_each_list gives it.
template <typename Phases>
struct HeteroCounting {
  static constexpr bool kGroups = false;
  using RowScan = Scan<Phases>;

  const Phases& phases;
  const int hop;
  const RaceBuffer& raced;

  __device__ __forceinline__ void operator()(const ScanWork<typename Phases::Edge>& work) const {
    const int fanout = phases.fanout(phases.row_kind()[work.row], hop);
    if (fanout == 0) {
      if (phases.lane == 0 && work.number == 0) phases.row_picks()[work.row] = 0;
      return;
    }
    const RowScan scan(phases, hop, fanout);
    typename RowScan::Counting{scan, raced}(work);
  }
};

// Counts the picks of the first `rows` rows at `hop`, and keeps the first of them. `memory`: see scan_bytes.
template <typename Phases>
__device__ __forceinline__ void count_hetero_picks(const Phases& phases, int hop, int64_t rows,
                                                   unsigned char* memory) {
  using RowScan = Scan<Phases>;
  const RowScan widest(phases, hop);
  RaceBuffer raced{};
  int warps = kWarps;
  if constexpr (RowScan::kRaces) {
    raced = widest.buffer(memory);
    warps = widest.racing_warps();
  }
  const auto soon = [&](typename Phases::Edge begin, uint32_t degree) {
    if constexpr (RowScan::kRaces)
      widest.with_weights([&](const auto* weights) { prefetch_first(weights + begin, degree); });
    else
      phases.lists().where(begin, degree, [](const auto* at, int64_t count) {
        prefetch_first(at, static_cast<uint32_t>(count));
      });
  };
  for_each_list<true>(phases, rows, warps, soon, HeteroCounting<Phases>{phases, hop, raced});
}

// Out of line: it needs many registers for itself. A warp's lanes agree on whether there was an error, also
// where another warp is about to find a bad weight.
template <typename Phases>
__device__ __noinline__ void scan_hetero(const Phases& phases, int hop, int64_t rows, unsigned char* memory) {
  if (__any_sync(kFullMask, phases.status() != SampleStatus::kOk)) return;
  if (phases.choice().races)
    count_hetero_picks(Chosen<Phases, RaceChoice>(phases), hop, rows, memory);
  else
    count_hetero_picks(Chosen<Phases, LaborChoice>(phases), hop, rows, memory);
}

}  // namespace loader
