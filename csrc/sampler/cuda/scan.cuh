// Picks that only a look at the whole list tells: LABOR's, and races by weight. By warps, which share the
// lists as ScanSchedule says.
//
// A scan finds how many entries of each list are picked, which the hop's indptr needs, and keeps the first
// `width` of them, more than most lists have. So when the picks are taken few lists are looked at again.
#pragma once

#include "sampler/cuda/picking.cuh"
#include "sampler/cuda/race.cuh"
#include "sampler/cuda/scan_work.cuh"

namespace loader {

// If all of these are picked, or more than there was room for, a block takes them, else a warp.
#ifndef LOADER_SAMPLER_LONG_LIST
#define LOADER_SAMPLER_LONG_LIST 4096
#endif
constexpr uint32_t kLongList = LOADER_SAMPLER_LONG_LIST;

// `Phases`: a Picking whose choice scans. `hop`: at which is picked.
template <typename Phases>
struct Scan {
  using P = typename Phases::Edge;
  using N = typename Phases::Vertex;
  static constexpr bool kRaces = std::is_same_v<typename Phases::Choice, RaceChoice>;
  static constexpr uint32_t kGroup = 32;  // parts of a list that are joined together

  const Phases& phases;
  const int hop;
  const int64_t fanout;
  const uint32_t width;  // picks that are kept of a list
  const uint32_t lane;

  __device__ Scan(const Phases& phases, int hop)
      : phases(phases),
        hop(hop),
        fanout(phases.args.fanouts[hop - 1]),
        width(fanout == kAllNeighbours ? 0 : static_cast<uint32_t>(phases.args.scan.width)),
        lane(phases.lane) {}

  struct List {
    P begin;
    uint32_t degree;
    bool whole;
  };

  __device__ List list_of(int64_t row) const {
    const uint32_t degree = phases.row_degree()[row];
    return {phases.row_begin()[row], degree, phases.args.choice.whole(degree, fanout)};
  }

  // Where the picks of a list are kept, or those of a piece: their places in the list, and when they arrive.
  struct Kept {
    uint32_t* places;
    uint64_t* times;
  };

  // Scans entries [first, first + count) of a list; `raced`: of the warp. Returns how many are picked.
  __device__ __forceinline__ uint32_t find(int64_t row, const List& list, uint32_t first, uint32_t count,
                                           const Kept& kept, const RaceBuffer& raced) const {
    if constexpr (kRaces)
      return find_first(row, list, first, count, kept, raced);
    else
      return find_low(list, first, count, kept);
  }

  // LABOR's.
  __device__ uint32_t find_low(const List& list, uint32_t first, uint32_t count, const Kept& kept) const {
    constexpr uint32_t kEach = 4;
    const SourceNumbers numbers = phases.args.choice.numbers(phases.batch().keys(), hop);
    const uint32_t before_lane = (1u << lane) - 1;
    uint32_t found = 0;
    for (uint32_t base = 0; base < count; base += 32 * kEach) {
      N sources[kEach];
#pragma unroll
      for (uint32_t e = 0; e < kEach; ++e) {
        const uint32_t i = base + 32 * e + lane;
        sources[e] = i < count ? phases.args.lists.read(list.begin, first + i) : N{0};
      }
#pragma unroll
      for (uint32_t e = 0; e < kEach; ++e) {
        const uint32_t i = base + 32 * e + lane;
        if (i - lane >= count) break;
        const bool picked = i < count && labor_picks(numbers(static_cast<uint64_t>(sources[e])), list.degree,
                                                     static_cast<uint32_t>(fanout));
        const uint32_t votes = __ballot_sync(kFullMask, picked);
        const uint32_t to = found + __popc(votes & before_lane);
        if (picked && to < width) kept.places[to] = first + i;
        found += __popc(votes);
      }
    }
    return found;
  }

  // The first to arrive. If all neighbours are wanted, those with a weight above 0 are only counted.
  __device__ __forceinline__ uint32_t find_first(int64_t row, const List& list, uint32_t first,
                                                 uint32_t count, const Kept& kept,
                                                 const RaceBuffer& raced) const {
    RaceResult found{0, -1};
    if (fanout == kAllNeighbours) {
      const WarpRace race(phases.args.choice, RaceBuffer{}, 0);
      for (uint32_t i = lane; i < count; i += 32) {
        const int64_t at = int64_t{list.begin} + first + i;
        const float weight = race.weight(at);
        if (weight < 0) found.bad = at;
        found.held += weight > 0;
      }
      found.held = warp_sum(found.held);
    } else {
      found = run_race(phases.args.choice, raced, static_cast<uint32_t>(fanout), list.begin, first, count,
                       draws(row));
      keep(found.held, kept, raced);
    }
    if (found.bad >= 0 && phases.fail(SampleStatus::kBadWeight, found.bad)) phases.publish();
    __syncwarp();
    return found.held;
  }

