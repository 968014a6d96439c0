// The fused sampler: picks, neighbours, new vertices and local ids of all hops in one call, each hop's work
// shared out by threads in small parts.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "arena.h"
#include "parallel.h"
#include "sampler/cpu/pick_batch.h"
#include "sampler/cpu/ranked_set.h"
#include "sampler/sampler.h"

namespace loader {

template <typename P, typename N>
class FusedSampler {
 public:
  // Parts hold at least `part_edges` edges: what has fewer is not shared out.
  static constexpr int64_t kPartEdges = 2048;

  explicit FusedSampler(int num_threads, int64_t part_edges = kPartEdges)
      : FusedSampler(std::make_shared<ThreadPool>(num_threads), part_edges) {}
  explicit FusedSampler(std::shared_ptr<Workers> pool, int64_t part_edges = kPartEdges)
      : pool_(std::move(pool)), part_edges_(part_edges), workers_(pool_->size()) {}

  // Samples and keeps the picks; returns the sizes of the arrays that `write` fills.
  SampleSizes sample(const Csc<P, N>& graph, const N* seeds, int64_t num_seeds, const SampleOptions& options);
  // Writes the canonical blocks of the last `sample`; once for each.
  void write(const SampleOut<P, N>& out);

 private:
  // What is kept of one hop until it is written.
  struct Hop {
    Arena<N> picked;
    Arena<P> edges;                // positions of the picks, if edge ids are wanted
    int64_t first_row;             // whose neighbours are picked, and those of all rows behind it
    std::vector<int64_t> offsets;  // [blocks of rows + 1]: the first edge of each
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

  int64_t parts(int64_t work, int64_t least) const;
  void in_parts(int64_t n, int64_t least, const std::function<void(int64_t, int64_t)>& f);
  void prepare(const N* seeds, int64_t num_seeds);
  int64_t count_edges(int hop);
  void pick(int hop);
  void pick_part(const Fetch& part, int64_t begin, int64_t end);
  void fetch(Fetch& part);
  int64_t settle(int hop);
  void list(int hop, N* out);
  int64_t row_count(int64_t row, int hop) const {
    return pick_count(degrees_[row], options_.fanouts[hop - 1], options_.replace);
  }
  // Bucket b: the pages [first_page(b), first_page(b + 1)).
  int64_t first_page(int64_t bucket) const;

  const std::shared_ptr<Workers> pool_;
  const int64_t part_edges_;
  std::vector<Worker> workers_;
  RankedSet set_;
  bool clean_ = false;  // the set is as `write` leaves it

  // Of the call under way.
  Csc<P, N> graph_{};
  SampleOptions options_{};
  SampleSizes sizes_;
  Arena<N> nodes_;             // in the order of local ids, without the last hop's
  Arena<P> begins_, degrees_;  // of the vertices in nodes_
  std::vector<Hop> hops_;
  int64_t num_buckets_ = 0;
  int bucket_bits_ = 0;
  std::vector<int64_t> bucket_ids_;  // [buckets + 1]: the first local id of each bucket's new vertices
};

}  // namespace loader
