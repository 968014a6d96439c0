// Rows of trees (trees.cuh) whose picks only a look at what they see tells: a warp looks at a row, and all
// warps of the block at one that is long. Before there is room for the picks, they are counted; then the row
// is looked at again (range_scan.cuh).
#pragma once

#include "launch_memory.cuh"
#include "sampler/cuda/range_scan.cuh"

namespace loader {

// What is longer is shared out among warps.
#ifndef LOADER_TREE_LONG_ROW
#define LOADER_TREE_LONG_ROW 4096
#endif
constexpr uint32_t kLongRow = LOADER_TREE_LONG_ROW;

// What a block has in shared memory for it.
template <bool Scans>
struct TreeScanShared {};
template <>
struct TreeScanShared<true> {
  uint32_t looked_at, long_rows;  // rows of each kind
};

template <typename Trees>
struct TreeScan {
  using P = typename Trees::P;
  using RowOf = typename Trees::RowOf;
  using Seen = RangeScan<typename Trees::Lists>;

  const Trees& trees;
  const int64_t tree;
  const int hop;
  const uint32_t rows, first_row;

  // Makes the rows; returns how many picks they have.
  __device__ uint64_t see_rows() const {
    const auto& args = trees.args;
    auto& shared = trees.shared;
    if (trees.thread() == 0) shared.looked_at = shared.long_rows = 0;
    __syncthreads();
#pragma unroll 1
    for (uint32_t number = trees.thread(); number < rows; number += trees.size()) {
      const RowOf own = trees.row_of(tree, hop, number);
      const int most = trees.fanout(own.row.relation, hop);
      ListOf<P> seen{0, 0};
      if (most != 0) seen = args.lists.list(own.row, own.bound);
      const uint32_t degree = seen.degree();
      const bool whole = degree == 0 || args.choice.whole(degree, most);
      const int64_t at = trees.row_number(first_row + number);
      args.row_begin[at] = seen.begin;
      args.row_degree[at] = degree | (whole ? 0 : Trees::kDrawn);
      args.row_first[at] = degree;  // of the others the picks are not known yet
      if (whole) continue;
      const uint32_t to =  // long rows from the end on
          degree > kLongRow ? rows - 1 - atomicAdd(&shared.long_rows, 1u) : atomicAdd(&shared.looked_at, 1u);
      args.row_drawn[trees.row_number(first_row + to)] = number;
    }
    __syncthreads();
    each_short(trees.warps(), [&](uint32_t, const RowOf&, int64_t at, const Seen& seen) {
      const uint32_t count = min(seen.count(seen.all(), bad()), seen.most());
      if (lane() == 0) args.row_first[at] = count;
    });
    each_long([&](uint32_t, const RowOf&, int64_t at, const Seen& seen) {
      uint64_t count;
      number_of_part(seen.count(part(seen.degree, trees.warps()), bad()), count);
      if (trees.thread() == 0) args.row_first[at] = static_cast<uint32_t>(min(count, uint64_t{seen.most()}));
    });
    __syncthreads();
    uint64_t edges = 0;
#pragma unroll 1
    for (uint32_t begin = 0; begin < rows; begin += trees.size()) {
      const uint32_t number = begin + trees.thread();
      const int64_t at = trees.row_number(first_row + number);
      uint64_t sum;
      const uint64_t before = trees.exclusive(uint64_t{number < rows ? args.row_first[at] : 0}, sum);
      if (number < rows) args.row_first[at] = static_cast<uint32_t>(edges + before);
      edges += sum;
    }
    return edges;
  }

  // Picks of the rows that are not taken whole, of `edges` in all.
  __device__ void pick_rows(uint32_t edges, uint32_t first_pick) const {
    const auto& args = trees.args;
    const auto held_of = [&](uint32_t number, int64_t at) {
      return (number + 1 < rows ? args.row_first[at + 1] : edges) - args.row_first[at];
    };
    const auto putting = [&](const RowOf& own, int64_t at, const Seen& seen, uint32_t before) {
      const uint32_t first = first_pick + args.row_first[at] + before;
      return [this, &own, &seen, first](uint32_t pick, uint32_t i) {
        const P place = seen.begin + static_cast<P>(i);
        trees.put(first + pick, place, trees.args.lists.read(place), own);
      };
    };
    const auto put_raced = [&](uint32_t found, uint32_t held, const auto& put) {
      const RaceBuffer raced = buffer(trees.thread() / 32);
      for (uint32_t i = lane(); i < held; i += 32)  // where weights are bad, fewer may have arrived
        put(i, i < found ? raced.places[i] : 0);
    };
    each_short(args.racing, [&](uint32_t number, const RowOf& own, int64_t at, const Seen& seen) {
      const auto put = putting(own, at, seen, 0);
      const uint32_t held = held_of(number, at);
      if (!seen.is_race(held))
        seen.pick(seen.all(), ~0u, put, bad());
      else
        put_raced(seen.race(seen.all(), buffer(trees.thread() / 32), bad()), held, put);
    });
    each_long([&](uint32_t number, const RowOf& own, int64_t at, const Seen& seen) {
      const uint32_t held = held_of(number, at);
      if (!seen.is_race(held)) {
        const RangePart mine = part(seen.degree, trees.warps());
        uint64_t all;
        const uint32_t before = number_of_part(seen.count(mine, bad()), all);
        seen.pick(mine, ~0u, putting(own, at, seen, before), bad());
      } else {
        const uint32_t found = race_by_block(seen);
        if (trees.thread() < 32) put_raced(found, held, putting(own, at, seen, 0));
      }
    });
  }

