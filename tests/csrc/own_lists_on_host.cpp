// A kind of lists and a choice of neighbors that the core does not know, in its samplers on the CPU and, on
// fibers of the host, on the GPU. Prints what it compared; exits with 1 at the first difference.
#include "sampler_on_host.h"
// Brings the stand-in for CUDA's header, which comes first.
#include "sampler/cpu/fused_scan.h"
#include "sampler/cpu/fused_steps.h"
#include "sampler/cpu/hopwise.h"

namespace {

using namespace loader;
using namespace stress;

// Vertices of three bytes each, behind a header.
template <typename P>
struct PackedLists {
  using Edge = P;
  using Vertex = int32_t;
  using Row = VertexRow;

  static constexpr int64_t kHeader = 5;

  const P* begins;
  const uint8_t* bytes;

  ListOf<P> list(Row row) const { return {begins[row.vertex], begins[row.vertex + 1]}; }
  int32_t read(P at) const {
    const uint8_t* const own = bytes + kHeader + 3 * int64_t{at};
    return own[0] | own[1] << 8 | own[2] << 16;
  }
  int32_t read(P begin, uint32_t i) const { return read(static_cast<P>(begin + i)); }
  template <typename F>
  void where(Row row, const F& f) const {
    f(begins + row.vertex, int64_t{2});
  }
  template <typename F>
  void where(P at, int64_t count, const F& f) const {
    f(bytes + kHeader + 3 * int64_t{at}, 3 * count);
  }
};

template <typename P>
std::vector<uint8_t> packed(const std::vector<int32_t>& indices) {
  std::vector<uint8_t> bytes(PackedLists<P>::kHeader, 0xEE);
  for (const int32_t u : indices)
    for (int shift = 0; shift < 24; shift += 8) bytes.push_back(static_cast<uint8_t>(u >> shift));
  return bytes;
}

// The last neighbors of a list. Nothing is drawn.
struct LastChoice {
  static constexpr bool kCountsByDegree = true;

  int64_t count(int64_t degree, int64_t fanout) const { return pick_count(degree, fanout, false); }
  bool whole(int64_t degree, int64_t fanout) const { return picks_all(degree, fanout, false); }
};

// On the CPU; on the GPU by a thread, and by a warp.
template <typename Lists>
void pick_list(const LastChoice&, const Lists&, typename Lists::Edge, uint32_t degree, const Draws&,
               uint32_t fanout, uint32_t* out) {
  for (uint32_t i = 0; i < fanout; ++i) out[i] = degree - fanout + i;
}
template <int K, typename Lists>
uint32_t pick_row(const LastChoice& choice, const Lists&, typename Lists::Edge, uint32_t degree, const Draws&,
                  uint32_t fanout, uint32_t (&t)[K]) {
  const auto count = static_cast<uint32_t>(choice.count(degree, fanout));
  for (uint32_t i = 0; i < K; ++i) t[i] = i < count ? degree - count + i : kNoPick;
  return count;
}
template <typename Lists>
void pick_row_by_warp(const LastChoice&, const Lists&, typename Lists::Edge, uint32_t degree, const Draws&,
                      uint32_t count, uint32_t* out) {
  for (uint32_t i = threadIdx.x % 32; i < count; i += 32) out[i] = degree - count + i;
  __syncwarp();
}

struct Case {
  Schedule schedule;
  VertexSet vertex_set;
};
constexpr Case kCases[] = {{Schedule::kCooperative, VertexSet::kBitmap},
                           {Schedule::kHopwise, VertexSet::kBitmap},
                           {Schedule::kPhases, VertexSet::kBitmap},
                           {Schedule::kCooperative, VertexSet::kHash},
                           {Schedule::kHopwise, VertexSet::kHash}};

// A graph, and the same in lists of three bytes.
template <typename P>
struct Graphs {
  OwnedCsc<P, int32_t> plain;
  std::vector<uint8_t> bytes;

