// The walkers of the second order that one thread has under way.
//
// As in FirstOrderWalkers, memory works on the reads of many walkers at once. But a step is more than one
// read, and a walker that is done makes room for the next one at once.
#pragma once

#include <algorithm>
#include <cstdint>

#include "sampler/cpu/philox_lanes.h"
#include "walks/cpu/walk.h"
#include "walks/second_order.h"

namespace loader {

template <class Law, class Lists>
class SecondOrderWalkers {
 public:
  using P = typename Lists::Edge;
  using N = typename Lists::Vertex;
  static_assert(Law::kSecond, "walks of the first order are FirstOrderWalkers'");

  SecondOrderWalkers(const Law& law, const Lists& lists, const WalkOut<P, N>& out)
      : law_(law), lists_(lists), out_(out) {}

  // The walks of the walkers [first, last).
  void walk(int64_t first, int64_t last) {
    next_ = first;
    last_ = last;
    for (;;) {
      while (size_ < kSize && next_ < last_) board(members_[size_++]);
      if (size_ == 0) return;
      draw_words();
      aim();
      choose();
      go();
    }
  }

 private:
  static constexpr int kSize = 64;
  using Plan = typename Law::Plan;

  struct Member {
    Walker<P, N> walker;
    ListOf<P> list;
    P place;        // where its proposal looks
    uint32_t word;  // the last one of the proposal
    uint32_t coin;  // of the verdict
    int32_t copy;   // see Dart
    ListOf<P> own;  // the copies of the vertex before, if it knows them
    uint32_t step;
    bool moves;            // it has a proposal
    bool judged;           // which may be refused
    bool knows;            // the copies of the vertex before in its list
    uint32_t copies_log2;  // if it does not know them: 2^(this) at most
    Move<P, N> move;
    P seek_begin, seek_end;  // where `move.vertex` may be listed among the neighbors of the vertex before
    uint64_t lane;
    N* vertices;
    P* places;
    uint32_t words[4];
  };

  void board(Member& m) {
    const int64_t i = next_++;
    const N start = out_.starts[i];
    m.walker = {start, start, N{-1}, {}};
    m.step = 0;
    m.lane = out_.first_lane + static_cast<uint64_t>(i);
    m.vertices = out_.vertices + i * (int64_t{out_.length} + 1);
    m.places = out_.places ? out_.places + i * int64_t{out_.length} : nullptr;
    m.vertices[0] = start;
    prefetch_list(lists_, lists_.row(start, 0));
  }

  // The blocks of words of those who begin one.
  void draw_words() {
    int count = 0;
    for (int i = 0; i < size_; ++i) {
      if (members_[i].step % Plan::kShare) continue;
      want(count++, i, members_[i], 0);
    }
    if (count == 0) return;
    philox_lanes(count, lane_, hop_, index_, law_.rules.key, drawn_);
    for (int i = 0; i < count; ++i) std::copy_n(drawn_ + 4 * i, 4, members_[whose_[i]].words);
  }

  void want(int slot, int whose, const Member& m, uint32_t block) {
    lane_[slot] = m.lane;
    hop_[slot] = m.step / Plan::kShare;
    index_[slot] = block;
    whose_[slot] = whose;
  }

  // Where each one looks for its next vertex, or that its walk ends.
  void aim() {
    for (int i = 0; i < size_; ++i) {
      Member& m = members_[i];
      const uint32_t first = m.step % Plan::kShare * Plan::kWords;
      m.moves = m.judged = m.knows = false;
      if constexpr (Law::kCoin) {
        const Toss side = toss(law_.rules, m.words[first]);
        if (side != Toss::kGo) {
          m.move = {side == Toss::kHome ? m.walker.start : N{-1}, P{-1}};
          if (side == Toss::kHome) m.walker.previous = -1;
          continue;
        }
      }
      m.list = lists_.list(lists_.row(m.walker.at, m.step));
      if (m.list.begin == m.list.end) {
        m.move = {N{-1}, P{-1}};
        continue;
      }
      const uint32_t at = first + Law::kCoin;
      m.moves = true;
      m.judged = m.walker.previous >= 0 && m.list.degree() > 1;
      m.copies_log2 = 0;
      if constexpr (Law::kSecond && Law::Proposal::kFolds)
        if (m.judged && !lists_.simple() && asks_for_copies(law_.rules)) look_at_copies(m);
      if (!m.knows) propose(m, m.words[at], m.words[(at + 1) & 3], m.words[(at + 2) & 3], at);
    }
  }

