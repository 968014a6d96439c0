// A permutation of [0, n) that is computed, not stored: any position in O(1), on the host and on the device.
//
// A Feistel network over Z_rows x Z_columns, additions in place of exclusive ors (Black and Rogaway, "Ciphers
// with arbitrary finite domains", CT-RSA 2002), with rows * columns just above n, so that few results lie
// beyond n; those go through the network again ("cycle walking"). Its round function is the mixer of
// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
#pragma once

#include <cstdint>

#include "sampler/pick.h"

namespace loader {

// Of a large domain; a small one needs more of them until every order is as likely as every other. Counted
// for 3 to 7 entries, 2 million keys each: chi-square over all orders finds nothing from 24 rounds on, and
// much at 12.
constexpr int kRoundsOfMany = 12, kRoundsOfFew = 24;
constexpr uint64_t kMany = 1 << 16;
constexpr int64_t kMostItems = int64_t{1} << 62;  // whose root, squared, fits 64 bits

LOADER_HD uint64_t mix64(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

LOADER_HD uint64_t high_product(uint64_t a, uint64_t b) {
#ifdef __CUDA_ARCH__
  return __umul64hi(a, b);
#else
  return static_cast<uint64_t>(static_cast<unsigned __int128>(a) * b >> 64);
#endif
}

class Permutation {
 public:
  // 1 <= `n` <= kMostItems entries, in an order that follows from all 64 bits of `key`.
  Permutation(int64_t n, uint64_t key)
      : n_(static_cast<uint64_t>(n)), rows_(1), rounds_(n_ < kMany ? kRoundsOfFew : kRoundsOfMany) {
    while (rows_ * rows_ < n_) rows_ *= 2;  // then by Newton's method from above to the root
    while (rows_ > 1) {
      const uint64_t next = (rows_ + (n_ + rows_ - 1) / rows_ + 1) / 2;
      if (next >= rows_) break;
      rows_ = next;
    }
    columns_ = (n_ + rows_ - 1) / rows_;
    for (int i = 0; i <= rounds_; ++i) keys_[i] = mix64(key + (i + 1) * 0x9E3779B97F4A7C15u);
  }

  LOADER_HD int64_t operator()(int64_t position) const {
    auto x = static_cast<uint64_t>(position);
    do {
      x = network(x);
    } while (x >= n_);
    // The network by itself would only make even permutations of some n; this makes one odd or even by
    // chance.
    if (n_ > 1 && x < 2) x ^= keys_[rounds_] & 1;
    return static_cast<int64_t>(x);
  }

 private:
  LOADER_HD uint64_t network(uint64_t x) const {
    uint64_t row = x / columns_, column = x % columns_;
    for (int i = 0; i < rounds_; i += 2) {
      row += high_product(mix64(column ^ keys_[i]), rows_);
      row -= row >= rows_ ? rows_ : 0;
      column += high_product(mix64(row ^ keys_[i + 1]), columns_);
      column -= column >= columns_ ? columns_ : 0;
    }
    return row * columns_ + column;
  }

  uint64_t n_, rows_, columns_;
  int rounds_;
  uint64_t keys_[kRoundsOfFew + 1];
};

// Positions in runs of equal length that lie `stride` apart: position i is
// first + i / length * stride + i % length. The last run may be shorter.
struct Runs {
  int64_t first, length, stride, count;  // `count` positions in all

  LOADER_HD int64_t at(int64_t i) const { return first + i / length * stride + i % length; }
};

}  // namespace loader
