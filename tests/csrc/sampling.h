// Random graphs, seeds and options for the samplers, and what a sampler of the CPU makes of them.
#pragma once

#include <algorithm>

#include "compare.h"
#include "sampler/sampler.h"

namespace stress {

using loader::BlockOut;
using loader::GraphOf;
using loader::PlainLists;
using loader::SampleOptions;
using loader::SampleOut;
using loader::SampleSizes;

template <typename P, typename N>
struct OwnedCsc {
  std::vector<P> indptr;
  std::vector<N> indices;
  GraphOf<PlainLists<P, N>> view() const {
    return {{indptr.data(), indices.data()}, static_cast<int64_t>(indptr.size()) - 1};
  }
};

// Random degrees, with hubs and isolated vertices; a chain or a star now and then.
template <typename P, typename N>
OwnedCsc<P, N> random_graph(Random& random) {
  const int64_t num_nodes = random.chance(0.1) ? 1 : random.between(2, random.chance(0.2) ? 20000 : 500);
  const int64_t mean = random.between(1, 12);
  const int shape = static_cast<int>(random.below(4));
  OwnedCsc<P, N> graph;
  graph.indptr.push_back(0);
  for (int64_t v = 0; v < num_nodes; ++v) {
    if (shape == 0) {  // a chain
      if (v + 1 < num_nodes) graph.indices.push_back(static_cast<N>(v + 1));
    } else if (shape == 1) {  // a star
      if (v == 0)
        for (int64_t u = 1; u < num_nodes; ++u) graph.indices.push_back(static_cast<N>(u));
      else
        graph.indices.push_back(0);
    } else {
      int64_t degree = random.chance(0.2) ? 0 : random.between(0, 2 * mean);
      if (random.chance(0.01)) degree = random.between(100, 3000);
      for (int64_t i = 0; i < degree; ++i) graph.indices.push_back(static_cast<N>(random.below(num_nodes)));
    }
    graph.indptr.push_back(static_cast<P>(graph.indices.size()));
  }
  return graph;
}

template <typename N>
std::vector<N> random_seeds(Random& random, int64_t num_nodes, int64_t at_least = 0) {
  std::vector<N> all(num_nodes);
  for (int64_t v = 0; v < num_nodes; ++v) all[v] = static_cast<N>(v);
  const int64_t some = random.between(0, std::min<int64_t>(num_nodes, random.chance(0.3) ? 1 : 300));
  const int64_t count = std::max(some, std::min(num_nodes, at_least));
  for (int64_t i = 0; i < count; ++i) std::swap(all[i], all[random.between(i, num_nodes - 1)]);
  all.resize(count);
  return all;
}

SampleOptions random_options(Random& random) {
  constexpr int64_t kFanouts[] = {-1, 1, 1, 2, 3, 5, 10, 17, 25, 32, 40};
  SampleOptions options{{},
                        loader::UniformChoice{random.chance(0.3)},
                        random.chance(0.5),
                        {static_cast<uint64_t>(random.below(1 << 30)), 0, 0}};
  const int64_t hops = random.between(1, 5);
  for (int64_t h = 0; h < hops; ++h) options.fanouts.push_back(kFanouts[random.below(std::size(kFanouts))]);
  return options;
}

// Arrays for picks that are not uniform: any cells and rising ends are a table that can be drawn from, and
// any permutation is an order.
struct OwnedTables {
  std::vector<loader::AliasCell> cells;
  std::vector<uint64_t> ends;
  std::vector<uint32_t> order;
  std::vector<float> weights;  // some of them 0, of some lists a few outweigh all others
};

template <typename P>
OwnedTables random_tables(Random& random, const std::vector<P>& indptr) {
  OwnedTables tables;
  for (size_t v = 0; v + 1 < indptr.size(); ++v) {
    const auto degree = static_cast<uint32_t>(indptr[v + 1] - indptr[v]);
    const auto mass = uint64_t{degree} << 32;
    const bool steep = random.chance(0.3);  // one entry has nearly all, so that draws repeat
    for (uint32_t i = 0; i < degree; ++i) {
      const auto threshold = steep ? 0u : static_cast<uint32_t>(random.below(int64_t{1} << 32));
      tables.cells.push_back({threshold, steep ? 0 : static_cast<uint32_t>(random.below(degree))});
      tables.ends.push_back(steep ? mass - degree + 1 + i : (uint64_t{i} + 1) << 32);
      tables.order.push_back(degree - 1 - i);
      // Of steep ones each is a thousand times the next: few have most of the weight.
      constexpr float kSteep[] = {0, 1e-12f, 1e-9f, 1e-6f, 1e-3f, 1, 1e12f};
      tables.weights.push_back(steep ? kSteep[random.chance(0.03) ? 6 : random.below(6)]
                                     : static_cast<float>(random.below(5)));
    }
  }
  return tables;
}

loader::AnyChoice random_choice(Random& random, const OwnedTables& tables) {
  switch (random.below(5)) {
    case 0:
      return loader::WeightedChoice{random.chance(0.3), tables.cells.data(), tables.ends.data()};
    case 1:
      return loader::TopKChoice{tables.order.data()};
    case 2:
      return loader::LaborChoice{random.chance(0.5), static_cast<uint32_t>(random.between(1, 3)), 7};
    case 3:
      return loader::RaceChoice{tables.weights.data(), nullptr};
    default:
      return loader::UniformChoice{random.chance(0.3)};
  }
}

template <typename P, typename N>
struct Result {
  SampleSizes sizes;
  std::vector<N> nodes;
  std::vector<std::vector<P>> indptr, edge_ids;
  std::vector<std::vector<N>> indices;
};

template <typename Sampler, typename P = typename Sampler::P, typename N = typename Sampler::N>
Result<P, N> run(Sampler& sampler, const GraphOf<typename Sampler::Lists>& graph, const std::vector<N>& seeds,
                 const typename Sampler::Options& options) {
  Result<P, N> r;
  r.sizes = sampler.sample(graph, seeds.data(), static_cast<int64_t>(seeds.size()), options);
  r.nodes.resize(r.sizes.frontiers.back());
  SampleOut<P, N> out;
  for (int h = 0; h < options.hops(); ++h) {
    r.indptr.emplace_back(r.sizes.frontiers[h] + 1);
    r.indices.emplace_back(r.sizes.edges[h]);
    r.edge_ids.emplace_back(options.edge_ids ? r.sizes.edges[h] : 0);
  }
  out.nodes = r.nodes.data();
  for (int h = 0; h < options.hops(); ++h)
    out.blocks.push_back(
        {r.indptr[h].data(), r.indices[h].data(), options.edge_ids ? r.edge_ids[h].data() : nullptr});
  sampler.write(out);
  return r;
}

template <typename Sampler, typename P, typename N>
Result<P, N> run(Sampler& sampler, const OwnedCsc<P, N>& graph, const std::vector<N>& seeds,
                 const SampleOptions& options) {
  return run(sampler, graph.view(), seeds, options);
}

// Fails at the first difference; returns the number of edges that were compared.
template <typename P, typename N>
int64_t expect_same(const Result<P, N>& got, const Result<P, N>& expected, const std::string& where) {
  expect_equal(got.sizes.frontiers, expected.sizes.frontiers, where + "frontiers");
  expect_equal(got.sizes.edges, expected.sizes.edges, where + "edges");
  expect_equal(got.nodes, expected.nodes, where + "nodes");
  int64_t edges = 0;
  for (size_t h = 0; h < expected.sizes.edges.size(); ++h) {
    const std::string hop = where + "hop " + std::to_string(h + 1) + " ";
    expect_equal(got.indptr[h], expected.indptr[h], hop + "indptr");
    expect_equal(got.indices[h], expected.indices[h], hop + "indices");
    expect_equal(got.edge_ids[h], expected.edge_ids[h], hop + "edge ids");
    edges += expected.sizes.edges[h];
  }
  return edges;
}

}  // namespace stress
