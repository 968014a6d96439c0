// The kernels of walks as a program of the host: they walk as the CPU does, over random graphs and laws.
#if __has_include("device_code.h")
#include "device_code.h"
#else
#include <cuda_runtime_api.h>
#endif
// The stand-in above comes first.
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "compare.h"
#include "walks/cpu/edge_filter.h"
#include "walks/cpu/walk.h"
#include "walks/cuda/transit.cuh"
#include "walks/cuda/walk.cuh"

namespace loader {
namespace {

using stress::Random;

constexpr int kSteps = 8;  // of a tile

template <typename P, typename N>
struct RandomGraph {
  std::vector<P> indptr{0};
  std::vector<N> indices;
  std::vector<uint64_t> words;
  std::vector<WalkCell<N>> cells;
  std::vector<uint8_t> copies;  // see WalkLists
  std::vector<P> most;
  int64_t num_nodes;
  int groups;

  RandomGraph(Random& random, int of_each) : num_nodes(random.between(1, 40)), groups(of_each) {
    const int64_t longest = random.chance(0.3) ? 3 : 25;
    const bool simple = random.chance(0.3);
    for (int64_t v = 0; v < num_nodes * groups; ++v) {
      std::vector<N> list;
      // Some are long; in some, most entries are one vertex.
      const int64_t length = random.chance(0.03) ? random.between(65, 1500) : random.below(longest + 1);
      const N often = static_cast<N>(random.below(num_nodes));
      const double share = random.chance(0.3) ? 0.9 : 0;
      for (int64_t i = 0; i < length; ++i)
        list.push_back(random.chance(share) ? often : static_cast<N>(random.below(num_nodes)));
      std::sort(list.begin(), list.end());
      if (simple) list.erase(std::unique(list.begin(), list.end()), list.end());
      size_t first = 0, count = list.empty() ? 0 : 1;
      for (size_t i = 0, run = 0; i < list.size(); ++i) {
        run = i && list[i] == list[i - 1] ? run + 1 : 1;
        if (run > count) {
          count = run;
          first = i + 1 - run;
        }
      }
      most.push_back(static_cast<P>(indices.size() + first));
      most.push_back(static_cast<P>(count));
      uint8_t log2 = 0;
      while (size_t{1} << log2 < count) ++log2;
      copies.push_back(log2);
      size_t others = 0;
      for (size_t i = 0, run = 0; i < list.size(); ++i) {
        run = i && list[i] == list[i - 1] ? run + 1 : 1;
        if (list[i] != list[first]) others = std::max(others, run);
      }
      most.push_back(static_cast<P>(others));
      indices.insert(indices.end(), list.begin(), list.end());
      indptr.push_back(static_cast<P>(indices.size()));
    }
    indices.push_back(0);  // so that there is an address
    for (size_t v = 0; v + 1 < indptr.size(); ++v)
      for (auto at = indptr[v]; at < indptr[v + 1]; ++at) {
        const auto other = static_cast<P>(random.between(indptr[v], indptr[v + 1] - 1));
        cells.push_back({static_cast<uint32_t>(random.below(int64_t{1} << 32)),
                         static_cast<int32_t>(other - at), indices[static_cast<size_t>(at)],
                         indices[static_cast<size_t>(other)]});
      }
    cells.push_back({});
  }

  bool is_simple() const {
    return std::count(copies.begin(), copies.end(), 0) == std::ptrdiff_t(copies.size());
  }
  PlainLists<P, N> plain() const { return {indptr.data(), indices.data()}; }
};

template <class Law, class Lists>
struct Runs {
  using P = typename Lists::Edge;
  using N = typename Lists::Vertex;

  std::vector<N> starts, vertices;
  std::vector<P> places;
  WalkOut<P, N> out;

