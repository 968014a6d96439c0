// Picks that only a look at the whole list tells: LABOR's, and races by weight. By warps, which share the
// lists as scan_work.cuh says.
//
// A scan finds how many entries of each list are picked, which the hop's indptr needs, and keeps the first
// `width` of them, more than most lists have. So when the picks are taken few lists are looked at again.
#pragma once

#include "sampler/cuda/picking.cuh"
#include "sampler/cuda/race_queue.cuh"
#include "sampler/cuda/scan_state.cuh"
#include "sampler/cuda/scan_work.cuh"

namespace loader {

// The type of a race's weights, if it is not known before: the code for the other one costs registers.
struct AnyWeights {};

// `Phases`: a Picking whose choice scans. `hop`: at which is picked. `Weights`: of a race, float or double.
template <typename Phases, typename Weights = AnyWeights>
struct Scan : ScannedLists<Phases> {
  using Base = ScannedLists<Phases>;
  using typename Base::List;
  using typename Base::PickArrays;
  using P = typename Phases::Edge;
  using N = typename Phases::Vertex;
  using Base::arrays_of;
  using Base::Base;
  using Base::fanout;
  using Base::hop;
  using Base::kRaces;
  using Base::lane;
  using Base::phases;
  using Base::stored;
  using Base::width;
  static constexpr uint32_t kGroup = 32;  // parts of a list that are joined together

  // Scans entries [first, first + count) of a list; `raced`: of the warp. Returns how many are picked.
  __device__ __forceinline__ uint32_t find(int64_t row, const List& list, uint32_t first, uint32_t count,
                                           const PickArrays& arrays, const RaceBuffer& raced) const {
    if constexpr (kRaces)
      return find_first(row, list, first, count, arrays, raced);
    else
      return find_low(list, first, count, arrays);
  }

  // LABOR's.
  __device__ uint32_t find_low(const List& list, uint32_t first, uint32_t count,
                               const PickArrays& arrays) const {
    constexpr uint32_t kEach = 4;
    const SourceNumbers numbers = phases.choice().numbers(phases.batch().keys(), hop);
    const uint32_t before_lane = (1u << lane) - 1;
    uint32_t found = 0;
    for (uint32_t base = 0; base < count; base += 32 * kEach) {
      N sources[kEach];
#pragma unroll
      for (uint32_t e = 0; e < kEach; ++e) {
        const uint32_t i = base + 32 * e + lane;
        sources[e] = i < count ? phases.lists().read(list.begin, first + i) : N{0};
      }
#pragma unroll
      for (uint32_t e = 0; e < kEach; ++e) {
        const uint32_t i = base + 32 * e + lane;
        if (i - lane >= count) break;
        const bool picked = i < count && labor_picks(numbers(static_cast<uint64_t>(sources[e])), list.degree,
                                                     static_cast<uint32_t>(fanout));
        const uint32_t votes = __ballot_sync(kFullMask, picked);
        const uint32_t to = found + __popc(votes & before_lane);
        if (picked && to < width) arrays.places[to] = first + i;
        found += __popc(votes);
      }
    }
    return found;
  }

  // The first to arrive. If all neighbors are wanted, those with a weight above 0 are only counted.
  __device__ __forceinline__ uint32_t find_first(int64_t row, const List& list, uint32_t first,
                                                 uint32_t count, const PickArrays& arrays,
                                                 const RaceBuffer& raced) const {
    RaceResult found{0, -1};
    if (fanout == kAllNeighbors) {
      with_weights([&](const auto* weights) {
#pragma unroll 1
        for (uint32_t i = lane; i < count; i += 32) {
          const int64_t at = int64_t{list.begin} + first + i;
          const float weight = WarpRace::bounded(load(weights + at));
          if (weight < 0) found.bad = at;
          found.held += weight > 0;
        }
      });
      found.held = warp_sum(found.held);
    } else {
      with_weights([&](const auto* weights) {
        found = race_of(weights, raced, static_cast<uint32_t>(fanout), list.begin, first, count,
                        draws_of_row(row));
      });
      keep(found.held, arrays, raced);
    }
    if (found.bad >= 0 && phases.fail(SampleStatus::kBadWeight, found.bad)) phases.publish();
    __syncwarp();
    return found.held;
  }

  // Calls `f` with a race's weights.
  template <typename F>
  __device__ __forceinline__ void with_weights(const F& f) const {
    const RaceChoice& choice = phases.choice();
    if constexpr (std::is_same_v<Weights, float>)
      f(choice.floats);
    else if constexpr (std::is_same_v<Weights, double>)
      f(choice.doubles);
    else
      choice.floats ? f(choice.floats) : f(choice.doubles);
  }

