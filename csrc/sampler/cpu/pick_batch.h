// Picks of many rows at once: the Philox blocks of all rows fill the lanes of the vector unit.
#pragma once

#include <cstdint>

#include "arena.h"
#include "sampler/cpu/philox_lanes.h"
#include "sampler/cpu/pick_list.h"
#include "sampler/sampler.h"

namespace loader {

// positions_from_words, compiled for the widest vector unit of this machine.
void positions_wide(const Draws& draws, const uint32_t* words, uint32_t degree, uint32_t fanout, bool replace,
                    uint32_t* out);

// The Philox blocks that all rows of a batch begin with; 0 of choices that have no code for many rows.
template <typename Choice>
uint32_t first_blocks(const Choice&, uint32_t) {
  return 0;
}
inline uint32_t first_blocks(const UniformChoice&, uint32_t fanout) { return (fanout + 3) / 4; }
inline uint32_t first_blocks(const WeightedChoice&, uint32_t fanout) { return (fanout + 1) / 2; }

template <typename P>
class PickBatch {
 public:
  // A row picked whole.
  void add_all(P begin, int64_t count) {
    rows_.push_back({{}, begin, count, 0, 0});
    pending_ += count;
  }

  // A row of `count` picks among the `degree` entries from `begin` on, which begin with that many blocks.
  void add(const Draws& draws, P begin, uint32_t degree, uint32_t count, uint32_t fanout, uint32_t blocks) {
    rows_.push_back({draws, begin, count, degree, fanout});
    uint64_t* const vertex = vertex_.extend(blocks);
    uint32_t *const hop = hop_.extend(blocks), *const index = index_.extend(blocks);
    for (uint32_t block = 0; block < blocks; ++block) {
      vertex[block] = draws.lane;
      hop[block] = draws.step;
      index[block] = block;
    }
    pending_ += count;
  }

  // Picks of all rows added and not drawn.
  int64_t pending() const { return pending_; }

  // Writes the places of the picks of all rows, row after row, to `edges` [pending()] and forgets the rows.
  // Asks memory for those entries row by row: it works while the next rows are drawn.
  template <typename Choice, typename Lists>
  void draw(const Choice& choice, const Lists& lists, P* edges) {
    words_.clear();
    uint32_t* const drawn = words_.extend(4 * vertex_.size());
    if (!vertex_.empty())
      philox_lanes(static_cast<int64_t>(vertex_.size()), vertex_.begin(), hop_.begin(), index_.begin(), key(),
                   drawn);
    with_choice(choice, [&](const auto& kind) {
      if constexpr (std::decay_t<decltype(kind)>::kCountsByDegree) draw_rows(kind, drawn, lists, edges);
    });
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
    uint32_t fanout;
  };

  // A row that is picked whole.
  template <typename Lists>
  static void take_all(const Row& row, const Lists& lists, P* edges) {
    for (int64_t i = 0; i < row.count; ++i) edges[i] = static_cast<P>(row.begin + i);
    lists.where(row.begin, row.count, [](const auto* at, int64_t count) {
      for (int64_t i = 0; i < count; i += kLine / static_cast<int64_t>(sizeof *at)) prefetch(at + i);
      prefetch(at + count - 1);
    });
  }

  template <typename Lists>
  static void take(const Row& row, const uint32_t* positions, const Lists& lists, P* edges) {
    for (int64_t i = 0; i < row.count; ++i) {
      edges[i] = static_cast<P>(row.begin + positions[i]);
      prefetch_entry(lists, edges[i]);
    }
  }

  template <typename Lists>
  void draw_rows(const UniformChoice& choice, const uint32_t* words, const Lists& lists, P* edges) {
    uint32_t positions[kMaxFanout];
    for (const Row& row : rows_) {
      if (row.degree == 0) {
        take_all(row, lists, edges);
      } else {
        positions_wide(row.draws, words, row.degree, row.fanout, choice.replace, positions);
        take(row, positions, lists, edges);
        words += 4 * first_blocks(choice, row.fanout);
      }
      edges += row.count;
    }
  }

  // First the places of all draws, so that memory brings their cells meanwhile.
  template <typename Lists>
  void draw_rows(const WeightedChoice& choice, const uint32_t* words, const Lists& lists, P* edges) {
    places_.clear();
    for (const Row& row : rows_) {
      if (row.degree == 0) continue;
      const uint32_t fanout = row.fanout;
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
        take_all(row, lists, edges);
      } else {
        const WeightedList list = choice.list(row.begin, row.degree);
        const uint32_t fanout = row.fanout;
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
        take(row, positions, lists, edges);
      }
      edges += row.count;
    }
  }

  // Of other choices: one row after the other.
  template <typename Choice, typename Lists>
  void draw_rows(const Choice& choice, const uint32_t*, const Lists& lists, P* edges) {
    uint32_t positions[kMaxFanout];
    for (const Row& row : rows_) {
      if (row.degree == 0) {
        take_all(row, lists, edges);
      } else {
        pick_list(choice, lists, row.begin, row.degree, row.draws, row.fanout, positions);
        take(row, positions, lists, edges);
      }
      edges += row.count;
    }
  }

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
