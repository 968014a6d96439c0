// The fused sampler: picks, neighbors, new vertices and local ids of all hops in one call, each hop's work
// shared out by threads in small parts.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <type_traits>
#include <vector>

#include "arena.h"
#include "disk/read_ahead.h"
#include "parallel.h"
#include "sampler/cpu/pick_batch.h"
#include "sampler/cpu/race_scan.h"
#include "sampler/cpu/rank_bitmap.h"
#include "sampler/cpu/scan.h"
#include "sampler/sampler.h"

namespace loader {

// `Choice`: AnyChoice, or one choice.
template <typename ListsOf, typename Choice = AnyChoice>
class FusedSamplerOf {
 public:
  using Lists = ListsOf;
  using P = typename Lists::Edge;
  using N = typename Lists::Vertex;
  using Options = SampleOptionsOf<Choice>;

  // Parts hold at least `part_edges` edges: what has fewer is not shared out.
  static constexpr int64_t kPartEdges = 2048;
  static constexpr int64_t kBlockRows = 128;  // rows whose edges are counted together

  explicit FusedSamplerOf(int num_threads, int64_t part_edges = kPartEdges)
      : FusedSamplerOf(std::make_shared<ThreadPool>(num_threads), part_edges) {}
  explicit FusedSamplerOf(std::shared_ptr<Workers> pool, int64_t part_edges = kPartEdges)
      : pool_(std::move(pool)), part_edges_(part_edges), workers_(pool_->size()) {}

  // Samples and keeps the picks; returns the sizes of the arrays that `write` fills.
  SampleSizes sample(const GraphOf<Lists>& graph, const N* seeds, int64_t num_seeds, const Options& options);
  // Writes the canonical blocks of the last `sample`; once for each.
  void write(const SampleOut<P, N>& out);

 private:
  static_assert(is_lists<Lists>, "see graph/lists.h");
  using Row = typename Lists::Row;
  static constexpr bool kHetero = std::is_same_v<Row, HeteroRow>;
  static_assert(kHetero || std::is_same_v<Row, VertexRow>, "a row of a hop is a node, or see graph/hetero.h");
  // How choices count that do it by the degree: all of AnyChoice alike.
  using Counted = std::conditional_t<std::is_same_v<Choice, AnyChoice>, UniformChoice, Choice>;

  static constexpr int64_t kMaxPending = 512;    // picks that wait for their fetch
  static constexpr int64_t kPartsPerThread = 4;  // so that one which comes late or is slow has less to do
  static constexpr int64_t kMaxPartEdges = 1 << 15;
  static constexpr int64_t kAhead = 16;  // vertices whose list bounds are asked for ahead of their use

  // What is kept of one hop until it is written.
  struct Hop {
    Arena<N> picked;
    Arena<P> edges;                // positions of the picks, if edge ids are wanted
    int64_t first_row, end_row;    // whose neighbors are picked
    std::vector<int64_t> offsets;  // [blocks of rows + 1]: the first edge of each
    Arena<uint32_t> counts;        // of each row, if only a scan tells it
  };

  // What a part of a hop's scan found.
  struct alignas(128) Scan {
    Arena<N> picked;
    Arena<P> edges;
    RaceScan race;
    int64_t row = -1;    // that another part began
    int64_t of_row = 0;  // picks of it that this part found
  };

  // Lines of the cache of its own (they come in pairs): its sizes change at every pick.
  struct alignas(128) Worker {
    PickBatch<P> picks;
    Arena<P> edges;                 // of the picks being fetched
    std::vector<Arena<N>> buckets;  // picks that wait to be marked, by range of pages
  };

  // A part of a hop's edges being picked.
  struct Fetch {
    Worker& worker;
    int hop;
    int64_t at;  // of the first pick that waits, among the hop's edges
    bool mark;   // mark the picks at once: nobody else does
  };

