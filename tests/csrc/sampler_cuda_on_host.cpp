// The kernels of the GPU sampler, run on the host, beside the hopwise sampler of the CPU: every schedule and
// kind of vertex set over random graphs and options. Prints what it compared; exits with 1 at the first
// difference.
#include <cuda_runtime_api.h>
// The stand-in above comes first.
#include "sampler/cpu/hopwise.h"
#include "sampler/cuda/run.cuh"
#include "sampling.h"

namespace {

using namespace loader;
using namespace stress;

// Memory that begins on a line of the cache, as outputs do, full of garbage.
template <typename T>
class Aligned {
 public:
  explicit Aligned(int64_t size) : memory_(static_cast<size_t>(size) * sizeof(T) + 128, 0x5A) {}
  T* data() { return reinterpret_cast<T*>((reinterpret_cast<uintptr_t>(memory_.data()) + 127) / 128 * 128); }

 private:
  std::vector<char> memory_;
};

int64_t aligned(int64_t n) { return (n + 31) / 32 * 32; }

// How a mini-batch is sampled; `room`: of its outputs, as a part of what it may need.
struct How {
  Schedule schedule;
  VertexSet vertex_set;
  int blocks;
  double room;
  bool pad;
  int64_t shared_bytes;  // of a block, at most
};

// Shared memory of a GPU that has too little for 32 picks a thread.
constexpr int64_t kSmall = kDeclaredBytes + kBlock * 20 * sizeof(int32_t);

// One sampler's memory, used for one mini-batch after the other as on a GPU.
template <typename P, typename N>
class OnHost {
 public:
  OnHost(const OwnedCsc<P, N>& graph, int hops) : graph_(graph), num_nodes_(graph.view().num_nodes) {
    words_ = bitmap_entries(num_nodes_, hops);
    ranks_at_ = ranks_at((num_nodes_ + 31) / 32, hops);
    bitmaps_.resize(words_ * kMaxBatchesPerLaunch);
    local_.resize(num_nodes_ * kMaxBatchesPerLaunch);
    totals_.resize(workspace_totals() * kMaxBatchesPerLaunch);
    states_ = std::vector<SampleState>(kMaxBatchesPerLaunch);
    headers_.resize(kMaxBatchesPerLaunch);
  }

  // Samples all `seeds`, each a mini-batch, in one launch. Room that is too small is mended by a repetition.
  std::vector<Result<P, N>> sample(const std::vector<std::vector<N>>& seeds, const SampleOptions& options,
                                   const How& how) {
    for (double room = how.room;; room *= 2) {
      const auto results = try_sample(seeds, options, how, room);
      expect_empty_sets();
      if (!results.empty()) return results;
      repetitions_ += 1;
      if (room > 64) fail("a mini-batch does not fit whatever the room");
    }
  }

  // Samples bad seeds; the status.
  SampleStatus refuse(const std::vector<N>& seeds, const SampleOptions& options, const How& how) {
    if (!try_sample({seeds}, options, how, 1).empty()) fail("bad seeds were sampled");
    expect_empty_sets();
    return headers_[0].status;
  }

  int64_t repetitions() const { return repetitions_; }

 private:
  void expect_empty_sets() {
    for (size_t i = 0; i < bitmaps_.size(); ++i) {
      if (static_cast<int64_t>(i) % words_ >= ranks_at_)
        bitmaps_[i] = 0xABABABAB;  // ranks, which the next mini-batch must not see
      else if (bitmaps_[i])
        fail("a mini-batch left a bitmap that is not empty");
    }
    for (const auto key : keys_)
      if (key) fail("a mini-batch left a hash set that is not empty");
    for (const uint32_t count : counts_)
      if (count) fail("a mini-batch left the count of a range");
    for (const SampleState& state : states_)
      if (state.found.value || state.found.of_hop[0] || state.found.of_hop[1])
        fail("a mini-batch left the number of vertices that it found");
  }

