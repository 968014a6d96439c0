// A walker whose next vertex a user's own function says, written once for host and device.
//
// The function comes as C++ that loader/samplers/walk_next makes of it, a struct `Next`:
//
//   kMemory         64-bit integers that a walker keeps from step to step, 0 at first
//   Frame           its variables; `at` is 0 where a step begins, `result` is what it returned
//   run<Way>(rules, lists, walker, frame)
//
// All its numbers are integers of 64 bits that wrap around. It asks for what it is about to read and, if its
// `Way` says so, gives way; called again, it goes on from there. So a thread of the CPU lets memory work for
// many walkers. A GPU has a thread for each and never gives way: on an H200 it takes 0.55 to 0.85 of the time
// that a function with loops takes if the walkers of a warp take turns.
//
// A walker's words are a stream: draw number i is word i % 4 of the block of draws "step" i / 4, see Draws,
// and a redraw is one of that block. So a function that draws as a law in walks/walk.h does gives its walks.
#pragma once

#include <cstdint>

#include "walks/weighted.h"

namespace loader {

constexpr int kMaxConstants = 32;
constexpr int kMaxMemory = 64;

// What a function did that it may not do. Numbers are those in loader/samplers/walk_next/faults.py.
enum class Wrong : int64_t {
  kNothing,
  kVertex,    // an argument is no vertex
  kPlace,     // a list has no such place
  kBound,     // of draws.uniform
  kEmpty,     // a draw by weight from an empty list
  kDivision,  // by 0
  kShift,     // by a negative number
  kMemory,    // there is no such place
  kTurns,     // of its loops
  kReturned,  // what it returned is no vertex and not -1
};

struct Fault {
  int64_t wrong, line, value, row, step;
};

// What decides a step beside the lists.
struct CustomRules {
  uint64_t key;    // of the mini-batch, for walks
  uint32_t turns;  // of loops in one step, at most
  int64_t constants[kMaxConstants];
};

template <typename P, typename N>
struct CustomLists : WalkLists<P, N> {
  int64_t num_nodes;
  const WalkCell<N>* cells;  // [num_edges], or nullptr: nobody draws by weight
  const uint32_t* weights;   // [num_edges], or nullptr: nobody asks for them

  LOADER_HD bool has(int64_t v) const { return v >= 0 && v < num_nodes; }
};

// The words of one walker, one after the other.
struct WordStream {
  static constexpr int kStepBits = 24;  // of the "step" in Draws; later blocks have another index

  uint64_t lane, number;  // of the next draw
  Words block;
  bool drawn;  // `block` has that draw

  LOADER_HD uint32_t step() const { return static_cast<uint32_t>(number >> 2) & ((1u << kStepBits) - 1); }
  LOADER_HD uint32_t index() const { return static_cast<uint32_t>(number >> (2 + kStepBits)); }

  LOADER_HD uint32_t word(uint64_t key) {
    if (!drawn) block = Draws{key, lane, step()}.block(index());
    // Registers have no addresses.
    const uint32_t low = number & 1 ? block.w[1] : block.w[0], high = number & 1 ? block.w[3] : block.w[2];
    const uint32_t word = number & 2 ? high : low;
    ++number;
    drawn = number & 3;
    return word;
  }

  // Uniform in [0, m), 0 < m < 2^32.
  LOADER_HD uint32_t uniform(uint64_t key, uint32_t m) {
    const Draws draws{key, lane, step()};
    const uint32_t redraw = static_cast<uint32_t>(number & 3) + 4 * index();
    return draws.bounded(word(key), m, redraw);
  }
};

// When a function gives way: never, or before it reads and when it has used its words, which are then drawn
// for all walkers at once.
enum Way { kAtOnce, kInTurns };

enum class Reply { kDone, kWaits, kFailed };

template <class Lists, int Memory>
struct CustomWalker {
  using P = typename Lists::Edge;
  using N = typename Lists::Vertex;

  N start, at, previous;  // previous: -1 at the first step
  uint32_t step;
  ListOf<P> list, before;  // of `at` and `previous`
  WordStream words;
  uint32_t turns;  // that are left in this step
  Fault fault;
  int64_t memory[Memory > 0 ? Memory : 1];

