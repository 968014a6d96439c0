// The vertices of a tree without repetitions: the picks of a hop go into a table of the tree in shared
// memory, or beside it if they are many; the new ones are sorted and numbered.
#pragma once

#include "count_below.cuh"
#include "sampler/cuda/collectives.cuh"
#include "sampler/cuda/mixed_bits.cuh"
#include "sampler/cuda/trees.h"

namespace loader {

template <typename Trees>
struct TreeTable {
  using N = typename Trees::N;
  using Key = typename Trees::Key;

  // The table of a tree, and room for its new vertices.
  struct Table {
    Key* keys;
    uint32_t* numbers;
    uint32_t mask;
    N* sorted;
    uint32_t* sorted_places;
  };

  const Trees& of;

  __device__ static uint32_t power_of_two(uint64_t least) {
    uint32_t size = 64;
    while (size < least) size *= 2;
    return size;
  }

  // An empty table for `most` vertices, of which `edges` may be new. False where there is no room.
  __device__ bool make_table(uint64_t most, uint32_t edges, Table& table) const {
    if (most > static_cast<uint64_t>(kMostTreePlaces) / 2) {
      if (of.thread() == 0) atomicMax(&of.state().table.value, static_cast<unsigned long long>(4 * most));
      if (of.thread() == 0) of.fail(SampleStatus::kOverflow, 0);
      return false;
    }
    uint32_t places = power_of_two(2 * most);
    const uint32_t sorted = power_of_two(edges);
    const int64_t mine = (int64_t{of.slot} * of.blocks + of.block) * of.args.table_capacity;
    auto* const keys = reinterpret_cast<Key*>(of.memory + tree_stage_bytes(of.args.widest, of.size()));
    auto* const ids = reinterpret_cast<N*>(keys + of.args.shared_places);
    auto* const numbers = reinterpret_cast<uint32_t*>(ids + of.args.shared_sorted);
    table.keys = keys;
    table.numbers = numbers;
    table.sorted = ids;
    table.sorted_places = numbers + of.args.shared_places;
    const bool far = places > static_cast<uint32_t>(of.args.shared_places);
    const bool far_order = sorted > static_cast<uint32_t>(of.args.shared_sorted);
    const uint64_t needed = max(far ? uint64_t{places} : 0, far_order ? 4 * uint64_t{sorted} : 0);
    if (needed > static_cast<uint64_t>(of.args.table_capacity)) {
      if (of.thread() == 0) atomicMax(&of.state().table.value, static_cast<unsigned long long>(needed));
      if (of.thread() == 0) of.fail(SampleStatus::kOverflow, 0);
      return false;
    }
    if (far) {
      table.keys = of.args.keys + mine;
      table.numbers = of.args.numbers + mine;
    }
    if (far_order) {
      table.sorted = of.args.sorted + mine / 2;
      table.sorted_places = of.args.sorted_places + mine / 2;
    }
    table.mask = places - 1;
    for (uint32_t i = of.thread(); i < places; i += of.size()) table.keys[i] = 0;
    if (of.thread() == 0) of.shared.fresh = 0;
    __syncthreads();
    return true;
  }

  // The place of a vertex in the table, which is at most half full; whether it was not there.
  __device__ static uint32_t insert(const Table& table, N v, bool& fresh) {
    const Key key = static_cast<Key>(v) + 1;
    for (uint32_t at = static_cast<uint32_t>(mixed_bits(static_cast<Key>(v))) & table.mask;;
         at = (at + 1) & table.mask) {
      Key there = *const_cast<volatile Key*>(table.keys + at);
      if (there == 0) there = atomicCAS(table.keys + at, Key{0}, key);
      fresh = there == 0;
      if (fresh || there == key) return at;
    }
  }

