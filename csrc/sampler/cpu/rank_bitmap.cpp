#include "sampler/cpu/rank_bitmap.h"

#include <algorithm>
#include <new>

#include "sampler/cpu/wide_clones.h"

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace loader {
namespace {

constexpr int64_t kPageWords = (int64_t{1} << RankBitmap::kPageBits) / 64;
constexpr int64_t kAhead = 32;  // picks whose cells are asked for ahead of their use
static_assert(kPageWords == 64, "a page's words have a bit each");

// What relabelling reads, as plain pointers.
struct View {
  const uint64_t* cells;
  int64_t stride;
  const uint64_t* bases;
  int hops;
};

inline const uint16_t* ranks_of(const uint64_t* cell, int hops) {
  return reinterpret_cast<const uint16_t*>(cell + hops);
}

// Hops: those that may hold the vertex, from 1 on; all are looked at, without a branch that depends on which
// one does. -1 for a seed.
template <int Hops>
inline int64_t find(const View& set, uint64_t v, int hops) {
  const int limit = Hops > 0 ? Hops : hops;
  const uint64_t* const cell = set.cells + static_cast<int64_t>(v / 64) * set.stride;
  const uint16_t* const ranks = ranks_of(cell, set.hops);
  const uint64_t* const bases = set.bases + static_cast<int64_t>(v >> RankBitmap::kPageBits) * set.hops;
  uint64_t any = cell[0], hop = 0;
  for (int h = 1; h < limit; ++h) {
    any |= cell[h];
    hop += (cell[h] >> v % 64 & 1) * static_cast<uint64_t>(h);
  }
  if (!(any >> v % 64 & 1)) return -1;
  const uint64_t before = cell[hop] & ((uint64_t{1} << v % 64) - 1);
  return static_cast<int64_t>(bases[hop] + ranks[hop]) + __builtin_popcountll(before);
}

template <int Hops, typename N, typename Seed>
inline void relabel_as(const View& set, int hops, const N* picked, int64_t count, N* out, const Seed& seed) {
  for (int64_t i = 0; i < count; ++i) {
    if (i + kAhead < count)
      __builtin_prefetch(set.cells + static_cast<int64_t>(picked[i + kAhead]) / 64 * set.stride);
    const int64_t id = find<Hops>(set, static_cast<uint64_t>(picked[i]), hops);
    out[i] = static_cast<N>(id >= 0 ? id : seed(picked[i]));
  }
}

template <typename N, typename Seed>
inline void relabel_any(const View& set, int hop, const N* picked, int64_t count, N* out, const Seed& seed) {
  switch (hop) {
    case 1:
      return relabel_as<1>(set, hop, picked, count, out, seed);
    case 2:
      return relabel_as<2>(set, hop, picked, count, out, seed);
    case 3:
      return relabel_as<3>(set, hop, picked, count, out, seed);
    default:
      return relabel_as<0>(set, hop, picked, count, out, seed);
  }
}

// The local id of a seed.
struct Seeds {
  const SeedWord* words;
  const int64_t* ids;
  template <typename N>
  int64_t operator()(N seed) const {
    const auto v = static_cast<uint64_t>(seed);
    const SeedWord& word = words[v / 64];
    return ids[word.rank + __builtin_popcountll(word.bits & ((uint64_t{1} << v % 64) - 1))];
  }
};

LOADER_WIDE void relabel_wide(const View& set, int hop, const int32_t* picked, int64_t count, int32_t* out,
                              const Seeds& seeds) {
  relabel_any(set, hop, picked, count, out, seeds);
}
LOADER_WIDE void relabel_wide(const View& set, int hop, const int64_t* picked, int64_t count, int64_t* out,
                              const Seeds& seeds) {
  relabel_any(set, hop, picked, count, out, seeds);
}

// Moves the marks of a page's words `touched` to the hop at cells[.][hop]; returns the words with new
// vertices, and adds the number of those to `found`.
LOADER_WIDE uint64_t settle_page(uint64_t touched, uint64_t* marks, uint64_t* seen, uint64_t* cells,
                                 int64_t stride, int hops, int hop, int64_t* found) {
  uint64_t fresh_words = 0;
  int64_t count = 0;
  for (uint64_t left = touched; left; left &= left - 1) {
    const int w = __builtin_ctzll(left);
    const uint64_t known = seen[w], fresh = marks[w] & ~known;
    marks[w] = 0;
    if (!fresh) continue;
    uint64_t* const cell = cells + w * stride;
    if (!known)
      for (int h = 0; h < hops; ++h) cell[h] = 0;
    cell[hop] = fresh;
    seen[w] = known | fresh;
    fresh_words |= uint64_t{1} << w;
    count += __builtin_popcountll(fresh);
  }
  *found += count;
  return fresh_words;
}

// Writes the vertices of a page's words to `out` and their ranks to the cells; returns how many there are.
// Four vertices at a time, wanted or not: `out` has room for three more.
template <typename N>
inline int64_t list_words(uint64_t words, int64_t page, uint64_t* cells, int64_t stride, int hops, int hop,
                          N* out) {
  int64_t rank = 0;
  for (; words; words &= words - 1) {
    const int w = __builtin_ctzll(words);
    uint64_t* const cell = cells + w * stride;
    reinterpret_cast<uint16_t*>(cell + hops)[hop] = static_cast<uint16_t>(rank);
    uint64_t bits = cell[hop];
    const int count = __builtin_popcountll(bits);
    const int64_t first = (page << RankBitmap::kPageBits) + 64 * w;
    for (int i = 0; i < count; i += 4)
      for (int j = 0; j < 4; ++j, bits &= bits - 1)
        out[rank + i + j] = static_cast<N>(first + __builtin_ctzll(bits | uint64_t{1} << 63));
    rank += count;
  }
  return rank;
}

LOADER_WIDE int64_t list_page(uint64_t words, int64_t page, uint64_t* cells, int64_t stride, int hops,
                              int hop, int32_t* out) {
  return list_words(words, page, cells, stride, hops, hop, out);
}
LOADER_WIDE int64_t list_page(uint64_t words, int64_t page, uint64_t* cells, int64_t stride, int hops,
                              int hop, int64_t* out) {
  return list_words(words, page, cells, stride, hops, hop, out);
}

}  // namespace

void RankBitmap::reset(int64_t num_vertices, int hops) {
  if (num_vertices == num_vertices_ && hops == hops_) return;
  num_vertices_ = -1;  // stays so if there is no memory
  pages_ = (num_vertices >> kPageBits) + 1;
  hops_ = hops;
  stride_ = 2;  // a power of two, so that a short cell lies in one line of the cache
  while (stride_ < hops + (hops + 3) / 4) stride_ *= 2;
  const auto words = static_cast<size_t>(pages_ * kPageWords), pages = static_cast<size_t>(pages_);
  const size_t needed = sizeof(uint64_t) * words * (2 + static_cast<size_t>(stride_)) +
                        sizeof(SeedWord) * words + sizeof(uint64_t) * pages * (2 + static_cast<size_t>(hops));
  if (needed > capacity_) {
    constexpr size_t kHugePage = size_t{2} << 20;
    const size_t page = needed < kHugePage ? 64 : kHugePage;
    const size_t capacity = (needed + page - 1) / page * page;
    capacity_ = 0;
    memory_.reset();
    memory_.reset(std::aligned_alloc(page, capacity));
    if (!memory_) throw std::bad_alloc();
    capacity_ = capacity;
#if defined(__linux__)
    // Advice: fewer misses of the TLB, and few faults at the first use.
    if (page == kHugePage) madvise(memory_.get(), capacity, MADV_HUGEPAGE);
#endif
  }
  marks_ = static_cast<uint64_t*>(memory_.get());
  seen_ = marks_ + words;
  cells_ = seen_ + words;  // after 1,024 bytes a page: on a line of the cache
  touched_ = cells_ + words * static_cast<size_t>(stride_);
  used_ = touched_ + pages;
  seed_words_ = reinterpret_cast<SeedWord*>(used_ + pages);
  bases_ = reinterpret_cast<uint64_t*>(seed_words_ + words);
  num_vertices_ = num_vertices;
  clear();
}

template <typename N>
int64_t RankBitmap::add_seeds(const N* seeds, int64_t n) {
  int64_t twice = -1;
  for (int64_t i = 0; i < n; ++i) {
    if (i + kAhead < n) __builtin_prefetch(&seen_[static_cast<uint64_t>(seeds[i + kAhead]) / 64], 1);
    const auto v = static_cast<uint64_t>(seeds[i]);
    const uint64_t bit = uint64_t{1} << v % 64;
    used_[v >> kPageBits] |= uint64_t{1} << (v / 64) % 64;
    if (seen_[v / 64] & bit && twice < 0) twice = i;
    seen_[v / 64] |= bit;
  }
  int64_t rank = 0;
  for (int64_t page = 0; page < pages_; ++page) {
    for (uint64_t words = used_[page]; words; words &= words - 1) {
      const int64_t w = page * kPageWords + __builtin_ctzll(words);
      seed_words_[w] = {seen_[w], rank};
      rank += __builtin_popcountll(seen_[w]);
      std::fill_n(cell(w), hops_, uint64_t{0});
    }
  }
  seed_ids_.clear();
  int64_t* const ids = seed_ids_.extend(static_cast<size_t>(n));
  for (int64_t i = n - 1; i >= 0; --i) {
    const auto v = static_cast<uint64_t>(seeds[i]);
    const SeedWord& word = seed_words_[v / 64];
    ids[word.rank + __builtin_popcountll(word.bits & ((uint64_t{1} << v % 64) - 1))] = i;
  }
  return twice;
}

int64_t RankBitmap::settle(int hop, int64_t first, int64_t last) {
  int64_t found = 0;
  for (int64_t page = first; page < last; ++page) {
    if (!touched_[page]) continue;
    const int64_t w = page * kPageWords;
    touched_[page] =
        settle_page(touched_[page], marks_ + w, seen_ + w, cell(w), stride_, hops_, hop - 1, &found);
    used_[page] |= touched_[page];
  }
  return found;
}

template <typename N>
void RankBitmap::list(int hop, int64_t first, int64_t last, int64_t first_id, N* out) {
  N found[(int64_t{1} << kPageBits) + 3];
  for (int64_t page = first; page < last; ++page) {
    if (!touched_[page]) continue;
    bases_[page * hops_ + hop - 1] = static_cast<uint64_t>(first_id);
    const int64_t count =
        list_page(touched_[page], page, cell(page * kPageWords), stride_, hops_, hop - 1, found);
    touched_[page] = 0;
    std::copy_n(found, count, out);
    out += count;
    first_id += count;
  }
}

void RankBitmap::forget(int64_t first, int64_t last) {
  for (int64_t page = first; page < last; ++page) {
    if (!used_[page]) continue;
    std::fill_n(seen_ + page * kPageWords, kPageWords, uint64_t{0});
    used_[page] = 0;
  }
}

void RankBitmap::clear() {
  if (num_vertices_ < 0) return;
  std::fill_n(marks_, 2 * pages_ * kPageWords, uint64_t{0});
  std::fill_n(touched_, 2 * pages_, uint64_t{0});
}

template <typename N>
void RankBitmap::relabel(int hop, const N* picked, int64_t count, N* out) const {
  relabel_wide({cells_, stride_, bases_, hops_}, hop, picked, count, out, {seed_words_, seed_ids_.begin()});
}

template int64_t RankBitmap::add_seeds(const int32_t*, int64_t);
template int64_t RankBitmap::add_seeds(const int64_t*, int64_t);
template void RankBitmap::list(int, int64_t, int64_t, int64_t, int32_t*);
template void RankBitmap::list(int, int64_t, int64_t, int64_t, int64_t*);
template void RankBitmap::relabel(int, const int32_t*, int64_t, int32_t*) const;
template void RankBitmap::relabel(int, const int64_t*, int64_t, int64_t*) const;

}  // namespace loader