  __device__ Draws draws(int64_t row) const {
    return {phases.batch().key, static_cast<uint64_t>(phases.nodes()[row]), static_cast<uint32_t>(hop)};
  }

  __device__ int widest() const { return widest_fanout(phases.args.fanouts, phases.args.hops); }

  __device__ RaceBuffer buffer(unsigned char* memory) const {
    const int64_t each = widest() + kRaceEntries, active = race_warps(widest(), phases.args.shared_bytes);
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
    const auto scan = [&](const ScanWork<P>& work) {
      const int64_t row = work.row;
      const List list{work.begin, work.degree, phases.args.choice.whole(work.degree, fanout)};
      if (list.whole) {
        if (lane == 0 && work.number == 0) phases.row_picks()[row] = list.degree;
        return;
      }
      uint32_t* const places = stored() + row * width;
      const Kept kept = work.parts > 1 ? kept_of(work.slot(work.number)) : Kept{places, nullptr};
      uint32_t found = find(row, list, work.first, work.count, kept, raced);
      if (work.parts > 1 && !join(work, found, places, raced)) return;
      if (lane == 0) phases.row_picks()[row] = found;
    };
    const auto soon = [&](P begin, uint32_t degree) {
      if (phases.args.choice.whole(degree, fanout)) return;
      const auto ask = [&](const auto* list) {
        constexpr uint32_t kLine = 128 / sizeof(*list);
        if (lane * kLine < degree) prefetch(list + begin + lane * kLine);
      };
      if constexpr (!kRaces)
        ask(phases.args.lists.indices);
      else if (phases.args.choice.floats)
        ask(phases.args.choice.floats);
      else
        ask(phases.args.choice.doubles);
    };
    for_each_list<OneLaunch>(phases, rows, kRaces ? race_warps(widest(), phases.args.shared_bytes) : kWarps,
                             soon, scan);
  }

  // If this was the last part of its list to be scanned: the picks of all, at `out`. Parts are joined in
  // groups, whose picks take the place of those of the group's first part, and the groups then: a long list
  // has hundreds of parts, and one warp would be long over them. Returns whether the list is done; `found`
  // then is the number of its picks.
  __device__ bool join(const ScanWork<P>& work, uint32_t& found, uint32_t* out,
                       const RaceBuffer& raced) const {
    const uint32_t parts = work.parts, group = work.number / kGroup, groups = (parts - 1) / kGroup + 1;
    const uint32_t first = group * kGroup, size = min(kGroup, parts - first);
    Piece* const pieces = phases.pieces();
    const auto tell = [&](int64_t slot) {
      if (lane == 0) pieces[slot].found = found;
    };
    tell(work.slot(work.number));
    if (!is_last(&pieces[work.slot(first)].done, size)) return false;
    const auto part_of_group = [&](uint32_t i) { return work.slot(first + i); };
    if (groups == 1) {
      found = joined(size, part_of_group, {out, nullptr}, raced);
      return true;
    }
    found = joined(size, part_of_group, kept_of(work.slot(first)), raced);
    tell(work.slot(first));
    // The second part leads no group: its count is that of groups.
    if (!is_last(&pieces[work.slot(1)].done, groups)) return false;
    found = joined(groups, [&](uint32_t i) { return work.slot(i * kGroup); }, {out, nullptr}, raced);
    return true;
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
    if (lane == 0) *come = 0;
    return true;
  }