  // What is read meanwhile. A GPU begins to read when it asks, a CPU has memory bring it.
  ListOf<P> open;
  P place;
  N read;
  EdgeFilter::Mark mark;
  uint64_t marks;

  LOADER_HD void begin(N from, uint64_t lane) {
    start = at = from;
    previous = -1;
    step = 0;
    before = {};
    words = {lane, 0, {}, false};
    for (int i = 0; i < Memory; ++i) memory[i] = 0;
  }

  // Of every step, before the function is called.
  LOADER_HD void begin_step(const CustomRules& rules, const Lists& lists) {
    list = lists.list(lists.row(at, 0));
    turns = rules.turns;
  }

  LOADER_HD void go(N to) {
    previous = at;
    before = list;
    at = to;
    ++step;
  }

  LOADER_HD Reply fail(Wrong wrong, int64_t value, int64_t line) {
    fault.wrong = static_cast<int64_t>(wrong);
    fault.value = value;
    fault.line = line;
    return Reply::kFailed;
  }

  LOADER_HD bool may_turn() { return turns && turns--; }

  // Opens the list of v if it was read before.
  LOADER_HD bool knows(int64_t v) {
    if (v == at)
      open = list;
    else if (v == previous && v >= 0)
      open = before;
    else
      return false;
    return true;
  }
  LOADER_HD int64_t degree() const {
    return static_cast<int64_t>(open.end) - static_cast<int64_t>(open.begin);
  }
  LOADER_HD bool has_place(int64_t i) const {
    return static_cast<uint64_t>(i) < static_cast<uint64_t>(degree());
  }

#ifdef __CUDA_ARCH__
  LOADER_HD void ask_list(const Lists& lists, int64_t v) { open = lists.list(lists.row(v, 0)); }
  LOADER_HD void get_list(const Lists&, int64_t) {}
  LOADER_HD void ask_neighbor(const Lists& lists, int64_t i) {
    read = lists.read(static_cast<P>(open.begin + i));
  }
  LOADER_HD int64_t get_neighbor(const Lists&) const { return read; }
  LOADER_HD void ask_marks(const Lists& lists) { marks = load(lists.filter.words + mark.word); }
  LOADER_HD void get_marks(const Lists&) {}
  LOADER_HD void ask_middle(const Lists& lists) { read = load(lists.sorted + middle()); }
  LOADER_HD N get_middle(const Lists&) const { return read; }
  LOADER_HD bool is_far() const { return true; }
#else
  LOADER_HD void ask_list(const Lists& lists, int64_t v) { prefetch_list(lists, lists.row(v, 0)); }
  LOADER_HD void get_list(const Lists& lists, int64_t v) { open = lists.list(lists.row(v, 0)); }
  LOADER_HD void ask_neighbor(const Lists& lists, int64_t i) {
    place = static_cast<P>(open.begin + i);
    prefetch_entry(lists, place);
  }
  LOADER_HD int64_t get_neighbor(const Lists& lists) const { return lists.read(place); }
  LOADER_HD void ask_marks(const Lists& lists) { __builtin_prefetch(lists.filter.words + mark.word); }
  LOADER_HD void get_marks(const Lists& lists) { marks = lists.filter.words[mark.word]; }
  LOADER_HD void ask_middle(const Lists& lists) { __builtin_prefetch(lists.sorted + middle()); }
  LOADER_HD N get_middle(const Lists& lists) const { return lists.sorted[middle()]; }
  // The next entry does not lie beside the one before.
  LOADER_HD bool is_far() const { return open.end - open.begin >= 8; }
#endif

  LOADER_HD void ask_weight(const Lists& lists, int64_t i) {
    place = static_cast<P>(open.begin + i);
#ifndef __CUDA_ARCH__
    __builtin_prefetch(lists.weights + place);
#endif
  }
  LOADER_HD int64_t get_weight(const Lists& lists) const { return load(lists.weights + place); }

  // A draw by weight from the open list, which is not empty: a cell, then one of its two sides.
  LOADER_HD void ask_cell(const CustomRules& rules, const Lists& lists) {
    place = static_cast<P>(open.begin + words.uniform(rules.key, open.degree()));
    WeightedProposal<N>{lists.cells}.prefetch(lists, place);
  }
  LOADER_HD int64_t get_cell(const Lists& lists, uint32_t side) const {
    return WeightedProposal<N>{lists.cells}.take(lists, place, side).vertex;
  }

