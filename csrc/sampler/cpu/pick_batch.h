// Picks of many rows at once: the Philox blocks of all rows fill the lanes of the vector unit.
#pragma once

#include <cstdint>
#include <variant>

#include "arena.h"
#include "sampler/cpu/philox_lanes.h"
#include "sampler/sampler.h"

namespace loader {

// positions_from_words, compiled for the widest vector unit of this machine.
void positions_wide(const Draws& draws, const uint32_t* words, uint32_t degree, uint32_t fanout, bool replace,
                    uint32_t* out);

// The Philox blocks that all rows of a batch begin with.
inline uint32_t first_blocks(const UniformChoice&, uint32_t fanout) { return (fanout + 3) / 4; }
inline uint32_t first_blocks(const WeightedChoice&, uint32_t fanout) { return (fanout + 1) / 2; }
inline uint32_t first_blocks(const TopKChoice&, uint32_t) { return 0; }
// Their rows are no rows of a batch: scan.h.
inline uint32_t first_blocks(const LaborChoice&, uint32_t) { return 0; }
inline uint32_t first_blocks(const RaceChoice&, uint32_t) { return 0; }

template <typename P>
class PickBatch {
 public:
  // A row picked whole.
  void add_all(P begin, int64_t count) {
    rows_.push_back({{}, begin, count, 0});
    pending_ += count;
  }

  // A row of `fanout` picks among the `degree` entries from `begin` on, which begin with that many blocks.
  void add(const Draws& draws, P begin, uint32_t degree, uint32_t fanout, uint32_t blocks) {
    rows_.push_back({draws, begin, fanout, degree});
    uint64_t* const vertex = vertex_.extend(blocks);
    uint32_t *const hop = hop_.extend(blocks), *const index = index_.extend(blocks);
    for (uint32_t block = 0; block < blocks; ++block) {
      vertex[block] = draws.lane;
      hop[block] = draws.step;
      index[block] = block;
    }
    pending_ += fanout;
  }

  // Picks of all rows added and not drawn.
  int64_t pending() const { return pending_; }

  // Writes the picked positions of all rows, row after row, to `edges` [pending()] and forgets the rows.
  // Prefetches those entries of `indices` row by row: memory works while the next rows are drawn.
  template <typename N>
  void draw(const AnyChoice& choice, const N* indices, P* edges) {
    words_.clear();
    uint32_t* const drawn = words_.extend(4 * vertex_.size());
    if (!vertex_.empty())
      philox_lanes(static_cast<int64_t>(vertex_.size()), vertex_.begin(), hop_.begin(), index_.begin(), key(),
                   drawn);
    std::visit([&](const auto& kind) { draw_rows(kind, drawn, indices, edges); }, choice);
    clear();
  }

  void clear() {
    rows_.clear();
    vertex_.clear();
    hop_.clear();
    index_.clear();
    pending_ = 0;
  }

 private:
  static constexpr int64_t kLine = 64;  // bytes of a cache line

  struct Row {
    Draws draws;
    P begin;
    int64_t count;
    uint32_t degree;  // 0: picked whole
  };

  // A row that is picked whole.
  template <typename N>
  static void take_all(const Row& row, const N* indices, P* edges) {
    for (int64_t i = 0; i < row.count; ++i) edges[i] = static_cast<P>(row.begin + i);
    for (int64_t i = 0; i < row.count; i += kLine / sizeof(N)) __builtin_prefetch(&indices[row.begin + i]);
    __builtin_prefetch(&indices[row.begin + row.count - 1]);
  }

  template <typename N>
  static void take(const Row& row, const uint32_t* positions, const N* indices, P* edges) {
    for (int64_t i = 0; i < row.count; ++i) {
      edges[i] = static_cast<P>(row.begin + positions[i]);
      __builtin_prefetch(&indices[edges[i]]);
    }
  }

  template <typename N>
  void draw_rows(const UniformChoice& choice, const uint32_t* words, const N* indices, P* edges) {
    uint32_t positions[kMaxFanout];
    for (const Row& row : rows_) {
      if (row.degree == 0) {
        take_all(row, indices, edges);
      } else {
        const auto fanout = static_cast<uint32_t>(row.count);
        positions_wide(row.draws, words, row.degree, fanout, choice.replace, positions);
        take(row, positions, indices, edges);
        words += 4 * first_blocks(choice, fanout);
      }
      edges += row.count;
    }
  }

  // First the places of all draws, so that memory brings their cells meanwhile.
  template <typename N>
  void draw_rows(const WeightedChoice& choice, const uint32_t* words, const N* indices, P* edges) {
    places_.clear();
    for (const Row& row : rows_) {
      if (row.degree == 0) continue;
      const auto fanout = static_cast<uint32_t>(row.count);
      uint64_t* const places = places_.extend(fanout);
      const uint64_t mass = uint64_t{row.degree} << 32;
      for (uint32_t i = 0; i < fanout; ++i) {
        const uint64_t pair = words[2 * i] | uint64_t{words[2 * i + 1]} << 32;
        places[i] = row.draws.bounded_pair(pair, mass, i);
        __builtin_prefetch(&choice.cells[row.begin + static_cast<P>(places[i] >> 32)]);
      }
      words += 4 * first_blocks(choice, fanout);
    }
    const uint64_t* places = places_.begin();
    uint32_t drawn[kMaxFanout], positions[kMaxFanout];
    for (const Row& row : rows_) {
      if (row.degree == 0) {
        take_all(row, indices, edges);
      } else {
        const auto fanout = static_cast<uint32_t>(row.count);
        const WeightedList list = choice.list(row.begin, row.degree);
        for (uint32_t i = 0; i < fanout; ++i) drawn[i] = list.entry_by_cell(places[i]);
        places += fanout;
        if (fanout > 16 || !sort_distinct<16>(drawn, fanout, positions)) {
          uint32_t n = 0;
          for (uint32_t i = 0; i < fanout; ++i) {
            if (choice.replace)
              insert_position(positions, n++, drawn[i], -1);
            else
              n += insert_new(positions, n, drawn[i]);
          }
          if (n < fanout) pick_weighted_from(row.draws, list, fanout, n, fanout, false, positions);
        }
        take(row, positions, indices, edges);
      }
      edges += row.count;
    }
  }

  template <typename N>
  void draw_rows(const TopKChoice& choice, const uint32_t*, const N* indices, P* edges) {
    uint32_t positions[kMaxFanout];
    for (const Row& row : rows_) {
      if (row.degree == 0) {
        take_all(row, indices, edges);
      } else {
        pick_heaviest(choice.order + row.begin, static_cast<uint32_t>(row.count), positions);
        take(row, positions, indices, edges);
      }
      edges += row.count;
    }
  }

  template <typename N>
  void draw_rows(const LaborChoice&, const uint32_t*, const N*, P*) {}
  template <typename N>
  void draw_rows(const RaceChoice&, const uint32_t*, const N*, P*) {}

  // All rows of one call have one key.
  uint64_t key() const {
    for (const Row& row : rows_)
      if (row.degree) return row.draws.key;
    return 0;
  }

  Arena<Row> rows_;
  Arena<uint64_t> vertex_;
  Arena<uint32_t> hop_, index_, words_;
  Arena<uint64_t> places_;
  int64_t pending_ = 0;
};

}  // namespace loader
