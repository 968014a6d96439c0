// The fused sampler beside the hopwise one over random graphs and thread counts, without Python: made to run
// under a sanitizer. Prints what it compared; exits with 1 at the first difference.
#include <memory>
#include <stdexcept>

#include "compare.h"
#include "sampler/cpu/fused.h"
#include "sampler/cpu/hopwise.h"

namespace {

using loader::BlockOut;
using loader::Csc;
using loader::SampleOptions;
using loader::SampleOut;
using loader::SampleSizes;
using stress::Random;

template <typename P, typename N>
struct OwnedCsc {
  std::vector<P> indptr;
  std::vector<N> indices;
  Csc<P, N> view() const { return {indptr.data(), indices.data(), static_cast<int64_t>(indptr.size()) - 1}; }
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
std::vector<N> random_seeds(Random& random, int64_t num_nodes) {
  std::vector<N> all(num_nodes);
  for (int64_t v = 0; v < num_nodes; ++v) all[v] = static_cast<N>(v);
  const int64_t count = random.between(0, std::min<int64_t>(num_nodes, random.chance(0.3) ? 1 : 300));
  for (int64_t i = 0; i < count; ++i) std::swap(all[i], all[random.between(i, num_nodes - 1)]);
  all.resize(count);
  return all;
}

SampleOptions random_options(Random& random) {
  constexpr int64_t kFanouts[] = {-1, 1, 1, 2, 3, 5, 10, 17, 40};
  SampleOptions options{
      {}, random.chance(0.3), random.chance(0.5), static_cast<uint64_t>(random.below(1 << 30))};
  const int64_t hops = random.between(1, 5);
  for (int64_t h = 0; h < hops; ++h) options.fanouts.push_back(kFanouts[random.below(9)]);
  return options;
}

template <typename P, typename N>
struct Result {
  SampleSizes sizes;
  std::vector<N> nodes;
  std::vector<std::vector<P>> indptr, edge_ids;
  std::vector<std::vector<N>> indices;
};

template <template <typename, typename> class Sampler, typename P, typename N>
Result<P, N> run(Sampler<P, N>& sampler, const OwnedCsc<P, N>& graph, const std::vector<N>& seeds,
                 const SampleOptions& options) {
  Result<P, N> r;
  r.sizes = sampler.sample(graph.view(), seeds.data(), static_cast<int64_t>(seeds.size()), options);
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

template <typename P, typename N>
void expect_refusal(loader::FusedSampler<P, N>& fused, const OwnedCsc<P, N>& graph, std::vector<N> seeds,
                    const SampleOptions& options) {
  try {
    fused.sample(graph.view(), seeds.data(), static_cast<int64_t>(seeds.size()), options);
  } catch (const std::invalid_argument&) {
    return;
  }
  stress::fail("bad seeds were accepted");
}

template <typename P, typename N>
int64_t compare(Random& random, int rounds) {
  int64_t edges = 0;
  for (int threads = 1; threads <= 8; threads += random.chance(0.5) ? 1 : 2) {
    // One sampler for graphs of all sizes: its workspace is used again.
    loader::FusedSampler<P, N> fused(threads, /*serial_edges=*/threads % 4 == 3 ? 1 << 17 : 0);
    loader::HopwiseSampler<P, N> hopwise(static_cast<int>(random.between(1, 3)));
    for (int round = 0; round < rounds; ++round) {
      const auto graph = random_graph<P, N>(random);
      const auto num_nodes = graph.view().num_nodes;
      for (int call = 0; call < 4; ++call) {
        const auto seeds = random_seeds<N>(random, num_nodes);
        const auto options = random_options(random);
        if (!seeds.empty() && random.chance(0.2)) {
          auto bad = seeds;
          bad.push_back(random.chance(0.5) ? seeds[0] : static_cast<N>(num_nodes));
          expect_refusal(fused, graph, bad, options);
        }
        const auto expected = run(hopwise, graph, seeds, options);
        const auto got = run(fused, graph, seeds, options);
        const std::string where = "threads " + std::to_string(threads) + ", round " + std::to_string(round) +
                                  ", call " + std::to_string(call) + ": ";
        stress::expect_equal(got.sizes.frontiers, expected.sizes.frontiers, where + "frontiers");
        stress::expect_equal(got.sizes.edges, expected.sizes.edges, where + "edges");
        stress::expect_equal(got.nodes, expected.nodes, where + "nodes");
        for (int h = 0; h < options.hops(); ++h) {
          const std::string hop = where + "hop " + std::to_string(h + 1) + " ";
          stress::expect_equal(got.indptr[h], expected.indptr[h], hop + "indptr");
          stress::expect_equal(got.indices[h], expected.indices[h], hop + "indices");
          stress::expect_equal(got.edge_ids[h], expected.edge_ids[h], hop + "edge ids");
          edges += expected.sizes.edges[h];
        }
      }
    }
  }
  return edges;
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = stress::rounds(argc, argv, 10);
  Random random(20240229);
  const int64_t edges = compare<int32_t, int32_t>(random, rounds) +
                        compare<int64_t, int32_t>(random, rounds) + compare<int64_t, int64_t>(random, rounds);
  if (edges == 0) stress::fail("nothing was compared");
  std::printf("equal: %lld sampled edges\n", static_cast<long long>(edges));
}