  // The arrays of a hash set, garbage but for what is zero between launches.
  struct HashMemory {
    std::vector<Aligned<N>> vertices;
    std::vector<uint32_t> places, offsets, grouped_place, begins;
    std::vector<N> local;
  };

  void use_hash(SampleArgs<P, N>& args, size_t batches, HashMemory& memory) {
    HashArgs<N>& hash = args.hash;
    hash.capacity = aligned(args.frontier_capacity[args.hops]);
    hash.size = std::max(table_size(hash.capacity), table_);
    if (hash.size > table_) keys_.assign(hash.size * kMaxBatchesPerLaunch, 0);
    table_ = hash.size;
    hash.shift = range_shift(num_nodes_);
    const size_t vertices = hash.capacity * batches;
    memory.vertices.emplace_back(vertices);
    memory.vertices.emplace_back(vertices);
    memory.places.assign(vertices, 0xABABABAB);
    memory.offsets = memory.grouped_place = memory.places;
    memory.begins.assign(range_begins() * batches, 0xABABABAB);
    memory.local.assign(hash.size * batches, static_cast<N>(-7));
    counts_.resize(kRanges * kMaxBatchesPerLaunch);
    hash.keys = keys_.data();
    hash.found = memory.vertices[0].data();
    hash.grouped = memory.vertices[1].data();
    hash.places = memory.places.data();
    hash.offsets = memory.offsets.data();
    hash.grouped_place = memory.grouped_place.data();
    hash.counts = counts_.data();
    hash.begins = memory.begins.data();
    args.local = memory.local.data();
    args.local_stride = hash.size;
  }