  // What is known of the list before a try: all, if it has the vertex before most often, and often.
  void look_at_copies(Member& m) {
    m.copies_log2 = lists_.copies_log2(m.walker.at);
    if (m.copies_log2 < kManyCopies) return;
    m.own = lists_.most_often(m.walker.at);
    m.copies_log2 = log2_of(lists_.others_often(m.walker.at));
    m.knows = lists_.read(m.own.begin) == m.walker.previous;
  }

  // A proposal by three words, the first of which gives draw number i.
  void propose(Member& m, uint32_t w0, uint32_t w1, uint32_t w2, uint32_t i) {
    const Draws draws = law_.draws(m.lane, m.step);
    m.copy = kNoCopy;
    if constexpr (Law::Proposal::kFolds) {
      const uint64_t extra = m.judged ? law_.rules.extra : 0;
      if (!reserves(law_.rules, m.copies_log2) && m.judged) {
        m.copy = kAllCopies;
        return;
      }
      set(m, throw_dart(law_.rules, draws, m.list, extra << m.copies_log2, w0, w1, i));
    } else {
      m.place = law_.proposal.aim(draws, m.list, w0, i);
      m.word = w1;
      m.coin = w2;
    }
    law_.proposal.prefetch(lists_, m.place);
  }

  void set(Member& m, const Dart<P>& dart) {
    m.place = dart.place;
    m.coin = dart.coin;
    m.copy = dart.copy;
  }

  // Seeks the copies of the vertex before. True: the one that its try fell upon is there.
  bool finds_copy(Member& m) {
    ListOf<P>& own = m.own;
    own.begin = lower_bound(lists_.sorted, m.list, m.walker.previous);
    own.end = static_cast<P>(own.begin + std::min<int64_t>(m.copy, m.list.end - own.begin));
    if (own.end < m.list.end && lists_.read(own.end) == m.walker.previous) {
      m.move = {m.walker.previous, own.end};
      return true;
    }
    own.end = upper_bound(lists_.sorted, own, m.walker.previous);
    m.knows = true;
    return false;
  }

  // Whether a try that is done was accepted; no answer if its vertex is to be searched for.
  Verdict look(Member& m, uint32_t attempt) {
    if (m.knows && attempt == 1) return Verdict::kRefuse;  // which is left out
    if (m.copy >= 0) return finds_copy(m) ? Verdict::kAccept : Verdict::kRefuse;
    m.move = law_.proposal.take(lists_, m.place, m.word);
    const bool goes_back = m.move.vertex == m.walker.previous;
    const Verdict verdict = judge(law_.rules, m.coin, goes_back);
    if (Law::Proposal::kFolds && goes_back && verdict == Verdict::kRefuse && attempt >= kPatience &&
        !lists_.simple()) {
      m.copy = kAllCopies;
      finds_copy(m);
    }
    return verdict;
  }

  // node2vec: proposals until one is accepted.
  void choose() {
    int open = 0;
    for (int i = 0; i < size_; ++i)
      if (members_[i].judged) open_[open++] = i;
    for (uint32_t attempt = 1; open > 0; ++attempt) {
      int seeking = 0, refused = 0;
      for (int k = 0; k < open; ++k) {
        Member& m = members_[open_[k]];
        const Verdict verdict = look(m, attempt);
        if (verdict == Verdict::kSearch) {
          m.seek_begin = m.walker.before.begin;
          m.seek_end = m.walker.before.end;
          seeking_[seeking++] = open_[k];
        } else if (verdict == Verdict::kRefuse) {
          refused_[refused++] = open_[k];
        }
      }
      sift(seeking, refused);
      seek(seeking, refused);
      open = 0;
      if (Law::Proposal::kFolds && scans(law_.rules)) scan(attempt, refused);
      const auto block_of = [&](const Member& m) {
        const uint32_t j = m.step % Plan::kShare;
        return m.knows ? knowing_block(Plan::kShare, j, attempt) : Plan::again(j, attempt) / 4;
      };
      for (int k = 0; k < refused; ++k)
        want(k, refused_[k], members_[refused_[k]], block_of(members_[refused_[k]]));
      philox_lanes(refused, lane_, hop_, index_, law_.rules.key, drawn_);
      for (int k = 0; k < refused; ++k) {
        Member& m = members_[refused_[k]];
        const uint32_t* const words = drawn_ + 4 * k;
        if (m.knows) {
          set(m, throw_knowing(law_.rules, law_.draws(m.lane, m.step), m.list, m.own, index_[k],
                               {words[0], words[1], words[2], words[3]}));
          law_.proposal.prefetch(lists_, m.place);
        } else {
          const uint32_t i = Plan::again(m.step % Plan::kShare, attempt), w = i % 4;
          propose(m, words[w], words[w + 1], words[(w + 2) & 3], i);
        }
        open_[open++] = refused_[k];
      }
    }
  }

