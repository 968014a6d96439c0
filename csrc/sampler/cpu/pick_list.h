// How a choice picks from one list on the CPU: the specification. Of lists that are not picked whole:
//
//   pick_list(choice, lists, begin, degree, draws, fanout, out)
//       the positions of the picks, ascending, if the degree says how many they are
//   scan_list(choice, lists, begin, degree, keys, hop, draws, fanout, picked)
//       appends their places, ascending, if only a look at the list tells
//
// `draws` are those of the row, see draws_of.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "sampler/sampler.h"

namespace loader {

template <typename Lists>
void pick_list(const UniformChoice& choice, const Lists&, typename Lists::Edge, uint32_t degree,
               const Draws& draws, uint32_t fanout, uint32_t* out) {
  pick_positions(draws, degree, fanout, choice.replace, out);
}

template <typename Lists>
void pick_list(const WeightedChoice& choice, const Lists&, typename Lists::Edge begin, uint32_t degree,
               const Draws& draws, uint32_t fanout, uint32_t* out) {
  pick_weighted(draws, choice.list(begin, degree), fanout, choice.replace, out);
}

template <typename Lists>
void pick_list(const TopKChoice& choice, const Lists&, typename Lists::Edge begin, uint32_t, const Draws&,
               uint32_t fanout, uint32_t* out) {
  pick_heaviest(choice.order + begin, fanout, out);
}

template <typename Lists, typename P = typename Lists::Edge>
void scan_list(const LaborChoice& choice, const Lists& lists, P begin, uint32_t degree, const BatchKeys& keys,
               int hop, const Draws&, int64_t fanout, std::vector<P>& picked) {
  const SourceNumbers numbers = choice.numbers(keys, hop);
  for (uint32_t i = 0; i < degree; ++i)
    if (labor_picks(numbers(static_cast<uint64_t>(lists.read(begin, i))), degree,
                    static_cast<uint32_t>(fanout)))
      picked.push_back(begin + static_cast<P>(i));
}

template <typename Lists, typename P = typename Lists::Edge>
void scan_list(const RaceChoice& choice, const Lists&, P begin, uint32_t degree, const BatchKeys&, int,
               const Draws& draws, int64_t fanout, std::vector<P>& picked) {
  std::vector<std::pair<double, P>> race;
  for (uint32_t i = 0; i < degree; ++i) {
    const P at = begin + static_cast<P>(i);
    const double weight = choice.weight(at);
    if (!(weight >= 0 && weight <= kLast)) throw_bad_weight(at, weight);
    if (weight > 0) race.emplace_back(arrival(draws.pair(i), weight), at);
  }
  std::sort(race.begin(), race.end());
  if (fanout != kAllNeighbors && fanout < static_cast<int64_t>(race.size())) race.resize(fanout);
  const size_t before = picked.size();
  for (const auto& [time, at] : race) picked.push_back(at);
  std::sort(picked.begin() + static_cast<int64_t>(before), picked.end());
}

}  // namespace loader
