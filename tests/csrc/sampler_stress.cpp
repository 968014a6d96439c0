// The fused sampler beside the hopwise one over random graphs and thread counts, without Python: made to run
// under a sanitizer. Prints what it compared; exits with 1 at the first difference.
#include <memory>
#include <stdexcept>

#include "sampler/cpu/fused.h"
#include "sampler/cpu/hopwise.h"
#include "sampling.h"

namespace {

using namespace stress;

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
    loader::FusedSampler<P, N> fused(threads, /*part_edges=*/threads % 4 == 3 ? 2048 : 1 + threads % 3 * 50);
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
        edges += stress::expect_same(got, expected, where);
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
