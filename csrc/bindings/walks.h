// What the bindings of the walks on CPU and GPU have in common.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "bindings/views.h"
#include "disk/faults.h"
#include "walks/custom/walker.h"
#include "walks/walk.h"
#include "walks/weighted.h"

namespace loader {

// back, common, far and extra, see WalkRules; none: first order.
using Acceptance = std::optional<std::tuple<uint32_t, uint32_t, uint32_t, uint64_t>>;

inline WalkRules checked_rules(uint64_t key, uint64_t stop_below, uint64_t home_below,
                               const Acceptance& accept) {
  if (stop_below > home_below || home_below > uint64_t{1} << 32)
    throw py::value_error("stop_below is " + std::to_string(stop_below) + " and home_below " +
                          std::to_string(home_below) + "; they must rise and be at most 2**32");
  WalkRules rules{key, stop_below, home_below, 0, 0, 0, 0};
  if (accept) {
    std::tie(rules.back, rules.common, rules.far, rules.extra) = *accept;
    if (rules.back != UINT32_MAX && rules.common != UINT32_MAX && rules.far != UINT32_MAX)
      throw py::value_error("one of the thresholds of acceptance must be 2**32 - 1");
  }
  if (rules.extra && (rules.back != UINT32_MAX || rules.extra >= ~uint64_t{0} << 32))
    throw py::value_error("extra is " + std::to_string(rules.extra) + " and back " +
                          std::to_string(rules.back) +
                          "; with extra mass back is 2**32 - 1, and both below 2**64");
  return rules;
}

inline uint32_t checked_length(int64_t length) {
  if (length < 0 || length > kMaxWalkLength)
    throw py::value_error("walk_length is " + std::to_string(length) + "; it must be 0 to " +
                          std::to_string(kMaxWalkLength));
  return static_cast<uint32_t>(length);
}

// Throws unless `count` numbers below `bound` may be drawn for each of the walkers, in memory of `width`
// bytes each.
inline void check_negatives(int64_t bound, int64_t walkers, int64_t count, size_t width) {
  const int64_t most = width == sizeof(int32_t) ? int64_t{1} << 31 : int64_t{UINT32_MAX};
  if (bound > most)
    throw py::value_error("negatives are drawn from " + std::to_string(bound) + "; it must be at most " +
                          std::to_string(most));
  if (walkers < 0 || count < 0 || count > int64_t{1} << 31 || (count && walkers > INT64_MAX / count))
    throw py::value_error("there are " + std::to_string(count) + " negatives of each of " +
                          std::to_string(walkers) + " walkers; they must be 0 to 2**31");
  if (bound <= 0 && walkers * count > 0) throw py::value_error("the graph has no nodes");
}

// The groups of edges whose turn it is, one step after the other.
inline void check_path(const std::vector<int64_t>& path, int64_t groups) {
  if (path.empty() != (groups == 0))
    throw py::value_error("a metapath needs lists in groups, and they a metapath");
  if (path.size() > kMaxMetapath)
    throw py::value_error("the metapath has " + std::to_string(path.size()) + " types; at most " +
                          std::to_string(kMaxMetapath) + " are possible");
  for (const int64_t group : path)
    if (group < 0 || group >= groups || group > UINT8_MAX)
      throw py::value_error("the metapath names group " + std::to_string(group) + " of " +
                            std::to_string(groups));
}

inline std::string bad_start(int64_t vertex, int64_t num_nodes) {
  return "start holds node " + std::to_string(vertex) + "; valid ids are 0 to " +
         std::to_string(num_nodes - 1);
}

// What Python says of one call of walks.
struct WalkCall {
  uint64_t key;
  int64_t length;
  uint64_t stop_below, home_below;
  const Acceptance& accept;
  const std::vector<int64_t>& path;
};

// What Python says of one call of walks by a user's function.
struct CustomWalkCall {
  uint64_t key;
  int64_t length, turns;
  const std::vector<int64_t>& constants;
  const py::object& weights;  // integers of the edges, as int32; None if nobody asks for them
  bool searches, by_weight;   // what the function does
};

inline CustomRules checked_rules(const CustomWalkCall& call) {
  if (call.turns < 1 || call.turns > int64_t{UINT32_MAX})
    throw py::value_error("turns is " + std::to_string(call.turns) + "; it must be 1 to 2**32 - 1");
  if (call.constants.size() > kMaxConstants)
    throw py::value_error("there are " + std::to_string(call.constants.size()) + " constants; at most " +
                          std::to_string(kMaxConstants) + " are possible");
  CustomRules rules{call.key, static_cast<uint32_t>(call.turns), {}};
  std::copy(call.constants.begin(), call.constants.end(), rules.constants);
  return rules;
}

// The lists of one graph, at one place: tensors that this keeps, and what the core sees of
// them.
class WalkArrays {
 public:
  WalkArrays(py::object indptr, py::object indices, py::object sorted, py::object cells, int64_t groups,
             const Place& place)
      : indptr_(std::move(indptr)),
        indices_(std::move(indices)),
        sorted_(std::move(sorted)),
        cells_(std::move(cells)),
        groups_(groups),
        place_(place) {
    if (groups < 0 || groups > kMaxMetapath)
      throw py::value_error("groups is " + std::to_string(groups) + "; it must be 0 to " +
                            std::to_string(kMaxMetapath));
    wide_edges_ = has_dtype<int64_t>(indptr_);
    wide_nodes_ = has_dtype<int64_t>(indices_);
    with_types([&](auto edge, auto vertex) { look<decltype(edge), decltype(vertex)>(); });
  }

