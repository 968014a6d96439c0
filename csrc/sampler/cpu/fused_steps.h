// The steps of the fused sampler: for the instances that fused.cpp compiles, and for lists and choices of
// others.
#pragma once

#include <algorithm>
#include <type_traits>
#include <utility>
#include <vector>

#include "sampler/cpu/fused.h"

namespace loader {

// How many parts to make of `work` units, if a part is worth it from `least` on.
template <typename Lists, typename Choice>
int64_t FusedSamplerOf<Lists, Choice>::parts(int64_t work, int64_t least) const {
  if (pool_->size() == 1) return 1;
  const int64_t fine = std::max(kPartsPerThread * pool_->size(), work / kMaxPartEdges);
  return std::clamp(work / least, int64_t{1}, std::min(fine, int64_t{0xffff}));
}

// f(begin, end) over [0, n), in parts of at least `least`.
template <typename Lists, typename Choice>
void FusedSamplerOf<Lists, Choice>::in_parts(int64_t n, int64_t least,
                                             const std::function<void(int64_t, int64_t)>& f) {
  const int64_t count = parts(n, std::max<int64_t>(least, 1));
  pool_->each(count, [&](int part, int) { f(n * part / count, n * (part + 1) / count); });
}

template <typename Lists, typename Choice>
int64_t FusedSamplerOf<Lists, Choice>::first_page(int64_t bucket) const {
  return std::min(bucket << (bucket_bits_ - RankBitmap::kPageBits), set_.pages());
}

template <typename Lists, typename Choice>
SampleSizes FusedSamplerOf<Lists, Choice>::sample(const GraphOf<Lists>& graph, const N* seeds,
                                                  int64_t num_seeds, const Options& options) {
  for (int64_t i = 0; i < num_seeds; ++i) check_seed(seeds[i], graph.num_nodes);
  graph_ = graph;
  options_ = options;
  with_choice(options_.choice, [this](const auto& kind) {
    using Kind = std::decay_t<decltype(kind)>;
    scans_ = !Kind::kCountsByDegree;
    if constexpr (Kind::kCountsByDegree) counted_ = counted_as(kind);
  });
  sizes_ = {{num_seeds}, {}};
  prepare(seeds, num_seeds);
  for (int hop = 1; hop <= options.hops(); ++hop) {
    int64_t edges = count_edges(hop);
    if (scans_) edges = scan(hop);
    check_edge_count<P>(edges);
    sizes_.edges.push_back(edges);
    sizes_.rows.push_back(hops_[hop - 1].end_row - hops_[hop - 1].first_row);
    if (scans_)
      take_scanned(hop);
    else
      pick(hop);
    const int64_t found = settle(hop);
    sizes_.frontiers.push_back(sizes_.frontiers.back() + found);
    if (hop < options.hops()) list(hop, nodes_.extend(static_cast<size_t>(found)));
  }
  return sizes_;
}

template <typename Lists, typename Choice>
void FusedSamplerOf<Lists, Choice>::prepare(const N* seeds, int64_t num_seeds) {
  int64_t expected = num_seeds, rows = num_seeds;
  for (const int64_t fanout : options_.fanouts) {
    if (fanout == kAllNeighbors || expected > int64_t{1} << 30) break;
    expected += rows * fanout;
    rows += rows * fanout;
  }
  pool_->wake(static_cast<int>(parts(expected, part_edges_)) - 1);  // they come while the seeds are looked at

  if (!clean_) set_.clear();
  clean_ = false;  // an exception leaves marks: the next call removes them
  set_.reset(graph_.num_nodes, options_.hops());
  // An owner settles by itself, with one bucket for what its helpers picked.
  const int64_t wanted = pool_->owner() >= 0 ? 1 : kPartsPerThread * pool_->size();
  for (bucket_bits_ = RankBitmap::kPageBits; (graph_.num_nodes >> bucket_bits_) >= wanted;) ++bucket_bits_;
  num_buckets_ = (graph_.num_nodes >> bucket_bits_) + 1;
  bucket_ids_.assign(num_buckets_ + 1, 0);
  for (Worker& worker : workers_) {
    worker.picks.clear();
    worker.buckets.resize(num_buckets_);
    for (auto& bucket : worker.buckets) bucket.clear();
  }
  hops_.resize(options_.hops());
  high_words_.clear();  // those of another mini-batch
  nodes_.clear();
  rows_.clear();
  vertices_of_rows_ = 0;
  begins_.clear();
  degrees_.clear();
  const int64_t twice = set_.add_seeds(seeds, num_seeds);
  copies_.clear();
  row_copies_.clear();
  if (twice >= 0) {
    if (!options_.copies) throw_duplicate_seed(seeds[twice]);
    number_copies(seeds, num_seeds);
  }
  std::copy_n(seeds, num_seeds, nodes_.extend(static_cast<size_t>(num_seeds)));
}

template <typename Lists, typename Choice>
void FusedSamplerOf<Lists, Choice>::number_copies(const N* seeds, int64_t num_seeds) {
  std::vector<uint32_t> met(static_cast<size_t>(num_seeds), 0);  // by the local id of a vertex
  copies_.reserve(met.size());
  for (int64_t i = 0; i < num_seeds; ++i)
    copies_.push_back(met[set_.seed_id(static_cast<uint64_t>(seeds[i]))]++);
}

// Makes rows of the vertices that are new; returns how many rows there are.
template <typename Lists, typename Choice>
int64_t FusedSamplerOf<Lists, Choice>::add_rows() {
  if constexpr (kHetero) {
    for (; vertices_of_rows_ < nodes_.size(); ++vertices_of_rows_) {
      for_each_row(graph_.lists, nodes_[vertices_of_rows_], [this](const Row& row) { rows_.push_back(row); });
      if (vertices_of_rows_ < copies_.size()) row_copies_.resize(rows_.size(), copies_[vertices_of_rows_]);
    }
    return static_cast<int64_t>(rows_.size());
  } else {
    return static_cast<int64_t>(nodes_.size());
  }
}

// Looks up the lists of the vertices that are new, and counts the edges of each block of rows: those that are
// picked or, if only a scan tells them, all.
template <typename Lists, typename Choice>
int64_t FusedSamplerOf<Lists, Choice>::count_edges(int hop) {
  const int64_t rows = add_rows(), known = static_cast<int64_t>(degrees_.size());
  P* const begins = begins_.extend(static_cast<size_t>(rows - known)) - known;
  P* const degrees = degrees_.extend(static_cast<size_t>(rows - known)) - known;
  const int64_t first_row = hops_[hop - 1].first_row = options_.once ? known : 0;
  hops_[hop - 1].end_row = rows;
  const int64_t blocks = (rows - first_row + kBlockRows - 1) / kBlockRows;
  std::vector<int64_t>& offsets = hops_[hop - 1].offsets;
  offsets.resize(blocks + 1);
  in_parts(blocks, std::max<int64_t>(part_edges_ / (4 * kBlockRows), 1), [&](int64_t first, int64_t last) {
    for (int64_t block = first; block < last; ++block) {
      const int64_t begin = first_row + block * kBlockRows, end = std::min(begin + kBlockRows, rows);
      const int64_t unknown = std::max(begin, known);
      PagesAhead ahead(options_.in_file);
      if (ahead.asks()) {
        for (int64_t row = unknown; row < end; ++row) graph_.lists.where(row_at(row), asking(ahead));
        ahead.flush();
      }
      for (int64_t row = unknown; row < end; ++row) {
        if (row + kAhead < rows) prefetch_list(graph_.lists, row_at(row + kAhead));
        const ListOf<P> list = graph_.lists.list(row_at(row));
        begins[row] = list.begin;
        degrees[row] = list.end - list.begin;
      }
      ahead.done(end - unknown);
      int64_t edges = 0;
      for (int64_t row = begin; row < end; ++row) edges += scans_ ? degrees_[row] : row_count(row, hop);
      offsets[block] = edges;
    }
  });
  int64_t sum = 0;
  for (int64_t block = 0; block < blocks; ++block) sum += std::exchange(offsets[block], sum);
  offsets[blocks] = sum;
  return sum;
}

template <typename Lists, typename Choice>
void FusedSamplerOf<Lists, Choice>::pick(int hop) {
  Hop& this_hop = hops_[hop - 1];
  const int64_t edges = sizes_.edges[hop - 1];
  this_hop.picked.clear();
  this_hop.picked.extend(static_cast<size_t>(edges));
  this_hop.edges.clear();
  if (options_.edge_ids) this_hop.edges.extend(static_cast<size_t>(edges));
  const int64_t count = parts(edges, part_edges_);
  pool_->each(count, [&](int part, int worker) {
    pick_part({workers_[worker], hop, 0, marks_at_once(count, worker)}, edges * part / count,
              edges * (part + 1) / count);
  });
}

// The edges [begin, end) of the hop. Rows that are picked whole may be cut in pieces; others go to the part
// in which they begin.
template <typename Lists, typename Choice>
void FusedSamplerOf<Lists, Choice>::pick_part(const Fetch& part, int64_t begin, int64_t end) {
  Fetch fetched = part;
  Worker& worker = part.worker;
  const std::vector<int64_t>& offsets = hops_[part.hop - 1].offsets;
  const auto blocks_of = [&](int64_t fanout) {
    return with_choice(options_.choice,
                       [&](const auto& kind) { return first_blocks(kind, static_cast<uint32_t>(fanout)); });
  };
  int64_t fanout = options_.fanouts[part.hop - 1];
  uint32_t blocks = blocks_of(fanout);
  const auto rows = static_cast<int64_t>(degrees_.size());
  const int64_t block = std::upper_bound(offsets.begin(), offsets.end(), begin) - offsets.begin() - 1;
  int64_t row = hops_[part.hop - 1].first_row + block * kBlockRows, first = offsets[block];
  for (; row < rows && first < end; ++row) {
    const int64_t degree = degrees_[row], count = row_count(row, part.hop);
    if (count == 0) continue;
    if (kHetero && fanout != this->fanout(row, part.hop)) {
      fanout = this->fanout(row, part.hop);
      blocks = blocks_of(fanout);
    }
    const int64_t low = std::max(first, begin);
    if (counted_.whole(degree, fanout)) {
      const int64_t high = std::min(first + count, end);
      if (low < high) {
        if (worker.picks.pending() == 0) fetched.at = low;
        worker.picks.add_all(static_cast<P>(begins_[row] + (low - first)), high - low);
      }
    } else if (first >= begin) {
      if (worker.picks.pending() == 0) fetched.at = first;
      worker.picks.add(draws(row, part.hop), begins_[row], static_cast<uint32_t>(degree),
                       static_cast<uint32_t>(count), static_cast<uint32_t>(fanout), blocks);
    }
    first += count;
    if (worker.picks.pending() >= kMaxPending) fetch(fetched);
  }
  if (worker.picks.pending() > 0) fetch(fetched);
}

// Draws the picks that wait, reads their neighbors and marks them, or puts them aside for who marks them.
template <typename Lists, typename Choice>
void FusedSamplerOf<Lists, Choice>::fetch(Fetch& part) {
  Worker& worker = part.worker;
  Hop& this_hop = hops_[part.hop - 1];
  const int64_t count = worker.picks.pending();
  worker.edges.clear();
  P* edges = worker.edges.extend(static_cast<size_t>(count));
  worker.picks.draw(options_.choice, graph_.lists, edges);
  if (options_.edge_ids) std::copy_n(edges, count, this_hop.edges.data() + part.at);
  N* const picked = this_hop.picked.data() + part.at;
  PagesAhead ahead(options_.in_file);
  if (ahead.asks()) {
    for (int64_t i = 0; i < count; ++i) graph_.lists.where(edges[i], 1, asking(ahead));
    ahead.flush();
  }
  for (int64_t i = 0; i < count; ++i) {
    picked[i] = graph_.lists.read(edges[i]);
    if (part.mark) set_.prefetch_mark(static_cast<uint64_t>(picked[i]));
  }
  ahead.done(count);
  mark(part, count);
}

// Marks `count` picks from part.at on, or puts them aside for who marks them.
template <typename Lists, typename Choice>
void FusedSamplerOf<Lists, Choice>::mark(Fetch& part, int64_t count) {
  const N* const picked = hops_[part.hop - 1].picked.data() + part.at;
  if (part.mark) {
    for (int64_t i = 0; i < count; ++i) set_.mark(static_cast<uint64_t>(picked[i]));
  } else {
    std::vector<Arena<N>>& buckets = part.worker.buckets;
    for (int64_t i = 0; i < count; ++i)
      buckets[static_cast<uint64_t>(picked[i]) >> bucket_bits_].push_back(picked[i]);
  }
}

// Marks what was put aside and counts the new vertices of each bucket; returns how many there are.
template <typename Lists, typename Choice>
int64_t FusedSamplerOf<Lists, Choice>::settle(int hop) {
  const int64_t count = std::min(parts(sizes_.edges[hop - 1], part_edges_), num_buckets_);
  pool_->each(count, [&](int part, int) {
    for (int64_t b = num_buckets_ * part / count; b < num_buckets_ * (part + 1) / count; ++b) {
      for (Worker& worker : workers_) {
        for (const N v : worker.buckets[b]) set_.mark(static_cast<uint64_t>(v));
        worker.buckets[b].clear();
      }
      bucket_ids_[b] = set_.settle(hop, first_page(b), first_page(b + 1));
    }
  });
  int64_t id = sizes_.frontiers.back();
  for (int64_t b = 0; b < num_buckets_; ++b) id += std::exchange(bucket_ids_[b], id);
  bucket_ids_[num_buckets_] = id;
  return id - sizes_.frontiers.back();
}

// Writes the new vertices of `hop`.
template <typename Lists, typename Choice>
void FusedSamplerOf<Lists, Choice>::list(int hop, N* out) {
  const int64_t first = bucket_ids_[0], found = bucket_ids_[num_buckets_] - first;
  const int64_t count = std::min(parts(found, part_edges_), num_buckets_);
  pool_->each(count, [&](int part, int) {
    for (int64_t b = num_buckets_ * part / count; b < num_buckets_ * (part + 1) / count; ++b)
      set_.list(hop, first_page(b), first_page(b + 1), bucket_ids_[b], out + (bucket_ids_[b] - first));
  });
}

template <typename Lists, typename Choice>
void FusedSamplerOf<Lists, Choice>::write(const SampleOut<P, N>& out) {
  const int hops = options_.hops();
  list(hops, out.nodes + nodes_.size());
  // Slices of all arrays, so that one round of the threads writes them: first the vertices and the hops' row
  // offsets by block, then the hops' edges.
  const auto rows = static_cast<int64_t>(nodes_.size());
  struct Slice {
    int hop;  // 0: nodes
    bool edges;
    int64_t begin, end;
  };
  std::vector<Slice> slices;
  const auto cut = [&](int hop, bool edges, int64_t n, int64_t least) {
    const int64_t count = parts(n, least);
    for (int64_t i = 0; i < count; ++i) slices.push_back({hop, edges, n * i / count, n * (i + 1) / count});
  };
  for (int hop = hops; hop >= 1; --hop) {
    cut(hop, true, sizes_.edges[hop - 1], part_edges_);
    cut(hop, false, static_cast<int64_t>(hops_[hop - 1].offsets.size()) - 1,
        8 * part_edges_ / kBlockRows + 1);
  }
  cut(0, false, rows, 8 * part_edges_);
  const int64_t count = std::min<int64_t>(static_cast<int64_t>(slices.size()), 0xffff);
  const auto write_slice = [&](const Slice& slice) {
    if (slice.hop == 0) {
      std::copy(nodes_.begin() + slice.begin, nodes_.begin() + slice.end, out.nodes + slice.begin);
      return;
    }
    const BlockOut<P, N>& block = out.blocks[slice.hop - 1];
    const Hop& hop = hops_[slice.hop - 1];
    if (slice.edges) {
      set_.relabel(slice.hop, hop.picked.begin() + slice.begin, slice.end - slice.begin,
                   block.indices + slice.begin);
      if (block.edge_ids)
        std::copy(hop.edges.begin() + slice.begin, hop.edges.begin() + slice.end,
                  block.edge_ids + slice.begin);
      return;
    }
    int64_t at = hop.offsets[slice.begin];
    const int64_t end = hop.end_row;
    const int64_t last = std::min(hop.first_row + slice.end * kBlockRows, end);
    for (int64_t row = hop.first_row + slice.begin * kBlockRows; row < last; ++row) {
      const int64_t count = row_count(row, slice.hop);
      if (block.indptr) block.indptr[row - hop.first_row] = static_cast<P>(at);
      if (block.rows) std::fill_n(block.rows + at, count, static_cast<N>(row));
      at += count;
    }
    if (block.indptr && last == end) block.indptr[last - hop.first_row] = static_cast<P>(at);
  };
  pool_->each(count, [&](int part, int) {
    const auto all = static_cast<int64_t>(slices.size());
    for (int64_t i = all * part / count; i < all * (part + 1) / count; ++i) write_slice(slices[i]);
  });
  set_.forget(0, set_.pages());
  clean_ = true;
}

}  // namespace loader