  // Whether v is in the open list, that of u: the filter's word is asked for if there is one.
  LOADER_HD bool sifts(const Lists& lists, int64_t u, int64_t v) {
    if (!lists.filter.words) return false;
    mark = lists.filter.mark(static_cast<uint64_t>(u), static_cast<uint64_t>(v));
    ask_marks(lists);
    return true;
  }
  LOADER_HD bool passes(const Lists& lists) {
    get_marks(lists);
    return (marks & mark.bits) == mark.bits;
  }
  LOADER_HD P middle() const { return open.begin + (open.end - open.begin) / 2; }
  LOADER_HD bool seeks() const { return open.begin < open.end; }
  // One more entry; true if it is v.
  LOADER_HD bool halve(const Lists& lists, int64_t v) {
    const P at_place = middle();
    const N there = get_middle(lists);
    if (there < v)
      open.begin = at_place + 1;
    else
      open.end = at_place;
    if (there == v) open.begin = open.end;
    return there == v;
  }
};

// Arithmetic of 64 bits that wraps around, as Python rounds.
LOADER_HD int64_t wrap_add(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
LOADER_HD int64_t wrap_sub(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
}
LOADER_HD int64_t wrap_mul(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}
LOADER_HD int64_t floor_mod(int64_t a, int64_t b) {
  if (b == -1) return 0;  // of the least integer the processor's division would overflow
  const int64_t rest = a % b;
  return rest && (rest < 0) != (b < 0) ? rest + b : rest;
}
LOADER_HD int64_t floor_div(int64_t a, int64_t b) {
  if (b == -1) return wrap_sub(0, a);
  const int64_t rest = a % b;
  return a / b - (rest && (rest < 0) != (b < 0));
}
LOADER_HD int64_t shift_left(int64_t a, int64_t by) {
  return by > 63 ? 0 : static_cast<int64_t>(static_cast<uint64_t>(a) << by);
}
LOADER_HD int64_t shift_right(int64_t a, int64_t by) { return a >> (by > 63 ? 63 : by); }
LOADER_HD int64_t least(int64_t a, int64_t b) { return b < a ? b : a; }
LOADER_HD int64_t most(int64_t a, int64_t b) { return b > a ? b : a; }
LOADER_HD int64_t absolute(int64_t a) { return a < 0 ? wrap_sub(0, a) : a; }
// Turns of `for i in range(begin, end, by)`.
LOADER_HD uint64_t range_turns(int64_t begin, int64_t end, int64_t by) {
  const auto low = static_cast<uint64_t>(begin), high = static_cast<uint64_t>(end);
  if (by > 0) return begin < end ? (high - low - 1) / static_cast<uint64_t>(by) + 1 : 0;
  return end < begin ? (low - high - 1) / (0 - static_cast<uint64_t>(by)) + 1 : 0;
}

}  // namespace loader

// Statements of a translated function, in whose `run` they stand. PLACE, NEXT, LAST and MORE are numbers of
// places where it gives way; V, U and I have no effects, so they may be worked out twice.
#define LOADER_GIVE_WAY(PLACE)      \
  if (Way == ::loader::kInTurns) {  \
    f.at = PLACE;                   \
    return ::loader::Reply::kWaits; \
    case PLACE:;                    \
  }
#define LOADER_FAIL(WRONG, VALUE, LINE) return walker.fail(::loader::Wrong::WRONG, VALUE, LINE)

// Opens the list of V.
#define LOADER_OPEN(PLACE, LINE, V)                   \
  if (!walker.knows(V)) {                             \
    if (!lists.has(V)) LOADER_FAIL(kVertex, V, LINE); \
    walker.ask_list(lists, V);                        \
    LOADER_GIVE_WAY(PLACE)                            \
    walker.get_list(lists, V);                        \
  }

#define LOADER_DEGREE(TO, PLACE, LINE, V) \
  LOADER_OPEN(PLACE, LINE, V)             \
  TO = walker.degree();

#define LOADER_NEIGHBOR(TO, PLACE, NEXT, LINE, V, I)      \
  LOADER_OPEN(PLACE, LINE, V)                             \
  if (!walker.has_place(I)) LOADER_FAIL(kPlace, I, LINE); \
  walker.ask_neighbor(lists, I);                          \
  LOADER_GIVE_WAY(NEXT)                                   \
  TO = walker.get_neighbor(lists);

#define LOADER_WEIGHT(TO, PLACE, NEXT, LINE, V, I)        \
  LOADER_OPEN(PLACE, LINE, V)                             \
  if (!walker.has_place(I)) LOADER_FAIL(kPlace, I, LINE); \
  walker.ask_weight(lists, I);                            \
  LOADER_GIVE_WAY(NEXT)                                   \
  TO = walker.get_weight(lists);

// U, V: whether V is listed at U.
#define LOADER_HAS_EDGE(TO, PLACE, NEXT, LAST, MORE, LINE, U, V) \
  LOADER_OPEN(PLACE, LINE, U)                                    \
  if (!lists.has(V)) LOADER_FAIL(kVertex, V, LINE);              \
  TO = 0;                                                        \
  if (walker.seeks()) {                                          \
    TO = 1;                                                      \
    if (walker.sifts(lists, U, V)) {                             \
      LOADER_GIVE_WAY(NEXT)                                      \
      TO = walker.passes(lists);                                 \
    }                                                            \
    if (TO) {                                                    \
      TO = 0;                                                    \
      walker.ask_middle(lists);                                  \
      LOADER_GIVE_WAY(LAST)                                      \
      while (!(TO = walker.halve(lists, V)) && walker.seeks()) { \
        walker.ask_middle(lists);                                \
        if (walker.is_far()) {                                   \
          LOADER_GIVE_WAY(MORE)                                  \
        }                                                        \
      }                                                          \
    }                                                            \
  }

#define LOADER_WORD(TO, PLACE)                            \
  if (Way == ::loader::kInTurns && !walker.words.drawn) { \
    LOADER_GIVE_WAY(PLACE)                                \
  }                                                       \
  TO = walker.words.word(rules.key);

#define LOADER_UNIFORM(TO, PLACE, LINE, M)                            \
  if (M < 1 || M > int64_t{UINT32_MAX}) LOADER_FAIL(kBound, M, LINE); \
  if (Way == ::loader::kInTurns && !walker.words.drawn) {             \
    LOADER_GIVE_WAY(PLACE)                                            \
  }                                                                   \
  TO = walker.words.uniform(rules.key, static_cast<uint32_t>(M));

#define LOADER_BY_WEIGHT(TO, PLACE, NEXT, LAST, LINE, V)  \
  LOADER_OPEN(PLACE, LINE, V)                             \
  if (!walker.seeks()) LOADER_FAIL(kEmpty, V, LINE);      \
  if (Way == ::loader::kInTurns && !walker.words.drawn) { \
    LOADER_GIVE_WAY(NEXT)                                 \
  }                                                       \
  walker.ask_cell(rules, lists);                          \
  LOADER_GIVE_WAY(LAST)                                   \
  TO = walker.get_cell(lists, walker.words.word(rules.key));

#define LOADER_DIVIDE(TO, HOW, LINE, A, B)     \
  if (B == 0) LOADER_FAIL(kDivision, A, LINE); \
  TO = ::loader::HOW(A, B);

#define LOADER_SHIFT(TO, HOW, LINE, A, BY)   \
  if (BY < 0) LOADER_FAIL(kShift, BY, LINE); \
  TO = ::loader::HOW(A, BY);

#define LOADER_MEMORY(LINE, I) \
  if (static_cast<uint64_t>(I) >= static_cast<uint64_t>(kMemory)) LOADER_FAIL(kMemory, I, LINE);

#define LOADER_TURN(LINE) \
  if (!walker.may_turn()) LOADER_FAIL(kTurns, rules.turns, LINE);

#define LOADER_RETURN(LINE, X)                                                        \
  f.result = X;                                                                       \
  if (f.result != -1 && !lists.has(f.result)) LOADER_FAIL(kReturned, f.result, LINE); \
  return ::loader::Reply::kDone;