  int64_t num_nodes() const { return num_nodes_; }
  int64_t num_edges() const { return num_edges_; }
  bool wide_nodes() const { return wide_nodes_; }
  // Of the lists, and of those in ascending order: whoever walks on the CPU asks before, as lists whose
  // bounds are zeros must not be read, and after.
  void require_whole() const { read_.require_whole(); }

  // f(P{}, N{}) of the types of places and vertices.
  template <class F>
  void with_types(const F& f) const {
    if (wide_nodes_)
      f(int64_t{}, int64_t{});
    else if (wide_edges_)
      f(int64_t{}, int32_t{});
    else
      f(int32_t{}, int32_t{});
  }

  template <typename P, typename N>
  PlainLists<P, N> plain() const {
    return {static_cast<const P*>(indptr_at_), static_cast<const N*>(indices_at_)};
  }

  // Checks a call of walks to `out`, [out.count, length + 1], and calls f(law, lists, out).
  template <typename P, typename N, class F>
  void with_law(const WalkCall& call, WalkOut<P, N> out, const F& f) const {
    const WalkRules rules = checked_rules(call.key, call.stop_below, call.home_below, call.accept);
    const int64_t length = checked_length(call.length);
    check_path(call.path, groups_);
    if (call.accept && groups_) throw py::value_error("a metapath has no second order");
    if (rules.extra && cells_at_) throw py::value_error("walks by weight have no extra mass");
    if (call.accept && (rules.common != rules.far || !cells_at_) && sorted_.is_none())
      throw py::value_error("the second order searches; it needs `sorted`");
    if (call.accept && !cells_at_ && rules.common != UINT32_MAX && rules.far != UINT32_MAX)
      throw py::value_error("common or far must be 2**32 - 1, if steps do not go by weight");
    out.length = static_cast<uint32_t>(length);
    const bool coin = call.home_below > 0, second = call.accept.has_value();
    if (groups_) {
      const PlainLists<P, N> all = plain<P, N>();
      MetapathLists<P, N> lists{
          {all.indptr, all.indices, groups_}, static_cast<uint32_t>(call.path.size()), {}};
      std::copy(call.path.begin(), call.path.end(), lists.path);
      using U = UniformProposal;
      return coin ? f(WalkLaw<U, true, false>{rules, {}}, lists, out)
                  : f(WalkLaw<U, false, false>{rules, {}}, lists, out);
    }
    const auto* const sorted = static_cast<const N*>(sorted_at_);
    WalkLists<P, N> lists{plain<P, N>(),
                          sorted,
                          {filter_.load(std::memory_order_acquire), filter_words(num_edges_)},
                          copies_.load(std::memory_order_acquire),
                          static_cast<const P*>(most_)};
    if (second && !cells_at_) lists.indices = sorted;  // copies of a vertex lie side by side there
    const auto with = [&](auto proposal) {
      using Q = decltype(proposal);
      if (second)
        coin ? f(WalkLaw<Q, true, true>{rules, proposal}, lists, out)
             : f(WalkLaw<Q, false, true>{rules, proposal}, lists, out);
      else
        coin ? f(WalkLaw<Q, true, false>{rules, proposal}, lists, out)
             : f(WalkLaw<Q, false, false>{rules, proposal}, lists, out);
    };
    if (cells_at_)
      with(WeightedProposal<N>{static_cast<const WalkCell<N>*>(cells_at_)});
    else
      with(UniformProposal{});
  }