  explicit Graphs(Random& random)
      : plain(random_graph<P, int32_t>(random)), bytes(packed<P>(plain.indices)) {}
  PackedLists<P> lists() const { return {plain.indptr.data(), bytes.data()}; }
  GraphOf<PackedLists<P>> own() const { return {lists(), plain.view().num_nodes}; }
};

// The graph in which each list has only the last `fanout` entries, which are picked whole.
template <typename P>
OwnedCsc<P, int32_t> last_of(const OwnedCsc<P, int32_t>& graph, int64_t fanout) {
  OwnedCsc<P, int32_t> cut;
  cut.indptr.push_back(0);
  for (size_t v = 0; v + 1 < graph.indptr.size(); ++v) {
    const int64_t end = graph.indptr[v + 1], begin = std::max<int64_t>(graph.indptr[v], end - fanout);
    cut.indices.insert(cut.indices.end(), graph.indices.begin() + begin, graph.indices.begin() + end);
    cut.indptr.push_back(static_cast<P>(cut.indices.size()));
  }
  return cut;
}

// The lists with each choice that the core has.
template <typename P>
int64_t compare_lists(Random& random) {
  using Lists = PackedLists<P>;
  const Graphs<P> graphs(random);
  const OwnedTables tables = random_tables(random, graphs.plain.indptr);
  SampleOptions options = random_options(random);
  if (options.hops() > 3) options.fanouts.resize(3);
  options.choice = random_choice(random, tables);
  options.in_file = random.chance(0.5);  // then pages are asked for
  const auto seeds = random_seeds<int32_t>(random, graphs.plain.view().num_nodes, 10);
  HopwiseSampler<P, int32_t> oracle(1);
  HopwiseSamplerOf<Lists> hopwise(2);
  FusedSamplerOf<Lists> fused(2, 50);
  const auto expected = run(oracle, graphs.plain, seeds, options);
  int64_t edges = expect_same(run(hopwise, graphs.own(), seeds, options), expected, "own lists, hopwise: ");
  edges += expect_same(run(fused, graphs.own(), seeds, options), expected, "own lists, fused: ");
  return edges;
}

// A choice of the core on host fibers.
template <typename P, typename Choice>
int64_t compare_kernels(Random& random) {
  const Graphs<P> graphs(random);
  const OwnedTables tables = random_tables(random, graphs.plain.indptr);
  SampleOptions options = random_options(random);
  options.fanouts = {3, 40};
  do options.choice = random_choice(random, tables);
  while (!std::holds_alternative<Choice>(options.choice));
  const auto seeds = random_seeds<int32_t>(random, graphs.plain.view().num_nodes, 20);
  HopwiseSampler<P, int32_t> oracle(1);
  const auto expected = run(oracle, graphs.plain, seeds, options);
  OnHost<P, int32_t, SampleArgs<PackedLists<P>, Choice>> on_host(graphs.plain, 2, graphs.lists());
  int64_t edges = 0;
  for (const Case& c : kCases) {
    if (!Choice::kCountsByDegree && c.vertex_set != VertexSet::kHash && c.schedule != Schedule::kHopwise)
      continue;
    edges +=
        expect_same(on_host.sample({seeds}, options, {c.schedule, c.vertex_set, 2, 1, false, 1 << 20})[0],
                    expected, "own lists on fibers: ");
  }
  return edges;
}

// The choice, from lists of the core and from these.
template <typename P>
int64_t compare_choice(Random& random, int64_t fanout) {
  const Graphs<P> graphs(random);
  const OwnedCsc<P, int32_t> cut = last_of(graphs.plain, fanout);
  const SampleOptions options{{fanout, fanout}, UniformChoice{false}, false, {3, 0, 0}};
  const SampleOptionsOf<LastChoice> own{{fanout, fanout}, {}, false, {3, 0, 0}};
  const auto seeds = random_seeds<int32_t>(random, cut.view().num_nodes, 20);
  HopwiseSampler<P, int32_t> oracle(1);
  const auto expected = run(oracle, cut, seeds, options);
  int64_t edges = 0;
  HopwiseSamplerOf<PlainLists<P, int32_t>, LastChoice> hopwise(1);
  FusedSamplerOf<PackedLists<P>, LastChoice> fused(2, 50);
  edges += expect_same(run(hopwise, graphs.plain.view(), seeds, own), expected, "own choice, hopwise: ");
  edges += expect_same(run(fused, graphs.own(), seeds, own), expected, "own choice and lists, fused: ");
  OnHost<P, int32_t, SampleArgs<PackedLists<P>, LastChoice>> on_host(graphs.plain, 2, graphs.lists());
  for (const Case& c : kCases)
    edges +=
        expect_same(on_host.sample({seeds}, options, {c.schedule, c.vertex_set, 2, 1, false, 1 << 20})[0],
                    expected, "own choice and lists on fibers: ");
  return edges;
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = stress::rounds(argc, argv, 5);
  Random random(20261127);
  int64_t edges = 0;
  for (int round = 0; round < rounds; ++round) {
    for (int i = 0; i < 20; ++i) edges += compare_lists<int32_t>(random) + compare_lists<int64_t>(random);
    edges += compare_kernels<int64_t, WeightedChoice>(random) + compare_kernels<int32_t, LaborChoice>(random);
    for (const int64_t fanout : {4, 35}) edges += compare_choice<int64_t>(random, fanout);
  }
  if (edges == 0) fail("nothing was compared");
  std::printf("equal: %lld sampled edges\n", static_cast<long long>(edges));
}
