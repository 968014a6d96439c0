// The fused sampler beside the hopwise one over random graphs and thread counts, alone, in groups and from
// several callers at a time, without Python: made to run under a sanitizer. Prints what it compared; exits
// with 1 at the first difference.
#include <algorithm>
#include <atomic>
#include <memory>
#include <stdexcept>
#include <thread>

#include "helping_threads.h"
#include "sampler/cpu/fused.h"
#include "sampler/cpu/group.h"
#include "sampler/cpu/hopwise.h"
#include "sampler/cpu/philox_lanes.h"
#include "sampler/cpu/vector_unit.h"
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

// One of the vector units that this machine has: each has code of its own.
loader::VectorUnit random_unit(Random& random) {
  static const auto most = static_cast<int64_t>(loader::vector_unit());
  return static_cast<loader::VectorUnit>(random.between(0, most));
}

// Philox blocks of any number of lanes, on each vector unit.
void check_lanes(Random& random) {
  for (int64_t lanes = 0; lanes < 100; ++lanes) {
    loader::vector_unit() = random_unit(random);
    std::vector<uint64_t> v(lanes);
    std::vector<uint32_t> hop(lanes), index(lanes), words(4 * lanes), expected;
    const auto key = static_cast<uint64_t>(random.between(0, INT64_MAX / 2));
    for (int64_t i = 0; i < lanes; ++i) {
      v[i] = static_cast<uint64_t>(random.between(0, INT64_MAX / 2)) * 4 + 1;
      hop[i] = static_cast<uint32_t>(random.between(0, UINT32_MAX));
      index[i] = static_cast<uint32_t>(random.between(0, UINT32_MAX));
      const auto block = loader::philox(static_cast<uint32_t>(v[i]), static_cast<uint32_t>(v[i] >> 32),
                                        hop[i], index[i], key);
      expected.insert(expected.end(), block.w, block.w + 4);
    }
    loader::philox_lanes(lanes, v.data(), hop.data(), index.data(), key, words.data());
    stress::expect_equal(words, expected, "words of " + std::to_string(lanes) + " lanes");
  }
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
      const auto tables = random_tables(random, graph.indptr);
      for (int call = 0; call < 4; ++call) {
        const auto seeds = random_seeds<N>(random, num_nodes);
        auto options = random_options(random);
        options.choice = random_choice(random, tables);
        loader::vector_unit() = random_unit(random);
        options.keys.next_key = static_cast<uint64_t>(random.below(1 << 30));
        options.keys.phase = static_cast<uint32_t>(random.below(3));
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

// Arrays of the sizes in `r`, and where they lie.
template <typename P, typename N>
SampleOut<P, N> place(Result<P, N>& r, const SampleSizes& sizes, bool edge_ids) {
  r.sizes = sizes;
  r.nodes.resize(sizes.frontiers.back());
  for (size_t h = 0; h < sizes.edges.size(); ++h) {
    r.indptr.emplace_back(sizes.frontiers[h] + 1);
    r.indices.emplace_back(sizes.edges[h]);
    r.edge_ids.emplace_back(edge_ids ? sizes.edges[h] : 0);
  }
  SampleOut<P, N> out{r.nodes.data(), {}};
  for (size_t h = 0; h < sizes.edges.size(); ++h)
    out.blocks.push_back(
        {r.indptr[h].data(), r.indices[h].data(), edge_ids ? r.edge_ids[h].data() : nullptr});
  return out;
}

// Three callers give one sampler groups of all sizes, some with a mini-batch that is refused.
template <typename P, typename N>
int64_t compare_groups(Random& random, int rounds) {
  std::atomic<int64_t> edges{0};
  for (int round = 0; round < rounds; ++round) {
    const auto graph = random_graph<P, N>(random);
    const auto num_nodes = graph.view().num_nodes;
    const auto options = random_options(random);
    const int threads = static_cast<int>(random.between(1, 6));
    const int64_t part = random.chance(0.5) ? 1 : 100;
    using Fused = loader::FusedSampler<P, N>;
    loader::GroupSampler<Fused> group_sampler(
        graph.view(), options, threads,
        [part](const std::shared_ptr<loader::Workers>& pool) { return std::make_unique<Fused>(pool, part); });

    constexpr int kBatches = 12;
    std::vector<std::vector<N>> seeds;
    std::vector<Result<P, N>> expected;
    std::vector<loader::BatchKeys> keys;
    const int bad = random.chance(0.3) ? static_cast<int>(random.below(kBatches)) : -1;
    loader::HopwiseSampler<P, N> hopwise(1);
    for (int i = 0; i < kBatches; ++i) {
      seeds.push_back(random_seeds<N>(random, num_nodes));
      auto keyed = options;
      keyed.keys.key = static_cast<uint64_t>(random.below(1 << 30));
      keys.push_back(keyed.keys);
      expected.push_back(run(hopwise, graph, seeds[i], keyed));
      if (i == bad) seeds[i].push_back(static_cast<N>(num_nodes));
    }
    const auto call = [&](int size) {
      for (int begin = 0; begin < kBatches; begin += size) {
        const int end = std::min(begin + size, kBatches);
        std::vector<loader::Request<N>> group;
        for (int i = begin; i < end; ++i)
          group.push_back({seeds[i].data(), static_cast<int64_t>(seeds[i].size()), keys[i]});
        std::vector<Result<P, N>> results(group.size());
        const auto errors = group_sampler.sample(group, [&](size_t i, const SampleSizes& sizes) {
          return place(results[i], sizes, options.edge_ids);
        });
        for (int i = begin; i < end; ++i) {
          const std::string where =
              "groups, round " + std::to_string(round) + ", " + std::to_string(i) + ": ";
          if ((errors[i - begin] != nullptr) != (i == bad))
            stress::fail(where + "a wrong verdict on the seeds");
          if (i != bad) edges += stress::expect_same(results[i - begin], expected[i], where);
        }
      }
    };
    std::vector<std::thread> callers;
    for (const int size : {1, 5, kBatches}) callers.emplace_back([&call, size] { call(size); });
    for (auto& caller : callers) caller.join();
  }
  return edges;
}

// Members help with the one job that there is, until each has taken a part of it. An exception of a part that
// another member took reaches who waits for the round.
void check_helpers() {
  constexpr int kHelpers = 3;
  loader::HelpingThreads threads(kHelpers + 1);
  loader::HelpingThreads::Member member(threads, 0);
  if (member.owner() != 0 || member.size() != kHelpers + 1) stress::fail("not the member");
  for (int round = 0; round < 20; ++round) {
    std::atomic<bool> done{false};
    std::atomic<int64_t> took[kHelpers + 1] = {};
    std::atomic<int> threw{0};
    int64_t parts = 0, caught = 0;
    std::vector<std::thread> helpers;
    for (int i = 1; i <= kHelpers; ++i)
      helpers.emplace_back([&, i] { threads.help(i, [&] { return done.load(); }); });
    const auto all_helped = [&] {
      return std::all_of(took, took + kHelpers + 1, [](const auto& count) { return count > 0; });
    };
    while (!all_helped()) {
      parts += 20;
      try {
        member.each(20, [&](int, int by) {
          ++took[by];
          std::this_thread::yield();  // the others may come
          if (by != 0 && threw.exchange(1) == 0) throw std::runtime_error("of a helper");
        });
      } catch (const std::runtime_error&) {
        ++caught;
      }
    }
    done = true;
    threads.ring();
    for (auto& helper : helpers) helper.join();
    for (const auto& count : took) parts -= count;
    if (parts != 0 || caught != 1) stress::fail("a part was lost or an exception");
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = stress::rounds(argc, argv, 10);
  check_helpers();
  Random random(20240229);
  check_lanes(random);
  const int64_t edges = compare<int32_t, int32_t>(random, rounds) +
                        compare<int64_t, int32_t>(random, rounds) + compare<int64_t, int64_t>(random, rounds);
  const int64_t grouped = compare_groups<int32_t, int32_t>(random, 2 * rounds) +
                          compare_groups<int64_t, int32_t>(random, 2 * rounds) +
                          compare_groups<int64_t, int64_t>(random, 2 * rounds);
  if (edges == 0 || grouped == 0) stress::fail("nothing was compared");
  std::printf("equal: %lld sampled edges\n", static_cast<long long>(edges + grouped));
}