  // What a user's function reads.
  template <typename P, typename N>
  CustomLists<P, N> custom(const CustomWalkCall& call) const {
    if (groups_) throw py::value_error("a function for the next node takes no metapath");
    if (call.searches && sorted_.is_none()) throw py::value_error("the function searches; it needs `sorted`");
    if (call.by_weight && !cells_at_) throw py::value_error("the function draws by weight; it needs `cells`");
    const uint32_t* weights = nullptr;
    if (!call.weights.is_none())
      weights =
          reinterpret_cast<const uint32_t*>(read<const int32_t>(call.weights, "weights", num_edges_).data);
    return {{plain<P, N>(),
             static_cast<const N*>(sorted_at_),
             {filter_.load(std::memory_order_acquire), filter_words(num_edges_)},
             nullptr,
             nullptr},
            num_nodes_,
            static_cast<const WalkCell<N>*>(cells_at_),
            weights};
  }

  // The memory of a filter of all edges, int64 zeros that the caller keeps.
  EdgeFilter filter_in(py::handle words) const {
    if (groups_) throw py::value_error("a metapath has no second order");
    const uint64_t count = filter_words(num_edges_);
    const auto memory = view<int64_t>(words, "words", static_cast<int64_t>(count), place_);
    return {reinterpret_cast<uint64_t*>(memory.data), count};
  }
  // Others may walk meanwhile: with it or without, they walk the same.
  void sift_by(const EdgeFilter& filter) { filter_.store(filter.words, std::memory_order_release); }

  // How often each list has a vertex, and which, see WalkLists; the caller keeps both. Once, before walks
  // that ask for it.
  void set_copies(py::handle copies, py::handle most) {
    const auto powers = view<const uint8_t>(copies, "copies", num_nodes_, place_);
    with_types([&](auto edge, auto) {
      using P = decltype(edge);
      const auto places = view<const P>(most, "most", 3 * num_nodes_, place_);
      if (place_.type == std::string_view("cpu"))
        for (int64_t v = 0; v < num_nodes_; ++v) check_most(v, places.data + 3 * v);
      most_ = places.data;
    });
    copies_.store(powers.data, std::memory_order_release);
  }

 private:
  // An array that is read where it lies: a GPU reads pinned memory, too.
  template <typename T>
  View<T> read(const py::object& tensor, const char* name, int64_t size = -1) const {
    return view_to_read<T>(tensor, name, size, place_);
  }

  template <typename P>
  void check_most(int64_t v, const P* most) const {
    const auto* const list = static_cast<const P*>(indptr_at_) + v;
    if (most[0] < list[0] || most[0] > list[1] || most[1] < (list[0] < list[1]) ||
        most[1] > list[1] - most[0] || most[2] < 0 || most[2] > most[1])
      throw py::value_error("most says that list " + std::to_string(v) + " has " + std::to_string(most[1]) +
                            " copies at " + std::to_string(most[0]) + ", and " + std::to_string(most[2]) +
                            " of others; they must lie in its places " + std::to_string(list[0]) + " to " +
                            std::to_string(list[1]) + ", and the others be no more");
  }

  template <typename P, typename N>
  void look() {
    check_dimension(indptr_, "indptr");
    const auto offsets = read<const P>(indptr_, "indptr");
    const auto sources = read<const N>(indices_, "indices");
    if (offsets.size < 1) throw py::value_error("indptr is empty");
    const int64_t of_each = std::max<int64_t>(groups_, 1);
    if ((offsets.size - 1) % of_each)
      throw py::value_error("indptr has " + std::to_string(offsets.size) + " entries; they must be " +
                            std::to_string(of_each) + " of each node, and one");
    if (place_.type == std::string_view("cpu")) check_offsets(offsets, sources.size);
    num_nodes_ = (offsets.size - 1) / of_each;
    num_edges_ = sources.size;
    indptr_at_ = offsets.data;
    indices_at_ = sources.data;
    if (!cells_.is_none()) {
      if (groups_) throw py::value_error("a metapath takes no weights");
      const int64_t words = sources.size * static_cast<int64_t>(sizeof(WalkCell<N>) / sizeof(N));
      cells_at_ = read<const N>(cells_, "cells", words).data;
    }
    if (!sorted_.is_none()) sorted_at_ = read<const N>(sorted_, "sorted", sources.size).data;
    read_ = ListBytes(offsets.data, offsets.size, sources.data, sources.size);
    read_.add(static_cast<const N*>(sorted_at_), sources.size);
  }

  const py::object indptr_, indices_, sorted_, cells_;
  const int64_t groups_;
  const Place place_;
  bool wide_edges_ = false, wide_nodes_ = false;
  int64_t num_nodes_ = 0, num_edges_ = 0;
  std::atomic<uint64_t*> filter_{nullptr};
  std::atomic<const uint8_t*> copies_{nullptr};
  const void* most_ = nullptr;  // written before copies_
  const void *indptr_at_ = nullptr, *indices_at_ = nullptr, *sorted_at_ = nullptr, *cells_at_ = nullptr;
  ListBytes read_;
};

}  // namespace loader