  __device__ Draws draws(N vertex) const { return phases.draws({vertex}, hop); }
  __device__ Draws draws_of_row(int64_t row) const {
    if constexpr (Phases::kHetero)
      return phases.draws(phases.row_of(row), hop);
    else
      return draws(phases.nodes()[row]);
  }

  __device__ int widest() const { return widest_fanout(phases.args.fanouts, phases.args.hops); }

  __device__ int racing_warps() const { return race_warps(widest(), phases.args.shared_bytes); }

  __device__ RaceBuffer buffer(unsigned char* memory) const {
    const int64_t each = widest() + kRaceEntries, active = racing_warps();
    auto* const times = reinterpret_cast<uint64_t*>(memory);
    const int64_t at = threadIdx.x / 32 * each;
    return {times + at, reinterpret_cast<uint32_t*>(times + active * each) + at};
  }

  // Counts the picks of the first `rows` vertices. `memory`: scan_bytes() of shared memory. `OneLaunch`: see
  // for_each_list.
  template <bool OneLaunch>
  __device__ __forceinline__ void count(int64_t rows, unsigned char* memory) const {
    RaceBuffer raced{};
    if constexpr (kRaces) raced = buffer(memory);
    const auto soon = [&](P begin, uint32_t degree) {
      if (phases.choice().whole(degree, fanout)) return;
      if constexpr (kRaces)
        with_weights([&](const auto* weights) { prefetch_first(weights + begin, degree); });
      else
        phases.lists().where(begin, degree, [](const auto* at, int64_t count) {
          prefetch_first(at, static_cast<uint32_t>(count));
        });
    };
    for_each_list<OneLaunch>(phases, rows, kRaces ? racing_warps() : kWarps, soon, Counting{*this, raced});
  }

  // What a warp does with the work that for_each_list gives it.
  struct Counting {
    static constexpr bool kGroups = kRaces && !std::is_same_v<Weights, AnyWeights>;
    const Scan& scan;
    const RaceBuffer& raced;

    __device__ __forceinline__ void operator()(const ScanWork<P>& work) const {
      const int64_t row = work.row;
      const List list{work.begin, work.degree, scan.phases.choice().whole(work.degree, scan.fanout),
                      scan.fanout};
      if (list.whole) {
        if (scan.lane == 0 && work.number == 0) scan.phases.row_picks()[row] = list.degree;
        return;
      }
      uint32_t* const places = scan.stored() + row * scan.width;
      const PickArrays arrays =
          work.parts > 1 ? scan.arrays_of(work.slot(work.number)) : PickArrays{places, nullptr};
      uint32_t found = scan.find(row, list, work.first, work.count, arrays, raced);
      if (work.parts > 1 && !scan.join(work, found, places, raced)) return;
      if (scan.lane == 0) scan.phases.row_picks()[row] = found;
    }

    // Races all lists that can wait for each other, and returns the others.
    static_assert(kMostShift + kPlaceBits <= 32, "an entry tells its list");
    __device__ __forceinline__ uint32_t group(uint32_t row, uint32_t count, P begin, uint32_t degree) const {
      const auto& args = scan.phases.args;
      const bool is_own = scan.lane < count && degree <= args.scan.piece;
      const bool whole = scan.phases.choice().whole(degree, scan.fanout);
      uint32_t* const picks = scan.phases.row_picks() + row;
      if (is_own && whole) picks[scan.lane] = degree;
      const bool may_wait =
          scan.fanout > 0 && scan.fanout <= int64_t{kQueuedFanout} && degree < kQueuedDegree;
      uint32_t left = __ballot_sync(kFullMask, is_own && !whole && may_wait);
      uint32_t apart = __ballot_sync(kFullMask, is_own && !whole && !may_wait);
      const N own = is_own ? scan.phases.nodes()[row + scan.lane] : N{0};
      const auto fanout = static_cast<uint32_t>(scan.fanout);
      scan.with_weights([&](const auto* weights) {
        RaceQueue queue(raced, fanout);
        while (left) {
          uint32_t later = 0;
          for (; left; left &= left - 1) {
            const uint32_t i = __ffs(left) - 1, entries = __shfl_sync(kFullMask, degree, i);
            const Draws draws = scan.draws(__shfl_sync(kFullMask, own, i));
            const Queued queued = queue.add(i, weights + __shfl_sync(kFullMask, begin, i), entries, draws);
            if (queued == Queued::kFull) later |= 1u << i;
            if (queued == Queued::kApart) apart |= 1u << i;
          }
          apart |= queue.pick(weights, begin, scan.stored() + int64_t{row} * scan.width, scan.width, picks);
          left = later;
        }
      });
      return apart;
    }
  };

