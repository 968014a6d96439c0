// Levels of a breadth-first search that have few vertices: one barrier a level, and no list of the frontier.
//
// A warp follows the edges of the vertices among its own words of the set. Three sets take turns: of this
// level, of the next one, and of the level before, which is emptied. Long graphs have thousands of such
// levels.
#pragma once

#include "traverse/cuda/calls.h"
#include "traverse/cuda/schedule.cuh"

namespace loader {

constexpr int64_t kNarrow = LOADER_TRAVERSE_NARROW;  // vertices of a level

template <typename P, typename N>
struct NarrowLevels {
  enum class End { kAll, kWide, kHub };

  const Grid& grid;
  const BfsCall<P, N>& call;
  uint32_t* seen;
  uint32_t *now, *next, *empty;  // the first has the level, the others nothing
  int32_t level;
  int64_t here, unseen;  // vertices of the level, and those beyond it
  uint64_t steps = 0;

  __device__ NarrowLevels(const Grid& threads, const BfsCall<P, N>& kernel_call, uint32_t* const (&sets)[4],
                          int32_t from, int64_t count, int64_t beyond)
      : grid(threads),
        call(kernel_call),
        seen(sets[0]),
        now(sets[1]),
        next(sets[2]),
        empty(sets[3]),
        level(from),
        here(count),
        unseen(beyond) {}

  // Goes on until all is reached, or until a level has many vertices or a long list. That one is in `now`
  // then, and is still to be done; the other sets are empty.
  __device__ __noinline__ End run(const FrontierMaker<P, N>& maker) {
    for (bool odd = false;; odd = !odd, ++level, ++steps) {
      uint64_t found = 0;
      const bool is_last = level == call.most || unseen == 0;
      maker.each_word(
          now, [&](int64_t word, int64_t v, uint32_t bits) { found += follow(word, v, bits, is_last); });
      if (is_last) return End::kAll;
      maker.each_own_word([&](int64_t word) { empty[word] = 0; });
      uint64_t sums[1] = {found};
      sum_of_block(sums);
      // Two fields take turns: one is read while the next level is written.
      const auto field = odd ? &GridState::Totals::edges : &GridState::Totals::count;
      if (threadIdx.x == 0) grid.state->totals[grid.block].*field = sums[0];
      grid.sync();
      sums[0] = 0;
      for (int b = static_cast<int>(threadIdx.x); b < grid.blocks; b += kTraverseThreads)
        sums[0] += grid.state->totals[b].*field;
      sum_of_block(sums);
      if (sums[0] >= kHub) {
        maker.each_own_word([&](int64_t word) { next[word] = 0; });
        return End::kHub;
      }
      uint32_t* const done = now;
      now = next;
      next = empty;
      empty = done;
      here = static_cast<int64_t>(sums[0]);
      unseen -= here;
      if (here == 0) return End::kAll;
      if (here > kNarrow) {
        maker.each_own_word([&](int64_t word) { empty[word] = 0; });
        ++level;
        ++steps;
        return End::kWide;
      }
    }
  }

 private:
  static constexpr uint64_t kHub = uint64_t{1} << 40;

  // Reaches the vertices of a word and follows their edges. Returns how many vertices this thread was the
  // first to find, or kHub.
  __device__ uint64_t follow(int64_t word, int64_t v, uint32_t bits, bool is_last) const {
    const bool is_in = bits >> grid.lane & 1;
    if (is_in) call.distance[v] = level;
    __syncwarp();
    if (grid.lane == 0) seen[word] |= bits;
    if (is_last) return 0;
    ListRange<P, N> range{0, 0, 0};
    if (is_in) range = whole_list(call.onward.lists, static_cast<N>(v));
    const auto degree = static_cast<int64_t>(range.end - range.begin);
    if (__any_sync(kWholeWarp, degree >= kBlockList)) return grid.lane == 0 ? kHub : 0;
    Find find{call.onward.lists, seen, now, next, 0};
    if (degree < kWarpList)
      for (P at = range.begin; at < range.end; ++at) find.edge(at);
    __syncwarp();
    for (uint32_t left = __ballot_sync(kWholeWarp, degree >= kWarpList); left; left &= left - 1) {
      const int from = __ffs(left) - 1;
      const int64_t end = __shfl_sync(kWholeWarp, range.end, from);
      for (int64_t at = int64_t{__shfl_sync(kWholeWarp, range.begin, from)} + grid.lane; at < end; at += 32)
        find.edge(static_cast<P>(at));  // 32 beyond the end may be no P
    }
    return find.first;
  }

  struct Find {
    PlainLists<P, N> lists;
    const uint32_t *seen, *now;
    uint32_t* next;
    uint64_t first;

    // Others may be marking vertices of this level as seen: they are in `now` all the while.
    __device__ void edge(P at) {
      const N u = lists.read(at);
      if (has(seen, u) || has(now, u) || has(next, u)) return;
      const uint32_t bit = 1u << u % 32;
      first += !(atomicOr(next + u / 32, bit) & bit);
    }
  };
};

}  // namespace loader