  Runs(const std::vector<N>& from, uint32_t length, uint64_t first_lane, bool with_places)
      : starts(from),
        vertices(from.size() * (length + 1), N{-7}),
        places(with_places ? from.size() * length : 0, P{-7}) {
    out = {starts.data(),   static_cast<int64_t>(starts.size()),  first_lane, length,
           vertices.data(), with_places ? places.data() : nullptr};
  }
};

template <class Law, class Lists, bool Places>
void compare(const Law& law, const Lists& lists, int64_t num_nodes, Random& random, const std::string& what) {
  using P = typename Lists::Edge;
  using N = typename Lists::Vertex;
  const auto length = static_cast<uint32_t>(random.between(1, random.chance(0.2) ? 30 : 6));
  std::vector<N> starts(static_cast<size_t>(random.between(1, 150)));
  for (N& start : starts) start = static_cast<N>(random.below(num_nodes));
  const uint64_t first_lane = random.chance(0.3) ? uint64_t{1} << 35 : 0;
  Runs<Law, Lists> expected(starts, length, first_lane, Places), got(starts, length, first_lane, Places);
  ThreadPool pool(1);
  walk_on_cpu(law, lists, expected.out, pool);

  std::vector<int64_t> wide(starts.begin(), starts.end());
  std::vector<int32_t> narrow(starts.begin(), starts.end());
  int64_t bad[2] = {0, 0};
  const bool is_wide = random.chance(0.5);
  const int together = 1 << random.below(6);  // walkers of a warp
  [[maybe_unused]] const bool knows =
      random.chance(0.3);  // the kernel that scans and seeks copies walks over any graph
  const WalkStarts from{is_wide ? static_cast<const void*>(wide.data()) : narrow.data(), is_wide, num_nodes,
                        bad, together};
  const WalkOut<P, N> out = got.out;
  const int64_t each = together * kWalkThreads / kWarpWalkers;
  const auto blocks = static_cast<unsigned>((out.count + each - 1) / each);
  on_host::run_grid(blocks, kWalkThreads, 0, [&] {
    using Proposal = typename Law::Proposal;
    if constexpr (Law::kSecond && Proposal::kFolds) {
      if (knows || !only_tries(law.rules, lists))
        walk_second_order<Lists, Proposal, Law::kCoin, Places, true, kSteps>(law, lists, out, from);
      else
        walk_second_order<Lists, Proposal, Law::kCoin, Places, false, kSteps>(law, lists, out, from);
    } else if constexpr (Law::kSecond)
      walk_second_order<Lists, Proposal, Law::kCoin, Places, false, kSteps>(law, lists, out, from);
    else
      walk_first_order<Lists, Proposal, Law::kCoin, Places, kSteps>(law, lists, out, from);
  });
  stress::expect_equal(got.vertices, expected.vertices, what + ", vertices");
  stress::expect_equal(got.places, expected.places, what + ", places");
  if constexpr (!Law::kSecond && std::is_same_v<Lists, WalkLists<P, N>>) {
    Runs<Law, Lists> stepped(starts, length, first_lane, Places);
    const WalkOut<P, N> to = stepped.out;
    std::vector<int64_t> order(starts.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);
    // A grid for each step takes long, so most walks are short.
    for (uint32_t step = 0; step < length; ++step) {
      for (size_t i = 1; i < order.size(); ++i)
        std::swap(order[i], order[static_cast<size_t>(random.below(static_cast<int64_t>(i) + 1))]);
      on_host::run_grid(1, kTransitThreads, 0, [&] {
        walk_transit<Lists, typename Law::Proposal, Law::kCoin>(law, lists, to, from, order.data(), step);
      });
    }
    stress::expect_equal(stepped.vertices, expected.vertices, what + ", vertices step by step");
    stress::expect_equal(stepped.places, expected.places, what + ", places step by step");
  }
  if (bad[0]) stress::fail(what + ": a start was refused");
}

template <class Law, class Lists>
void compare_both(const Law& law, const Lists& lists, int64_t num_nodes, Random& random,
                  const std::string& what) {
  compare<Law, Lists, false>(law, lists, num_nodes, random, what);
  compare<Law, Lists, true>(law, lists, num_nodes, random, what + " with places");
}

// The larger one of the weights of the two kinds of others is accepted always.
WalkRules random_rules(Random& random, bool coin) {
  const uint64_t stop = coin ? static_cast<uint64_t>(random.below(1 << 29)) : 0;
  const uint64_t home = coin ? stop + static_cast<uint64_t>(random.below(1 << 30)) : 0;
  uint32_t accept[3];
  for (uint32_t& a : accept) {
    a = static_cast<uint32_t>(random.below(int64_t{1} << 32));
    if (random.chance(0.3)) a >>= random.between(10, 31);  // so that lists are scanned
  }
  accept[random.between(1, 2)] = UINT32_MAX;
  WalkRules rules{
      static_cast<uint64_t>(random.below(int64_t{1} << 62)), stop, home, accept[0], accept[1], accept[2], 0};
  if (random.chance(0.5)) {
    rules.back = UINT32_MAX;
    rules.extra = uint64_t{1} << random.between(0, 63);
  }
  return rules;
}

// By weight no list is scanned: nothing is accepted as rarely as above.
WalkRules even_rules(Random& random, bool coin) {
  WalkRules rules = random_rules(random, coin);
  rules.extra = 0;
  for (uint32_t* accept : {&rules.back, &rules.common, &rules.far}) *accept |= 1u << 28;
  return rules;
}

template <typename P, typename N>
void one_round(Random& random, const std::string& types) {
  RandomGraph<P, N> graph(random, 1);
  const std::vector<N> elsewhere = graph.indices;  // as if the lists themselves were in another order
  WalkLists<P, N> lists{graph.plain(),
                        random.chance(0.5) ? graph.indices.data() : elsewhere.data(),
                        {nullptr, 0},
                        graph.is_simple() ? nullptr : graph.copies.data(),
                        graph.most.data()};
  if (random.chance(0.5)) {
    graph.words.assign(filter_words(static_cast<int64_t>(graph.indices.size()) - 1), 0);
    lists.filter = {graph.words.data(), graph.words.size()};
    ThreadPool pool(1);
    fill_filter(graph.plain(), graph.num_nodes, lists.filter, pool);
  }
  const int64_t n = graph.num_nodes;
  using U = UniformProposal;
  compare_both(WalkLaw<U, false, false>{random_rules(random, false), {}}, lists, n, random,
               types + " uniform");
  compare_both(WalkLaw<U, true, false>{random_rules(random, true), {}}, lists, n, random, types + " coin");
  compare_both(WalkLaw<U, false, true>{random_rules(random, false), {}}, lists, n, random, types + " second");
  compare_both(WalkLaw<U, true, true>{random_rules(random, true), {}}, lists, n, random,
               types + " coin, second");

  using W = WeightedProposal<N>;
  const W by{graph.cells.data()};
  compare_both(WalkLaw<W, false, false>{random_rules(random, false), by}, lists, n, random,
               types + " weighted");
  compare_both(WalkLaw<W, true, false>{random_rules(random, true), by}, lists, n, random,
               types + " weighted, coin");
  compare_both(WalkLaw<W, false, true>{even_rules(random, false), by}, lists, n, random,
               types + " weighted, second");
  compare_both(WalkLaw<W, true, true>{even_rules(random, true), by}, lists, n, random,
               types + " weighted, both");

  RandomGraph<P, N> grouped(random, 3);
  const MetapathLists<P, N> paths{{grouped.indptr.data(), grouped.indices.data(), 3}, 4, {2, 0, 1, 0}};
  compare_both(WalkLaw<U, false, false>{random_rules(random, false), {}}, paths, grouped.num_nodes, random,
               types + " metapath");
  compare_both(WalkLaw<U, true, false>{random_rules(random, true), {}}, paths, grouped.num_nodes, random,
               types + " metapath, coin");
}

// A start that is no vertex is told, and its walk has none.
void refuse() {
  const std::vector<int32_t> indptr{0, 1, 2}, indices{1, 0};
  const WalkLists<int32_t, int32_t> lists{
      {indptr.data(), indices.data()}, nullptr, {nullptr, 0}, nullptr, nullptr};
  const std::vector<int64_t> starts{0, int64_t{1} << 40, 1};
  std::vector<int32_t> vertices(9, -7);
  int64_t bad[2] = {0, 0};
  const WalkLaw<UniformProposal, false, false> law{random_rules(*std::make_unique<Random>(1), false), {}};
  on_host::run_grid(1, kWalkThreads, 0, [&] {
    walk_first_order<WalkLists<int32_t, int32_t>, UniformProposal, false, false, kSteps>(
        law, lists, {nullptr, 3, 0, 2, vertices.data(), nullptr}, {starts.data(), true, 2, bad});
  });
  if (bad[0] != 1 || bad[1] != int64_t{1} << 40) stress::fail("a start beyond the vertices was not told");
  stress::expect_equal(vertices, {0, 1, 0, 0, -1, -1, 1, 0, 1}, "walks beside it");
}

}  // namespace
}  // namespace loader

int main(int argc, char** argv) {
  const int rounds = stress::rounds(argc, argv, 20);
  stress::Random random(7);
  loader::refuse();
  for (int i = 0; i < rounds; ++i) {
    loader::one_round<int32_t, int32_t>(random, "int32");
    loader::one_round<int64_t, int32_t>(random, "wide edges");
    loader::one_round<int64_t, int64_t>(random, "int64");
  }
  std::printf("equal: %d rounds\n", rounds);
}
