// Which neighbours of a vertex are picked. What samples is written for any `Choice`:
//
//   count(degree, fanout)   how many are picked from a list of `degree`
//   whole(degree, fanout)   whether they are the whole list, so that nothing is drawn
//
// and picks the others by functions that are overloaded for it (of the GPU: cuda/device_pick.cuh), which give
// their positions in the list, ascending. They are told the lists, since a choice may look at more than the
// degree.
#pragma once

#include "sampler/pick.h"

namespace loader {

// `fanout` distinct neighbours, all sets of them equally likely; `replace`: independent ones.
struct UniformChoice {
  bool replace;

  LOADER_HD int64_t count(int64_t degree, int64_t fanout) const {
    return pick_count(degree, fanout, replace);
  }
  LOADER_HD bool whole(int64_t degree, int64_t fanout) const { return picks_all(degree, fanout, replace); }
};

}  // namespace loader
