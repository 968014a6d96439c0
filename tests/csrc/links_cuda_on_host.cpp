// The kernels of links as a program of the host, compared with plain code over random links and graphs.
#if __has_include("device_code.h")
#include "device_code.h"
#else
#include <cuda_runtime_api.h>
#endif
// The stand-in above comes first.
#include <algorithm>
#include <cstdio>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "compare.h"
#include "links/cuda/ends.cuh"
#include "links/cuda/without.cuh"

namespace loader {
namespace {

using stress::Random;

template <typename P, typename N>
struct Lists {
  std::vector<P> indptr{0};
  std::vector<N> indices;
  int64_t num_sources, num_targets;
  bool one_type;

  explicit Lists(Random& random)
      : num_sources(random.between(1, 30)), num_targets(num_sources), one_type(random.chance(0.5)) {
    if (!one_type) num_targets = random.between(1, 30);
    const double full = random.chance(0.3) ? 0.97 : 0.3;  // so that tries run out
    for (int64_t v = 0; v < num_targets; ++v) {
      for (int64_t u = 0; u < num_sources; ++u)
        if (random.chance(full)) indices.push_back(static_cast<N>(u));
      indptr.push_back(static_cast<P>(indices.size()));
    }
    indices.push_back(0);  // so that there is an address
  }
};

unsigned blocks_of(int64_t threads) {
  return static_cast<unsigned>((threads + kLinkThreads - 1) / kLinkThreads);
}

// The ends as the CPU has them.
template <typename P, typename N>
std::vector<int64_t> expected_ends(const LinkEnds& ends, const KnownEdges<P, N>& known) {
  std::vector<int64_t> sources, targets, found;
  for (int64_t i = 0; i < ends.negatives; ++i) {
    const Draws draws{ends.key, static_cast<uint64_t>(i), 0};
    int64_t source = 0, target = 0;
    if (ends.each == 0) {
      if (!negative_pair(draws, ends.counts, ends.strict, known, &source, &target)) target = -1;
      sources.push_back(ends.first_source + source);
    } else {
      target = negative_target(draws, ends.counts, ends.strict, known, ends.pair(2 * (i / ends.each)));
    }
    targets.push_back(target < 0 ? -1 : ends.first_target + target);
  }
  for (int64_t side = 0; side < 2; ++side)
    for (int64_t i = 0; i < ends.links; ++i)
      found.push_back((side ? ends.first_target : ends.first_source) + ends.pair(2 * i + side));
  found.insert(found.end(), sources.begin(), sources.end());
  found.insert(found.end(), targets.begin(), targets.end());
  return found;
}

template <typename N>
void check_distinct(const std::vector<int64_t>& ends, int64_t num_nodes, const std::string& what) {
  const auto count = static_cast<int64_t>(ends.size());
  std::vector<N> seeds(ends.size(), N{-7});
  std::vector<int64_t> local(ends.size(), -7);
  DistinctEnds outcome{-7, -7};
  on_host::run_grid(1, kSortThreads, 0, [&] {
    distinct_ends_kernel<N>(ends.data(), count, num_nodes, seeds.data(), local.data(), &outcome);
  });
  const auto bad = std::find_if(ends.begin(), ends.end(), [&](int64_t v) { return v < 0 || v >= num_nodes; });
  const int64_t place = bad == ends.end() ? -1 : bad - ends.begin();
  if (outcome.bad != place) stress::fail(what + ": the end that is no vertex was not told");
  if (place >= 0) return;
  const std::set<int64_t> distinct(ends.begin(), ends.end());
  if (outcome.count != static_cast<int64_t>(distinct.size()))
    stress::fail(what + ": number of distinct ends");
  seeds.resize(distinct.size());
  stress::expect_equal(seeds, std::vector<N>(distinct.begin(), distinct.end()), what + ", seeds");
  for (size_t i = 0; i < ends.size(); ++i)
    if (local[i] < 0 || local[i] >= outcome.count || seeds[static_cast<size_t>(local[i])] != ends[i])
      stress::fail(what + ": the place of an end");
}

template <typename P, typename N>
void check_ends(Random& random, const std::string& types) {
  const Lists<P, N> lists(random);
  const bool strict = random.chance(0.7), wide = random.chance(0.5);
  const int64_t links = random.between(1, 300), each = random.chance(0.5) ? random.between(1, 3) : 0;
  const int64_t negatives = each ? links * each : random.between(0, 400);
  std::vector<int64_t> pairs;
  for (int64_t i = 0; i < links; ++i) {
    pairs.push_back(random.below(lists.num_sources));
    pairs.push_back(random.below(lists.num_targets));
  }
  const int64_t first_source = random.below(9), num_nodes = 80;
  const int64_t first_target = lists.one_type ? first_source : random.below(9);
  const std::vector<int32_t> narrow(pairs.begin(), pairs.end());
  const KnownEdges<P, N> known{strict ? lists.indptr.data() : nullptr,
                               strict ? lists.indices.data() : nullptr};
  LinkEnds ends{
      wide ? static_cast<const void*>(pairs.data()) : narrow.data(),
      wide,
      links,
      negatives,
      each,
      static_cast<uint64_t>(random.below(int64_t{1} << 62)),
      {static_cast<uint32_t>(lists.num_sources), static_cast<uint32_t>(lists.num_targets), lists.one_type},
      first_source,
      first_target,
      strict,
      nullptr};
  std::vector<int64_t> got(static_cast<size_t>(ends.count()), -7);
  ends.out = got.data();
  on_host::run_grid(blocks_of(std::max(links, negatives)), kLinkThreads, 0,
                    [&] { link_ends_kernel<P, N>(ends, known); });
  stress::expect_equal(got, expected_ends(ends, known), types + (each ? ", triplets" : ", pairs"));
  check_distinct<N>(got, num_nodes, types);

  // Ends that are no nodes of their types, though they may be others of the graph.
  pairs[0] = lists.num_sources;
  pairs[1] = -1;
  ends.pairs = pairs.data();
  ends.wide = true;
  on_host::run_grid(blocks_of(std::max(links, negatives)), kLinkThreads, 0,
                    [&] { link_ends_kernel<P, N>(ends, known); });
  if (got[0] != -1 || got[static_cast<size_t>(links)] != -1) stress::fail(types + ": ends that are no nodes");
}

// Without links, of a block: lists of the seeds and of other vertices.
template <typename P, typename N>
void check_without(Random& random, const std::string& types) {
  const int64_t seeds = random.between(1, 40), rows = seeds + random.below(20),
                vertices = rows + random.below(50);
  const bool reverse = random.chance(0.5), explicit_ends = random.chance(0.5);
  std::vector<P> indptr{0};
  std::vector<N> sources, destinations;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = random.below(12); i > 0; --i) {
      sources.push_back(static_cast<N>(random.below(vertices)));
      destinations.push_back(static_cast<N>(row));
    }
    indptr.push_back(static_cast<P>(sources.size()));
  }
  std::vector<int64_t> from, to;
  for (int64_t i = random.between(1, 60); i > 0; --i) {
    from.push_back(random.below(seeds));
    to.push_back(random.below(seeds));
  }
  std::vector<unsigned long long> slots(256, ~0ull);
  const EdgeSet set{slots.data(), slots.size() - 1, seeds};
  const auto links = static_cast<int64_t>(from.size());
  on_host::run_grid(blocks_of(2 * links), kLinkThreads, 0,
                    [&] { insert_edges_kernel(set, from.data(), to.data(), links, reverse); });
  const auto edges = static_cast<int64_t>(indptr[static_cast<size_t>(seeds)]);
  const auto all = static_cast<int64_t>(sources.size());
  std::vector<P> gone(sources.size() + 1, P{-7});
  unsigned long long found = 0;
  on_host::run_grid(2, kLinkThreads, 0, [&] {
    find_edges_kernel<P, N>(set, explicit_ends ? nullptr : indptr.data(), sources.data(),
                            explicit_ends ? destinations.data() : nullptr, explicit_ends ? edges : all,
                            gone.data(), &found);
  });
  gone.resize(found);
  std::sort(gone.begin(), gone.end());