  // Makes those of the picks of a hop vertices that are not in the tree.
  __device__ bool grow_unique(int64_t tree, int hop, uint32_t known, uint32_t edges,
                              uint32_t first_pick) const {
    Table table;
    if (!make_table(uint64_t{known} + edges, edges, table)) return false;
    uint32_t before = 0;
    for (int h = 0; h < hop; ++h) {
      const uint32_t first = of.by_tree(of.args.vertices_at, h, tree);
      const uint32_t until = of.by_tree(of.args.vertices_known, h, tree);
      for (uint32_t i = of.thread(); i < until - before; i += of.size()) {
        bool fresh;
        table.numbers[insert(table, of.vertices()[first + i], fresh)] = before + i;
      }
      before = until;
    }
    __syncthreads();
    uint32_t* const picks = of.args.picks + of.pick_number(first_pick);
    const N* const sources = of.args.sources + of.pick_number(first_pick);
#pragma unroll 1
    for (uint32_t pick = of.thread(); pick < edges; pick += of.size()) {
      const N v = sources[pick];
      bool fresh;
      const uint32_t in_table = insert(table, v, fresh);
      if (fresh) {
        const uint32_t to = atomicAdd(&of.shared.fresh, 1u);
        table.sorted[to] = v;
        table.sorted_places[to] = in_table;
      }
      picks[pick] = in_table;
    }
    __syncthreads();
    const uint32_t found = of.shared.fresh;
    sort(table, found);
    if (!of.take(of.state().vertices, found, of.args.vertices_capacity - of.trees())) return false;
    const uint32_t first = static_cast<uint32_t>(of.trees()) + of.shared.taken;
    for (uint32_t i = of.thread(); i < found; i += of.size()) {
      of.vertices()[first + i] = table.sorted[i];
      table.numbers[table.sorted_places[i]] = known + i;
    }
    for (int t = of.thread(); t < of.types(); t += of.size()) {
      const int64_t high = t + 1 < of.types() ? of.args.lists.types[t + 1].first : of.args.num_nodes;
      of.counts().tell(of.of_found(hop, t), tree,
                       count_below(table.sorted, found, high) -
                           count_below(table.sorted, found, of.args.lists.types[t].first));
    }
    if (of.thread() == 0) {
      of.by_tree(of.args.vertices_at, hop, tree) = first;
      of.by_tree(of.args.vertices_known, hop, tree) = known + found;
    }
    __syncthreads();
#pragma unroll 1
    for (uint32_t pick = of.thread(); pick < edges; pick += of.size())
      picks[pick] = table.numbers[picks[pick]];
    return true;
  }

  // Sorts ids and what belongs to them, a power of two of them: bitonic (Batcher, AFIPS 1968).
  __device__ void sort_part(N* ids, uint32_t* places, uint32_t count) const {
    __syncthreads();
    for (uint32_t width = 2; width <= count; width *= 2)
      for (uint32_t step = width / 2; step > 0; step /= 2) {
        for (uint32_t i = of.thread(); i < count / 2; i += of.size()) {
          const uint32_t a = (i & ~(step - 1)) * 2 | (i & (step - 1)), b = a + step;
          const N left = ids[a], right = ids[b];
          if ((left > right) == ((a & width) == 0) && left != right) {
            ids[a] = right;
            ids[b] = left;
            const uint32_t place = places[a];
            places[a] = places[b];
            places[b] = place;
          }
        }
        __syncthreads();
      }
  }

  // Sorts the new vertices by id. What does not fit shared memory is sorted there in parts; how many of each
  // other part are smaller tells where an id goes.
  __device__ void sort(Table& table, uint32_t count) const {
    constexpr N kLast = static_cast<N>(~(Key{1} << (8 * sizeof(N) - 1)));  // behind all ids
    const auto most = static_cast<uint32_t>(of.args.shared_sorted);
    auto* const ids =
        reinterpret_cast<N*>(reinterpret_cast<Key*>(of.memory + tree_stage_bytes(of.args.widest, of.size())) +
                             of.args.shared_places);
    auto* const places = reinterpret_cast<uint32_t*>(ids + most) + of.args.shared_places;
    const bool near = table.sorted == ids;
    for (uint32_t first = 0; first < count; first += most) {
      const uint32_t mine = min(count - first, most);
      uint32_t size_of = 1;
      while (size_of < mine) size_of *= 2;
      __syncthreads();
      if (!near)
        for (uint32_t i = of.thread(); i < mine; i += of.size()) {
          ids[i] = table.sorted[first + i];
          places[i] = table.sorted_places[first + i];
        }
      for (uint32_t i = mine + of.thread(); i < size_of; i += of.size()) ids[i] = kLast;
      sort_part(ids, places, size_of);
      if (count <= most) break;
      for (uint32_t i = of.thread(); i < mine; i += of.size()) {
        table.sorted[first + i] = ids[i];
        table.sorted_places[first + i] = places[i];
      }
    }
    __syncthreads();
    if (count <= most) {
      table.sorted = ids;
      table.sorted_places = places;
      return;
    }
    N* const to = table.sorted + of.args.table_capacity / 4;
    uint32_t* const places_to = table.sorted_places + of.args.table_capacity / 4;
    for (uint32_t i = of.thread(); i < count; i += of.size()) {
      const N v = table.sorted[i];
      uint32_t rank = 0;
      for (uint32_t first = 0; first < count; first += most)
        rank += count_below(table.sorted + first, min(count - first, most), v);
      to[rank] = v;
      places_to[rank] = table.sorted_places[i];
    }
    table.sorted = to;
    table.sorted_places = places_to;
    __syncthreads();
  }
};

}  // namespace loader