  // What the picks of a row are drawn by.
  Draws draws(int64_t row, int hop) const {
    Draws draws = draws_of(options_.keys.key, row_at(row), hop);
    const std::vector<uint32_t>& copies = kHetero ? row_copies_ : copies_;
    if (hop == 1 && !copies.empty()) draws.lane = lane_of_copy(draws.lane, copies[row]);
    return draws;
  }
  // A vertex is a row, or has several.
  Row row_at(int64_t row) const {
    if constexpr (kHetero)
      return rows_[static_cast<size_t>(row)];
    else
      return {nodes_[row]};
  }
  int64_t fanout(int64_t row, int hop) const {
    if constexpr (kHetero)
      return options_.fanout(rows_[static_cast<size_t>(row)], hop);
    else
      return options_.fanouts[hop - 1];
  }
  // Asks for the pages of what it is told.
  static auto asking(PagesAhead& ahead) {
    return
        [&ahead](const auto* at, int64_t count) { ahead.ask(at, count * static_cast<int64_t>(sizeof *at)); };
  }
  int64_t parts(int64_t work, int64_t least) const;
  void in_parts(int64_t n, int64_t least, const std::function<void(int64_t, int64_t)>& f);
  void prepare(const N* seeds, int64_t num_seeds);
  void number_copies(const N* seeds, int64_t num_seeds);
  int64_t count_edges(int hop);
  int64_t scan(int hop);
  void ask_lists(PagesAhead& ahead, const std::vector<int64_t>& entries, int hop, int64_t begin,
                 int64_t end) const;
  const uint32_t* make_high_words(const SourceNumbers& numbers, int64_t entries);
  void scan_part(Scan& found, const LaborChoice& choice, const LaborScan<N>& labor,
                 const std::vector<int64_t>& entries, int hop, int64_t begin, int64_t end);
  void race_part(Scan& found, const RaceChoice& choice, const std::vector<int64_t>& entries, int hop,
                 int64_t begin, int64_t end);
  void pick(int hop);
  void pick_part(const Fetch& part, int64_t begin, int64_t end);
  void fetch(Fetch& part);
  void take_scanned(int hop);
  void mark(Fetch& part, int64_t count);
  // Whether this worker marks what it picks: nobody else does. Others put it aside for `settle`.
  bool marks_at_once(int64_t parts, int worker) const { return parts == 1 || worker == pool_->owner(); }
  int64_t settle(int hop);
  void list(int hop, N* out);
  int64_t row_count(int64_t row, int hop) const {
    if (scans_) return hops_[hop - 1].counts[row];
    return counted_.count(degrees_[row], fanout(row, hop));
  }
  int64_t add_rows();
  // Bucket b: the pages [first_page(b), first_page(b + 1)).
  int64_t first_page(int64_t bucket) const;

  const std::shared_ptr<Workers> pool_;
  const int64_t part_edges_;
  std::vector<Worker> workers_;
  RankBitmap set_;
  bool clean_ = false;  // the set is as `write` leaves it

  // Of the call under way.
  GraphOf<Lists> graph_{};
  Options options_{};
  Counted counted_{};
  bool scans_ = false;  // only a scan tells how many of a list are picked
  SampleSizes sizes_;
  Arena<N> nodes_;   // in the order of local ids, without the last hop's
  Arena<Row> rows_;  // of the vertices in nodes_, where a vertex has several
  size_t vertices_of_rows_ = 0;
  // Of the seeds, and of their rows where a vertex has several: how many equal ones come before. Empty if all
  // seeds are distinct.
  std::vector<uint32_t> copies_, row_copies_;
  Arena<P> begins_, degrees_;  // of the rows
  std::vector<Hop> hops_;
  std::vector<Scan> found_;
  Arena<uint32_t> high_words_;  // of the numbers of all sources, or empty
  uint32_t high_words_step_ = 0;
  int64_t num_buckets_ = 0;
  int bucket_bits_ = 0;
  std::vector<int64_t> bucket_ids_;  // [buckets + 1]: the first local id of each bucket's new vertices
};

// Of plain lists: compiled once, in fused.cpp.
template <typename P, typename N>
using FusedSampler = FusedSamplerOf<PlainLists<P, N>>;
extern template class FusedSamplerOf<PlainLists<int32_t, int32_t>>;
extern template class FusedSamplerOf<PlainLists<int64_t, int32_t>>;
extern template class FusedSamplerOf<PlainLists<int64_t, int64_t>>;

// Of HeteroLists: fused_hetero.cpp.
template <typename P, typename N>
using HeteroFusedSampler = FusedSamplerOf<HeteroLists<P, N>>;
extern template class FusedSamplerOf<HeteroLists<int32_t, int32_t>>;
extern template class FusedSamplerOf<HeteroLists<int64_t, int32_t>>;
extern template class FusedSamplerOf<HeteroLists<int64_t, int64_t>>;

}  // namespace loader