  // The picks of a list, or of a group of its parts, from those of `count` parts, in order. Returns how many
  // there are.
  template <typename SlotOf>
  __device__ uint32_t joined(uint32_t count, const SlotOf& slot_of, const Kept& out,
                             const RaceBuffer& raced) const {
    const Piece* const pieces = phases.pieces();
    uint32_t all = 0;
    if (!kRaces || fanout == kAllNeighbours) {
      for (uint32_t p = lane; p - lane < count; p += 32) {
        const int64_t slot = slot_of(p < count ? p : 0);
        const uint32_t found = p < count ? __ldcg(&pieces[slot].found) : 0;
        uint32_t total;
        const uint32_t before = all + warp_exclusive(found, total);
        const Kept kept = kept_of(slot);
        for (uint32_t i = 0; i < found && i < width && before + i < width; ++i)
          out.places[before + i] = __ldcg(kept.places + i);
        all += total;
      }
      __syncwarp();
      return all;
    }
    if constexpr (kRaces) {
      WarpRace race(phases.args.choice, raced, static_cast<uint32_t>(fanout));
      constexpr uint32_t kEach = 8;  // loads of a lane that are on their way together
      const auto each = static_cast<uint32_t>(fanout);
      for (uint32_t first = lane; first - lane < count * each; first += 32 * kEach) {
        uint64_t times[kEach];
        uint32_t places[kEach];
#pragma unroll
        for (uint32_t e = 0; e < kEach; ++e) {
          const uint32_t p = (first + 32 * e) / each, at = (first + 32 * e) % each;
          const Kept kept = kept_of(slot_of(p < count ? p : 0));
          times[e] = p < count ? __ldcg(kept.times + at) : kNeverBits;
          places[e] = __ldcg(kept.places + at);
        }
#pragma unroll
        for (uint32_t e = 0; e < kEach; ++e) race.add(times[e], places[e]);
      }
      race.keep_first();
      keep(race.held, out, raced);
      all = race.held;
    }
    return all;
  }

  // Keeps the first `held` of a race: of a part of a list all, so that `joined` need not ask first how many
  // there are.
  __device__ __forceinline__ void keep(uint32_t held, const Kept& kept, const RaceBuffer& raced) const {
    const uint32_t most = kept.times ? static_cast<uint32_t>(fanout) : held;
    for (uint32_t i = lane; i < most; i += 32) {
      kept.places[i] = i < held ? raced.places[i] : 0;
      if (kept.times) kept.times[i] = i < held ? raced.times[i] : kNeverBits;
    }
    __syncwarp();
  }

  __device__ uint32_t* stored() const {
    return phases.args.scan.places + phases.slot * phases.args.rows_capacity * phases.args.scan.width;
  }
  __device__ Kept kept_of(int64_t piece) const {
    const ScanArgs& scan = phases.args.scan;
    const int64_t at = (phases.slot * scan.pieces_capacity + piece) * scan.width;
    return {scan.piece_places + at, kRaces ? scan.piece_times + at : nullptr};
  }

  // Whether entry `i` is picked; an entry behind the end is not. For lists of which more are picked than were
  // kept.
  __device__ __forceinline__ bool picks(const List& list, uint32_t i) const {
    if (i >= list.degree || list.whole) return i < list.degree;
    if constexpr (kRaces) {
      return phases.args.choice.weight(int64_t{list.begin} + i) > 0;
    } else {
      const auto u = static_cast<uint64_t>(phases.args.lists.read(list.begin, i));
      return labor_picks(phases.args.choice.numbers(phases.batch().keys(), hop)(u), list.degree,
                         static_cast<uint32_t>(fanout));
    }
  }

  // Picks for the first `rows` vertices.
  __device__ void pick(int64_t rows) const {
    const int64_t first = int64_t{threadIdx.x / 32} * phases.blocks + phases.block;
    int64_t each = 32;  // rows of a warp: few are spread over all warps
    while (each > 1 && each * phases.warps() > 2 * rows) each /= 2;
    for (int64_t group = first; group * each < rows; group += phases.warps())
      take_group(group * each, min(rows, group * each + each));
    take_long(rows);
  }

