// What a user's function in C++ sees: the same names as in Python. It reads at once and never gives way.
//
// Where it asks for what is not there it gets -1 or 0, and the call of walks says so when the function has
// returned.
#pragma once

#include <cstdint>

#include "walks/custom/walker.h"

namespace loader {

template <class Walker>
struct PlainWalker {
  const int64_t start, at, previous, step;
  int64_t (&memory)[sizeof(Walker::memory) / sizeof(int64_t)];

  LOADER_HD explicit PlainWalker(Walker& walker)
      : start(walker.start),
        at(walker.at),
        previous(walker.previous),
        step(walker.step),
        memory(walker.memory) {}
};

template <class Lists, class Walker>
class PlainReader {
 public:
  const int64_t num_nodes;

  LOADER_HD PlainReader(const Lists& lists, Walker& walker)
      : num_nodes(lists.num_nodes), lists_(lists), walker_(walker) {}

  LOADER_HD int64_t degree(int64_t v) { return open(v) ? walker_.degree() : 0; }
  LOADER_HD int64_t neighbor(int64_t v, int64_t i) {
    if (!open(v) || !has_place(i)) return -1;
    walker_.ask_neighbor(lists_, i);
    return walker_.get_neighbor(lists_);
  }
  LOADER_HD int64_t weight(int64_t v, int64_t i) {
    if (!open(v) || !has_place(i)) return 0;
    walker_.ask_weight(lists_, i);
    return walker_.get_weight(lists_);
  }
  LOADER_HD bool has_edge(int64_t u, int64_t v) {
    if (!open(u)) return false;
    if (!lists_.has(v)) {
      fail(Wrong::kVertex, v);
      return false;
    }
    if (walker_.sifts(lists_, u, v) && !walker_.passes(lists_)) return false;
    bool found = false;
    while (walker_.seeks()) {
      walker_.ask_middle(lists_);
      found |= walker_.halve(lists_, v);
    }
    return found;
  }

  LOADER_HD bool open(int64_t v) {
    if (walker_.knows(v)) return true;
    if (!lists_.has(v)) {
      fail(Wrong::kVertex, v);
      return false;
    }
    walker_.ask_list(lists_, v);
    walker_.get_list(lists_, v);
    return true;
  }
  // The first thing that was wrong is told.
  LOADER_HD void fail(Wrong wrong, int64_t value) {
    if (!walker_.fault.wrong) walker_.fail(wrong, value, 0);
  }

 private:
  LOADER_HD bool has_place(int64_t i) {
    if (!walker_.has_place(i)) fail(Wrong::kPlace, i);
    return walker_.has_place(i);
  }

  const Lists& lists_;
  Walker& walker_;
};

template <class Lists, class Walker>
class PlainDraws {
 public:
  LOADER_HD PlainDraws(const CustomRules& rules, const Lists& lists, Walker& walker)
      : rules_(rules), lists_(lists), walker_(walker), reader_(lists, walker) {}

  LOADER_HD int64_t word() { return walker_.words.word(rules_.key); }
  LOADER_HD bool accept(int64_t chance) { return word() < chance; }
  LOADER_HD int64_t uniform(int64_t m) {
    if (m < 1 || m > int64_t{UINT32_MAX}) {
      reader_.fail(Wrong::kBound, m);
      return 0;
    }
    return walker_.words.uniform(rules_.key, static_cast<uint32_t>(m));
  }
  LOADER_HD int64_t by_weight(int64_t v) {
    if (!reader_.open(v)) return -1;
    if (!walker_.seeks()) {
      reader_.fail(Wrong::kEmpty, v);
      return -1;
    }
    walker_.ask_cell(rules_, lists_);
    return walker_.get_cell(lists_, walker_.words.word(rules_.key));
  }

 private:
  const CustomRules& rules_;
  const Lists& lists_;
  Walker& walker_;
  PlainReader<Lists, Walker> reader_;
};

}  // namespace loader

// The body of `run` of a function in C++, `of`.
#define LOADER_RUN_PLAIN(OF)                                       \
  walker.fault = {};                                               \
  ::loader::PlainWalker<Walker> plain(walker);                     \
  ::loader::PlainReader<Lists, Walker> reader(lists, walker);      \
  ::loader::PlainDraws<Lists, Walker> draws(rules, lists, walker); \
  f.result = OF(rules.constants, plain, reader, draws);            \
  if (walker.fault.wrong) return ::loader::Reply::kFailed;         \
  LOADER_RETURN(0, f.result)