  std::vector<Result<P, N>> try_sample(const std::vector<std::vector<N>>& seeds, const SampleOptions& options,
                                       const How& how, double room) {
    const int hops = options.hops();
    int64_t most_seeds = 0;
    for (const auto& s : seeds) most_seeds = std::max<int64_t>(most_seeds, s.size());
    SampleArgs<P, N> args{};
    args.graph_indptr = graph_.indptr.data();
    args.graph_indices = graph_.indices.data();
    args.num_nodes = num_nodes_;
    args.hops = hops;
    args.replace = options.replace;
    args.edge_ids = options.edge_ids;
    args.pad = how.pad;
    args.vertex_set = how.vertex_set;
    const auto num_edges = static_cast<int64_t>(graph_.indices.size());
    args.frontier_capacity[0] = most_seeds;
    int64_t vertices = 0, edges = 0, tasks = most_seeds * hops, all_edges = 0;
    for (int h = 0; h < hops; ++h) {
      args.fanouts[h] = static_cast<int>(options.fanouts[h]);
      const int64_t rows = args.frontier_capacity[h];
      const int64_t most = options.fanouts[h] == kAllNeighbours ? num_edges : rows * options.fanouts[h];
      args.edge_capacity[h] = static_cast<int64_t>(room * static_cast<double>(most)) + 1;
      args.frontier_capacity[h + 1] =
          std::max(rows, std::min(num_nodes_, rows + static_cast<int64_t>(room * static_cast<double>(most))));
      all_edges += args.edge_capacity[h];
      if (h + 1 < hops) tasks += args.frontier_capacity[h + 1];
      if (options.fanouts[h] == kAllNeighbours) tasks += num_edges / kPartEdges + 1;
    }
    vertices = aligned(args.frontier_capacity[hops]);
    for (int h = 0; h < hops; ++h) {
      args.indices_at[h] = vertices;
      vertices += aligned(args.edge_capacity[h]);
      args.indptr_at[h] = edges;
      edges += aligned(args.frontier_capacity[h] + 1);
    }
    for (int h = 0; options.edge_ids && h < hops; ++h) {
      args.edge_ids_at[h] = edges;
      edges += aligned(args.edge_capacity[h]);
    }
    args.shared_bytes = how.shared_bytes;
    const int width = kernel_width<N>(args.fanouts, hops, args.shared_bytes);
    args.bitmaps = bitmaps_.data();
    args.bitmaps_stride = words_;
    args.local = local_.data();
    args.local_stride = num_nodes_;
    args.totals = totals_.data();
    args.state = states_.data();
    args.rows_capacity = args.frontier_capacity[hops - 1] + most_seeds;
    args.tasks_capacity = 2 * tasks + 4096 * how.blocks;
    args.picks_capacity = std::max(2 * all_edges, (most_seeds * hops + args.tasks_capacity + 32) * 32);
    const size_t batches = seeds.size();
    HashMemory hash_memory;
    if (how.vertex_set == VertexSet::kHash) use_hash(args, batches, hash_memory);
    std::vector<P> row_begin(args.rows_capacity * batches), positions(args.picks_capacity * batches);
    std::vector<uint32_t> row_degree(args.rows_capacity * batches),
        picks_at(most_seeds * hops + args.tasks_capacity);
    std::vector<N> list(args.rows_capacity * batches), picks(args.picks_capacity * batches);
    std::vector<uint64_t> slots(args.tasks_capacity);
    args.row_begin = row_begin.data();
    args.row_degree = row_degree.data();
    args.list = list.data();
    args.tasks = slots.data();
    args.picks_at = picks_at.data();
    args.picks = picks.data();
    args.positions = positions.data();
    std::vector<Aligned<N>> vertex_memory;
    std::vector<Aligned<P>> edge_memory;
    for (size_t b = 0; b < batches; ++b) {
      vertex_memory.emplace_back(vertices);
      edge_memory.emplace_back(edges);
    }
    args.num_batches = static_cast<int>(batches);
    for (size_t b = 0; b < batches; ++b)
      args.batches[b] = {seeds[b].data(),       static_cast<int64_t>(seeds[b].size()),
                         options.key + b,       vertex_memory[b].data(),
                         edge_memory[b].data(), nullptr,
                         &headers_[b],          ++sequence_};
    launch_as(args, width, how.schedule, how.blocks);

    for (const uint64_t slot : slots)
      if (slot) fail("a task was left in the queue");
    std::vector<Result<P, N>> results;
    for (size_t b = 0; b < batches; ++b) {
      const SampleHeader& header = headers_[b];
      if (header.sequence != args.batches[b].sequence) fail("the host was not told the sizes");
      if (how.pad) expect_padded(args, header, vertex_memory[b].data(), edge_memory[b].data());
      if (header.status != SampleStatus::kOk) return {};
      Result<P, N> r;
      r.sizes.frontiers.assign(header.frontiers, header.frontiers + hops + 1);
      r.sizes.edges.assign(header.edges, header.edges + hops);
      const N* const v = vertex_memory[b].data();
      const P* const e = edge_memory[b].data();
      r.nodes.assign(v, v + header.frontiers[hops]);
      for (int h = 0; h < hops; ++h) {
        const P* const indptr = e + args.indptr_at[h];
        const N* const indices = v + args.indices_at[h];
        const P* const ids = e + args.edge_ids_at[h];
        r.indptr.emplace_back(indptr, indptr + header.frontiers[h] + 1);
        r.indices.emplace_back(indices, indices + header.edges[h]);
        r.edge_ids.emplace_back(ids, options.edge_ids ? ids + header.edges[h] : ids);
      }
      results.push_back(std::move(r));
    }
    return results;
  }

  // Beyond the mini-batch, or everywhere where it failed: vertex 0, empty rows, edges to local vertex 0.
  static void expect_padded(const SampleArgs<P, N>& args, const SampleHeader& header, const N* v,
                            const P* e) {
    const bool ok = header.status == SampleStatus::kOk;
    const auto expect = [](bool same) {
      if (!same) fail("a padded mini-batch is not what it should be beyond its end");
    };
    for (int64_t i = ok ? header.frontiers[args.hops] : 0; i < args.frontier_capacity[args.hops]; ++i)
      expect(v[i] == 0);
    for (int h = 0; h < args.hops; ++h) {
      const int64_t rows = ok ? header.frontiers[h] : -1, edges = ok ? header.edges[h] : 0;
      for (int64_t i = rows + 1; i <= args.frontier_capacity[h]; ++i)
        expect(e[args.indptr_at[h] + i] == static_cast<P>(edges));
      for (int64_t i = edges; i < args.edge_capacity[h]; ++i) {
        expect(v[args.indices_at[h] + i] == 0);
        if (args.edge_ids) expect(e[args.edge_ids_at[h] + i] == 0);
      }
    }
  }

