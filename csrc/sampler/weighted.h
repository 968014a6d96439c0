// Picks by weight from the table of a list, written once for host and device.
//
// A table gives each of the `d` entries of a list a mass, an integer of at least 1; together they have
// d * 2^32 (weights/cpu/tables.h says how weights become masses). An entry is drawn with the probability of
// its share of the mass, exactly:
//
//   from cells  Walker's alias method (Walker, "An efficient method for generating discrete random variables
//               with general distributions", ACM TOMS 1977): the mass is dealt to d cells of 2^32, each with
//               that of two entries at most. A draw is one place in all of the mass: it costs one read,
//               whatever the degree.
//   from ends   the sums of the masses up to each entry, by a binary search. It can leave entries out.
//
// Without replacement it is successive sampling, the law of Efraimidis and Spirakis ("Weighted random
// sampling with a reservoir", IPL 2006): each pick has the probability of its mass among what is not picked
// yet. To draw from the cells and to pass over repeats is just that. Where few entries hold most of the mass
// there would be many repeats. So after `draws_from_cells` draws the others come from the ends, without what
// is picked. When that happens depends on how often draws repeated and on what was picked, never on what
// would be picked next, so it leaves the law as it is. A list costs 2 * fanout + 8 draws from cells and
// `fanout` searches at most.
#pragma once

#include "sampler/pick.h"

namespace loader {

// The first `threshold` places of cell i belong to entry i, the others to entry `alias`.
struct AliasCell {
  uint32_t threshold, alias;
};

// The table of one list of `degree` >= 1 entries.
struct WeightedList {
  const AliasCell* cells;  // [degree]
  const uint64_t* ends;    // [degree]: the masses of the entries up to this one, with it
  uint32_t degree;

  LOADER_HD uint64_t mass() const { return uint64_t{degree} << 32; }
  LOADER_HD uint64_t begin(uint32_t i) const { return i ? ends[i - 1] : 0; }
  LOADER_HD uint64_t mass(uint32_t i) const { return ends[i] - begin(i); }

  // The entry at a place in [0, mass()), by the cells.
  LOADER_HD uint32_t entry_by_cell(uint64_t place) const {
    const auto i = static_cast<uint32_t>(place >> 32);
    const AliasCell cell = cells[i];
    return static_cast<uint32_t>(place) < cell.threshold ? i : cell.alias;
  }

  // The same by the ends.
  LOADER_HD uint32_t entry_by_end(uint64_t place) const {
    uint32_t low = 0, high = degree - 1;
    while (low < high) {
      const uint32_t mid = (low + high) / 2;
      if (ends[mid] > place)
        high = mid;
      else
        low = mid + 1;
    }
    return low;
  }
};

LOADER_HD uint32_t draws_from_cells(uint32_t fanout) { return 2 * fanout + 8; }

// Draws from the ends have numbers from here on: draw i is number kDrawsFromEnds + i.
constexpr uint32_t kDrawsFromEnds = 1u << 16;

// Puts `t` into the ascending list out[0..n), once: false where it is there already.
LOADER_HD bool insert_new(uint32_t* out, uint32_t n, uint32_t t) {
  const uint32_t place = place_of(out, n, t);
  if (place > 0 && out[place - 1] == t) return false;
  insert_at(out, n, place, t);
  return true;
}

// The picks that are left when `n` were drawn from the cells, ascending in `out`: `fanout` < degree in all.
LOADER_HD void pick_from_ends(const Draws& draws, const WeightedList& list, uint32_t n, uint32_t fanout,
                              uint32_t* out) {
  uint64_t left = list.mass();
  for (uint32_t i = 0; i < n; ++i) left -= list.mass(out[i]);
  for (; n < fanout; ++n) {
    const uint32_t number = kDrawsFromEnds + n;
    // A place in what is left, and the mass of the picks before it.
    const uint64_t place = draws.bounded_pair(draws.pair(number), left, number);
    uint64_t before = 0;
    for (uint32_t i = 0; i < n && list.begin(out[i]) <= place + before; ++i) before += list.mass(out[i]);
    const uint32_t entry = list.entry_by_end(place + before);
    left -= list.mass(entry);
    insert_new(out, n, entry);
  }
}

// The picks from draw `i` on, where `n` entries were picked before it.
LOADER_HD void pick_weighted_from(const Draws& draws, const WeightedList& list, uint32_t i, uint32_t n,
                                  uint32_t fanout, bool replace, uint32_t* out) {
  const uint32_t most = replace ? fanout : draws_from_cells(fanout);
  Words block = i % 2 ? draws.block(i / 2) : Words{};
  for (; i < most && n < fanout; ++i) {
    if (i % 2 == 0) block = draws.block(i / 2);
    const uint32_t t = list.entry_by_cell(draws.bounded_pair(Draws::pair_of(block, i), list.mass(), i));
    if (replace)
      insert_position(out, n++, t, -1);
    else
      n += insert_new(out, n, t);
  }
  if (n < fanout) pick_from_ends(draws, list, n, fanout, out);
}

// The picked positions of a list, ascending, in `out`: `fanout` of them, fewer than the degree unless
// `replace`. The specification in one call.
LOADER_HD void pick_weighted(const Draws& draws, const WeightedList& list, uint32_t fanout, bool replace,
                             uint32_t* out) {
  pick_weighted_from(draws, list, 0, 0, fanout, replace, out);
}

// The `fanout` heaviest of a list, ascending, in `out`, when `order` holds its positions from the heaviest to
// the lightest.
LOADER_HD void pick_heaviest(const uint32_t* order, uint32_t fanout, uint32_t* out) {
  for (uint32_t i = 0; i < fanout; ++i) insert_position(out, i, order[i], -1);
}

}  // namespace loader
