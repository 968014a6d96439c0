// The walkers of the first order that one thread has under way.
//
// A walk is a chain of reads, each of which waits for the one before it. So a thread takes many walkers one
// step at a time: it asks for what all of them will read, then reads, and memory works on many reads at once.
//
// They go in rounds. A round is the steps that share a Philox block, so all walkers draw at once, in the
// lanes of the vector unit. A walker that is done makes room for the next one only between rounds, so the
// steps are plain loops over arrays. In its last round a walker may be taken further than it goes; that is
// not written.
#pragma once

#include <algorithm>
#include <cstdint>

#include "sampler/cpu/philox_lanes.h"
#include "walks/cpu/walk.h"

namespace loader {

template <class Law, class Lists>
class FirstOrderWalkers {
 public:
  using P = typename Lists::Edge;
  using N = typename Lists::Vertex;
  static_assert(!Law::kSecond, "walks of the second order are SecondOrderWalkers'");

  FirstOrderWalkers(const Law& law, const Lists& lists, const WalkOut<P, N>& out)
      : law_(law), lists_(lists), out_(out) {}

  // The walks of the walkers [first, last).
  void walk(int64_t first, int64_t last) {
    next_ = first;
    last_ = last;
    for (;;) {
      while (size_ < kSize && next_ < last_) board(size_++);
      if (size_ == 0) return;
      philox_lanes(size_, lane_, block_, none_, law_.rules.key, words_[0]);
      const uint32_t steps = longest();
      for (uint32_t j = 0; j < steps; ++j) {
        aim(j);
        go(j);
      }
      write();
    }
  }

 private:
  using Plan = typename Law::Plan;
  static constexpr int kSize = 128;  // as many as hide the time of a read, and fit into the first cache
  static constexpr uint32_t kShare = Plan::kShare;
  static constexpr P kStays{-1}, kGoesHome{-2};  // instead of a place

  void board(int i) {
    const int64_t walker = next_++;
    lane_[i] = out_.first_lane + static_cast<uint64_t>(walker);
    block_[i] = 0;
    row_[i] = walker;
    track_[0][i] = start_[i] = out_.starts[walker];
    prefetch_list(lists_, lists_.row(start_[i], 0));
  }

  uint32_t done(int i) const { return block_[i] * kShare; }

  // How many steps of this round anybody takes.
  uint32_t longest() const {
    uint32_t least = done(0);
    for (int i = 1; i < size_; ++i) least = std::min(least, done(i));
    return std::min(kShare, out_.length - least);
  }

  // Where each one looks for its next vertex.
  void aim(uint32_t j) {
    const uint32_t first = j * Plan::kWords, at = first + Law::kCoin;
    for (int i = 0; i < size_; ++i) {
      const N here = track_[j][i];
      place_[i] = kStays;
      if (here < 0) continue;
      if constexpr (Law::kCoin) {
        const Toss side = toss(law_.rules, words_[i][first]);
        if (side == Toss::kHome) place_[i] = kGoesHome;
        if (side != Toss::kGo) continue;
      }
      const ListOf<P> list = lists_.list(lists_.row(here, done(i) + j));
      if (list.begin == list.end) continue;
      const Draws draws{law_.rules.key, lane_[i], block_[i]};
      place_[i] = law_.proposal.aim(draws, list, words_[i][at], at);
      law_.proposal.prefetch(lists_, place_[i]);
    }
  }

  // Takes the step.
  void go(uint32_t j) {
    const uint32_t last_word = j * Plan::kWords + Plan::kWords - 1;
    for (int i = 0; i < size_; ++i) {
      Move<P, N> move{N{-1}, P{-1}};
      if (place_[i] >= 0)
        move = law_.proposal.take(lists_, place_[i], words_[i][last_word]);
      else if (Law::kCoin && place_[i] == kGoesHome)
        move.vertex = start_[i];
      track_[j + 1][i] = move.vertex;
      places_[j][i] = move.place;
      if (move.vertex >= 0) prefetch_list(lists_, lists_.row(move.vertex, done(i) + j + 1));
    }
  }

  // Writes the steps of the round; who is done leaves.
  void write() {
    for (int i = 0; i < size_;) {
      const uint32_t step = done(i), steps = std::min(kShare, out_.length - step);
      N* const vertices = out_.vertices + row_[i] * (int64_t{out_.length} + 1);
      if (step == 0) vertices[0] = start_[i];
      for (uint32_t j = 0; j < steps; ++j) vertices[step + 1 + j] = track_[j + 1][i];
      if (out_.places) {
        P* const places = out_.places + row_[i] * int64_t{out_.length} + step;
        for (uint32_t j = 0; j < steps; ++j) places[j] = places_[j][i];
      }
      const N here = track_[steps][i];
      if (here >= 0 && step + steps < out_.length) {
        track_[0][i] = here;
        ++block_[i++];
        continue;
      }
      std::fill(vertices + step + steps + 1, vertices + out_.length + 1, N{-1});
      if (out_.places)
        std::fill(out_.places + row_[i] * int64_t{out_.length} + step + steps,
                  out_.places + (row_[i] + 1) * int64_t{out_.length}, P{-1});
      replace(i);
    }
  }

  // The last one takes the place of number i.
  void replace(int i) {
    const int last = --size_;
    lane_[i] = lane_[last];
    block_[i] = block_[last];
    row_[i] = row_[last];
    start_[i] = start_[last];
    for (uint32_t j = 0; j <= kShare; ++j) track_[j][i] = track_[j][last];
    for (uint32_t j = 0; j < kShare; ++j) places_[j][i] = places_[j][last];
  }

  const Law law_;
  const Lists lists_;
  const WalkOut<P, N> out_;
  int64_t next_ = 0, last_ = 0;
  int size_ = 0;
  uint64_t lane_[kSize] = {};
  uint32_t block_[kSize] = {};  // of the round
  int64_t row_[kSize];          // of the output
  N start_[kSize];
  N track_[kShare + 1][kSize];  // where it stands before the round and after each of its steps
  P place_[kSize];              // where it looks for its next vertex
  P places_[kShare][kSize];     // which it found there
  uint32_t words_[kSize][4];
  const uint32_t none_[kSize] = {};  // index of their Philox blocks
};

}  // namespace loader