  void launch_as(const SampleArgs<P, N>& args, int width, Schedule schedule, int blocks) {
    if constexpr (sizeof(N) == 4) {
      if (width == 10) return launch_width<10>(args, schedule, blocks);
      if (width == 15) return launch_width<15>(args, schedule, blocks);
      if (width == 20) return launch_width<20>(args, schedule, blocks);
      if (width == 32) return launch_width<32>(args, schedule, blocks);
    }
    launch_width<kWide>(args, schedule, blocks);
  }

  template <int Widest>
  void launch_width(const SampleArgs<P, N>& args, Schedule schedule, int blocks) {
    constexpr int kQueue = queue_width(Widest);
    using Phases = HopwisePhases<P, N>;
    // A block's shared memory is a piece of the heap, as large as it asked for: a sanitizer sees its ends.
    const auto grid = [&](size_t bytes, const auto& block_of) {
      on_host::launch(static_cast<unsigned>(blocks), kBlock, [&] {
        static thread_local std::vector<unsigned char> stage;  // of the block's first thread, and so of all
        if (stage.empty()) stage.assign(bytes, 0x5A);
        block_of(stage.data());
      });
    };
    const size_t picks = stage_bytes<Widest>(args), queued = stage_bytes<kQueue>(args);
    if (args.vertex_set == VertexSet::kHash) return launch_hashed<Widest>(args, schedule, grid);
    switch (schedule) {
      case Schedule::kCooperative:
        return grid(picks, [&](unsigned char* stage) { cooperative_block<Widest>(args, stage); });
      case Schedule::kHopwise:
        grid(0, [&](unsigned char*) { start_block<Phases>(args); });
        grid(0, [&](unsigned char*) { assign_block<Phases>(args, 0); });
        for (int hop = 1; hop <= args.hops; ++hop) {
          grid(picks, [&](unsigned char* stage) { pick_block<Widest, Phases>(args, hop, stage); });
          grid(0, [&](unsigned char*) { count_block<Phases>(args, hop); });
          grid(0, [&](unsigned char*) { assign_block<Phases>(args, hop); });
        }
        return grid(0, [&](unsigned char*) { finish_block<Phases>(args); });
      case Schedule::kStatic:
        grid(queued, [&](unsigned char* stage) { queue_block<kQueue, false>(args, stage); });
        break;
      case Schedule::kPersistent:
        grid(queued, [&](unsigned char* stage) { queue_block<kQueue, true>(args, stage); });
        break;
    }
    grid(0, [&](unsigned char*) { queue_count_block<kQueue>(args); });
    grid(0, [&](unsigned char*) { queue_assign_block<kQueue>(args); });
    grid(0, [&](unsigned char*) { queue_write_block<kQueue>(args); });
  }

  template <int Widest, typename Grid>
  static void launch_hashed(const SampleArgs<P, N>& args, Schedule schedule, const Grid& grid) {
    using Phases = HashedPhases<P, N>;
    if (schedule == Schedule::kCooperative)
      return grid(hashed_bytes<Widest>(args),
                  [&](unsigned char* stage) { hashed_block<Widest>(args, stage); });
    grid(0, [&](unsigned char*) { start_block<Phases>(args); });
    grid(0, [&](unsigned char*) { assign_block<Phases>(args, 0); });
    for (int hop = 1; hop <= args.hops; ++hop) {
      grid(stage_bytes<Widest>(args),
           [&](unsigned char* stage) { pick_block<Widest, Phases>(args, hop, stage); });
      grid(kOrderBytes, [&](unsigned char* stage) { group_block(args, hop, stage); });
      grid(kOrderBytes, [&](unsigned char* stage) { rank_block(args, hop, stage); });
      if (hop == args.hops) break;
      grid(0, [&](unsigned char*) { count_block<Phases>(args, hop); });
      grid(0, [&](unsigned char*) { assign_block<Phases>(args, hop); });
    }
    grid(0, [&](unsigned char*) { finish_block<Phases>(args); });
  }

