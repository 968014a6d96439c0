// The vertices of a mini-batch and their local ids, in about one byte per vertex of the graph.
//
// The new vertices of a hop have ascending local ids in the order of their global ids. So a local id is a
// rank: the hop's first id, plus the number of the hop's vertices that come before. The set holds, for each
// 64 vertices, a word of bits per hop and the rank of each word's first bit within its page of 4,096
// vertices: it stays in a core's own cache where an array by vertex would not.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>

#include "arena.h"

namespace loader {

// A word of seeds.
struct SeedWord {
  uint64_t bits;
  int64_t rank;  // of the first bit, among all seeds in ascending order
};

class RankBitmap {
 public:
  static constexpr int kPageBits = 12;  // a page: 4,096 vertices, 64 words of 64

  // Empties the set and makes it one of `num_vertices` vertices for that many hops.
  void reset(int64_t num_vertices, int hops);

  int64_t pages() const { return pages_; }

  // Hop 0: vertex seeds[i] gets the local id i, the lowest if it is there several times. Returns -1, or the
  // number of a seed that was there before.
  template <typename N>
  int64_t add_seeds(const N* seeds, int64_t n);
  // The local id of a seed.
  int64_t seed_id(uint64_t v) const {
    const SeedWord& word = seed_words_[v / 64];
    return seed_ids_[static_cast<size_t>(word.rank) +
                     __builtin_popcountll(word.bits & ((uint64_t{1} << v % 64) - 1))];
  }

  // Notes that a vertex was picked. Not for two threads in one page at a time, nor the next three functions.
  void mark(uint64_t v) {
    marks_[v / 64] |= uint64_t{1} << v % 64;
    touched_[v >> kPageBits] |= uint64_t{1} << (v / 64) % 64;
  }
  void prefetch_mark(uint64_t v) const { __builtin_prefetch(&marks_[v / 64], 1); }

  // Adds to `hop` what was marked in the pages [first, last) and is new; returns how many vertices that is.
  int64_t settle(int hop, int64_t first, int64_t last);

  // Writes the vertices of `hop` in these pages to `out`, ascending, and gives them the local ids from
  // `first_id` on. To be called once for each hop, after `settle`.
  template <typename N>
  void list(int hop, int64_t first, int64_t last, int64_t first_id, N* out);

  // Forgets which vertices were there, in these pages; `relabel` goes on to answer.
  void forget(int64_t first, int64_t last);

  // Forgets everything, whatever state it is in.
  void clear();

  // Writes the local ids of `count` vertices that were picked at `hop`. Any number of threads at a time.
  template <typename N>
  void relabel(int hop, const N* picked, int64_t count, N* out) const;

 private:
  struct Free {
    void operator()(void* data) const { std::free(data); }
  };
  uint64_t* cell(int64_t word) const { return cells_ + word * stride_; }

  std::unique_ptr<void, Free> memory_;
  size_t capacity_ = 0;
  int64_t num_vertices_ = -1, pages_ = 0;
  int hops_ = 0;
  int64_t stride_ = 0;  // words of a cell: a word of bits per hop, then 16 bits of rank per hop

  // In `memory_`. By word of 64 vertices:
  uint64_t *marks_ = nullptr, *seen_ = nullptr;  // picked, in no list yet; in the set
  SeedWord* seed_words_ = nullptr;               // of words with seeds; others hold anything
  uint64_t* cells_ = nullptr;                    // of words with vertices of the set; others hold anything
  // By page: a bit for each word with marks or with new vertices, and for each with vertices of the set.
  uint64_t *touched_ = nullptr, *used_ = nullptr;
  uint64_t* bases_ = nullptr;  // [pages, hops]: the local id of the first vertex

  Arena<int64_t> seed_ids_;  // local ids of the seeds in ascending order of vertices
};

}  // namespace loader