 private:
  __device__ uint32_t lane() const { return threadIdx.x % 32; }

  // Calls f(number, row, place of its arrays, what it sees) by each of the first `warps` warps with rows that
  // are not long and that no other warp takes.
  template <typename F>
  __device__ __forceinline__ void each_short(int warps, const F& f) const {
    const uint32_t count = trees.shared.looked_at;
    if (trees.thread() / 32 >= warps) return;
#pragma unroll 1
    for (uint32_t i = trees.thread() / 32; i < count; i += warps) {
      with_row(i, f);
      __syncwarp();
    }
  }

  // The same by all threads of the block together, with the long rows one after the other.
  template <typename F>
  __device__ __forceinline__ void each_long(const F& f) const {
    __syncthreads();
    const uint32_t count = trees.shared.long_rows;
#pragma unroll 1
    for (uint32_t i = 0; i < count; ++i) {
      with_row(rows - 1 - i, f);
      __syncthreads();
    }
  }

  // Calls it with row `i` of those that are looked at.
  template <typename F>
  __device__ __forceinline__ void with_row(uint32_t i, const F& f) const {
    const auto& args = trees.args;
    const uint32_t number = args.row_drawn[trees.row_number(first_row + i)];
    const int64_t at = trees.row_number(first_row + number);
    const uint32_t degree = args.row_degree[at] & ~Trees::kDrawn;
    const RowOf own = trees.row_of(tree, hop, number);
    const auto& turn = args.turns[trees.slot];
    const BatchKeys keys{trees.batch().key, turn.next_key, turn.phase};
    const Draws draws = draws_of(keys.key, own.row, hop);
    const int fanout = trees.fanout(own.row.relation, hop);
    f(number, own, at, Seen{args.choice, args.lists, keys, hop, draws, args.row_begin[at], degree, fanout});
  }

  // A warp's part of `degree` entries, of which each of the first `warps` warps has one.
  __device__ RangePart part(uint32_t degree, int warps) const {
    const auto of = static_cast<uint32_t>(warps), own = static_cast<uint32_t>(trees.thread() / 32);
    const uint32_t each = (degree - 1) / (of * kRaceEntries) * kRaceEntries + kRaceEntries;
    const uint32_t first = min(degree, own < of ? own * each : degree);
    return {first, min(each, degree - first)};
  }

  // How many picks the parts before have; `all` becomes the number of all.
  __device__ uint32_t number_of_part(uint32_t found, uint64_t& all) const {
    const uint64_t before = trees.exclusive(uint64_t{lane() == 0 ? found : 0}, all);
    return __shfl_sync(kFullMask, static_cast<uint32_t>(before), 0);
  }

  // A race by all warps that there is memory for, each on a part. Returns how many are held, in the memory of
  // the first warp, which joins the parts in their order.
  __device__ uint32_t race_by_block(const Seen& seen) const {
    const int own = trees.thread() / 32, racing = trees.args.racing;
    const RangePart mine = part(seen.degree, racing);
    const uint32_t found = own < racing ? seen.race(mine, buffer(own), bad()) : 0;
    if (lane() == 0) trees.shared.sums[own] = found;
    __syncthreads();
    if (own > 0) return 0;
    WarpRace race(buffer(0), static_cast<uint32_t>(seen.fanout));
    race.held = found;
    race.keep_first();
    for (int w = 1; w < racing; ++w) {
      const RaceBuffer other = buffer(w);
      const uint32_t held = static_cast<uint32_t>(trees.shared.sums[w]);
      for (uint32_t first = 0; first < held; first += kRaceEntries) {
        for (uint32_t i = first + lane(); i - lane() < min(held, first + kRaceEntries); i += 32)
          race.add(i < held ? other.times[i] : kNeverBits, i < held ? other.places[i] : 0);
        race.keep_first();
      }
    }
    return race.held;
  }

  // A warp's memory for a race. Nothing else lies there while rows are picked.
  __device__ RaceBuffer buffer(int warp) const {
    const int64_t each = trees.args.race_widest + kRaceEntries, at = warp * each;
#ifdef __CUDACC__
    // Of `trees.memory` the compiler takes it that it is not shared, see WarpRace, and leaves the race out.
    unsigned char* const memory = launch_memory();
#else
    unsigned char* const memory = trees.memory;
#endif
    auto* const times = reinterpret_cast<uint64_t*>(memory);
    return {times + at, reinterpret_cast<uint32_t*>(times + trees.args.racing * each) + at};
  }

  __device__ auto bad() const {
    return [this](P place) { trees.fail(SampleStatus::kBadWeight, place); };
  }
};

}  // namespace loader
