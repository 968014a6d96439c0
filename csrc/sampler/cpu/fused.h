// The fused sampler: one call for all hops. Workers share a queue of (vertex, hops) tasks; a vertex that is
// found becomes a task at once, with no barrier between hops. Source of the idea: PGSampler, brought to the
// CPU.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "arena.h"
#include "parallel.h"
#include "sampler/cpu/pick_batch.h"
#include "sampler/cpu/task_queue.h"
#include "sampler/sampler.h"

namespace loader {

template <typename P, typename N>
class FusedSampler {
 public:
  // Mini-batches of fewer than `serial_edges` edges are sampled by one thread: to share them out would take
  // longer.
  FusedSampler(int num_threads, int64_t serial_edges)
      : serial_edges_(serial_edges), pool_(num_threads), workers_(pool_.size()) {}

  // Samples and keeps the picks; returns the sizes of the arrays that `write` fills.
  SampleSizes sample(const Csc<P, N>& graph, const N* seeds, int64_t num_seeds, const SampleOptions& options);
  // Writes the canonical blocks of the last `sample`.
  void write(const SampleOut<P, N>& out);

 private:
  // The picks of one vertex at one hop; they stand one after the other in Worker::picked.
  struct Row {
    N v;
    uint32_t count;
    uint8_t hop;
  };

  struct Worker {
    Arena<Row> rows;
    Arena<N> picked;
    Arena<P> edges;  // positions of the picks: of all if edge ids are wanted, else of the last few
    std::vector<Arena<N>> levels;      // [hops + 1]: this worker's share of the new vertices of each hop
    std::vector<int64_t> edge_counts;  // [hops]
    typename TaskQueue<N>::Chunk in, out;
    PickBatch<P> picks;
    // The vertices that this worker found: a bit each, and a flag for each page of them that has one. Its
    // own, so that no cache line travels between cores at every pick.
    std::vector<uint64_t> seen;
    std::vector<uint8_t> dirty;
    size_t first_row = 0;  // rows from here on wait for their picks
  };

  bool is_small() const;
  void each_worker(bool serial, const std::function<void(int)>& f);
  void resize(int64_t num_nodes);
  void mark_seeds();
  void work(Worker& worker);
  void sample_group(Worker& worker, const Task<N>* tasks, size_t count);
  void add_row(Worker& worker, N v, int hop);
  void fetch(Worker& worker);
  void discover(Worker& worker, N u, int hop);
  static void mark(Worker& worker, N v);
  void scan(int index);
  SampleSizes sizes() const;

  const int64_t serial_edges_;
  ThreadPool pool_;
  std::vector<Worker> workers_;
  TaskQueue<N> queue_;
  size_t chunk_size_ = 0;
  bool serial_ = false;  // the mini-batch under way is too small to be shared out

  // Of the call under way.
  Csc<P, N> graph_{};
  SampleOptions options_{};
  std::vector<N> seeds_;

  // Per vertex. `level_`: the least hop below the last at which it was found. `local_`: its local id.
  int64_t capacity_ = 0;
  std::vector<uint8_t> level_;
  std::unique_ptr<N[]> local_;
};

}  // namespace loader