  std::set<std::pair<int64_t, int64_t>> left_out;
  for (size_t i = 0; i < from.size(); ++i) {
    left_out.insert({from[i], to[i]});
    if (reverse) left_out.insert({to[i], from[i]});
  }
  std::vector<P> expected_gone, expected_indptr{0};
  std::vector<N> expected;
  for (int64_t row = 0; row < rows; ++row) {
    for (auto e = static_cast<size_t>(indptr[static_cast<size_t>(row)]);
         e < static_cast<size_t>(indptr[static_cast<size_t>(row) + 1]); ++e) {
      if (row < seeds && left_out.count({sources[e], row}))
        expected_gone.push_back(static_cast<P>(e));
      else
        expected.push_back(sources[e]);
    }
    expected_indptr.push_back(static_cast<P>(expected.size()));
  }
  stress::expect_equal(gone, expected_gone, types + ", edges that are links");
  if (gone.empty()) return;
  std::vector<N> kept(expected.size() + 1, N{-7});
  std::vector<P> lists(indptr.size(), P{-7});
  const auto count = static_cast<int64_t>(gone.size());
  on_host::run_grid(blocks_of(all), kLinkThreads, 0,
                    [&] { drop_entries_kernel<N, P>(sources.data(), all, gone.data(), count, kept.data()); });
  on_host::run_grid(blocks_of(rows + 1), kLinkThreads, 0, [&] {
    drop_from_lists_kernel<P>(indptr.data(), rows + 1, gone.data(), count, lists.data());
  });
  expected.push_back(N{-7});
  stress::expect_equal(kept, expected, types + ", what stays");
  stress::expect_equal(lists, expected_indptr, types + ", where lists begin");
}

template <typename P, typename N>
void one_round(Random& random, const std::string& types) {
  check_ends<P, N>(random, types);
  check_without<P, N>(random, types);
}

// As many ends as one block can sort, and ends that are no vertices.
void at_the_limit(Random& random) {
  std::vector<int64_t> ends;
  for (int64_t i = 0; i < kMostSorted; ++i) ends.push_back(random.below(int64_t{1} << 40));
  check_distinct<int64_t>(ends, int64_t{1} << 40, "the most");
  ends[4000] = int64_t{1} << 40;
  ends[2000] = -1;
  check_distinct<int64_t>(ends, int64_t{1} << 40, "no vertices");
  check_distinct<int32_t>({5}, 6, "one end");
}

}  // namespace
}  // namespace loader

int main(int argc, char** argv) {
  const int rounds = stress::rounds(argc, argv, 20);
  stress::Random random(11);
  loader::at_the_limit(random);
  for (int i = 0; i < rounds; ++i) {
    loader::one_round<int32_t, int32_t>(random, "int32");
    loader::one_round<int64_t, int32_t>(random, "wide edges");
    loader::one_round<int64_t, int64_t>(random, "int64");
  }
  std::printf("equal: %d rounds\n", rounds);
}
