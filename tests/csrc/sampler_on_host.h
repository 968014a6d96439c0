// The GPU sampler on the host: its memory, and its launches by the stand-in for CUDA's runtime.
#pragma once

#include "sampler_kernels_on_host.h"
// Brings the stand-in for CUDA, which comes first.
#include "sampling.h"

namespace stress {

using namespace loader;

// Memory that begins on a line of the cache, as outputs do, full of garbage.
template <typename T>
class Aligned {
 public:
  explicit Aligned(int64_t size) : memory_(static_cast<size_t>(size) * sizeof(T) + 128, 0x5A) {}
  T* data() { return reinterpret_cast<T*>((reinterpret_cast<uintptr_t>(memory_.data()) + 127) / 128 * 128); }

 private:
  std::vector<char> memory_;
};

inline int64_t aligned(int64_t n) { return (n + 31) / 32 * 32; }

// How a mini-batch is sampled; `room`: of its outputs, as a part of what it may need.
struct How {
  Schedule schedule;
  VertexSet vertex_set;
  int blocks;
  double room;
  bool pad;
  int64_t shared_bytes;  // of a block, at most
  uint32_t piece = 38;   // longer lists are scanned in pieces of this many entries
  Reads reads = Reads::kWords;
  int64_t units = 0;  // that a launch has room for, if lists are read by lines or sectors
  double cached = 0;  // share of the vertices whose lists are copied
  int fetch_blocks = 0;
};

// Shared memory of a GPU that has too little for 32 picks a thread.
constexpr int64_t kSmall = kDeclaredBytes + kBlock * 20 * sizeof(int32_t);

// A launch was refused.
struct Refused {};

// The choice of the options; one that the CPU does not know is made from nothing.
template <typename Choice>
Choice choice_of(const AnyChoice& options) {
  if constexpr (std::is_constructible_v<AnyChoice, Choice>)
    return std::get<Choice>(options);
  else
    return {};
}

// One sampler's memory, used for one mini-batch after the other as on a GPU.
// `Args`: a SampleArgs of these types.
template <typename P, typename N, typename Args = UniformArgs<P, N>>
class OnHost {
 public:
  OnHost(const OwnedCsc<P, N>& graph, int hops)
      : OnHost(graph, hops, {graph.indptr.data(), graph.indices.data()}) {}
  // `lists`: the same graph in another form.
  OnHost(const OwnedCsc<P, N>& graph, int hops, const typename Args::Lists& lists)
      : graph_(graph), lists_(lists), num_nodes_(graph.view().num_nodes) {
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
  int64_t refused_at() const { return headers_[0].detail; }

  int64_t repetitions() const { return repetitions_; }
  int launches() const { return launches_; }  // of the last mini-batches

  // Whether a launch that was refused left something in what is empty between launches.
  bool marked() const {
    for (int64_t i = 0; i < static_cast<int64_t>(bitmaps_.size()); ++i)
      if (i % words_ < ranks_at_ && bitmaps_[i]) return true;
    return std::any_of(keys_.begin(), keys_.end(), [](auto key) { return key != 0; });
  }

  // Empties it, as has to be done then.
  void empty() {
    for (int64_t i = 0; i < static_cast<int64_t>(bitmaps_.size()); ++i)
      if (i % words_ < ranks_at_) bitmaps_[i] = 0;
    std::fill(keys_.begin(), keys_.end(), 0);
    std::fill(counts_.begin(), counts_.end(), 0);
    std::fill(unit_marks_.begin(), unit_marks_.end(), 0);
    std::fill(unit_ranks_.begin(), unit_ranks_.end(), Rank{0, 0});
    used_ = 0;
    std::fill(states_.begin(), states_.end(), SampleState{});
  }

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
    const auto is_set = [](const Rank& rank) { return rank.bits != 0; };
    if (used_ ||
        std::any_of(unit_marks_.begin(), unit_marks_.end(), [](uint32_t word) { return word != 0; }) ||
        std::any_of(unit_ranks_.begin(), unit_ranks_.end(), is_set))
      fail("a launch left units that it asked for");
    for (const SampleState& state : states_)
      if (state.found.value || state.found.of_hop[0] || state.found.of_hop[1] || state.head.value ||
          state.tail.value)
        fail("a mini-batch left the number of vertices or pieces that it found");
  }