  // If this was the last part of its list to be scanned: the picks of all, at `out`. Parts are joined in
  // groups, whose picks take the place of those of the group's first part, and the groups then: a long list
  // has hundreds of parts, and one warp would be long over them. Returns whether the list is done; `found`
  // then is the number of its picks.
  __device__ bool join(const ScanWork<P>& work, uint32_t& found, uint32_t* out,
                       const RaceBuffer& raced) const {
    const uint32_t parts = work.parts, group = work.number / kGroup, groups = (parts - 1) / kGroup + 1;
    const uint32_t first = group * kGroup, size = min(kGroup, parts - first);
    ListPart* const pieces = phases.pieces();
    const auto tell = [&](int64_t slot) {
      if (lane == 0) pieces[slot].found = found;
    };
    tell(work.slot(work.number));
    if (!is_last(&pieces[work.slot(first)].done, size)) return false;
    const PickArrays all{out, nullptr};
    PickArrays to = groups == 1 ? all : arrays_of(work.slot(first));
    for (uint32_t begin = first, step = 1, count = size;;
         begin = 0, step = kGroup, count = groups, to = all) {
      found = joined(work, begin, step, count, to, raced);
      if (to.places == out) return true;
      tell(work.slot(first));
      // The second part leads no group: its count is that of groups.
      if (!is_last(&pieces[work.slot(1)].done, groups)) return false;
    }
  }

  // Whether all of `count` have come, of which this warp is one; then what the others wrote can be read.
  __device__ bool is_last(uint32_t* come, uint32_t count) const {
    uint32_t before = 0;
    __threadfence();
    __syncwarp();
    if (lane == 0) {
      __threadfence();
      before = atomicAdd(come, 1u);
    }
    if (__shfl_sync(kFullMask, before, 0) + 1 < count) return false;
    __threadfence();
    __syncwarp();
    if (lane == 0) *come = 0;
    return true;
  }

  // The picks of a list, or of a group of its parts, from those of `count` parts, in order: every `step`-th
  // one from `begin` on. Returns how many there are.
  __device__ __forceinline__ uint32_t joined(const ScanWork<P>& work, uint32_t begin, uint32_t step,
                                             uint32_t count, const PickArrays& out,
                                             const RaceBuffer& raced) const {
    const auto slot_of = [&](uint32_t i) { return work.slot(begin + i * step); };
    const ListPart* const pieces = phases.pieces();
    uint32_t all = 0;
    if (!kRaces || fanout == kAllNeighbors) {
      for (uint32_t p = lane; p - lane < count; p += 32) {
        const int64_t slot = slot_of(p < count ? p : 0);
        const uint32_t found = p < count ? __ldcg(&pieces[slot].found) : 0;
        uint32_t total;
        const uint32_t before = all + warp_exclusive(found, total);
        const PickArrays arrays = arrays_of(slot);
#pragma unroll 1
        for (uint32_t i = 0; i < found && i < width && before + i < width; ++i)
          out.places[before + i] = __ldcg(arrays.places + i);
        all += total;
      }
      __syncwarp();
      return all;
    }
    if constexpr (kRaces) {
      WarpRace race(raced, static_cast<uint32_t>(fanout));
      constexpr uint32_t kEach = kRaceEntries / 32;  // loads of a lane that are on their way together
      const auto each = static_cast<uint32_t>(fanout);
      for (uint32_t first = lane; first - lane < count * each; first += 32 * kEach) {
        uint64_t times[kEach];
        uint32_t places[kEach];
#pragma unroll
        for (uint32_t e = 0; e < kEach; ++e) {
          const uint32_t p = (first + 32 * e) / each, at = (first + 32 * e) % each;
          const PickArrays arrays = arrays_of(slot_of(p < count ? p : 0));
          times[e] = p < count ? __ldcg(arrays.times + at) : kNeverBits;
          places[e] = __ldcg(arrays.places + at);
        }
#pragma unroll
        for (uint32_t e = 0; e < kEach; ++e) race.add(times[e], places[e]);
        race.keep_first();
      }
      keep(race.held, out, raced);
      all = race.held;
    }
    return all;
  }

  // Keeps the first `held` of a race: of a part of a list all, so that `joined` need not ask first how many
  // there are.
  __device__ __forceinline__ void keep(uint32_t held, const PickArrays& arrays,
                                       const RaceBuffer& raced) const {
    const uint32_t most = arrays.times ? static_cast<uint32_t>(fanout) : held;
    for (uint32_t i = lane; i < most; i += 32) {
      arrays.places[i] = i < held ? raced.places[i] : 0;
      if (arrays.times) arrays.times[i] = i < held ? raced.times[i] : kNeverBits;
    }
    __syncwarp();
  }
};

}  // namespace loader