  const OwnedCsc<P, N>& graph_;
  int64_t num_nodes_, words_, ranks_at_;
  std::vector<uint32_t> bitmaps_, totals_, counts_;
  std::vector<typename HashArgs<N>::Key> keys_;
  int64_t table_ = 0, repetitions_ = 0;
  std::vector<N> local_;
  std::vector<SampleState> states_;
  std::vector<SampleHeader> headers_;
  uint64_t sequence_ = 0;
};

struct Case {
  Schedule schedule;
  VertexSet vertex_set;
};

constexpr Case kCases[] = {
    {Schedule::kCooperative, VertexSet::kBitmap}, {Schedule::kHopwise, VertexSet::kBitmap},
    {Schedule::kStatic, VertexSet::kBitmap},      {Schedule::kPersistent, VertexSet::kBitmap},
    {Schedule::kCooperative, VertexSet::kHash},   {Schedule::kHopwise, VertexSet::kHash}};

struct Compared {
  int64_t edges = 0, repetitions = 0;
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
Compared compare(Random& random, int rounds) {
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
    if (round == 0) options.fanouts = {5, 10};
    if (round == 1) options.fanouts = {3, 25};
    OnHost<P, N> on_host(graph, options.hops());
    for (const Case& c : kCases) {
      // With a hash set two mini-batches in a row: each has to leave it empty for the next.
      for (int turn = 0; turn < (c.vertex_set == VertexSet::kHash ? 2 : 1); ++turn) {
        const bool several =
            (c.schedule == Schedule::kCooperative || c.schedule == Schedule::kHopwise) && random.chance(0.3);
        std::vector<std::vector<N>> seeds(several ? 2 : 1);
        for (auto& s : seeds) s = random_seeds<N>(random, num_nodes, round == 0 ? 300 : 0);
        How how{c.schedule,
                c.vertex_set,
                static_cast<int>(seeds.size()) * static_cast<int>(random.between(1, 2)) +
                    (several && random.chance(0.5)),  // a block that is left over
                random.chance(0.3)   ? 0.02
                : random.chance(0.3) ? 0.5
                                     : 1,
                random.chance(0.3),
                random.chance(0.3) ? kSmall : 1 << 20};
        if (random.chance(0.2)) expect_refused(on_host, seeds[0], static_cast<N>(num_nodes), options, how);
        const std::vector<int> fanouts(options.fanouts.begin(), options.fanouts.end());
        const auto width = [&](int64_t bytes) {
          return kernel_width<N>(fanouts.data(), options.hops(), bytes);
        };
        all.without_room += width(how.shared_bytes) != width(1 << 20);
        const auto got = on_host.sample(seeds, options, how);
        for (size_t b = 0; b < seeds.size(); ++b) {
          auto own = options;
          own.key += b;
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

}  // namespace

int main(int argc, char** argv) {
  const int rounds = stress::rounds(argc, argv, 10);
  Random random(20261121);
  int64_t edges = 0, repetitions = 0, without_room = 0;
  for (const Compared& c :
       {compare<int32_t, int32_t>(random, rounds), compare<int64_t, int32_t>(random, rounds),
        compare<int64_t, int64_t>(random, rounds)}) {
    edges += c.edges;
    repetitions += c.repetitions;
    without_room += c.without_room;
  }
  if (edges == 0 || repetitions == 0) stress::fail("nothing was compared, or everything had room at once");
  if (without_room == 0) stress::fail("every block had shared memory enough");
  std::printf("equal: %lld sampled edges, %lld mini-batches did not fit at first\n",
              static_cast<long long>(edges), static_cast<long long>(repetitions));
}
