// The walkers that one thread has under way, by a user's function: see walks/cpu/second_order_walkers.h.
#pragma once

#include <cstdint>

#include "walks/custom/call.h"

namespace loader {

template <class Next, class Lists>
class CustomWalkers {
 public:
  using P = typename Lists::Edge;
  using N = typename Lists::Vertex;

  CustomWalkers(const CustomCall& call, Fault* fault)
      : rules_(*call.rules),
        lists_(*static_cast<const Lists*>(call.lists)),
        out_(*static_cast<const WalkOut<P, N>*>(call.out)),
        philox_(call.philox),
        fault_(fault) {}

  void walk(int64_t first, int64_t last) {
    next_ = first;
    last_ = last;
    for (;;) {
      while (size_ < kSize && next_ < last_) board(members_[size_++]);
      if (size_ == 0) return;
      draw_words();
      for (int i = size_ - 1; i >= 0; --i)
        if (!go(members_[i])) leave(i);
    }
  }

 private:
  static constexpr int kSize = 64;

  struct Member {
    CustomWalker<Lists, Next::kMemory> walker;
    typename Next::Frame frame;
    int64_t row;
    N* vertices;
  };

  void board(Member& m) {
    m.row = next_++;
    const N start = out_.starts[m.row];
    m.walker.begin(start, out_.first_lane + static_cast<uint64_t>(m.row));
    m.frame.at = 0;
    m.vertices = out_.vertices + m.row * (int64_t{out_.length} + 1);
    m.vertices[0] = start;
    prefetch_list(lists_, lists_.row(start, 0));
  }

  void leave(int i) {
    if (i != --size_) members_[i] = members_[size_];
  }

  // The blocks of words of those who have used theirs.
  void draw_words() {
    uint64_t lane[kSize];
    uint32_t step[kSize], index[kSize], drawn[4 * kSize];
    int whose[kSize], count = 0;
    for (int i = 0; i < size_; ++i) {
      const WordStream& words = members_[i].walker.words;
      if (words.drawn) continue;
      lane[count] = words.lane;
      step[count] = words.step();
      index[count] = words.index();
      whose[count++] = i;
    }
    if (count == 0) return;
    philox_(count, lane, step, index, rules_.key, drawn);
    for (int i = 0; i < count; ++i) {
      WordStream& words = members_[whose[i]].walker.words;
      for (int k = 0; k < 4; ++k) words.block.w[k] = drawn[4 * i + k];
      words.drawn = true;
    }
  }

  // Takes a walker as far as it can go now. False: its walk is over.
  bool go(Member& m) {
    if (m.frame.at == 0) m.walker.begin_step(rules_, lists_);
    const Reply reply = Next::template run<kInTurns>(rules_, lists_, m.walker, m.frame);
    if (reply == Reply::kWaits) return true;
    if (reply == Reply::kFailed) {
      tell(m);
      return false;
    }
    m.frame.at = 0;
    int64_t step = m.walker.step + 1;
    const auto to = static_cast<N>(m.frame.result);
    m.vertices[step] = to;
    if (to < 0) {
      while (++step <= out_.length) m.vertices[step] = N{-1};
      return false;
    }
    m.walker.go(to);
    if (step == out_.length) return false;
    prefetch_list(lists_, lists_.row(to, 0));
    return m.row < last_;  // rows behind one with a fault are not wanted
  }

  void tell(const Member& m) {
    if (fault_->wrong && fault_->row < m.row) return;
    *fault_ = m.walker.fault;
    fault_->row = m.row;
    fault_->step = m.walker.step;
    last_ = m.row;
  }

  const CustomRules rules_;
  const Lists lists_;
  const WalkOut<P, N> out_;
  const PhiloxLanes philox_;
  Fault* const fault_;
  int64_t next_ = 0, last_ = 0;
  int size_ = 0;
  Member members_[kSize];
};

}  // namespace loader

#define LOADER_WALK_CUSTOM(P, N)                                                                    \
  extern "C" __attribute__((visibility("default"))) void loader_walk_custom(                        \
      const loader::CustomCall* call, int64_t first, int64_t last, loader::Fault* fault) {          \
    loader::CustomWalkers<loader::Next, loader::CustomLists<P, N>>(*call, fault).walk(first, last); \
  }
