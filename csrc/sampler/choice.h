// Which neighbors of a vertex are picked. What samples is written for any `Choice`:
//
//   kCountsByDegree         whether the degree says how many are picked; then
//   count(degree, fanout)   how many are picked from a list of `degree`
//   whole(degree, fanout)   whether they are the whole list, so that nothing is drawn
//
// and picks the others by functions that are overloaded for it (of the GPU: cuda/device_pick.cuh), which give
// their positions in the list, ascending. They are told the lists, since a choice may look at more than the
// degree.
#pragma once

#include "sampler/labor.h"
#include "sampler/pick.h"
#include "sampler/race.h"
#include "sampler/weighted.h"

namespace loader {

// What the random words of one mini-batch depend on.
struct BatchKeys {
  uint64_t key;       // batch_key(seed, epoch, batch), or what SourceNumbers says
  uint64_t next_key;  // of SourceNumbers; these two are 0 where a choice has no use for them
  uint32_t phase;
};

// `fanout` distinct neighbors, all sets of them equally likely; `replace`: independent ones.
struct UniformChoice {
  static constexpr bool kCountsByDegree = true;

  bool replace;

  LOADER_HD int64_t count(int64_t degree, int64_t fanout) const {
    return pick_count(degree, fanout, replace);
  }
  LOADER_HD bool whole(int64_t degree, int64_t fanout) const { return picks_all(degree, fanout, replace); }
};

// The same by weight: successive sampling from the lists' tables. Every entry of a list has a mass: edges of
// weight 0 are in no list.
struct WeightedChoice {
  static constexpr bool kCountsByDegree = true;

  bool replace;
  const AliasCell* cells;  // [num_edges]
  const uint64_t* ends;    // [num_edges]

  LOADER_HD int64_t count(int64_t degree, int64_t fanout) const {
    return pick_count(degree, fanout, replace);
  }
  LOADER_HD bool whole(int64_t degree, int64_t fanout) const { return picks_all(degree, fanout, replace); }
  LOADER_HD WeightedList list(int64_t begin, uint32_t degree) const {
    return {cells + begin, ends + begin, degree};
  }
};

// The `fanout` heaviest neighbors. Nothing is drawn.
struct TopKChoice {
  static constexpr bool kCountsByDegree = true;

  const uint32_t* order;  // [num_edges]: of each list its positions, the heaviest first

  LOADER_HD int64_t count(int64_t degree, int64_t fanout) const { return pick_count(degree, fanout, false); }
  LOADER_HD bool whole(int64_t degree, int64_t fanout) const { return picks_all(degree, fanout, false); }
};

// `fanout` neighbors on average, those with small numbers: LABOR-0. How many only a look at the list tells.
struct LaborChoice {
  static constexpr bool kCountsByDegree = false;

  bool layer_dependency;  // all hops share the numbers
  uint32_t period;        // see SourceNumbers
  uint64_t turns_key;

  LOADER_HD bool whole(int64_t degree, int64_t fanout) const { return picks_all(degree, fanout, false); }
  LOADER_HD SourceNumbers numbers(const BatchKeys& keys, int hop) const {
    return {keys.key, keys.next_key, turns_key, layer_dependency ? 0 : static_cast<uint32_t>(hop),
            period,   keys.phase};
  }
};

// By weight without tables: see race.h. Only a look at the list tells how many entries have a weight.
struct RaceChoice {
  static constexpr bool kCountsByDegree = false;

  const float* floats;  // [num_edges], or null
  const double* doubles;

  LOADER_HD double weight(int64_t at) const { return floats ? static_cast<double>(floats[at]) : doubles[at]; }
  LOADER_HD bool whole(int64_t, int64_t) const { return false; }  // entries of weight 0 are not picked
};

// Either of those two: so one kernel serves both where few are to be compiled.
struct ScanChoice {
  static constexpr bool kCountsByDegree = false;

  bool races;  // else by LABOR
  LaborChoice labor;
  RaceChoice race;

  LOADER_HD bool whole(int64_t degree, int64_t fanout) const { return !races && labor.whole(degree, fanout); }
};
inline ScanChoice as_scan(const LaborChoice& labor) { return {false, labor, {}}; }
inline ScanChoice as_scan(const RaceChoice& race) { return {true, {}, race}; }

// The choice that stands for all with the same number of picks.
template <typename Choice>
Choice counted_as(const Choice& choice) {
  return choice;
}
inline UniformChoice counted_as(const WeightedChoice& choice) { return {choice.replace}; }
inline UniformChoice counted_as(const TopKChoice&) { return {false}; }
inline LaborChoice counted_as(const RaceChoice&) { return {}; }

}  // namespace loader
