// Picks of many rows at once: the Philox blocks of all rows fill the lanes of the vector unit.
#pragma once

#include <cstdint>

#include "arena.h"
#include "sampler/pick.h"

namespace loader {

// Runs one Philox block in each of `lanes` lanes; the counters are (v, hop, index), the words of lane i go to
// words[4 * i ..].
void philox_lanes(int64_t lanes, const uint64_t* v, const uint32_t* hop, const uint32_t* index, uint64_t key,
                  uint32_t* words);

// positions_from_words, compiled for the widest vector unit of this machine.
void positions_wide(const Draws& draws, const uint32_t* words, uint32_t degree, uint32_t fanout, bool replace,
                    uint32_t* out);

template <typename P>
class PickBatch {
 public:
  // A row picked whole.
  void add_all(P begin, int64_t count) {
    rows_.push_back({{}, begin, count, 0});
    pending_ += count;
  }

  // A row of `fanout` picks among the `degree` entries from `begin` on.
  void add(const Draws& draws, P begin, uint32_t degree, uint32_t fanout) {
    rows_.push_back({draws, begin, fanout, degree});
    const uint32_t blocks = (fanout + 3) / 4;
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
  void draw(bool replace, const N* indices, P* edges) {
    words_.clear();
    uint32_t* const drawn = words_.extend(4 * vertex_.size());
    if (!vertex_.empty())
      philox_lanes(static_cast<int64_t>(vertex_.size()), vertex_.begin(), hop_.begin(), index_.begin(), key(),
                   drawn);
    const uint32_t* words = drawn;
    uint32_t positions[kMaxFanout];
    for (const Row& row : rows_) {
      if (row.degree == 0) {
        for (int64_t i = 0; i < row.count; ++i) edges[i] = static_cast<P>(row.begin + i);
        for (int64_t i = 0; i < row.count; i += kLine / sizeof(N))
          __builtin_prefetch(&indices[row.begin + i]);
        __builtin_prefetch(&indices[row.begin + row.count - 1]);
      } else {
        const auto fanout = static_cast<uint32_t>(row.count);
        positions_wide(row.draws, words, row.degree, fanout, replace, positions);
        for (uint32_t i = 0; i < fanout; ++i) {
          edges[i] = static_cast<P>(row.begin + positions[i]);
          __builtin_prefetch(&indices[edges[i]]);
        }
        words += (fanout + 3) / 4 * 4;
      }
      edges += row.count;
    }
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

  // All rows of one call have one key.
  uint64_t key() const {
    for (const Row& row : rows_)
      if (row.degree) return row.draws.key;
    return 0;
  }

  Arena<Row> rows_;
  Arena<uint64_t> vertex_;
  Arena<uint32_t> hop_, index_, words_;
  int64_t pending_ = 0;
};

}  // namespace loader
