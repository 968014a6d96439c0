// The kernels of subgraphs as a program of the host, compared with plain code over random mini-batches.
#if __has_include("device_code.h")
#include "device_code.h"
#else
#include <cuda_runtime_api.h>
#endif
// The stand-in above comes first.
#include <algorithm>
#include <cstdio>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "compare.h"
#include "sampler/cuda/subgraph.cuh"

namespace loader {
namespace {

using stress::Random;

template <typename P, typename N>
struct Hop {
  std::vector<P> indptr{0};
  std::vector<N> indices;
  std::vector<int64_t> wide_ids;
  std::vector<int32_t> ids;
  int32_t num_src = 0;
};

template <typename P, typename N>
struct Batch {
  std::vector<N> nodes;
  std::vector<Hop<P, N>> hops;
  int32_t seeds;
  size_t edges = 0;

  // As law 2 has it: the new vertices of a hop follow by ascending id.
  explicit Batch(Random& random) {
    const int64_t num_nodes = random.between(1, 200);
    std::set<N> distinct;
    for (int64_t i = random.between(1, 20); i > 0; --i)
      distinct.insert(static_cast<N>(random.below(num_nodes)));
    nodes.assign(distinct.begin(), distinct.end());
    std::reverse(nodes.begin(), nodes.end());  // seeds have any order
    seeds = static_cast<int32_t>(nodes.size());
    std::map<N, N> place;
    for (const N v : nodes) place.emplace(v, static_cast<N>(place.size()));
    for (int64_t h = random.between(1, 4); h > 0; --h) {
      Hop<P, N> hop;
      std::vector<N> picked;
      std::set<N> fresh;
      const int64_t most = random.chance(0.2) ? 90 : 6;
      for (size_t row = 0; row < nodes.size(); ++row) {
        for (int64_t i = random.below(most); i > 0; --i) {
          picked.push_back(static_cast<N>(random.below(num_nodes)));
          if (!place.count(picked.back())) fresh.insert(picked.back());
        }
        hop.indptr.push_back(static_cast<P>(picked.size()));
      }
      for (const N v : fresh) {
        place.emplace(v, static_cast<N>(nodes.size()));
        nodes.push_back(v);
      }
      for (const N v : picked) {
        hop.indices.push_back(place[v]);
        hop.ids.push_back(static_cast<int32_t>(random.below(1 << 30)));
        hop.wide_ids.push_back(hop.ids.back());
      }
      hop.num_src = static_cast<int32_t>(nodes.size());
      edges += picked.size();
      hops.push_back(hop);
    }
  }
};

struct Plain {
  std::vector<int64_t> nodes, sources, destinations, ids, vertices_after, edges_after{0};
};

template <typename P, typename N>
Plain plain_subgraph(const Batch<P, N>& batch) {
  Plain out;
  std::vector<size_t> rows;
  std::map<size_t, int64_t> number;  // by place
  for (size_t i = 0; i < static_cast<size_t>(batch.seeds); ++i) {
    rows.push_back(i);
    number.emplace(i, out.nodes.size());
    out.nodes.push_back(batch.nodes[i]);
  }
  out.vertices_after.push_back(batch.seeds);
  std::vector<size_t> places;
  for (const Hop<P, N>& hop : batch.hops) {
    std::map<N, size_t> fresh;  // id -> place
    for (const size_t row : rows)
      for (P e = hop.indptr[row]; e < hop.indptr[row + 1]; ++e) {
        const auto place = static_cast<size_t>(hop.indices[static_cast<size_t>(e)]);
        places.push_back(place);
        out.destinations.push_back(number[row]);
        out.ids.push_back(hop.wide_ids[static_cast<size_t>(e)]);
        if (!number.count(place)) fresh.emplace(batch.nodes[place], place);
      }
    rows.clear();
    for (const auto& [id, place] : fresh) {
      rows.push_back(place);
      number.emplace(place, out.nodes.size());
      out.nodes.push_back(id);
    }
    out.vertices_after.push_back(static_cast<int64_t>(out.nodes.size()));
    out.edges_after.push_back(static_cast<int64_t>(places.size()));
  }
  for (const size_t place : places) out.sources.push_back(number[place]);
  return out;
}

template <typename P, typename N>
void one_round(Random& random, const std::string& types) {
  const Batch<P, N> batch(random);
  const bool wide_ids = random.chance(0.5), with_ids = random.chance(0.7);
  const size_t vertices = batch.nodes.size(), edges = batch.edges, hops = batch.hops.size();
  std::vector<int32_t> local(vertices), met_places(vertices), source(edges + 1), destination(edges + 1);
  std::vector<uint32_t> before(vertices + 1), sums(kSubgraphBlocks);
  std::vector<int64_t> found_sizes(2 * (hops + 1), -7), nodes(vertices, -7), ends(2 * edges + 1, -7),
      ids(edges + 1, -7);
  SubgraphArgs<P, N> args{};
  for (size_t h = 0; h < hops; ++h) {
    const Hop<P, N>& hop = batch.hops[h];
    args.hops[h] = {hop.indptr.data(), hop.indices.data(),
                    wide_ids ? static_cast<const void*>(hop.wide_ids.data()) : hop.ids.data(), wide_ids,
                    hop.num_src};
  }
  args.num_hops = static_cast<int32_t>(hops);
  args.seeds = batch.seeds;
  args.nodes = batch.nodes.data();
  args.local = local.data();
  args.places = met_places.data();
  args.before = before.data();
  args.sums = sums.data();
  args.source = source.data();
  args.destination = destination.data();
  args.sizes = found_sizes.data();
  args.out_nodes = nodes.data();
  args.out_edges = ends.data();
  args.out_ids = with_ids ? ids.data() : nullptr;
  const auto run = [&](const auto& kernel) {
    on_host::run_grid(kSubgraphBlocks, kSubgraphThreads, 0, kernel);
  };
  run([&] { start_subgraph_kernel(args); });
  for (int h = 0; h < args.num_hops; ++h) {
    run([&] { count_edges_kernel(args, h); });
    run([&] { take_edges_kernel(args, h); });
    run([&] { count_new_kernel(args, h); });
    run([&] { count_before_kernel(args, h); });
    run([&] { number_new_kernel(args, h); });
  }
  run([&] { finish_subgraph_kernel(args); });

  const Plain expected = plain_subgraph(batch);
  std::vector<int64_t> sizes = expected.vertices_after;
  sizes.insert(sizes.end(), expected.edges_after.begin(), expected.edges_after.end());
  stress::expect_equal(found_sizes, sizes, types + ", sizes");
  nodes.resize(expected.nodes.size());
  stress::expect_equal(nodes, expected.nodes, types + ", nodes");
  std::vector<int64_t> both = expected.sources;
  both.insert(both.end(), expected.destinations.begin(), expected.destinations.end());
  ends.resize(both.size());
  stress::expect_equal(ends, both, types + ", edges");
  ids.resize(expected.ids.size());
  if (with_ids) stress::expect_equal(ids, expected.ids, types + ", edge ids");
}

}  // namespace
}  // namespace loader

int main(int argc, char** argv) {
  const int rounds = stress::rounds(argc, argv, 20);
  stress::Random random(13);
  for (int i = 0; i < rounds; ++i) {
    loader::one_round<int32_t, int32_t>(random, "int32");
    loader::one_round<int64_t, int32_t>(random, "wide edges");
    loader::one_round<int64_t, int64_t>(random, "int64");
  }
  std::printf("equal: %d rounds\n", rounds);
}
