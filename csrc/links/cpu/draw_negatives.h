// Draws negative links on the CPU, among the nodes that exist at the time of each.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "links/negatives.h"

namespace loader {

// Where the negatives go, and from where they are drawn.
struct NegativeEnds {
  const int64_t* given;  // [ceil(count / each)] sources, or null
  int64_t each;          // negatives of a source that is given
  int64_t* sources;      // [count], or null with `given`
  int64_t* targets;      // [count]
  int64_t count;
};

// Lists are looked at when they are searched: to look at all of them would take longer than to draw.
template <typename P, typename N>
struct CheckedEdges {
  KnownEdges<P, N> edges;
  int64_t num_edges;

  bool has(int64_t source, int64_t target) const {
    if (edges.any()) {
      const ListOf<P> list = edges.lists.list({target});
      const int64_t begin = list.begin, end = list.end;
      if (begin < 0 || end < begin || end > num_edges)
        throw std::invalid_argument("indptr says that the list of node " + std::to_string(target) + " is " +
                                    std::to_string(begin) + " to " + std::to_string(end) +
                                    "; lists must lie in the " + std::to_string(num_edges) +
                                    " entries of indices");
    }
    return edges.has(source, target);
  }
};

// The nodes that may be one end of a negative. `order` has those that exist first, first; null: they are all
// there, in their own order. `counts` says how many exist for each negative; null: all.
struct Existing {
  const int64_t* counts;
  const int64_t* order;
  uint32_t all, most;  // nodes there are, and nodes there may be at any time
  const char* name;

  uint32_t count(int64_t negative) const {
    const int64_t n = counts ? counts[negative] : int64_t{most};
    if (n < 1 || n > int64_t{most})
      throw std::invalid_argument(std::string(name) + "_counts holds " + std::to_string(n) + "; 1 to " +
                                  std::to_string(most) + " nodes may exist");
    return static_cast<uint32_t>(n);
  }
  int64_t node(int64_t drawn) const {
    if (!order) return drawn;
    const int64_t v = order[drawn];
    if (v < 0 || v >= int64_t{all})
      throw std::invalid_argument(std::string(name) + "_order holds node " + std::to_string(v) +
                                  "; valid ids are 0 to " + std::to_string(int64_t{all} - 1));
    return v;
  }
};

// The ends of one negative among the nodes that exist, see `EndCounts`.
struct ExistingEnds {
  const Existing &of_source, &of_target;
  uint32_t sources, targets;
  bool one_type;

  int64_t source(int64_t drawn) const { return of_source.node(drawn); }
  int64_t target(int64_t drawn) const { return of_target.node(drawn); }
  bool is_loop(int64_t source, int64_t target) const { return one_type && source == target; }
};

// Draws `ends.count` negatives, number i on lane i of `key`. Throws std::invalid_argument if there is none
// that is no edge, or if a list of edges, a count or a node of the order cannot be.
template <typename P, typename N>
void draw_negatives(const Existing& of_source, const Existing& of_target, bool one_type, uint64_t key,
                    bool strict, const CheckedEdges<P, N>& known, const NegativeEnds& ends) {
  for (int64_t i = 0; i < ends.count; ++i) {
    const Draws draws{key, static_cast<uint64_t>(i), 0};
    const ExistingEnds counts{of_source, of_target, ends.given ? 0 : of_source.count(i), of_target.count(i),
                              one_type};
    if (!ends.given) {
      if (negative_pair(draws, counts, strict, known, &ends.sources[i], &ends.targets[i])) continue;
      throw std::invalid_argument("no negative link was found in " + std::to_string(kTriesOfPair) +
                                  " tries: nearly all pairs of nodes are edges; draw them with strict=False");
    }
    const int64_t source = ends.given[i / ends.each];
    ends.targets[i] = negative_target(draws, counts, strict, known, source);
    if (ends.targets[i] < 0)
      throw std::invalid_argument(
          "node " + std::to_string(source) + " has an edge to every " +
          (counts.one_type ? "other node" : "node of their type") +
          (of_target.counts ? " that exists at the link's time" : "") +
          ", so it has no negative link; draw them with strict=False, or leave its links out");
  }
}

}  // namespace loader
