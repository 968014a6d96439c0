// PageRank on the GPU in one launch, whose blocks meet thrice in each iteration.
#pragma once

#include "traverse/cuda/calls.h"
#include "traverse/cuda/schedule.cuh"

namespace loader {

// Counts the vertices that follow each vertex.
template <typename P, typename N>
struct CountFollowers {
  struct Item {};
  PlainLists<P, N> lists;
  uint64_t* followers;

  __device__ Item begin(N) const { return {}; }
  __device__ void edge(Item&, P at) const { add_to(followers + lists.read(at), 1); }
  __device__ void end(Item&, N, bool) const {}
};

// Adds up what the vertices before each vertex pass on.
template <typename P, typename N>
struct Collect {
  using Item = uint64_t;
  PlainLists<P, N> lists;
  const uint64_t* passes;
  uint64_t* passed;

  __device__ Item begin(N) const { return 0; }
  __device__ void edge(Item& sum, P at) const { sum += passes[lists.read(at)]; }
  __device__ void end(Item sum, N v, bool together) const {
    if (together) sum = sum_of_warp(sum);
    if (sum && (!together || threadIdx.x % 32 == 0)) add_to(passed + v, sum);
  }
};

template <typename P, typename N>
__global__ __launch_bounds__(kTraverseThreads, kTraverseBlocks) void pagerank_kernel(
    const __grid_constant__ RankCall<P, N> call) {
  const Grid grid(call.space.state);
  const PlainLists<P, N>& lists = call.back.lists;
  const int64_t n = call.back.num_nodes;
  uint32_t* const set = call.space.sets[0];
  uint64_t *const followers = call.space.numbers[0], *const rank = call.space.numbers[1];
  uint64_t *const passes = call.space.numbers[2], *const passed = call.space.numbers[3];
  grid.each(traverse_words(n), [&](int64_t word) {
    const int64_t left = n - word * 32;
    set[word] = left >= 32 ? kWholeWarp : left > 0 ? (1u << left) - 1 : 0;
  });
  grid.each(n, [&](int64_t v) {
    followers[v] = 0;
    rank[v] = kWhole / static_cast<uint64_t>(n);
  });
  grid.sync();
  FrontierMaker<P, N> maker(grid, call.back);
  maker.count(set);
  grid.sync();
  const Frontier<P, N> frontier = maker.total(call.space.queue, call.space.before);
  maker.write(set, frontier, [](int64_t, uint32_t) {});
  grid.sync();
  CountFollowers<P, N> counts{lists, followers};
  for_each_edge(grid, call.line, frontier, counts);
  grid.sync();

  // The sum over all blocks of one field of their totals. It may be written again after the next barrier.
  const auto sum_of_all = [&](uint64_t GridState::Totals::*field) {
    uint64_t sum[1] = {0};
    for (int b = static_cast<int>(threadIdx.x); b < grid.blocks; b += kTraverseThreads)
      sum[0] += grid.state->totals[b].*field;
    sum_of_block(sum);
    return sum[0];
  };
  uint64_t change = 0;
  int32_t iterations = 0;
  do {
    uint64_t some[1] = {0};
    grid.each(n, [&](int64_t v) {
      passes[v] = followers[v] ? rank[v] / followers[v] : 0;
      passed[v] = 0;
      if (!followers[v]) some[0] += rank[v];
    });
    sum_of_block(some);
    if (threadIdx.x == 0) grid.state->totals[grid.block].count = some[0];
    grid.sync();
    const uint64_t loose = sum_of_all(&GridState::Totals::count);
    Collect<P, N> collects{lists, passes, passed};
    for_each_edge(grid, call.line, frontier, collects);
    grid.sync();
    some[0] = 0;
    grid.each(n, [&](int64_t v) {
      const uint64_t fresh = call.law.rank(v, passed[v], loose), old = rank[v];
      some[0] += fresh > old ? fresh - old : old - fresh;
      rank[v] = fresh;
    });
    sum_of_block(some);
    if (threadIdx.x == 0) grid.state->totals[grid.block].edges = some[0];
    grid.sync();
    change = sum_of_all(&GridState::Totals::edges);
    ++iterations;
  } while (change >= call.law.close && iterations < call.law.most_iterations);
  grid.each(n, [&](int64_t v) { call.ranks[v] = as_number(rank[v]); });
  if (grid.thread() == 0) {
    grid.state->result[0] = change;
    grid.state->result[1] = static_cast<uint64_t>(iterations);
  }
}

}  // namespace loader
