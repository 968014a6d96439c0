// The kernels of traversals as a program of the host: lists of either memory give the CPU's results.
#if __has_include("device_code.h")
#include "device_code.h"
#else
#include <cuda_runtime_api.h>
#endif
// The stand-in above comes first.
#include <algorithm>
#include <cstdio>
#include <limits>
#include <string>
#include <vector>

#include "compare.h"
#include "traverse/cpu/bfs.h"
#include "traverse/cpu/components.h"
#include "traverse/cpu/pagerank.h"
#include "traverse/cpu/sssp.h"
#include "traverse/cuda/bfs.cuh"
#include "traverse/cuda/components.cuh"
#include "traverse/cuda/pagerank.cuh"
#include "traverse/cuda/sssp.cuh"

namespace loader {
namespace {

using stress::Random;

constexpr unsigned kBlocks = 3;

template <typename P, typename N>
struct RandomGraph {
  std::vector<P> indptr{0}, back_indptr{0};
  std::vector<N> indices, back_indices;
  int64_t n;
  bool symmetric;

  explicit RandomGraph(Random& random) : n(random.between(1, 150)), symmetric(random.chance(0.6)) {
    std::vector<std::vector<N>> forth(static_cast<size_t>(n)), back(static_cast<size_t>(n));
    const auto add = [&](int64_t u, int64_t v) {
      forth[static_cast<size_t>(u)].push_back(static_cast<N>(v));
      back[static_cast<size_t>(v)].push_back(static_cast<N>(u));
    };
    const int64_t hub = random.below(n);
    const bool far = random.chance(0.3);  // a long way
    for (int64_t i = random.below(n * (random.chance(0.5) ? 2 : 12) + 1); i > 0; --i) {
      const int64_t u = random.chance(0.2) ? hub : random.below(n);
      const int64_t v = far ? std::min(n - 1, u + random.between(0, 2)) : random.below(n);
      add(u, v);
      if (symmetric) add(v, u);
    }
    const auto lay = [&](const auto& lists, auto& begins, auto& entries) {
      for (const auto& list : lists) {
        entries.insert(entries.end(), list.begin(), list.end());
        begins.push_back(static_cast<P>(entries.size()));
      }
      entries.push_back(0);  // so that there is an address
    };
    lay(forth, indptr, indices);
    lay(back, back_indptr, back_indices);
  }
  PlainGraph<P, N> onward() const { return {{indptr.data(), indices.data()}, n}; }
  PlainGraph<P, N> backward() const { return {{back_indptr.data(), back_indices.data()}, n}; }
};

// Memory of exactly the size that is asked for: a sanitizer sees its end.
template <typename P, typename N>
struct Memory {
  std::vector<unsigned char> bytes;
  TraverseSpace<P, N> space;
  Memory(int64_t n, bool numbers)
      : bytes(static_cast<size_t>(TraverseSpace<P, N>::bytes(n, numbers)) + 256, 0xA5) {
    const auto begin = (reinterpret_cast<uintptr_t>(bytes.data()) + 255) / 256 * 256;
    space = TraverseSpace<P, N>::at(reinterpret_cast<void*>(begin), n, numbers);
    *space.state = {};
  }
};

template <class F>
void run(const F& f) {
  on_host::run_grid(kBlocks, kTraverseThreads, 0, f);
}

template <typename P, typename N, typename W>
void compare_paths(const RandomGraph<P, N>& graph, int32_t line, Random& random, const std::string& what) {
  using Bits = typename Length<W>::Bits;
  std::vector<W> weights;
  const int64_t shift = random.chance(0.5) ? 0 : 200;
  for (size_t i = 0; i < graph.indices.size(); ++i) {
    const int64_t whole = random.chance(0.1) ? shift : shift + random.below(1000);
    weights.push_back(std::is_integral_v<W> ? static_cast<W>(whole) : static_cast<W>(whole) / W{7});
  }
  if (random.chance(0.1)) weights[0] = std::numeric_limits<W>::max();
  const std::vector<N> sources{static_cast<N>(random.below(graph.n)), static_cast<N>(random.below(graph.n))};
  std::vector<Bits> expected(static_cast<size_t>(graph.n)), got(expected);
  const W delta = static_cast<W>(random.chance(0.3) ? 1 : random.between(1, 2000));
  ThreadPool pool(1);
  sssp_on_cpu(graph.onward(), weights.data(), sources.data(), 2, delta, expected.data(), pool);
  const Memory<P, N> memory(graph.n, false);
  const W least = random.chance(0.3) ? W{0} : *std::min_element(weights.begin(), weights.end());
  const SsspCall<P, N, W> call{graph.onward(),
                               weights.data(),
                               line,
                               sources.data(),
                               2,
                               delta,
                               std::numeric_limits<W>::max() / 4,
                               least,
                               got.data(),
                               memory.space};
  run([&] { sssp_kernel<P, N, W>(call); });
  stress::expect_equal(got, expected, what + ", lengths");
}

template <typename P, typename N>
void one_round(Random& random, const std::string& types) {
  const RandomGraph<P, N> graph(random);
  const auto size = static_cast<size_t>(graph.n);
  const int32_t line = random.chance(0.5) ? 1 : 32;
  const std::string what = types + ", line " + std::to_string(line);
  ThreadPool pool(1);
  {
    std::vector<N> sources;
    for (int64_t i = random.between(1, 5); i > 0; --i)
      sources.push_back(static_cast<N>(random.below(graph.n)));
    const int32_t most = random.chance(0.3) ? static_cast<int32_t>(random.below(4)) : INT32_MAX;
    const bool turns = random.chance(0.6);
    std::vector<int32_t> expected(size), got(size, -7);
    const auto count = static_cast<int64_t>(sources.size());
    bfs_on_cpu<P, N>(graph.onward(), nullptr, sources.data(), count, most, expected.data(), pool);
    std::vector<int32_t> turned(size);
    const auto back = graph.backward();
    bfs_on_cpu<P, N>(graph.onward(), &back, sources.data(), count, most, turned.data(), pool);
    stress::expect_equal(turned, expected, what + ", distances on the CPU");
    const Memory<P, N> memory(graph.n, false);
    const BfsCall<P, N> call{graph.onward(), back,  line,       sources.data(), count,
                             most,           turns, got.data(), memory.space};
    run([&] { bfs_kernel<P, N>(call); });
    stress::expect_equal(got, expected, what + ", distances");
  }
  {
    std::vector<N> expected(size), got(size, -7);
    components_on_cpu(graph.onward(), false, expected.data(), pool);
    const Memory<P, N> memory(graph.n, false);
    const ComponentsCall<P, N> call{graph.backward(), line, graph.symmetric, got.data(), memory.space};
    run([&] { components_kernel<P, N>(call); });
    stress::expect_equal(got, expected, what + ", labels");
  }
  {
    std::vector<double> expected(size), got(size, -7);
    std::vector<uint64_t> own;
    for (int64_t v = 0; v < graph.n; ++v)
      own.push_back(kWhole / static_cast<uint64_t>(graph.n) / 2 * static_cast<uint64_t>(random.below(3)));
    const RankLaw law{kWhole / 20 * 17, kWhole / static_cast<uint64_t>(graph.n),
                      random.chance(0.5) ? own.data() : nullptr, kWhole / 100000, 12};
    const RankResult done = pagerank_on_cpu(graph.backward(), law, expected.data(), pool);
    const Memory<P, N> memory(graph.n, true);
    const RankCall<P, N> call{graph.backward(), line, law, got.data(), memory.space};
    run([&] { pagerank_kernel<P, N>(call); });
    stress::expect_equal(got, expected, what + ", ranks");
    if (memory.space.state->result[0] != done.change || memory.space.state->result[1] != done.iterations)
      stress::fail(what + ": another number of iterations");
  }
  switch (random.below(4)) {
    case 0:
      return compare_paths<P, N, float>(graph, line, random, what + ", float");
    case 1:
      return compare_paths<P, N, double>(graph, line, random, what + ", double");
    case 2:
      return compare_paths<P, N, int32_t>(graph, line, random, what + ", int32");
    default:
      return compare_paths<P, N, int64_t>(graph, line, random, what + ", int64");
  }
}

}  // namespace
}  // namespace loader

int main(int argc, char** argv) {
  const int rounds = stress::rounds(argc, argv, 20);
  for (int round = 0; round < rounds; ++round) {
    stress::Random random(static_cast<uint64_t>(round) + 1);
    const std::string number = "round " + std::to_string(round) + ", ";
    loader::one_round<int32_t, int32_t>(random, number + "int32");
    loader::one_round<int64_t, int32_t>(random, number + "wide edges");
    loader::one_round<int64_t, int64_t>(random, number + "int64");
  }
  std::printf("equal: %d rounds of three types\n", rounds);
}