  // The steps of those who were refused as often as that; the others are left.
  void scan(uint32_t attempt, int& refused) {
    int left = 0;
    for (int k = 0; k < refused; ++k) {
      Member& m = members_[refused_[k]];
      if (attempt < tries_of(law_.rules, m.list.degree()))
        refused_[left++] = refused_[k];
      else
        m.move = scan_second_order(law_.rules, lists_, m.list, m.walker.before, m.walker.previous,
                                   law_.draws(m.lane, m.step), m.step % Plan::kShare);
    }
    refused = left;
  }

  // Leaves those who must search.
  void sift(int& seeking, int& refused) {
    const EdgeFilter& filter = lists_.filter;
    if (filter.words) {
      for (int k = 0; k < seeking; ++k) {
        const Member& m = members_[seeking_[k]];
        marks_[k] =
            filter.mark(static_cast<uint64_t>(m.walker.previous), static_cast<uint64_t>(m.move.vertex));
        __builtin_prefetch(filter.words + marks_[k].word);
      }
      int left = 0;
      for (int k = 0; k < seeking; ++k) {
        if (filter.passes(marks_[k]))
          seeking_[left++] = seeking_[k];
        else if (!accepts(law_.rules, members_[seeking_[k]].coin, false))
          refused_[refused++] = seeking_[k];
      }
      seeking = left;
    }
    for (int k = 0; k < seeking; ++k) ask(members_[seeking_[k]]);
  }

  void ask(const Member& m) {
    if (m.seek_begin < m.seek_end)
      __builtin_prefetch(lists_.sorted + (m.seek_begin + (m.seek_end - m.seek_begin) / 2));
  }

  // Halves the lists of all who seek, in turn, until each knows whether its proposal is listed.
  void seek(int seeking, int& refused) {
    while (seeking > 0) {
      int left = 0;
      for (int k = 0; k < seeking; ++k) {
        Member& m = members_[seeking_[k]];
        bool found = false;
        if (m.seek_begin < m.seek_end) {
          const P middle = m.seek_begin + (m.seek_end - m.seek_begin) / 2;
          const N there = lists_.sorted[middle];
          found = there == m.move.vertex;
          if (there < m.move.vertex)
            m.seek_begin = middle + 1;
          else
            m.seek_end = middle;
          if (!found && m.seek_begin < m.seek_end) {
            ask(m);
            seeking_[left++] = seeking_[k];
            continue;
          }
        }
        if (!accepts(law_.rules, m.coin, found)) refused_[refused++] = seeking_[k];
      }
      seeking = left;
    }
  }

  // Takes the step; who is done leaves. In the order of the proposals: the last of them is still on its way.
  void go() {
    for (int i = 0; i < size_;) {
      Member& m = members_[i];
      if (m.moves && !m.judged) m.move = law_.proposal.take(lists_, m.place, m.word);
      if (m.moves) {
        m.walker.previous = m.walker.at;
        m.walker.before = m.list;
      }
      const uint32_t step = m.step++;
      m.walker.at = m.move.vertex;
      m.vertices[step + 1] = m.move.vertex;
      if (m.places) m.places[step] = m.move.place;
      const bool ended = m.move.vertex < 0;
      if (ended) {
        std::fill(m.vertices + step + 2, m.vertices + out_.length + 1, N{-1});
        if (m.places) std::fill(m.places + step + 1, m.places + out_.length, P{-1});
      } else if (m.step < out_.length) {
        prefetch_list(lists_, lists_.row(m.move.vertex, m.step));
        ++i;
        continue;
      }
      m = members_[--size_];
    }
  }

  const Law law_;
  const Lists lists_;
  const WalkOut<P, N> out_;
  int64_t next_ = 0, last_ = 0;
  int size_ = 0;
  Member members_[kSize];
  int open_[kSize], seeking_[kSize], refused_[kSize], whose_[kSize];
  EdgeFilter::Mark marks_[kSize];
  uint64_t lane_[kSize];
  uint32_t hop_[kSize], index_[kSize], drawn_[4 * kSize];
};

}  // namespace loader