  // The arrays of a hash set, garbage but for what is zero between launches.
  struct HashMemory {
    std::vector<Aligned<N>> vertices;
    std::vector<uint32_t> places, offsets, grouped_place, begins;
    std::vector<N> local;
  };

  void use_hash(Args& args, size_t batches, HashMemory& memory) {
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

  // What reads lists by lines or sectors; garbage but for what is zero between launches.
  struct LineMemory {
    std::vector<Aligned<N>> staged;
    std::vector<P> places, begins;
    std::vector<N> entries;
  };

  void use_lines(Args& args, size_t batches, const How& how, LineMemory& memory) {
    auto& lines = args.lines;
    lines.set_lists(graph_.indices.data(), static_cast<int64_t>(graph_.indices.size()), how.reads);
    lines.words = lines.needed_words();
    lines.capacity = how.units;
    lines.fetch_blocks = how.fetch_blocks;
    lines.places_capacity = *std::max_element(args.edge_capacity, args.edge_capacity + args.hops);
    memory.places.assign(lines.places_capacity * batches, static_cast<P>(-12345));
    lines.places = memory.places.data();
    unit_marks_.resize(lines.words);
    unit_ranks_.resize(lines.words * rank_width(args.hops) + 2);
    memory.staged.emplace_back(lines.capacity * lines.num_in_unit());
    lines.staged = memory.staged[0].data();
    lines.used = &used_;
    lines.marks = how.reads == Reads::kWords ? nullptr : unit_marks_.data();
    const auto at = reinterpret_cast<uintptr_t>(unit_ranks_.data());
    lines.ranks = unit_ranks_.data() + at % 16 / sizeof(Rank);
    if (how.cached == 0) return;
    memory.begins.assign(num_nodes_, -1);
    for (int64_t v = 0; v < num_nodes_; ++v) {
      if (static_cast<double>(v * 7919 % 1000) >= 1000 * how.cached) continue;
      memory.begins[v] = static_cast<P>(memory.entries.size());
      memory.entries.insert(memory.entries.end(), graph_.indices.begin() + graph_.indptr[v],
                            graph_.indices.begin() + graph_.indptr[v + 1]);
    }
    lines.cached = {memory.begins.data(), memory.entries.data()};
  }

  std::vector<Result<P, N>> try_sample(const std::vector<std::vector<N>>& seeds, const SampleOptions& options,
                                       const How& how, double room) {
    const int hops = options.hops();
    int64_t most_seeds = 0;
    for (const auto& s : seeds) most_seeds = std::max<int64_t>(most_seeds, s.size());
    Args args{};
    args.lists = lists_;
    args.num_nodes = num_nodes_;
    args.hops = hops;
    args.choice = choice_of<typename Args::Choice>(options.choice);
    args.edge_ids = options.edge_ids;
    args.pad = how.pad;
    args.vertex_set = how.vertex_set;
    const auto num_edges = static_cast<int64_t>(graph_.indices.size());
    args.frontier_capacity[0] = most_seeds;
    int64_t vertices = 0, edges = 0;
    for (int h = 0; h < hops; ++h) {
      args.fanouts[h] = static_cast<int>(options.fanouts[h]);
      const int64_t rows = args.frontier_capacity[h];
      const int64_t most = options.fanouts[h] == kAllNeighbors ? num_edges : rows * options.fanouts[h];
      args.edge_capacity[h] = static_cast<int64_t>(room * static_cast<double>(most)) + 1;
      // For a quarter of the edges' ends: so that sometimes there is room for the edges and not for the
      // vertices.
      const auto new_rows = static_cast<int64_t>(room / 4 * static_cast<double>(most));
      args.frontier_capacity[h + 1] = std::max(rows, std::min(num_nodes_, rows + new_rows));
      args.picks_capacity += aligned(rows + most_seeds) * 32;
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
    args.bitmaps = bitmaps_.data();
    args.bitmaps_stride = words_;
    args.local = local_.data();
    args.local_stride = num_nodes_;
    args.totals = totals_.data();
    args.state = states_.data();
    args.rows_capacity = args.frontier_capacity[hops - 1] + most_seeds;
    const size_t batches = seeds.size();
    HashMemory hash_memory;
    if (how.vertex_set == VertexSet::kHash) use_hash(args, batches, hash_memory);
    LineMemory line_memory;
    if (how.reads != Reads::kWords || how.cached > 0) use_lines(args, batches, how, line_memory);
    std::vector<P> row_begin(args.rows_capacity * batches), positions(args.picks_capacity * batches);
    std::vector<uint32_t> row_degree(args.rows_capacity * batches), row_picks(row_degree.size(), 0xABABABAB);
    std::vector<N> list(args.rows_capacity * batches), picks(args.picks_capacity * batches);
    args.row_begin = row_begin.data();
    args.row_degree = row_degree.data();
    args.row_picks = row_picks.data();
    args.list = list.data();
    args.picks = picks.data();
    args.positions = positions.data();
    std::vector<uint32_t> scan_places, piece_places;
    std::vector<uint64_t> piece_times;
    std::vector<ListPart> pieces;
    if constexpr (!Args::Choice::kCountsByDegree) {
      ScanArgs& scan = args.scan;
      scan.width = scan_width(args.choice, widest_fanout(args.fanouts, hops));
      scan.piece = how.piece;
      scan.pieces_capacity = 2 * num_edges / scan.piece;
      pieces.assign(scan.pieces_capacity * batches, {77, 77, 77, 0});
      scan_places.assign(args.rows_capacity * scan.width * batches, 0xABABABAB);
      piece_places.assign(pieces.size() * scan.width, 0xABABABAB);
      piece_times.assign(pieces.size() * scan.width, ~uint64_t{0});
      scan.pieces = pieces.data();
      scan.places = scan_places.data();
      scan.piece_places = piece_places.data();
      scan.piece_times = piece_times.data();
    }
    std::vector<Aligned<N>> vertex_memory;
    std::vector<Aligned<P>> edge_memory;
    for (size_t b = 0; b < batches; ++b) {
      vertex_memory.emplace_back(vertices);
      edge_memory.emplace_back(edges);
    }
    args.num_batches = static_cast<int>(batches);
    for (size_t b = 0; b < batches; ++b)
      args.batches[b] = {seeds[b].data(),       static_cast<int64_t>(seeds[b].size()),
                         options.keys.key + b,  vertex_memory[b].data(),
                         edge_memory[b].data(), nullptr,
                         &headers_[b],          ++sequence_,
                         options.keys.next_key, options.keys.phase};
    const auto before = on_host::machine.launches;
    bool refused = false;
    try {
      launch_sample(args, how.schedule, how.blocks, on_host::machine.device, nullptr);
    } catch (const gpu::Error&) {
      refused = true;
    }
    launches_ = static_cast<int>(on_host::machine.launches - before);
    if (refused) throw Refused{};
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
  static void expect_padded(const Args& args, const SampleHeader& header, const N* v, const P* e) {
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

  const OwnedCsc<P, N>& graph_;
  const typename Args::Lists lists_;
  int64_t num_nodes_, words_, ranks_at_;
  std::vector<uint32_t> bitmaps_, totals_, counts_, unit_marks_;
  std::vector<Rank> unit_ranks_;
  unsigned long long used_ = 0;
  std::vector<typename HashArgs<N>::Key> keys_;
  int64_t table_ = 0, repetitions_ = 0;
  std::vector<N> local_;
  std::vector<SampleState> states_;
  std::vector<SampleHeader> headers_;
  uint64_t sequence_ = 0;
  int launches_ = 0;
};

}  // namespace stress
