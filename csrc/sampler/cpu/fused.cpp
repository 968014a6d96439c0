#include "sampler/cpu/fused.h"

#include <algorithm>
#include <numeric>

namespace loader {
namespace {

constexpr int kPageBits = 12;  // of 64 words
constexpr int64_t kPageWords = (int64_t{1} << kPageBits) / 64;
constexpr uint8_t kUnseen = 255;
constexpr size_t kGroup = 32;          // tasks whose memory accesses are in flight together
constexpr int64_t kMaxPending = 1024;  // picks that may wait for their fetch
constexpr size_t kPrefetchAhead = 32;  // picks
constexpr size_t kMaxChunk = 256;      // tasks that travel together

// Relaxed accesses compile to plain moves; the order comes from the queue's mutex and the pool's joins.
inline uint8_t load(const uint8_t& x) { return __atomic_load_n(&x, __ATOMIC_RELAXED); }

// Lowers `x` to `value` and returns what it was before, where that was greater; else returns `value`.
inline uint8_t fetch_min(uint8_t& x, uint8_t value) {
  uint8_t old = load(x);
  while (old > value &&
         !__atomic_compare_exchange_n(&x, &old, value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
  return std::max(old, value);
}

}  // namespace

template <typename P, typename N>
SampleSizes FusedSampler<P, N>::sample(const Csc<P, N>& graph, const N* seeds, int64_t num_seeds,
                                       const SampleOptions& options) {
  for (int64_t i = 0; i < num_seeds; ++i) check_seed(seeds[i], graph.num_nodes);
  resize(graph.num_nodes);
  graph_ = graph;
  options_ = options;
  seeds_.assign(seeds, seeds + num_seeds);
  serial_ = is_small();
  for (Worker& worker : workers_) {
    worker.rows.clear();
    worker.picked.clear();
    worker.edges.clear();
    worker.out.clear();
    worker.picks.clear();
    worker.edge_counts.assign(options.hops(), 0);
    worker.levels.resize(options.hops() + 1);
    for (auto& level : worker.levels) level.clear();
  }
  try {
    mark_seeds();
    if (serial_)
      work(workers_[0]);
    else
      pool_.run([this](int i) { work(workers_[i]); });
    each_worker(serial_, [this](int i) { scan(i); });
    for (const N v : seeds_) level_[v] = kUnseen;
  } catch (...) {
    capacity_ = 0;  // the marks are in disorder: the next call makes new ones
    throw;
  }
  return sizes();
}

// Whether the fanouts alone keep the mini-batch below serial_edges_.
template <typename P, typename N>
bool FusedSampler<P, N>::is_small() const {
  auto rows = static_cast<int64_t>(seeds_.size());
  int64_t edges = 0;
  for (const int64_t fanout : options_.fanouts) {
    if (fanout == kAllNeighbours || edges >= serial_edges_) return false;
    edges += rows * fanout;
    rows += rows * fanout;
  }
  return edges < serial_edges_;
}

template <typename P, typename N>
void FusedSampler<P, N>::each_worker(bool serial, const std::function<void(int)>& f) {
  if (!serial) return pool_.run(f);
  for (int i = 0; i < pool_.size(); ++i) f(i);
}

template <typename P, typename N>
void FusedSampler<P, N>::resize(int64_t num_nodes) {
  if (num_nodes == capacity_) return;
  capacity_ = 0;  // stays so if an allocation throws
  level_.assign(num_nodes, kUnseen);
  const int64_t pages = (num_nodes >> kPageBits) + 1;
  for (Worker& worker : workers_) {
    worker.seen.assign(pages * kPageWords, 0);
    worker.dirty.assign(pages, 0);
  }
  local_.reset(new N[num_nodes]);
  capacity_ = num_nodes;
}

template <typename P, typename N>
void FusedSampler<P, N>::mark_seeds() {
  queue_.reset(serial_ ? 1 : pool_.size());
  const size_t share = seeds_.size() / (4 * workers_.size()) + 1;
  chunk_size_ = std::min(kMaxChunk, std::max(share, kGroup));
  typename TaskQueue<N>::Chunk chunk;
  for (const N v : seeds_) {
    if (level_[v] == 0) throw_duplicate_seed(v);
    level_[v] = 0;
    chunk.push_back({v, 1, static_cast<uint8_t>(options_.hops())});
    if (chunk.size() >= chunk_size_) queue_.push(chunk);
  }
  queue_.push(chunk);
}

template <typename P, typename N>
void FusedSampler<P, N>::work(Worker& worker) {
  try {
    while (queue_.pop(worker.in)) {
      const auto& tasks = worker.in;
      for (size_t i = 0; i < tasks.size(); i += kGroup)
        sample_group(worker, &tasks[i], std::min(kGroup, tasks.size() - i));
      queue_.push(worker.out);
    }
  } catch (...) {
    queue_.abort();
    throw;
  }
}

// The accesses of a group go out together, step by step: indptr, then indices, then marks; each step
// prefetches for the next, so that the memory's latency is paid once a group and not once a pick.
template <typename P, typename N>
void FusedSampler<P, N>::sample_group(Worker& worker, const Task<N>* tasks, size_t count) {
  for (size_t i = 0; i < count; ++i) __builtin_prefetch(&graph_.indptr[tasks[i].v]);
  worker.first_row = worker.rows.size();
  for (size_t i = 0; i < count; ++i) {
    for (int hop = tasks[i].first; hop <= tasks[i].last; ++hop) {
      add_row(worker, tasks[i].v, hop);
      if (worker.picks.pending() >= kMaxPending) fetch(worker);
    }
  }
  fetch(worker);
}

template <typename P, typename N>
void FusedSampler<P, N>::add_row(Worker& worker, N v, int hop) {
  const P begin = graph_.indptr[v];
  const int64_t degree = graph_.indptr[v + 1] - begin;
  const int64_t fanout = options_.fanouts[hop - 1];
  const int64_t count = pick_count(degree, fanout, options_.replace);
  if (count == 0) return;
  worker.rows.push_back({v, static_cast<uint32_t>(count), static_cast<uint8_t>(hop)});
  worker.edge_counts[hop - 1] += count;
  if (picks_all(degree, fanout, options_.replace)) {
    worker.picks.add_all(begin, count);
  } else {
    const Draws draws{options_.key, static_cast<uint64_t>(v), static_cast<uint32_t>(hop)};
    worker.picks.add(draws, begin, static_cast<uint32_t>(degree), static_cast<uint32_t>(fanout));
  }
}

// Picks for the rows that wait, reads their neighbours and makes tasks of the vertices found.
template <typename P, typename N>
void FusedSampler<P, N>::fetch(Worker& worker) {
  const auto picks = static_cast<size_t>(worker.picks.pending());
  P* const edges = worker.edges.extend(picks);
  worker.picks.draw(options_.replace, edges);
  for (size_t i = 0; i < picks; ++i) __builtin_prefetch(&graph_.indices[edges[i]]);
  N* picked = worker.picked.extend(picks);
  for (size_t i = 0; i < picks; ++i) {
    picked[i] = graph_.indices[edges[i]];
    __builtin_prefetch(&worker.seen[picked[i] / 64]);
  }
  if (!options_.edge_ids) worker.edges.clear();
  for (; worker.first_row < worker.rows.size(); ++worker.first_row) {
    const Row row = worker.rows[worker.first_row];
    for (uint32_t i = 0; i < row.count; ++i) discover(worker, *picked++, row.hop);
  }
}

template <typename P, typename N>
void FusedSampler<P, N>::discover(Worker& worker, N u, int hop) {
  mark(worker, u);
  if (hop == options_.hops()) return;  // no task will come of it
  const uint8_t old = fetch_min(level_[u], static_cast<uint8_t>(hop));
  if (old == hop) return;  // all its tasks from here on were made: only one finder sees a greater value
  const int last = old == kUnseen ? options_.hops() : old;
  worker.out.push_back({u, static_cast<uint8_t>(hop + 1), static_cast<uint8_t>(last)});
  if (worker.out.size() >= chunk_size_) queue_.push(worker.out);
}

template <typename P, typename N>
void FusedSampler<P, N>::mark(Worker& worker, N v) {
  worker.seen[v / 64] |= uint64_t{1} << v % 64;
  worker.dirty[v >> kPageBits] = 1;
}

// Lists the new vertices of each hop in ascending order, for this worker's share of the pages, and cleans up.
template <typename P, typename N>
void FusedSampler<P, N>::scan(int index) {
  Worker& own = workers_[index];
  const auto pages = static_cast<int64_t>(own.dirty.size());
  const auto last = static_cast<uint8_t>(options_.hops());
  for (int64_t page = pages * index / pool_.size(); page < pages * (index + 1) / pool_.size(); ++page) {
    uint64_t found[kPageWords] = {};
    bool any = false;
    for (Worker& worker : workers_) {
      if (!worker.dirty[page]) continue;
      any = true;
      worker.dirty[page] = 0;
      uint64_t* const words = &worker.seen[page * kPageWords];
      for (int64_t w = 0; w < kPageWords; ++w) found[w] |= words[w];
      std::fill_n(words, kPageWords, 0);
    }
    if (!any) continue;
    for (int64_t w = 0; w < kPageWords; ++w) {
      for (uint64_t bits = found[w]; bits; bits &= bits - 1) {
        const int64_t v = (page << kPageBits) + 64 * w + __builtin_ctzll(bits);
        const uint8_t level = std::min(level_[v], last);
        if (level == 0) continue;  // a seed
        level_[v] = kUnseen;
        own.levels[level].push_back(static_cast<N>(v));
      }
    }
  }
}

template <typename P, typename N>
SampleSizes FusedSampler<P, N>::sizes() const {
  SampleSizes sizes{{static_cast<int64_t>(seeds_.size())}, {}};
  for (int h = 1; h <= options_.hops(); ++h) {
    int64_t nodes = sizes.frontiers.back(), edges = 0;
    for (const Worker& worker : workers_) {
      nodes += static_cast<int64_t>(worker.levels[h].size());
      edges += worker.edge_counts[h - 1];
    }
    check_edge_count<P>(edges);
    sizes.frontiers.push_back(nodes);
    sizes.edges.push_back(edges);
  }
  return sizes;
}

template <typename P, typename N>
void FusedSampler<P, N>::write(const SampleOut<P, N>& out) {
  const SampleSizes all = sizes();
  const auto& frontiers = all.frontiers;
  const int hops = options_.hops();
  const bool serial =
      serial_ || std::accumulate(all.edges.begin(), all.edges.end(), int64_t{0}) < serial_edges_;
  std::copy(seeds_.begin(), seeds_.end(), out.nodes);
  for (size_t i = 0; i < seeds_.size(); ++i) local_[seeds_[i]] = static_cast<N>(i);

  each_worker(serial, [&](int index) {
    for (int h = 1; h <= hops; ++h) {
      int64_t next = frontiers[h - 1];
      for (int before = 0; before < index; ++before)
        next += static_cast<int64_t>(workers_[before].levels[h].size());
      for (const N v : workers_[index].levels[h]) {
        local_[v] = static_cast<N>(next);
        out.nodes[next++] = v;
      }
    }
    for (int h = index; h < hops; h += pool_.size())
      std::fill_n(out.blocks[h].indptr, frontiers[h] + 1, P{0});
  });

  each_worker(serial, [&](int index) {  // counts, each to its row
    for (const Row& row : workers_[index].rows)
      out.blocks[row.hop - 1].indptr[local_[row.v] + 1] = static_cast<P>(row.count);
  });
  each_worker(serial, [&](int index) {
    for (int h = index; h < hops; h += pool_.size()) {
      P* const indptr = out.blocks[h].indptr;
      std::partial_sum(indptr, indptr + frontiers[h] + 1, indptr);
    }
  });

  each_worker(serial, [&](int index) {
    const Worker& worker = workers_[index];
    size_t first = 0;
    for (const Row& row : worker.rows) {
      const BlockOut<P, N>& block = out.blocks[row.hop - 1];
      const P begin = block.indptr[local_[row.v]];
      for (size_t i = 0; i < row.count; ++i) {
        const size_t ahead = first + i + kPrefetchAhead;
        if (ahead < worker.picked.size()) __builtin_prefetch(&local_[worker.picked[ahead]]);
        block.indices[begin + i] = local_[worker.picked[first + i]];
      }
      if (block.edge_ids) std::copy_n(worker.edges.begin() + first, row.count, block.edge_ids + begin);
      first += row.count;
    }
  });
}

template class FusedSampler<int32_t, int32_t>;
template class FusedSampler<int64_t, int32_t>;
template class FusedSampler<int64_t, int64_t>;

}  // namespace loader