 private:
  // The picks of up to 32 rows, edge by edge, if they are kept or known to be all of a short list; then those
  // of the other rows.
  __device__ void take_group(int64_t first_row, int64_t rows) const {
    constexpr int kEach = 4;
    const int64_t row = first_row + lane;
    const bool valid = row < rows;
    const List list = valid ? list_of(row) : List{0, 0, true};
    const uint32_t picked = valid ? phases.row_picks()[row] : 0;
    const P out = valid ? phases.indptr(hop)[row] : 0;
    const bool is_short = list.degree <= kLongList;
    const bool is_kept = !list.whole && picked <= width;
    const bool all = list.whole && is_short;
    uint32_t total;
    const uint32_t before = warp_exclusive(is_kept || all ? picked : 0, total);
    const uint32_t* const places = stored() + first_row * width;
    for (uint32_t base = 0; base < total; base += 32 * kEach) {
      N u[kEach];
      P position[kEach], to[kEach];
      uint32_t count = 0;
#pragma unroll
      for (int e = 0; e < kEach; ++e) {
        const uint32_t i = base + 32 * e + lane;
        uint32_t owner = 0;  // the last lane that has no more edges before its own
#pragma unroll
        for (uint32_t step = 16; step > 0; step /= 2)
          if (__shfl_sync(kFullMask, before, owner + step) <= i) owner += step;
        const uint32_t number = i - __shfl_sync(kFullMask, before, owner);
        const P begin = __shfl_sync(kFullMask, list.begin, owner);
        const bool takes_all = __shfl_sync(kFullMask, static_cast<int>(all), owner);
        to[e] = __shfl_sync(kFullMask, out, owner) + static_cast<P>(number);
        count += i < total;
        position[e] = begin;
        if (i < total) position[e] += static_cast<P>(takes_all ? number : places[owner * width + number]);
      }
#pragma unroll
      for (int e = 0; e < kEach; ++e)
        if (e < static_cast<int>(count)) u[e] = phases.args.lists.read(position[e]);
      phases.note(hop, u, count);
#pragma unroll
      for (int e = 0; e < kEach; ++e) {
        if (e >= static_cast<int>(count)) continue;
        phases.indices(hop)[to[e]] = u[e];
        if (phases.args.edge_ids) phases.edge_ids(hop)[to[e]] = position[e];
      }
    }
    uint32_t others = __ballot_sync(kFullMask, picked > 0 && is_short && !is_kept && !all);
    for (; others; others &= others - 1) take_row(first_row + __ffs(others) - 1);
  }

  // The picks of a row by another look at its list. They wait until there are 32 of them, or it ends.
  __device__ void take_row(int64_t row) const {
    __shared__ uint32_t waiting_of[kWarps][64];
    uint32_t* const waiting = waiting_of[threadIdx.x / 32];
    const List list = list_of(row);
    P out = phases.indptr(hop)[row];
    uint32_t held = 0;
    const auto take = [&](uint32_t count) {
      __syncwarp();
      const bool valid = lane < count;
      const uint32_t i = valid ? waiting[lane] : 0;
      phases.take(hop, list.begin + static_cast<P>(i), out + static_cast<P>(lane), valid);
      out += static_cast<P>(count);
      held -= count;
      __syncwarp();
      if (lane < held) waiting[lane] = waiting[32 + lane];
      __syncwarp();
    };
    for (uint32_t i = lane; i - lane < list.degree; i += 32) {
      const bool picked = picks(list, i);
      const uint32_t votes = __ballot_sync(kFullMask, picked);
      if (picked) waiting[held + __popc(votes & ((1u << lane) - 1))] = i;
      held += __popc(votes);
      if (held >= 32) take(32);
    }
    if (held > 0) take(held);
  }

  // The picks of long lists of which more are picked than were kept, by whole blocks.
  __device__ void take_long(int64_t rows) const {
    __shared__ int num_long;
    __shared__ uint32_t long_rows[kBlock];
    for (int64_t first = 0; first < rows; first += int64_t{phases.blocks} * kBlock) {
      const int64_t row = first + int64_t{threadIdx.x} * phases.blocks + phases.block;
      if (threadIdx.x == 0) num_long = 0;
      __syncthreads();
      if (row < rows && phases.row_degree()[row] > kLongList) {
        const uint32_t picked = phases.row_picks()[row];
        if (picked > 0 && (list_of(row).whole || picked > width))
          long_rows[atomicAdd(&num_long, 1)] = static_cast<uint32_t>(row);
      }
      __syncthreads();
      for (int i = 0; i < num_long; ++i) take_by_block(long_rows[i]);
      __syncthreads();
    }
  }

  __device__ void take_by_block(int64_t row) const {
    __shared__ uint32_t found_of[kWarps];
    const List list = list_of(row);
    P out = phases.indptr(hop)[row];
    for (uint32_t first = 0; first < list.degree; first += kBlock) {
      const uint32_t i = first + threadIdx.x;
      const bool picked = picks(list, i);
      const uint32_t votes = __ballot_sync(kFullMask, picked);
      if (lane == 0) found_of[threadIdx.x / 32] = __popc(votes);
      __syncthreads();
      uint32_t before = 0, all = 0;
      for (int w = 0; w < kWarps; ++w) {
        before += w < static_cast<int>(threadIdx.x / 32) ? found_of[w] : 0;
        all += found_of[w];
      }
      if (votes)
        phases.take(hop, list.begin + static_cast<P>(picked ? i : 0),
                    out + static_cast<P>(before + __popc(votes & ((1u << lane) - 1))), picked);
      out += static_cast<P>(all);
      __syncthreads();
    }
  }
};

}  // namespace loader
