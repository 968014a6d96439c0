// Traversals by any number of threads beside one thread, without Python: made to run under a sanitizer.
#include <cstdio>

#include "compare.h"
#include "traverse/cpu/bfs.h"
#include "traverse/cpu/components.h"
#include "traverse/cpu/pagerank.h"
#include "traverse/cpu/sssp.h"
#include "traverse/cpu/symmetry.h"

namespace {

using stress::Random;

// A graph whose frontiers are shared out among threads: many vertices, some of them hubs, several components.
template <typename P, typename N>
struct RandomGraph {
  std::vector<P> indptr{0};
  std::vector<N> indices;
  int64_t n;

  explicit RandomGraph(Random& random) : n(random.between(20000, 30000)) {
    const int64_t hub = random.below(n), most = random.between(1, 6);
    for (int64_t v = 0; v < n; ++v) {
      for (int64_t i = random.below(most + 1); i > 0; --i)
        indices.push_back(static_cast<N>(random.chance(0.1) ? hub : random.below(n)));
      indptr.push_back(static_cast<P>(indices.size()));
    }
    indices.push_back(0);  // so that there is an address
  }
  loader::PlainGraph<P, N> lists() const { return {{indptr.data(), indices.data()}, n}; }
};

template <typename P, typename N>
int64_t compare(Random& random) {
  const RandomGraph<P, N> graph(random);
  const auto lists = graph.lists();
  int64_t n = graph.n;
  loader::ThreadPool one(1), several(static_cast<int>(random.between(2, 6)));
  const auto both = [&](auto value, const char* what, const auto& f) {
    std::vector<decltype(value)> expected(static_cast<size_t>(n), value), got(expected);
    f(expected.data(), one);
    f(got.data(), several);
    stress::expect_equal(got, expected, what);
  };
  const std::vector<N> sources{static_cast<N>(random.below(graph.n)), static_cast<N>(random.below(graph.n))};
  both(int32_t{-7}, "distances", [&](int32_t* out, loader::Workers& workers) {
    loader::bfs_on_cpu<P, N>(lists, nullptr, sources.data(), 2, INT32_MAX, out, workers);
  });
  both(N{-7}, "labels",
       [&](N* out, loader::Workers& workers) { loader::components_on_cpu(lists, false, out, workers); });
  both(-7.0, "ranks", [&](double* out, loader::Workers& workers) {
    const loader::RankLaw law{loader::kWhole / 2, loader::kWhole / static_cast<uint64_t>(graph.n), nullptr,
                              loader::kWhole >> 30, 5};
    loader::pagerank_on_cpu(lists, law, out, workers);
  });
  std::vector<float> weights;
  for (size_t i = 0; i < graph.indices.size(); ++i)
    weights.push_back(static_cast<float>(random.below(1000)) / 7);
  both(uint32_t{7}, "lengths", [&](uint32_t* out, loader::Workers& workers) {
    loader::sssp_on_cpu(lists, weights.data(), sources.data(), 2, 30.0f, out, workers);
  });
  // Its own reverse: each edge a second time, the other way round.
  RandomGraph<P, N> mirrored(random);
  std::vector<std::vector<N>> each(static_cast<size_t>(mirrored.n));
  for (int64_t v = 0; v < mirrored.n; ++v)
    for (P at = mirrored.indptr[v]; at < mirrored.indptr[v + 1]; ++at) {
      each[static_cast<size_t>(v)].push_back(mirrored.indices[at]);
      each[static_cast<size_t>(mirrored.indices[at])].push_back(static_cast<N>(v));
    }
  mirrored.indptr = {0};
  mirrored.indices.clear();
  for (const auto& list : each) {
    mirrored.indices.insert(mirrored.indices.end(), list.begin(), list.end());
    mirrored.indptr.push_back(static_cast<P>(mirrored.indices.size()));
  }
  if (!loader::is_symmetric(mirrored.lists(), nullptr, 0, several)) stress::fail("a symmetric graph is not");
  const auto back = mirrored.lists();
  n = mirrored.n;
  const N source = static_cast<N>(random.below(n));
  both(int32_t{-7}, "distances with steps back", [&](int32_t* out, loader::Workers& workers) {
    loader::bfs_on_cpu(back, &back, &source, 1, INT32_MAX, out, workers);
    std::vector<N> before(static_cast<size_t>(mirrored.n));
    loader::bfs_predecessors_on_cpu(back, out, before.data(), workers);
  });
  both(N{-7}, "labels of a symmetric graph",
       [&](N* out, loader::Workers& workers) { loader::components_on_cpu(back, true, out, workers); });
  return graph.n;
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = stress::rounds(argc, argv, 5);
  long long vertices = 0;
  for (int round = 0; round < rounds; ++round) {
    Random random(static_cast<uint64_t>(round) + 1);
    vertices += compare<int32_t, int32_t>(random);
    vertices += compare<int64_t, int64_t>(random);
  }
  std::printf("equal: graphs of %lld vertices\n", vertices);
}
