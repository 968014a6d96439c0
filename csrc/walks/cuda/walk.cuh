// Walks on the GPU, a thread a walker: the sample-parallel schedule of NextDoor (Jangda et al., EuroSys
// 2021).
#pragma once

#include <cstdint>

#include "walks/cuda/scan.cuh"
#include "walks/cuda/write_tiles.cuh"
#include "walks/second_order.h"
#include "walks/starts.h"
#include "walks/walk.h"
#include "walks/weighted.h"

namespace loader {

// Where a warp stands in the rows of the walks.
template <typename P, typename N>
struct WarpRows {
  int64_t first;  // row
  int lane, rows;
  int64_t stride;

  // `together`: walkers of a warp; its other lanes only help it to write.
  __device__ WarpRows(const WalkOut<P, N>& out, int together) {
    const int64_t warp = (int64_t{blockIdx.x} * kWalkThreads + threadIdx.x) / 32;
    lane = static_cast<int>(threadIdx.x) % 32;
    first = warp * together;
    const int64_t left = out.count - first;
    rows = static_cast<int>(left < 0 ? 0 : left < together ? left : together);
    stride = int64_t{out.length} + 1;
  }
};

// Where the walker of this thread starts; -1 if there is none, or if that is no vertex.
template <typename P, typename N>
__device__ N start_of(const WalkStarts& starts, const WalkOut<P, N>& out, const WarpRows<P, N>& at) {
  if (at.lane >= at.rows) return -1;
  const int64_t walker = at.first + at.lane;
  const int64_t start = starts.wide ? static_cast<const int64_t*>(starts.ids)[walker]
                                    : int64_t{static_cast<const int32_t*>(starts.ids)[walker]};
  const bool is_vertex = start >= 0 && start < starts.num_nodes;
  if (!is_vertex) {
    starts.bad[1] = start;
    starts.bad[0] = 1;
  }
  out.vertices[walker * at.stride] = static_cast<N>(start);
  return is_vertex ? static_cast<N>(start) : N{-1};
}

// Walks whose step is one proposal: plain, weighted and metapaths.
template <class Lists, class Proposal, bool Coin, bool Places, int Steps>
__global__ __launch_bounds__(kWalkThreads, kWalkBlocks) void walk_first_order(
    const __grid_constant__ WalkLaw<Proposal, Coin, false> law, const __grid_constant__ Lists lists,
    WalkOut<typename Lists::Edge, typename Lists::Vertex> out, WalkStarts starts) {
  using P = typename Lists::Edge;
  using N = typename Lists::Vertex;
  constexpr int kShare = WalkWords<Proposal, Coin, false>::kShare;
  static_assert(Steps % kShare == 0, "a tile ends with a block of words");
  __shared__ WalkTile<N, Steps> vertices[kWalkThreads / kWarpWalkers];
  __shared__ WalkTile<P, Places ? Steps : 1> places[Places ? kWalkThreads / kWarpWalkers : 1];
  const WarpRows<P, N> at(out, starts.together);
  if (at.rows == 0) return;
  const int warp = static_cast<int>(threadIdx.x) / kWarpWalkers;
  const N start = start_of(starts, out, at);
  const uint64_t lane = out.first_lane + static_cast<uint64_t>(at.first + at.lane);
  Walker<P, N> walker{start, start, N{-1}, {}};
  bool goes = start >= 0;

  for (uint32_t first = 0; first < out.length; first += Steps) {
    N* const row = out.vertices + at.first * at.stride + first + 1;
    P* const edges = Places ? out.places + at.first * out.length + first : nullptr;
    const uint32_t left = out.length - first;
    if (!__any_sync(0xffffffffu, goes)) {
      write_ends(row, at.stride, at.rows, left, at.lane);
      if (Places) write_ends(edges, int64_t{out.length}, at.rows, left, at.lane);
      return;
    }
    for (int begin = 0; begin < Steps; begin += kShare) {
      Words block{};
      const Draws draws = law.draws(lane, first + begin);
      if (goes) block = draws.block(0);
#pragma unroll
      for (int j = 0; j < kShare; ++j) {
        Move<P, N> move{N{-1}, P{-1}};
        const uint32_t step = first + begin + j;
        if (goes && step < out.length) {
          move = law.step(lists, walker, draws, step, j, block);
          goes = move.vertex >= 0;
        }
        vertices[warp].entry[at.lane][begin + j] = move.vertex;
        if constexpr (Places) places[warp].entry[at.lane][begin + j] = move.place;
      }
    }
    __syncwarp();
    const int width = static_cast<int>(left < Steps ? left : Steps);
    vertices[warp].write(row, at.stride, at.rows, width, at.lane);
    if constexpr (Places) places[warp].write(edges, int64_t{out.length}, at.rows, width, at.lane);
    __syncwarp();
  }
}

// A walker of the second order, between two rounds of its warp.
template <typename P, typename N>
struct Trying {
  Walker<P, N> walker;
  uint32_t first, step;  // of the tile, and in it
  bool waits;            // for a scan
};

template <class Lists, class Proposal, bool Coin, bool Places, int Steps>
__device__ __noinline__ void walk_with_scans(
    const WalkLaw<Proposal, Coin, true>& law, const Lists& lists,
    WalkOut<typename Lists::Edge, typename Lists::Vertex> out,
    const WarpRows<typename Lists::Edge, typename Lists::Vertex>& at,
    WalkTile<typename Lists::Vertex, Steps>& vertices,
    WalkTile<typename Lists::Edge, Places ? Steps : 1>& places,
    const Trying<typename Lists::Edge, typename Lists::Vertex>& from);

// The rest of a walk, or as much of it as needs no scan.
template <class Lists, class Proposal, bool Coin, bool Places, bool Knows, bool Scans, int Steps>
__device__ __forceinline__ void walk_on(const WalkLaw<Proposal, Coin, true>& law, const Lists& lists,
                                        const WalkOut<typename Lists::Edge, typename Lists::Vertex>& out,
                                        const WarpRows<typename Lists::Edge, typename Lists::Vertex>& at,
                                        WalkTile<typename Lists::Vertex, Steps>& vertices,
                                        WalkTile<typename Lists::Edge, Places ? Steps : 1>& places,
                                        const Trying<typename Lists::Edge, typename Lists::Vertex>& from) {
  using P = typename Lists::Edge;
  using N = typename Lists::Vertex;
  using Plan = WalkWords<Proposal, Coin, true>;
  constexpr int kShare = Plan::kShare;
  constexpr uint32_t kUnknown = 1u << 31;
  constexpr uint32_t kWaits = UINT32_MAX;  // for a scan
  constexpr uint32_t kNone = 1u << 31;     // of `attempt`: it is known that there is no copy
  static_assert(Proposal::kFolds || !Knows, "steps by weight neither seek copies nor scan");
  static_assert(kShare == 1 || (kShare == 2 && Plan::kWords == 2), "half a block is kept");
  static_assert(Knows || !Scans, "tries alone need no scan");
  const uint64_t lane = out.first_lane + static_cast<uint64_t>(at.first + at.lane);

  Walker<P, N> walker = from.walker;
  bool goes = walker.at >= 0;
  ListOf<P> list{};  // of walker.at
  P place{};         // of the proposal
  N proposed{};
  Seek seek = Seek::kNothing;
  ListOf<P> left{};              // what is left to search
  P own{};                       // the first copy of the vertex before in its list
  uint32_t copies = 0;           // how many there are; else kUnknown + n: 2^n at most
  uint32_t attempt = 0;          // 0: the step has not begun
  bool throws = true;            // a proposal is next
  uint32_t word = 0, coin = 0;   // the last word of the proposal, and the verdict's
  uint32_t spare[2] = {0, 0};    // words of the block that are left for the step after this one
  uint32_t first = 0, step = 0;  // of the tile, and in it
  if constexpr (Scans) {
    first = from.first;
    step = from.step;
    const Words block = law.draws(lane, first + step).block(0);
    spare[0] = block.w[2];
    spare[1] = block.w[3];
    if (from.waits) {
      attempt = kWaits;
      list = lists.list(lists.row(walker.at, first + step));
    }
  }

  const auto is_judged = [&] { return walker.previous >= 0 && list.degree() > 1; };
  const auto seek_copies = [&](int32_t which) {
    if constexpr (Knows)
      coin = static_cast<uint32_t>(which);
    else
      proposed = walker.previous;
    left = list;
    if constexpr (Knows) seek = Seek::kFirst;
  };
  // A proposal by three words, the first of which gives draw number i.
  const auto propose = [&](const Draws& draws, uint32_t w0, uint32_t w1, uint32_t w2, uint32_t i) {
    if constexpr (Proposal::kFolds) {
      const bool folds = is_judged() && (Knows || attempt < kNone);
      const uint64_t extra = folds ? law.rules.extra : 0;
      const Dart<P> dart =
          throw_dart(law.rules, draws, list, Knows ? extra << (copies - kUnknown) : extra, w0, w1, i);
      place = dart.place;
      coin = dart.coin;
      if (dart.copy >= 0) seek_copies(dart.copy);
    } else {
      place = law.proposal.aim(draws, list, w0, i);
      word = w1;
      coin = w2;
    }
  };

  for (; first < out.length; first += Steps, step = 0) {
    N* const row = out.vertices + at.first * at.stride + first + 1;
    P* const edges = Places ? out.places + at.first * out.length + first : nullptr;
    const uint32_t rest = out.length - first;
    if (!__any_sync(0xffffffffu, goes)) {
      write_ends(row, at.stride, at.rows, rest, at.lane);
      if (Places) write_ends(edges, int64_t{out.length}, at.rows, rest, at.lane);
      return;
    }
    const uint32_t width = rest < Steps ? rest : Steps;
    const auto take = [&](const Move<P, N>& taken) {
      vertices.entry[at.lane][step] = taken.vertex;
      if constexpr (Places) places.entry[at.lane][step] = taken.place;
      goes = taken.vertex >= 0;
      walker.at = taken.vertex;
      attempt = 0;
      throws = true;
      ++step;
    };
    const auto accept = [&] {
      walker.previous = walker.at;
      walker.before = list;
    };
    for (;;) {
      while (step < width && (!Knows || attempt != kWaits)) {
        Move<P, N> taken{N{-1}, P{-1}};
        bool is_taken = !goes;
        const uint32_t j = (first + step) % kShare;
        const Draws draws = law.draws(lane, first + step);
        if (goes && throws) {
          const bool begins = attempt == 0;
          const uint32_t tries = Knows ? attempt : attempt & ~kNone;
          const uint32_t i = begins ? j * Plan::kWords + Coin : Plan::again(j, tries);
          const bool knows = Proposal::kFolds && !begins && (Knows ? copies < kUnknown : attempt >= kNone);
          const uint32_t index = knows ? knowing_block(kShare, j, tries) : i / 4;
          Words words{{spare[0], spare[1], 0, 0}};
          if (!begins || j == 0) words = draws.block(index);
          if (begins && j == 0) {
            spare[0] = words.w[2];
            spare[1] = words.w[3];
          }
          Toss side = Toss::kGo;
          if (Coin && begins) side = toss(law.rules, words.w[0]);
          if (begins && side == Toss::kGo) {
            list = lists.list(lists.row(walker.at, first + step));
            copies = kUnknown;
            if (Knows && is_judged() && !lists.simple() && asks_for_copies(law.rules)) {
              copies += lists.copies_log2(walker.at);
              if (copies - kUnknown >= kManyCopies) {
                const ListOf<P> most = lists.most_often(walker.at);
                own = most.begin;
                copies = lists.read(own) == walker.previous
                             ? most.degree()
                             : kUnknown + log2_of(lists.others_often(walker.at));
              }
            }
          }
          if (side != Toss::kGo) {
            is_taken = true;
            if (side == Toss::kHome) {
              taken.vertex = walker.start;
              walker.previous = -1;
            }
          } else if (list.begin == list.end) {
            is_taken = true;
          } else if (Knows && begins && copies < kUnknown) {
            attempt = 1;  // which is left out
          } else {
            ++attempt;
            throws = false;
            if (Knows && knows) {
              const Dart<P> dart =
                  throw_knowing(law.rules, draws, list, {own, static_cast<P>(own + copies)}, index, words);
              place = dart.place;
              coin = dart.coin;
            } else if (Knows && begins && is_judged() && !reserves(law.rules, copies - kUnknown)) {
              seek_copies(kAllCopies);
            } else {  // who knows that there is no copy draws among all
              const bool second = !begins && !knows && i % 4;
              const uint32_t at_word = begins ? Coin : 0;
              propose(draws, second ? words.w[2] : words.w[at_word],
                      second ? words.w[3] : words.w[at_word + 1], words.w[at_word + 2], knows ? index : i);
            }
          }
        }
        if (!is_taken && !throws) {
          // The one read of this round.
          Verdict verdict = Verdict::kAccept;
          if (Knows ? seek == Seek::kListed : left.begin < left.end) {
            const P here = middle(left);
            const N there = load(lists.sorted + here);
            const bool found = there == proposed;
            halve(left, there < proposed);
            if (!found && left.begin < left.end) {
              verdict = Verdict::kSearch;
            } else {
              bool is_accepted = found;
              if (!Proposal::kFolds || Knows || proposed != walker.previous) {
                is_accepted = accepts(law.rules, coin, found);
              } else {  // what it sought is there, or it knows that there is none
                place = here;
                attempt |= kNone;
              }
              verdict = is_accepted ? Verdict::kAccept : Verdict::kRefuse;
              if constexpr (Knows)
                seek = Seek::kNothing;
              else
                left.end = left.begin;
            }
          } else if (Knows && seek != Seek::kNothing) {
            const N there = load(lists.sorted + middle(left));
            halve(left, there < walker.previous || (there == walker.previous && seek == Seek::kLast));
            verdict = Verdict::kSearch;
            if (left.begin >= left.end && seek == Seek::kFirst) {
              const int64_t behind = static_cast<int64_t>(list.end) - left.begin;
              own = left.begin;
              left.end = static_cast<P>(left.begin + (coin < behind ? coin : behind));
              proposed = walker.previous;
              place = left.end;
              if (left.end < list.end && lists.read(left.end) == walker.previous) {
                verdict = Verdict::kAccept;
                seek = Seek::kNothing;
              } else {
                seek = Seek::kLast;
              }
            }
            if (left.begin >= left.end && seek == Seek::kLast) {
              copies = static_cast<uint32_t>(left.begin - own);
              verdict = Verdict::kRefuse;
              seek = Seek::kNothing;
            }
          } else {
            const Move<P, N> move = law.proposal.take(lists, place, word);
            proposed = move.vertex;
            place = move.place;
            const bool goes_back = proposed == walker.previous;
            if (is_judged()) verdict = judge(law.rules, coin, goes_back);
            if (Knows && verdict == Verdict::kRefuse && goes_back && attempt >= kPatience &&
                !lists.simple()) {
              seek_copies(kAllCopies);
              verdict = Verdict::kSearch;
            } else if (verdict == Verdict::kSearch) {
              const EdgeFilter& filter = lists.filter;
              const bool passes =
                  !filter.words || filter.passes(filter.mark(static_cast<uint64_t>(walker.previous),
                                                             static_cast<uint64_t>(proposed)));
              if (passes && walker.before.begin < walker.before.end) {
                left = walker.before;
                if constexpr (Knows) seek = Seek::kListed;
              } else {
                verdict = accepts(law.rules, coin, false) ? Verdict::kAccept : Verdict::kRefuse;
              }
            }
          }
          if (verdict == Verdict::kRefuse) {
            if (Knows && attempt >= kMaxTries && attempt >= tries_of(law.rules, list.degree()))
              attempt = kWaits;
            else
              throws = true;
          }
          if (verdict == Verdict::kAccept) {
            taken = {proposed, place};
            is_taken = true;
            accept();
          }
        }
        if (is_taken) take(taken);
      }
      if constexpr (!Knows) {
        break;
      } else {
        const bool waits = attempt == kWaits;
        if (!__any_sync(0xffffffffu, waits)) break;
        if constexpr (Scans) {
          const Draws draws = law.draws(lane, first + step);
          const Move<P, N> made =
              scan_in_turn(law.rules, lists, list, walker, draws, (first + step) % kShare, at.lane, waits);
          if (waits) {
            accept();
            take(made);
          }
        } else {
          const Trying<P, N> now{{Coin ? walker.start : walker.at, walker.at, walker.previous, walker.before},
                                 first,
                                 step,
                                 waits};
          const WarpRows<P, N> rows = at;
          return walk_with_scans<Lists, Proposal, Coin, Places, Steps>(law, lists, out, rows, vertices,
                                                                       places, now);
        }
      }
    }
    __syncwarp();
    vertices.write(row, at.stride, at.rows, static_cast<int>(width), at.lane);
    if constexpr (Places) places.write(edges, int64_t{out.length}, at.rows, static_cast<int>(width), at.lane);
    __syncwarp();
  }
}

template <class Lists, class Proposal, bool Coin, bool Places, int Steps>
__device__ __noinline__ void walk_with_scans(
    const WalkLaw<Proposal, Coin, true>& law, const Lists& lists,
    WalkOut<typename Lists::Edge, typename Lists::Vertex> out,
    const WarpRows<typename Lists::Edge, typename Lists::Vertex>& at,
    WalkTile<typename Lists::Vertex, Steps>& vertices,
    WalkTile<typename Lists::Edge, Places ? Steps : 1>& places,
    const Trying<typename Lists::Edge, typename Lists::Vertex>& from) {
  walk_on<Lists, Proposal, Coin, Places, true, true, Steps>(law, lists, out, at, vertices, places, from);
}

// node2vec. What a step takes differs: proposals until one is accepted, and for some of them a search. So a
// thread does not wait for the others of its warp with each step, only when a tile is full or it waits for a
// scan; until then all read once in each round, whatever for.
//
// What is rare takes registers from what is not. So there are two kernels: one for walks that are
// `only_tries`, and one that `Knows` how many copies of the vertex before there are, and scans. That, too,
// walks without scans first, and calls, as its last act, what walks on with them.
template <class Lists, class Proposal, bool Coin, bool Places, bool Knows, int Steps>
__global__ __launch_bounds__(kWalkThreads, kSearchingBlocks) void walk_second_order(
    const __grid_constant__ WalkLaw<Proposal, Coin, true> law, const __grid_constant__ Lists lists,
    WalkOut<typename Lists::Edge, typename Lists::Vertex> out, WalkStarts starts) {
  using P = typename Lists::Edge;
  using N = typename Lists::Vertex;
  __shared__ WalkTile<N, Steps> vertices[kWalkThreads / kWarpWalkers];
  __shared__ WalkTile<P, Places ? Steps : 1> places[kWalkThreads / kWarpWalkers];
  const WarpRows<P, N> at(out, starts.together);
  if (at.rows == 0) return;
  const int warp = static_cast<int>(threadIdx.x) / kWarpWalkers;
  const N start = start_of(starts, out, at);
  walk_on<Lists, Proposal, Coin, Places, Knows, false, Steps>(
      law, lists, out, at, vertices[warp], places[warp], {{start, start, N{-1}, {}}, 0, 0, false});
}

}  // namespace loader
