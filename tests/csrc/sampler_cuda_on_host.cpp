// The kernels of the GPU sampler, run on the host, beside the hopwise sampler of the CPU: every schedule over
// random graphs and options. Prints what it compared; exits with 1 at the first difference.
#include <cuda_runtime_api.h>
// The stand-in above comes first.
#include "sampler/cpu/hopwise.h"
#include "sampler/cuda/run.cuh"
#include "sampling.h"

namespace {

using namespace loader;
using namespace stress;

// Memory that begins on a line of the cache, as outputs do.
template <typename T>
class Aligned {
 public:
  explicit Aligned(int64_t size) : memory_(static_cast<size_t>(size) * sizeof(T) + 128) {}
  T* data() { return reinterpret_cast<T*>((reinterpret_cast<uintptr_t>(memory_.data()) + 127) / 128 * 128); }

 private:
  std::vector<char> memory_;
};

int64_t aligned(int64_t n) { return (n + 31) / 32 * 32; }

// One sampler's memory, used for one mini-batch after the other as on a GPU.
template <typename P, typename N>
class OnHost {
 public:
  OnHost(const OwnedCsc<P, N>& graph, int hops) : graph_(graph), num_nodes_(graph.view().num_nodes) {
    words_ = (hops + 1) * ((num_nodes_ + 31) / 32);
    bitmaps_.resize(words_ * kMaxBatchesPerLaunch);
    local_.resize(num_nodes_ * kMaxBatchesPerLaunch);
    totals_.resize(workspace_totals() * kMaxBatchesPerLaunch);
    states_ = std::vector<SampleState>(kMaxBatchesPerLaunch);
    headers_.resize(kMaxBatchesPerLaunch);
  }

  // Samples all `seeds`, each a mini-batch, in one launch. Room that is too small is mended by a repetition.
  std::vector<Result<P, N>> sample(const std::vector<std::vector<N>>& seeds, const SampleOptions& options,
                                   Schedule schedule, int blocks, bool tight) {
    for (double room = tight ? 0.5 : 1;; room *= 2) {
      const auto results = try_sample(seeds, options, schedule, blocks, room);
      if (!results.empty()) return results;
      if (room > 16) fail("a mini-batch does not fit whatever the room");
      for (const uint32_t word : bitmaps_)
        if (word) fail("a mini-batch that did not fit left a set that is not empty");
    }
  }

  SampleStatus last_status() const { return headers_[0].status; }

 private:
  std::vector<Result<P, N>> try_sample(const std::vector<std::vector<N>>& seeds, const SampleOptions& options,
                                       Schedule schedule, int blocks, double room) {
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
      if (options.fanouts[h] == kAllNeighbours) tasks += num_edges / Task::kPartEdges + 1;
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
    const int width = kernel_width<N>(args.fanouts, hops);
    args.bitmaps = bitmaps_.data();
    args.bitmaps_stride = words_;
    args.local = local_.data();
    args.local_stride = num_nodes_;
    args.totals = totals_.data();
    args.state = states_.data();
    args.rows_capacity = args.frontier_capacity[hops - 1] + most_seeds;
    args.tasks_capacity = 2 * tasks + 4096 * blocks;
    args.picks_capacity = std::max(2 * all_edges, (most_seeds * hops + args.tasks_capacity + 32) * 32);
    const size_t batches = seeds.size();
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
    launch_as(args, width, schedule, blocks);

    for (const uint64_t slot : slots)
      if (slot) fail("a task was left in the queue");
    std::vector<Result<P, N>> results;
    for (size_t b = 0; b < batches; ++b) {
      const SampleHeader& header = headers_[b];
      if (header.sequence != args.batches[b].sequence) fail("the host was not told the sizes");
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
    for (const uint32_t word : bitmaps_)
      if (word) fail("a set is not empty after a mini-batch");
    return results;
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
    const auto grid = [&](const auto& block_of) {
      on_host::launch(static_cast<unsigned>(blocks), kBlock, [&] {
        static thread_local unsigned char stage[stage_bytes<32, int64_t>() + kWarps * kMaxFanout * 4];
        block_of(stage);
      });
    };
    switch (schedule) {
      case Schedule::kCooperative:
        return grid([&](unsigned char* stage) { cooperative_block<Widest>(args, stage); });
      case Schedule::kHopwise:
        grid([&](unsigned char*) { start_block(args); });
        grid([&](unsigned char*) { hop_assign_block(args, 0); });
        for (int hop = 1; hop <= args.hops; ++hop) {
          grid([&](unsigned char* stage) { hop_pick_block<Widest>(args, hop, stage); });
          grid([&](unsigned char*) { hop_count_block(args, hop); });
          grid([&](unsigned char*) { hop_assign_block(args, hop); });
        }
        return grid([&](unsigned char*) { relabel_block(args); });
      case Schedule::kStatic:
        grid([&](unsigned char* stage) { queue_block<kQueue, false>(args, stage); });
        break;
      case Schedule::kPersistent:
        grid([&](unsigned char* stage) { queue_block<kQueue, true>(args, stage); });
        break;
    }
    grid([&](unsigned char*) { queue_count_block<kQueue>(args); });
    grid([&](unsigned char*) { queue_assign_block<kQueue>(args); });
    grid([&](unsigned char*) { queue_write_block<kQueue>(args); });
  }

  const OwnedCsc<P, N>& graph_;
  int64_t num_nodes_, words_;
  std::vector<uint32_t> bitmaps_, totals_;
  std::vector<N> local_;
  std::vector<SampleState> states_;
  std::vector<SampleHeader> headers_;
  uint64_t sequence_ = 0;
};

template <typename P, typename N>
int64_t compare(Random& random, int rounds) {
  constexpr Schedule kSchedules[] = {Schedule::kCooperative, Schedule::kHopwise, Schedule::kStatic,
                                     Schedule::kPersistent};
  int64_t edges = 0;
  HopwiseSampler<P, N> hopwise(1);
  for (int round = 0; round < rounds; ++round) {
    const auto graph = random_graph<P, N>(random);
    auto options = random_options(random);
    OnHost<P, N> on_host(graph, options.hops());
    for (const Schedule schedule : kSchedules) {
      const bool several = schedule == Schedule::kCooperative && random.chance(0.3);
      std::vector<std::vector<N>> seeds(several ? 2 : 1);
      for (auto& s : seeds) s = random_seeds<N>(random, graph.view().num_nodes);
      const int blocks = static_cast<int>(seeds.size()) * static_cast<int>(random.between(1, 2));
      const auto got = on_host.sample(seeds, options, schedule, blocks, random.chance(0.3));
      for (size_t b = 0; b < seeds.size(); ++b) {
        auto own = options;
        own.key += b;
        const auto expected = run(hopwise, graph, seeds[b], own);
        edges += expect_same(got[b], expected,
                             "round " + std::to_string(round) + ", schedule " +
                                 std::to_string(static_cast<int>(schedule)) + ", mini-batch " +
                                 std::to_string(b) + ": ");
      }
    }
  }
  return edges;
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = stress::rounds(argc, argv, 10);
  Random random(20261121);
  const int64_t edges = compare<int32_t, int32_t>(random, rounds) +
                        compare<int64_t, int32_t>(random, rounds) + compare<int64_t, int64_t>(random, rounds);
  if (edges == 0) stress::fail("nothing was compared");
  std::printf("equal: %lld sampled edges\n", static_cast<long long>(edges));
}
