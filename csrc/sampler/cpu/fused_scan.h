// A hop of the fused sampler for choices that read a whole list before they pick, such as picks by weight.
#pragma once

#include <algorithm>
#include <numeric>
#include <type_traits>
#include <vector>

#include "sampler/cpu/fused.h"

namespace loader {

// Looks at all entries of all lists and keeps those that are picked; returns how many they are. Entries are
// shared out, not rows: a part may begin and end in the midst of a list.
template <typename Lists, typename Choice>
int64_t FusedSamplerOf<Lists, Choice>::scan(int hop) {
  Hop& this_hop = hops_[hop - 1];
  const std::vector<int64_t> entries = this_hop.offsets;  // of the blocks of rows
  const auto rows = static_cast<int64_t>(degrees_.size());
  this_hop.counts.clear();
  uint32_t* const counts = this_hop.counts.extend(static_cast<size_t>(rows));
  std::fill_n(counts, rows, 0u);
  const int64_t parts = this->parts(entries.back(), part_edges_);
  if (static_cast<int64_t>(found_.size()) < parts) found_.resize(parts);
  for (Scan& found : found_) {
    found.picked.clear();
    found.edges.clear();
    found.row = -1;
  }
  const auto in_parts = [&](const auto& look) {
    pool_->each(parts, [&](int part, int) {
      const int64_t begin = entries.back() * part / parts, end = entries.back() * (part + 1) / parts;
      PagesAhead ahead(options_.in_file);
      if (ahead.asks()) ask_lists(ahead, entries, hop, begin, end);
      look(found_[part], begin, end);
      ahead.done(rows / parts + 1);  // about as many lists
    });
  };
  with_choice(options_.choice, [&](const auto& kind) {
    using Kind = std::decay_t<decltype(kind)>;
    if constexpr (std::is_same_v<Kind, LaborChoice>) {
      const SourceNumbers numbers = kind.numbers(options_.keys, hop);
      const LaborScan<N> labor(numbers, make_high_words(numbers, entries.back()));
      in_parts([&](Scan& found, int64_t begin, int64_t end) {
        scan_part(found, kind, labor, entries, hop, begin, end);
      });
    } else if constexpr (std::is_same_v<Kind, RaceChoice>) {
      in_parts(
          [&](Scan& found, int64_t begin, int64_t end) { race_part(found, kind, entries, hop, begin, end); });
    } else {
      static_assert(Kind::kCountsByDegree, "this sampler scans lists for LABOR and for races only");
    }
  });
  for (const Scan& found : found_)
    if (found.row >= 0) counts[found.row] += static_cast<uint32_t>(found.of_row);
  const int64_t blocks = static_cast<int64_t>(this_hop.offsets.size()) - 1;
  int64_t sum = 0;
  for (int64_t block = 0; block < blocks; ++block) {
    this_hop.offsets[block] = sum;
    const int64_t begin = this_hop.first_row + block * kBlockRows, end = std::min(begin + kBlockRows, rows);
    for (int64_t row = begin; row < end; ++row) sum += counts[row];
  }
  return this_hop.offsets[blocks] = sum;
}

// Asks for the entries [begin, end) of all lists.
template <typename Lists, typename Choice>
void FusedSamplerOf<Lists, Choice>::ask_lists(PagesAhead& ahead, const std::vector<int64_t>& entries, int hop,
                                              int64_t begin, int64_t end) const {
  const auto rows = static_cast<int64_t>(degrees_.size());
  const int64_t block = std::upper_bound(entries.begin(), entries.end(), begin) - entries.begin() - 1;
  int64_t row = hops_[hop - 1].first_row + block * kBlockRows, first = entries[block];
  for (; row < rows && first < end; first += degrees_[row++]) {
    const int64_t low = std::max(first, begin), high = std::min<int64_t>(first + degrees_[row], end);
    if (low < high)
      graph_.lists.where(static_cast<P>(begins_[row] + (low - first)), high - low, asking(ahead));
  }
  ahead.flush();
}

// The high words of the numbers of all sources where `entries` lists entries meet each of them more than
// once, else null: to look at one takes a third of the time that it takes to make one.
template <typename Lists, typename Choice>
const uint32_t* FusedSamplerOf<Lists, Choice>::make_high_words(const SourceNumbers& numbers,
                                                               int64_t entries) {
  const auto sources = static_cast<size_t>(graph_.num_nodes);
  if (high_words_.size() == sources && high_words_step_ == numbers.step) return high_words_.begin();
  if (entries < 2 * graph_.num_nodes) return nullptr;
  high_words_.clear();
  uint32_t* const high = high_words_.extend(sources);
  high_words_step_ = numbers.step;
  in_parts(graph_.num_nodes, part_edges_,
           [&](int64_t begin, int64_t end) { high_words(numbers, begin, end, high); });
  return high;
}

// The entries [begin, end) of all lists. The count of a row is written by the part in which it begins.
template <typename Lists, typename Choice>
void FusedSamplerOf<Lists, Choice>::scan_part(Scan& found, const LaborChoice& choice,
                                              const LaborScan<N>& labor, const std::vector<int64_t>& entries,
                                              int hop, int64_t begin, int64_t end) {
  Arena<P>* const edges = options_.edge_ids ? &found.edges : nullptr;
  uint32_t* const counts = hops_[hop - 1].counts.data();
  const auto rows = static_cast<int64_t>(degrees_.size());
  const int64_t block = std::upper_bound(entries.begin(), entries.end(), begin) - entries.begin() - 1;
  int64_t row = hops_[hop - 1].first_row + block * kBlockRows, first = entries[block];
  for (; row < rows && first < end; ++row) {
    const int64_t degree = degrees_[row], low = std::max(first, begin), high = std::min(first + degree, end);
    const int64_t fanout = this->fanout(row, hop);
    if (row + kAhead < rows) prefetch_entry(graph_.lists, begins_[row + kAhead]);
    if (low < high && fanout != 0) {
      const P at = static_cast<P>(begins_[row] + (low - first));
      int64_t count = high - low;
      if (choice.whole(degree, fanout)) {
        N* const room = found.picked.extend(static_cast<size_t>(count));
        if (const N* const all = neighbors(graph_.lists, at, count, room); all != room)
          std::copy_n(all, count, room);
        if (edges) {
          P* const places = edges->extend(static_cast<size_t>(count));
          std::iota(places, places + count, at);
        }
      } else {
        count = labor(graph_.lists, at, count, static_cast<uint32_t>(degree), static_cast<uint32_t>(fanout),
                      found.picked, edges);
      }
      if (first >= begin) {
        counts[row] = static_cast<uint32_t>(count);
      } else {
        found.row = row;
        found.of_row = count;
      }
    }
    first += degree;
  }
}

// The rows that begin among the entries [begin, end). A race is one thread's: a list is not cut. Memory
// brings the weights of a row while those before it race, and the neighbors that are picked while the next
// ones do.
template <typename Lists, typename Choice>
void FusedSamplerOf<Lists, Choice>::race_part(Scan& found, const RaceChoice& choice,
                                              const std::vector<int64_t>& entries, int hop, int64_t begin,
                                              int64_t end) {
  constexpr int64_t kRowsAhead = 2;
  uint32_t* const counts = hops_[hop - 1].counts.data();
  const auto rows = static_cast<int64_t>(degrees_.size());
  const int64_t block = std::upper_bound(entries.begin(), entries.end(), begin) - entries.begin() - 1;
  int64_t row = hops_[hop - 1].first_row + block * kBlockRows, first = entries[block];
  size_t asked = 0, read = 0;  // picks whose neighbors were asked for, and read
  const auto read_to = [&](size_t count) {
    N* const picked = found.picked.extend(count - read);
    for (size_t i = read; i < count; ++i) picked[i - read] = graph_.lists.read(found.edges[i]);
    read = count;
  };
  for (; row < rows && first < end; first += degrees_[row++]) {
    if (row + kRowsAhead < rows)
      prefetch_weights(choice, begins_[row + kRowsAhead], degrees_[row + kRowsAhead]);
    if (first < begin || degrees_[row] == 0 || fanout(row, hop) == 0) continue;
    counts[row] = static_cast<uint32_t>(found.race(choice, draws(row, hop), begins_[row],
                                                   static_cast<uint32_t>(degrees_[row]), fanout(row, hop),
                                                   found.edges));
    read_to(asked);
    for (; asked < found.edges.size(); ++asked) prefetch_entry(graph_.lists, found.edges[asked]);
  }
  read_to(asked);
}

// Makes what the scan found the hop's picks, and marks them.
template <typename Lists, typename Choice>
void FusedSamplerOf<Lists, Choice>::take_scanned(int hop) {
  Hop& this_hop = hops_[hop - 1];
  this_hop.picked.clear();
  this_hop.picked.extend(static_cast<size_t>(sizes_.edges[hop - 1]));
  this_hop.edges.clear();
  if (options_.edge_ids) this_hop.edges.extend(static_cast<size_t>(sizes_.edges[hop - 1]));
  std::vector<int64_t> first{0};
  for (const Scan& found : found_) first.push_back(first.back() + static_cast<int64_t>(found.picked.size()));
  const auto parts = static_cast<int64_t>(found_.size());
  pool_->each(parts, [&](int part, int worker) {
    const Scan& found = found_[part];
    const auto count = static_cast<int64_t>(found.picked.size());
    std::copy_n(found.picked.begin(), count, this_hop.picked.data() + first[part]);
    if (options_.edge_ids) std::copy_n(found.edges.begin(), count, this_hop.edges.data() + first[part]);
    Fetch whole{workers_[worker], hop, first[part], marks_at_once(parts, worker)};
    mark(whole, count);
  });
}

}  // namespace loader
