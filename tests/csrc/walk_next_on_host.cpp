// Walks by users' functions: the GPU's kernel, on the host, walks as the CPU does, over random graphs.
// "nexts.h" is made by the test: structs as loader/samplers/walk_next makes them, and EACH_NEXT(F).
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
#include "sampler/cpu/philox_lanes.h"
#include "walks/cpu/edge_filter.h"
#include "walks/cuda/custom.cuh"
#include "walks/custom/cpp_next_arguments.h"
#include "walks/custom/walkers.h"
//
#include "nexts.h"

namespace loader {
namespace {

using stress::Random;

constexpr int kSteps = 8;  // of a tile

template <typename P, typename N>
struct RandomGraph {
  std::vector<P> indptr{0};
  std::vector<N> indices;
  std::vector<WalkCell<N>> cells;
  std::vector<uint32_t> weights;
  std::vector<uint64_t> words;
  int64_t num_nodes;

  explicit RandomGraph(Random& random) : num_nodes(random.between(1, 40)) {
    const int64_t most = random.chance(0.3) ? 3 : 60;
    for (int64_t v = 0; v < num_nodes; ++v) {
      std::vector<N> list;
      for (int64_t i = random.below(most + 1); i > 0; --i)
        list.push_back(static_cast<N>(random.below(num_nodes)));
      std::sort(list.begin(), list.end());
      indices.insert(indices.end(), list.begin(), list.end());
      indptr.push_back(static_cast<P>(indices.size()));
    }
    for (size_t v = 0; v + 1 < indptr.size(); ++v)
      for (auto at = indptr[v]; at < indptr[v + 1]; ++at) {
        const auto other = static_cast<P>(random.between(indptr[v], indptr[v + 1] - 1));
        cells.push_back({static_cast<uint32_t>(random.below(int64_t{1} << 32)),
                         static_cast<int32_t>(other - at), indices[static_cast<size_t>(at)],
                         indices[static_cast<size_t>(other)]});
        weights.push_back(static_cast<uint32_t>(random.between(int64_t{1} << 30, UINT32_MAX)));
      }
    indices.push_back(0);  // so that there is an address
    cells.push_back({});
    weights.push_back(1);
  }
};

template <class Next, typename P, typename N>
void compare(Random& random, const CustomRules& rules, const std::string& what) {
  RandomGraph<P, N> graph(random);
  CustomLists<P, N> lists{
      {{graph.indptr.data(), graph.indices.data()}, graph.indices.data(), {nullptr, 0}, nullptr, nullptr},
      graph.num_nodes,
      graph.cells.data(),
      graph.weights.data()};
  ThreadPool pool(1);
  if (random.chance(0.5)) {
    graph.words.assign(filter_words(static_cast<int64_t>(graph.indices.size()) - 1), 0);
    lists.filter = {graph.words.data(), graph.words.size()};
    fill_filter(lists, graph.num_nodes, lists.filter, pool);
  }
  const auto length = static_cast<uint32_t>(random.between(1, 30));
  std::vector<N> starts(static_cast<size_t>(random.between(1, 150)));
  for (N& start : starts) start = static_cast<N>(random.below(graph.num_nodes));
  const std::vector<int64_t> wide(starts.begin(), starts.end());
  std::vector<N> expected(starts.size() * (length + 1), N{-7}), got = expected;
  const uint64_t first_lane = random.chance(0.3) ? uint64_t{1} << 35 : 0;
  WalkOut<P, N> out{starts.data(), static_cast<int64_t>(starts.size()), first_lane, length, expected.data(),
                    nullptr};
  const CustomCall call{&rules, &lists, &out, philox_lanes};
  Fault fault{}, of_kernel{};
  CustomWalkers<Next, CustomLists<P, N>>(call, &fault).walk(0, out.count);

  int64_t bad[2] = {0, 0};
  int reported = 0;
  const int together = 1 << random.below(6);  // walkers of a warp
  const WalkStarts from{wide.data(), true, graph.num_nodes, bad, together};
  out.vertices = got.data();
  const int64_t each = together * kWalkThreads / kWarpWalkers;
  const auto blocks = static_cast<unsigned>((out.count + each - 1) / each);
  on_host::run_grid(blocks, kWalkThreads, 0, [&] {
    walk_custom<CustomLists<P, N>, Next, kSteps>(rules, lists, out, from, &of_kernel, &reported);
  });
  if (bad[0]) stress::fail(what + ": a start was refused");
  if ((fault.wrong != 0) != (of_kernel.wrong != 0)) stress::fail(what + ": one of both went wrong");
  if (!fault.wrong) stress::expect_equal(got, expected, what);
}

template <class Next>
void one_round(Random& random, const std::vector<int64_t>& constants, const std::string& name) {
  CustomRules rules{static_cast<uint64_t>(random.below(int64_t{1} << 62)), 1u << 16, {}};
  std::copy(constants.begin(), constants.end(), rules.constants);
  compare<Next, int32_t, int32_t>(random, rules, name + ", int32");
  compare<Next, int64_t, int32_t>(random, rules, name + ", wide edges");
  compare<Next, int64_t, int64_t>(random, rules, name + ", int64");
}

}  // namespace
}  // namespace loader

int main(int argc, char** argv) {
  const int rounds = stress::rounds(argc, argv, 20);
  stress::Random random(7);
  for (int i = 0; i < rounds; ++i) {
#define ONE(NAME, ...) loader::one_round<loader::NAME>(random, {__VA_ARGS__}, #NAME);
    EACH_NEXT(ONE)
  }
  std::printf("equal: %d rounds\n", rounds);
}
