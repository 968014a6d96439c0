// The kernels of the GPU sampler, run on the host, beside the hopwise sampler of the CPU: every schedule and
// kind of vertex set over random graphs and options. Prints what it compared; exits with 1 at the first
// difference.
#include "sampler_on_host.h"
// Brings the stand-in for CUDA's header, which comes first.
#include "sampler/cpu/hopwise.h"

namespace {

using namespace loader;
using namespace stress;

struct Case {
  Schedule schedule;
  VertexSet vertex_set;
};

constexpr Case kCases[] = {{Schedule::kCooperative, VertexSet::kBitmap},
                           {Schedule::kHopwise, VertexSet::kBitmap},
                           {Schedule::kPhases, VertexSet::kBitmap},
                           {Schedule::kCooperative, VertexSet::kHash},
                           {Schedule::kHopwise, VertexSet::kHash}};

struct Compared {
  int64_t edges = 0, repetitions = 0;
  int64_t by_lines = 0;      // of them, read by lines or sectors, or from cached lists
  int64_t without_room = 0;  // for a kernel that picks in registers, in a block's shared memory
};

// Bad seeds are told, and leave no trace.
template <typename P, typename N>
void expect_refused(OnHost<P, N>& on_host, std::vector<N> seeds, N num_nodes, const SampleOptions& options,
                    const How& how) {
  if (seeds.empty()) return;
  seeds.push_back(seeds[0]);
  if (on_host.refuse(seeds, options, how) != SampleStatus::kSeedDuplicate) fail("a seed came twice");
  seeds.back() = num_nodes;
  if (on_host.refuse(seeds, options, how) != SampleStatus::kSeedRange) fail("a seed is no vertex");
}

template <typename P, typename N>
Compared compare(Random& random, int rounds, const std::vector<int64_t>& first_fanouts) {
  Compared all;
  HopwiseSampler<P, N> hopwise(1);
  for (int round = 0; round < rounds; ++round) {
    // The first is large enough for ranges of a hash set that are full, and longer than a window; and its
    // first hop for more new vertices in 32 words of a bitmap than a warp looks up at once.
    auto graph = random_graph<P, N>(random);
    while (round == 0 &&
           (graph.view().num_nodes < 64 * kRanges || graph.indices.size() < graph.indptr.size()))
      graph = random_graph<P, N>(random);
    const int64_t num_nodes = graph.view().num_nodes;
    auto options = random_options(random);
    if (round == 0) options.fanouts = first_fanouts;
    OnHost<P, N> on_host(graph, options.hops());
    for (const Case& c : kCases) {
      // With a hash set two mini-batches in a row: each has to leave it empty for the next.
      for (int turn = 0; turn < (c.vertex_set == VertexSet::kHash ? 2 : 1); ++turn) {
        const bool several = random.chance(0.3);
        const bool first = round == 0 && turn == 0;
        std::vector<std::vector<N>> seeds(several ? 2 : 1);
        for (auto& s : seeds) s = random_seeds<N>(random, num_nodes, round == 0 ? num_nodes / 8 : 0);
        How how{c.schedule,
                c.vertex_set,
                static_cast<int>(seeds.size()) * static_cast<int>(random.between(1, 2)) +
                    (several && random.chance(0.5)),  // a block that is left over
                random.chance(0.3)   ? 0.02
                : random.chance(0.3) ? 0.5
                                     : 1,
                random.chance(0.3),
                random.chance(0.3) || (first && c.schedule == Schedule::kHopwise) ? kSmall : 1 << 20};
        // In order of arrival the first one reads words.
        const bool by_lines = lined_schedule(c.schedule, c.vertex_set, true) && random.chance(0.6);
        if (by_lines && !(first && c.schedule == Schedule::kCooperative)) {
          how.reads = static_cast<Reads>(random.below(3));
          how.units = random.chance(0.3) ? 3 : static_cast<int64_t>(graph.indices.size()) / 4 + 64;
          how.cached = how.reads == Reads::kWords || random.chance(0.5) ? 0.4 : 0;
          how.fetch_blocks = static_cast<int>(how.units % 3);  // 0: all
          ++all.by_lines;
        }
        if (random.chance(0.2)) expect_refused(on_host, seeds[0], static_cast<N>(num_nodes), options, how);
        const std::vector<int> fanouts(options.fanouts.begin(), options.fanouts.end());
        const auto width = [&](int64_t bytes) {
          return kernel_width<N>(fanouts.data(), options.hops(), bytes);
        };
        all.without_room += width(how.shared_bytes) != width(1 << 20);
        const auto got = on_host.sample(seeds, options, how);
        for (size_t b = 0; b < seeds.size(); ++b) {
          auto own = options;
          own.keys.key += b;
          const auto expected = run(hopwise, graph, seeds[b], own);
          all.edges += expect_same(got[b], expected,
                                   "round " + std::to_string(round) + ", schedule " +
                                       std::to_string(static_cast<int>(c.schedule)) + ", vertex set " +
                                       std::to_string(static_cast<int>(c.vertex_set)) + ", mini-batch " +
                                       std::to_string(b) + ": ");
        }
      }
    }
    all.repetitions += on_host.repetitions();
  }
  return all;
}

SampleOptions two_hops() { return {{5, 40}, UniformChoice{false}, false, {7, 0, 0}}; }

// With fewer multiprocessors than mini-batches a launch that has barriers is made in parts.
void expect_parts(Random& random) {
  HopwiseSampler<int32_t, int32_t> hopwise(1);
  const auto graph = random_graph<int32_t, int32_t>(random);
  on_host::machine.device = 1;
  for (const std::vector<int64_t>& fanouts : {std::vector<int64_t>{5, 10}, {5, 40}}) {
    auto options = two_hops();
    options.fanouts = fanouts;
    for (const VertexSet set : {VertexSet::kBitmap, VertexSet::kHash}) {
      OnHost<int32_t, int32_t> on_host(graph, options.hops());
      std::vector<std::vector<int32_t>> seeds(5);
      for (auto& s : seeds) s = random_seeds<int32_t>(random, graph.view().num_nodes, 3);
      const auto got = on_host.sample(seeds, options, {Schedule::kCooperative, set, 0, 1, false, 1 << 20});
      if (on_host.launches() != 3) fail("five mini-batches on two multiprocessors are three launches");
      for (size_t b = 0; b < seeds.size(); ++b) {
        auto own = options;
        own.keys.key += b;
        expect_same(got[b], run(hopwise, graph, seeds[b], own), "launched in parts, mini-batch ");
      }
    }
  }
  on_host::machine.device = 0;
}

// A launch that is refused, the first of a series or one in its midst, leaves no error for others; what it
// leaves marked is found, and emptied the sampler goes on.
void expect_refused_launches(Random& random) {
  HopwiseSampler<int64_t, int32_t> hopwise(1);
  const auto options = two_hops();
  const auto graph = random_graph<int64_t, int32_t>(random);
  const auto seeds = random_seeds<int32_t>(random, graph.view().num_nodes, 10);
  bool marked = false;
  for (const Case& c : kCases) {
    OnHost<int64_t, int32_t> on_host(graph, options.hops());
    const How how{c.schedule, c.vertex_set, 2, 4, false, 1 << 20};  // everything has room at once
    for (int refused = 0;; ++refused) {
      on_host::machine.launches_until_refused = refused;
      try {
        on_host.sample({seeds}, options, how);
        if (refused < on_host.launches()) fail("a launch that was refused gave a mini-batch");
        on_host::machine.launches_until_refused = -1;
        break;
      } catch (Refused) {
        if (refused != on_host.launches()) fail("launches went on after one that was refused");
      }
      on_host::machine.launches_until_refused = -1;
      marked |= on_host.marked();
      on_host.empty();
      const auto got = on_host.sample({seeds}, options, how);
      expect_same(got[0], run(hopwise, graph, seeds, options), "after a launch that was refused: ");
    }
  }
  if (!marked) fail("no launch was refused in the midst of a series");
}

// A weight that is not allowed is told with its place, wherever in a list it stands.
template <typename P, typename N, typename Sampler>
void expect_bad_weight(Random& random, Sampler& on_host, const OwnedCsc<P, N>& graph, OwnedTables& tables,
                       const SampleOptions& options, const How& how) {
  const int64_t num_nodes = graph.view().num_nodes;
  int64_t v = random.below(num_nodes);
  for (int i = 0; i < 8; ++i) {  // of some vertices the one with the longest list
    const int64_t other = random.below(num_nodes);
    if (graph.indptr[other + 1] - graph.indptr[other] > graph.indptr[v + 1] - graph.indptr[v]) v = other;
  }
  const int64_t degree = graph.indptr[v + 1] - graph.indptr[v];
  if (degree == 0) return;
  const auto place = static_cast<size_t>(graph.indptr[v] + random.below(degree));
  const float held = tables.weights[place];
  tables.weights[place] = random.chance(0.5) ? -1.0f : std::numeric_limits<float>::infinity();
  if (on_host.refuse({static_cast<N>(v)}, options, how) != SampleStatus::kBadWeight ||
      on_host.refused_at() != static_cast<int64_t>(place))
    fail("a bad weight was not told");
  tables.weights[place] = held;
}

// Picks by weight and the heaviest, in registers and by warps, and what scans lists, beside the CPU's.
template <typename P, typename N, typename Choice>
int64_t compare_choice(Random& random, int rounds) {
  HopwiseSampler<P, N> hopwise(1);
  int64_t edges = 0;
  for (int round = 0; round < rounds; ++round) {
    const auto graph = random_graph<P, N>(random);
    OwnedTables tables = random_tables(random, graph.indptr);
    auto options = random_options(random);
    if (options.hops() > 3) options.fanouts.resize(3);
    if (round % 2) options.fanouts[0] = 40;
    do options.choice = random_choice(random, tables);
    while (!std::holds_alternative<Choice>(options.choice));
    OnHost<P, N, SampleArgs<PlainLists<P, N>, Choice>> on_host(graph, options.hops());
    options.keys.next_key = 12345;
    options.keys.phase = static_cast<uint32_t>(random.below(3));
    for (const Case& c : kCases) {
      if (!Choice::kCountsByDegree && c.vertex_set != VertexSet::kHash && c.schedule != Schedule::kHopwise)
        continue;
      const uint32_t piece = random.chance(0.5) ? 38 : 600;  // longer lists are cut
      const How how{c.schedule, c.vertex_set,
                    2,          random.chance(0.5) ? 1 : 0.1,
                    false,      random.chance(0.5) ? kSmall : 1 << 20,
                    piece};
      // More than the blocks that are resident together, sometimes.
      const bool shared = c.schedule == Schedule::kCooperative || c.schedule == Schedule::kHopwise;
      std::vector<std::vector<N>> seeds(shared && random.chance(0.3) ? 5 : 1);
      for (auto& s : seeds) s = random_seeds<N>(random, graph.view().num_nodes);
      if constexpr (std::is_same_v<Choice, RaceChoice>)
        for (int i = 0; i < 3; ++i) expect_bad_weight(random, on_host, graph, tables, options, how);
      on_host::machine.device = seeds.size() > 1;  // the small one
      const auto got = on_host.sample(seeds, options, how);
      on_host::machine.device = 0;
      for (size_t b = 0; b < seeds.size(); ++b) {
        auto own = options;
        own.keys.key += b;
        edges += expect_same(got[b], run(hopwise, graph, seeds[b], own),
                             "round " + std::to_string(round) + ", schedule " +
                                 std::to_string(static_cast<int>(c.schedule)) + ", choice " +
                                 std::to_string(options.choice.index()) + ", mini-batch " +
                                 std::to_string(b) + ": ");
      }
    }
  }
  return edges;
}

// Uniform picks: every schedule, memory that is too small, refused launches.
void compare_schedules(Random& random, int rounds) {
  int64_t edges = 0, repetitions = 0, without_room = 0, by_lines = 0;
  for (const Compared& c : {compare<int32_t, int32_t>(random, rounds, {5, 10}),
                            compare<int64_t, int32_t>(random, rounds, {3, 25}),
                            compare<int64_t, int64_t>(random, rounds, {5, 10})}) {
    edges += c.edges;
    repetitions += c.repetitions;
    without_room += c.without_room;
    by_lines += c.by_lines;
  }
  expect_parts(random);
  expect_refused_launches(random);
  if (edges == 0 || repetitions == 0) fail("nothing was compared, or everything had room at once");
  if (by_lines == 0) fail("no list was read by lines");
  if (without_room == 0) fail("every block had shared memory enough");
  std::printf("equal: %lld sampled edges, %lld mini-batches did not fit at first\n",
              static_cast<long long>(edges), static_cast<long long>(repetitions));
}

void compare_choices(Random& random, int rounds) {
  int64_t edges = compare_choice<int32_t, int32_t, WeightedChoice>(random, 2 * rounds);
  edges += compare_choice<int64_t, int64_t, WeightedChoice>(random, rounds);
  edges += compare_choice<int64_t, int32_t, TopKChoice>(random, rounds);
  edges += compare_choice<int32_t, int32_t, LaborChoice>(random, 2 * rounds);
  edges += compare_choice<int64_t, int64_t, LaborChoice>(random, rounds);
  edges += compare_choice<int32_t, int32_t, RaceChoice>(random, rounds);
  edges += compare_choice<int64_t, int64_t, RaceChoice>(random, rounds);
  if (edges == 0) fail("nothing was picked by a choice");
  std::printf("equal: %lld edges of other choices\n", static_cast<long long>(edges));
}

}  // namespace

// `rounds` and, if only a part is to be run, its name.
int main(int argc, char** argv) {
  const int rounds = stress::rounds(argc, argv, 10);
  const std::string part = argc > 2 ? argv[2] : "";
  Random random(20261121);
  if (part != "choices") compare_schedules(random, rounds);
  if (part != "schedules") compare_choices(random, rounds);
}
