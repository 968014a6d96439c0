// The sampling of trees, all hops of all trees in one launch. A block samples a tree at a time:
//
//   rows   what each row sees of its list, how many it picks, and where these picks begin
//   picks  a thread or a warp a row; the vertices go into a table of the tree
//   order  the new vertices of the hop are sorted and numbered
//
// with barriers of the block only. If every pick is a vertex, there is no table, and all trees finish a hop
// before one begins the next. Then prefix sums over the trees tell where everything goes, and each tree is
// copied there.
#pragma once

#include "sampler/cuda/device_pick.cuh"
#include "sampler/cuda/space.cuh"
#include "sampler/cuda/trees.h"

namespace loader {

template <int K, typename Lists>
__device__ __forceinline__ uint32_t pick_row(const LastChoice&, const Lists& /*lists*/,
                                             typename Lists::Edge /*begin*/, uint32_t degree,
                                             const Draws& /*draws*/, uint32_t fanout, uint32_t (&t)[K]) {
  const uint32_t count = min(degree, fanout);
#pragma unroll
  for (int i = 0; i < K; ++i) t[i] = degree - count + i;
  return count;
}

template <typename Lists>
__device__ __forceinline__ void pick_row_by_warp(const LastChoice&, const Lists& /*lists*/,
                                                 typename Lists::Edge /*begin*/, uint32_t degree,
                                                 const Draws& /*draws*/, uint32_t count, uint32_t* out) {
  for (uint32_t i = threadIdx.x % 32; i < count; i += 32) out[i] = degree - count + i;
  __syncwarp();
}

// One mini-batch of a launch, for its thread blocks.
template <typename ArgsOf>
struct Trees {
  using Args = ArgsOf;
  using P = typename Args::P;
  using N = typename Args::N;
  using Key = typename Args::Key;

  // Of a block, in shared memory.
  struct Shared {
    // Of the vertices that the hop before found in a tree: where those of each type begin, their rows and the
    // picks of these.
    uint32_t vertex_at[kMaxTypes + 1], row_at[kMaxTypes + 1], pick_at[kMaxTypes + 1];
    uint64_t sums[kTreeWarps];
    int64_t ticket;
    uint32_t taken, fresh;
    bool good;
    // Of all vertices of a tree: the first number of a hop and type, and its place in the mini-batch.
    uint32_t number_at[(kMaxHops + 1) * kMaxTypes + 1], place_at[(kMaxHops + 1) * kMaxTypes + 1];
    uint32_t first_row[kMaxTypes];  // of a type, among the rows of a hop
  };

  // The table of a tree, and room for its new vertices.
  struct Table {
    Key* keys;
    uint32_t* numbers;
    uint32_t mask;
    N* sorted;
    uint32_t* sorted_places;
  };

  const Args& args;
  const int slot, block, blocks;
  Shared& shared;
  unsigned char* const memory;  // dynamic shared memory

  __device__ const TreeBatch& batch() const { return args.batches[slot]; }
  __device__ TreeState& state() const { return args.state[slot]; }
  __device__ int64_t trees() const { return batch().num_seeds; }
  __device__ int types() const { return args.lists.num_types; }
  __device__ int thread() const { return static_cast<int>(threadIdx.x); }
  __device__ const N* seeds() const { return static_cast<const N*>(batch().seeds); }

  __device__ uint32_t& by_tree(uint32_t* array, int hop, int64_t tree) const {
    return array[(int64_t{slot} * (args.hops + 1) + hop) * args.trees_capacity + tree];
  }
  // Entry `entry` of the arrays by hop, type and tree.
  __device__ uint32_t* by_type(uint32_t* array) const {
    return array + int64_t{slot} * ((args.hops + 1) * types() * args.trees_capacity + 1);
  }
  __device__ int64_t entry(int hop, int type, int64_t tree) const {
    return (int64_t{hop} * types() + type) * trees() + tree;
  }
  __device__ N* vertices() const { return args.vertices + slot * args.vertices_capacity; }
  __device__ Bound* vertex_bounds() const { return args.vertex_bounds + slot * args.vertices_capacity; }
  __device__ int64_t row_number(uint32_t row) const { return slot * args.rows_capacity + row; }
  __device__ int64_t pick_number(uint32_t pick) const { return slot * args.picks_capacity + pick; }
  __device__ int fanout(uint32_t relation, int hop) const {
    return args.relation_fanouts[(hop - 1) * args.num_relations + static_cast<int>(relation)];
  }

  __device__ void fail(SampleStatus status, int64_t detail) const {
    auto* const word = reinterpret_cast<unsigned long long*>(&state().error);
    const unsigned long long mine = batch().sequence << 8 | static_cast<unsigned long long>(status);
    unsigned long long before = *reinterpret_cast<volatile unsigned long long*>(word);
    while (before >> 8 != batch().sequence) {
      const unsigned long long seen = atomicCAS(word, before, mine);
      if (seen == before) {
        state().header.detail = detail;
        return;
      }
      before = seen;
    }
  }
  __device__ SampleStatus status() const {
    const uint64_t error = *reinterpret_cast<volatile uint64_t*>(&state().error);
    return error >> 8 == batch().sequence ? static_cast<SampleStatus>(error & 0xFF) : SampleStatus::kOk;
  }

  // Exclusive prefix over the threads of the block; `total` receives the sum. All threads call it.
  __device__ uint64_t exclusive(uint64_t x, uint64_t& total) const {
    const int lane = thread() % 32, warp = thread() / 32;
    uint64_t sum = x;
    for (int offset = 1; offset < 32; offset *= 2) {
      const uint64_t below = __shfl_up_sync(kFullMask, sum, offset);
      if (lane >= offset) sum += below;
    }
    if (lane == 31) shared.sums[warp] = sum;
    __syncthreads();
    uint64_t before = 0;
    total = 0;
    for (int w = 0; w < kTreeWarps; ++w) {
      if (w < warp) before += shared.sums[w];
      total += shared.sums[w];
    }
    __syncthreads();  // `sums` may be used again
    return before + sum - x;
  }

  // Takes room for `count` entries of an array. False where there is none: the counter says how much it
  // takes. All threads get the answer, in shared.taken.
  __device__ bool take(SampleState::Counter& counter, uint64_t count, int64_t capacity) const {
    __syncthreads();
    if (thread() == 0) {
      const unsigned long long at = atomicAdd(&counter.value, static_cast<unsigned long long>(count));
      shared.good = at + count <= static_cast<uint64_t>(capacity);
      shared.taken = static_cast<uint32_t>(at);
      if (!shared.good) fail(SampleStatus::kOverflow, 0);
    }
    __syncthreads();
    return shared.good;
  }

  // Calls f(tree) for trees that no other block takes. All threads.
  template <typename F>
  __device__ void each_tree(int ticket, const F& f) const {
    for (;;) {
      __syncthreads();
      if (thread() == 0)
        shared.ticket = static_cast<int64_t>(atomicAdd(&state().tickets.of_hop[ticket], 1ull));
      __syncthreads();
      const int64_t tree = shared.ticket;
      if (tree >= trees()) return;
      f(tree);
    }
  }

  // The last of the entries at[0..count), ascending from 0 on, that is no larger than `x`; empty ones are
  // passed over.
  __device__ static int last_before(const uint32_t* at, int count, uint32_t x) {
    int low = 0, high = count;  // it is in [low, high)
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      if (at[middle] <= x)
        low = middle;
      else
        high = middle;
    }
    return low;
  }

  // The seed as what hop 0 found. False if it is none.
  __device__ bool begin_tree(int64_t tree) const {
    const int64_t v = seeds()[tree];
    const bool good = v >= 0 && v < args.num_nodes;
    const int type = good ? args.lists.type_of(v) : 0;
    if (thread() == 0) {
      if (!good) fail(SampleStatus::kSeedRange, v);
      if (good && tree > 0) {
        const int64_t before = seeds()[tree - 1];
        if (before >= 0 && before < args.num_nodes && args.lists.type_of(before) > type)
          fail(SampleStatus::kSeedOrder, v);
      }
      vertices()[tree] = static_cast<N>(v);
      if (args.bounds.of_edge) vertex_bounds()[tree] = batch().bounds[tree];
      by_tree(args.vertices_at, 0, tree) = static_cast<uint32_t>(tree);
      by_tree(args.vertices_count, 0, tree) = good;
    }
    for (int t = thread(); t < types(); t += kTreeBlock)
      by_type(args.found)[entry(0, t, tree)] = good && t == type;
    if (!good) find_nothing(tree, 1);
    __syncthreads();
    return good;
  }

  // What the hop before found in a tree, by type. Returns the number of its rows.
  __device__ uint32_t read_types(int64_t tree, int hop) const {
    __syncthreads();
    for (int t = thread(); t < types(); t += kTreeBlock)
      shared.vertex_at[t] = by_type(args.found)[entry(hop - 1, t, tree)];
    __syncthreads();
    if (thread() == 0) {
      uint32_t vertices = 0, rows = 0;
      for (int t = 0; t <= types(); ++t) {
        const uint32_t count = t < types() ? shared.vertex_at[t] : 0;
        shared.vertex_at[t] = vertices;
        shared.row_at[t] = rows;
        vertices += count;
        if (t < types()) rows += count * static_cast<uint32_t>(args.lists.types[t].relations);
      }
    }
    __syncthreads();
    return shared.row_at[types()];
  }

  struct RowOf {
    TreeRow row;
    uint32_t vertex;  // among those that the hop before found in the tree
    Bound bound;
  };

  // Row `number` of those that `read_types` counted.
  __device__ RowOf row_of(int64_t tree, int hop, uint32_t number) const {
    const int t = last_before(shared.row_at, types(), number);
    const VertexType& type = args.lists.types[t];
    const auto relations = static_cast<uint32_t>(type.relations);
    const uint32_t k = number - shared.row_at[t], of_type = k / relations, slot_of = k - of_type * relations;
    const uint32_t vertex = shared.vertex_at[t] + of_type;
    const uint32_t at = by_tree(args.vertices_at, hop - 1, tree) + vertex;
    const int64_t v = vertices()[at];
    uint64_t lane = tree_lane(tree, v);
    if (args.paths) {
      const uint32_t* const places = by_type(args.found_at);
      lane = hop == 1 ? static_cast<uint64_t>(tree)
                      : places[entry(hop - 1, t, tree)] + of_type - places[entry(hop - 1, 0, 0)];
    }
    const Bound bound = args.bounds.of_edge ? vertex_bounds()[at]
                        : batch().bounds    ? batch().bounds[tree]
                                            : Bound{0, 0};
    return {{type.row(v, slot_of), lane}, vertex, bound};
  }

  // Samples a hop of a tree that has `known` vertices. False where there is no room.
  template <int K>
  __device__ bool sample_hop(int64_t tree, int hop, uint32_t known) const {
    const uint32_t rows = read_types(tree, hop);
    bool good = take(state().rows, rows, args.rows_capacity);
    const uint32_t first_row = shared.taken;
    uint64_t edges = 0;
    if (good) {
      edges = see_rows(tree, hop, rows, first_row);
      if (thread() == 0) by_tree(args.rows_at, hop - 1, tree) = first_row;
      good = take(state().picks, edges, args.picks_capacity);
    }
    const auto count = static_cast<uint32_t>(edges);
    const uint32_t first_pick = shared.taken;
    if (good && thread() == 0) {
      by_tree(args.picks_at, hop - 1, tree) = first_pick;
      by_tree(args.picks_count, hop - 1, tree) = count;
    }
    if (good)
      good = args.paths ? grow_paths<K>(tree, hop, known, rows, first_row, count, first_pick)
                        : grow_unique<K>(tree, hop, known, rows, first_row, count, first_pick);
    if (!good) find_nothing(tree, hop);
    __syncthreads();
    return good;
  }

  __device__ void find_nothing(int64_t tree, int hop) const {
    for (int t = thread(); t < types(); t += kTreeBlock) by_type(args.found)[entry(hop, t, tree)] = 0;
    if (thread() == 0) by_tree(args.vertices_count, hop, tree) = 0;
  }

  // Makes the rows; returns how many picks they have.
  __device__ uint64_t see_rows(int64_t tree, int hop, uint32_t rows, uint32_t first_row) const {
    uint64_t edges = 0;
    for (uint32_t begin = 0; begin < rows; begin += kTreeBlock) {
      const uint32_t number = begin + thread();
      uint64_t count = 0;
      ListOf<P> seen{0, 0};
      if (number < rows) {
        const RowOf own = row_of(tree, hop, number);
        const int most = fanout(own.row.relation, hop);
        if (most != 0) seen = args.lists.list(own.row, own.bound);
        count = static_cast<uint64_t>(args.choice.count(seen.end - seen.begin, most));
      }
      uint64_t sum;
      const uint64_t before = exclusive(count, sum);
      if (number < rows) {
        const int64_t at = row_number(first_row + number);
        args.row_begin[at] = seen.begin;
        args.row_degree[at] = seen.degree();
        args.row_first[at] = static_cast<uint32_t>(edges + before);
      }
      edges += sum;
    }
    __syncthreads();
    for (int t = thread(); t <= types(); t += kTreeBlock)
      shared.pick_at[t] = shared.row_at[t] < rows ? args.row_first[row_number(first_row + shared.row_at[t])]
                                                  : static_cast<uint32_t>(edges);
    __syncthreads();
    for (int t = thread(); t < types(); t += kTreeBlock)
      by_type(args.edges)[entry(hop - 1, t, tree)] = shared.pick_at[t + 1] - shared.pick_at[t];
    return edges;
  }

  // Calls put(pick, place, row) with each pick of the rows: its number, and its place in the lists.
  template <int K, typename Put>
  __device__ void pick_rows(int64_t tree, int hop, uint32_t rows, uint32_t first_row, uint32_t edges,
                            const Put& put) const {
    const uint64_t key = batch().key;
    if constexpr (K != kWide) {
      for (uint32_t number = thread(); number < rows; number += kTreeBlock) {
        const int64_t at = row_number(first_row + number);
        const uint32_t degree = args.row_degree[at];
        if (degree == 0) continue;
        const RowOf own = row_of(tree, hop, number);
        const P begin = args.row_begin[at];
        const auto most = static_cast<uint32_t>(fanout(own.row.relation, hop));
        uint32_t t[K];
        const uint32_t count =
            pick_row<K>(args.choice, args.lists, begin, degree, draws_of(key, own.row, hop), most, t);
        const uint32_t first = args.row_first[at];
#pragma unroll
        for (int i = 0; i < K; ++i)
          if (i < static_cast<int>(count)) put(first + i, begin + static_cast<P>(t[i]), own);
      }
    } else {
      // Lists that are taken whole, a thread an entry; then a warp a row of the others.
      const uint32_t* const firsts = args.row_first + row_number(first_row);
      for (uint32_t pick = thread(); pick < edges; pick += kTreeBlock) {
        const auto number = static_cast<uint32_t>(last_before(firsts, static_cast<int>(rows), pick));
        const int64_t at = row_number(first_row + number);
        const RowOf own = row_of(tree, hop, number);
        if (args.choice.whole(args.row_degree[at], fanout(own.row.relation, hop)))
          put(pick, args.row_begin[at] + static_cast<P>(pick - args.row_first[at]), own);
      }
      uint32_t* const stage = reinterpret_cast<uint32_t*>(memory) + thread() / 32 * args.widest;
      for (uint32_t number = thread() / 32; number < rows; number += kTreeWarps) {
        const int64_t at = row_number(first_row + number);
        const uint32_t degree = args.row_degree[at];
        if (degree == 0) continue;
        const RowOf own = row_of(tree, hop, number);
        const int most = fanout(own.row.relation, hop);
        if (args.choice.whole(degree, most)) continue;
        const auto count = static_cast<uint32_t>(args.choice.count(degree, most));
        const P begin = args.row_begin[at];
        pick_row_by_warp(args.choice, args.lists, begin, degree, draws_of(key, own.row, hop), count, stage);
        for (uint32_t i = thread() % 32; i < count; i += 32)
          put(args.row_first[at] + i, begin + static_cast<P>(stage[i]), own);
        __syncwarp();
      }
    }
    __syncthreads();
  }

  template <int K>
  __device__ bool grow_paths(int64_t tree, int hop, uint32_t known, uint32_t rows, uint32_t first_row,
                             uint32_t edges, uint32_t first_pick) const {
    if (!take(state().vertices, edges, args.vertices_capacity - trees())) return false;
    const uint32_t first = static_cast<uint32_t>(trees()) + shared.taken;
    pick_rows<K>(tree, hop, rows, first_row, edges, [&](uint32_t pick, P place, const RowOf& own) {
      const int64_t at = pick_number(first_pick + pick);
      args.places[at] = place;
      args.sources[at] = args.lists.read(place);
      if (args.bounds.of_edge)
        args.pick_bounds[at] = args.lists.has_times(own.row.relation)
                                   ? args.bounds.after(own.bound, load(args.lists.ranks + place))
                                   : own.bound;
    });
    uint32_t found = 0;
    for (int t = 0; t < types(); ++t) {
      const int64_t low = args.lists.types[t].first;
      const int64_t high = t + 1 < types() ? args.lists.types[t + 1].first : args.num_nodes;
      const uint32_t before = found;
      for (uint32_t begin = 0; begin < edges; begin += kTreeBlock) {
        const uint32_t pick = begin + thread();
        const int64_t at = pick_number(first_pick + pick);
        const int64_t v = pick < edges ? int64_t{args.sources[at]} : -1;
        const bool mine = v >= low && v < high;
        uint64_t sum;
        const uint32_t number = found + static_cast<uint32_t>(exclusive(mine, sum));
        if (mine) {
          vertices()[first + number] = static_cast<N>(v);
          if (args.bounds.of_edge) vertex_bounds()[first + number] = args.pick_bounds[at];
          args.picks[at] = known + number;
        }
        found += static_cast<uint32_t>(sum);
      }
      if (thread() == 0) by_type(args.found)[entry(hop, t, tree)] = found - before;
    }
    if (thread() == 0) {
      by_tree(args.vertices_at, hop, tree) = first;
      by_tree(args.vertices_count, hop, tree) = edges;
    }
    return true;
  }

  __device__ static uint32_t power_of_two(uint64_t least) {
    uint32_t size = 64;
    while (size < least) size *= 2;
    return size;
  }

  // An empty table for `most` vertices, of which `edges` may be new. False where there is no room.
  __device__ bool make_table(uint64_t most, uint32_t edges, Table& table) const {
    if (most > static_cast<uint64_t>(kMostTreePlaces) / 2) {
      if (thread() == 0) atomicMax(&state().table.value, static_cast<unsigned long long>(4 * most));
      if (thread() == 0) fail(SampleStatus::kOverflow, 0);
      return false;
    }
    uint32_t places = power_of_two(2 * most);
    const uint32_t sorted = power_of_two(edges);
    const int64_t mine = (int64_t{slot} * blocks + block) * args.table_capacity;
    auto* const keys = reinterpret_cast<Key*>(memory + tree_stage_bytes(args.widest));
    auto* const ids = reinterpret_cast<N*>(keys + args.shared_places);
    auto* const numbers = reinterpret_cast<uint32_t*>(ids + args.shared_sorted);
    table.keys = keys;
    table.numbers = numbers;
    table.sorted = ids;
    table.sorted_places = numbers + args.shared_places;
    const bool far = places > static_cast<uint32_t>(args.shared_places);
    const bool far_order = sorted > static_cast<uint32_t>(args.shared_sorted);
    const uint32_t needed = max(far ? places : 0, far_order ? 2 * sorted : 0);
    if (needed > args.table_capacity) {
      if (thread() == 0) atomicMax(&state().table.value, static_cast<unsigned long long>(needed));
      if (thread() == 0) fail(SampleStatus::kOverflow, 0);
      return false;
    }
    if (far) {
      table.keys = args.keys + mine;
      table.numbers = args.numbers + mine;
    }
    if (far_order) {
      table.sorted = args.sorted + mine / 2;
      table.sorted_places = args.sorted_places + mine / 2;
    }
    table.mask = places - 1;
    for (uint32_t i = thread(); i < places; i += kTreeBlock) table.keys[i] = 0;
    if (thread() == 0) shared.fresh = 0;
    __syncthreads();
    return true;
  }

  __device__ static uint32_t home(N v) {  // MurmurHash3's fmix, see hash_set.cuh
    auto x = static_cast<Key>(v);
    if constexpr (sizeof(N) == 4) {
      x = (x ^ x >> 16) * 0x85EBCA6Bu;
      x = (x ^ x >> 13) * 0xC2B2AE35u;
      x ^= x >> 16;
    } else {
      x = (x ^ x >> 33) * 0xFF51AFD7ED558CCDull;
      x = (x ^ x >> 33) * 0xC4CEB9FE1A85EC53ull;
      x ^= x >> 33;
    }
    return static_cast<uint32_t>(x);
  }

  // The place of a vertex in the table, which is at most half full; whether it was not there.
  __device__ static uint32_t insert(const Table& table, N v, bool& fresh) {
    const Key key = static_cast<Key>(v) + 1;
    for (uint32_t at = home(v) & table.mask;; at = (at + 1) & table.mask) {
      Key there = *const_cast<volatile Key*>(table.keys + at);
      if (there == 0) there = atomicCAS(table.keys + at, Key{0}, key);
      fresh = there == 0;
      if (fresh || there == key) return at;
    }
  }

  template <int K>
  __device__ bool grow_unique(int64_t tree, int hop, uint32_t known, uint32_t rows, uint32_t first_row,
                              uint32_t edges, uint32_t first_pick) const {
    Table table;
    if (!make_table(uint64_t{known} + edges, edges, table)) return false;
    uint32_t number = 0;
    for (int h = 0; h < hop; ++h) {
      const uint32_t first = by_tree(args.vertices_at, h, tree);
      const uint32_t count = by_tree(args.vertices_count, h, tree);
      for (uint32_t i = thread(); i < count; i += kTreeBlock) {
        bool fresh;
        table.numbers[insert(table, vertices()[first + i], fresh)] = number + i;
      }
      number += count;
    }
    __syncthreads();
    pick_rows<K>(tree, hop, rows, first_row, edges, [&](uint32_t pick, P place, const RowOf&) {
      const int64_t at = pick_number(first_pick + pick);
      const N v = args.lists.read(place);
      bool fresh;
      const uint32_t in_table = insert(table, v, fresh);
      if (fresh) {
        const uint32_t to = atomicAdd(&shared.fresh, 1u);
        table.sorted[to] = v;
        table.sorted_places[to] = in_table;
      }
      args.places[at] = place;
      args.picks[at] = in_table;
    });
    const uint32_t found = shared.fresh;
    sort(table, found);
    if (!take(state().vertices, found, args.vertices_capacity - trees())) return false;
    const uint32_t first = static_cast<uint32_t>(trees()) + shared.taken;
    for (uint32_t i = thread(); i < found; i += kTreeBlock) {
      vertices()[first + i] = table.sorted[i];
      table.numbers[table.sorted_places[i]] = known + i;
    }
    for (int t = thread(); t < types(); t += kTreeBlock) {
      const int64_t high = t + 1 < types() ? args.lists.types[t + 1].first : args.num_nodes;
      by_type(args.found)[entry(hop, t, tree)] =
          first_from(table.sorted, found, high) - first_from(table.sorted, found, args.lists.types[t].first);
    }
    if (thread() == 0) {
      by_tree(args.vertices_at, hop, tree) = first;
      by_tree(args.vertices_count, hop, tree) = found;
    }
    __syncthreads();
    for (uint32_t pick = thread(); pick < edges; pick += kTreeBlock) {
      uint32_t& of_pick = args.picks[pick_number(first_pick + pick)];
      of_pick = table.numbers[of_pick];
    }
    return true;
  }

  // How many of the ascending ids[0..count) are smaller than `id`.
  __device__ static uint32_t first_from(const N* ids, uint32_t count, int64_t id) {
    uint32_t low = 0, high = count;
    while (low < high) {
      const uint32_t middle = (low + high) / 2;
      if (ids[middle] < id)
        low = middle + 1;
      else
        high = middle;
    }
    return low;
  }

  // Sorts the new vertices by id: bitonic (Batcher, AFIPS 1968), in shared memory if they fit.
  __device__ void sort(Table& table, uint32_t count) const {
    uint32_t size = 1;
    while (size < count) size *= 2;
    auto* const ids = reinterpret_cast<N*>(reinterpret_cast<Key*>(memory + tree_stage_bytes(args.widest)) +
                                           args.shared_places);
    if (table.sorted != ids && size <= static_cast<uint32_t>(args.shared_sorted)) {
      auto* const places = reinterpret_cast<uint32_t*>(ids + args.shared_sorted) + args.shared_places;
      for (uint32_t i = thread(); i < count; i += kTreeBlock) {
        ids[i] = table.sorted[i];
        places[i] = table.sorted_places[i];
      }
      table.sorted = ids;
      table.sorted_places = places;
    }
    constexpr N kLast = static_cast<N>(~(Key{1} << (8 * sizeof(N) - 1)));  // behind all ids
    for (uint32_t i = count + thread(); i < size; i += kTreeBlock) table.sorted[i] = kLast;
    __syncthreads();
    for (uint32_t width = 2; width <= size; width *= 2)
      for (uint32_t step = width / 2; step > 0; step /= 2) {
        for (uint32_t i = thread(); i < size / 2; i += kTreeBlock) {
          const uint32_t a = (i & ~(step - 1)) * 2 | (i & (step - 1)), b = a + step;
          const N left = table.sorted[a], right = table.sorted[b];
          if ((left > right) == ((a & width) == 0) && left != right) {
            table.sorted[a] = right;
            table.sorted[b] = left;
            const uint32_t place = table.sorted_places[a];
            table.sorted_places[a] = table.sorted_places[b];
            table.sorted_places[b] = place;
          }
        }
        __syncthreads();
      }
  }

  // Prefix sums: at[i] becomes `carry` and the sum of counts[begin..i). The end is written, too.
  struct Sums {
    const uint32_t* counts;
    uint32_t* at;
    int64_t begin, end;
    uint64_t carry;
  };

  // The same of some arrays at once; two barriers. All blocks.
  template <int Count, typename Sync>
  __device__ void add_up(Sums (&sums)[Count], const Sync& sync) const {
    static_assert(Count <= 2, "see TreeArgs::totals");
    auto* const totals = args.totals + int64_t{slot} * 2 * kMostTreeBlocks;
    for (int s = 0; s < Count; ++s) {
      const Share mine = share(sums[s].end - sums[s].begin, blocks, block);
      uint64_t sum = 0, total;
      for (int64_t i = mine.begin + thread(); i < mine.end; i += kTreeBlock)
        sum += sums[s].counts[sums[s].begin + i];
      exclusive(sum, total);
      if (thread() == 0) totals[s * kMostTreeBlocks + block] = total;
    }
    sync();
    for (int s = 0; s < Count; ++s) {
      uint64_t before = 0, all = 0;
      for (int b = thread(); b < blocks; b += kTreeBlock) {
        const uint64_t of_block = totals[s * kMostTreeBlocks + b];
        all += of_block;
        if (b < block) before += of_block;
      }
      uint64_t total, at;
      exclusive(before, at);
      exclusive(all, total);
      at += sums[s].carry;
      const Share mine = share(sums[s].end - sums[s].begin, blocks, block);
      for (int64_t first = mine.begin; first < mine.end; first += kTreeBlock) {
        const int64_t i = sums[s].begin + first + thread();
        const bool valid = first + thread() < mine.end;
        uint64_t sum;
        const uint64_t within = exclusive(valid ? sums[s].counts[i] : 0, sum);
        if (valid) sums[s].at[i] = static_cast<uint32_t>(at + within);
        at += sum;
      }
      sums[s].carry += total;
      if (block == 0 && thread() == 0) sums[s].at[sums[s].end] = static_cast<uint32_t>(sums[s].carry);
    }
    sync();
  }

  __device__ uint32_t begin_of(uint32_t* array, int hop, int type) const {
    return by_type(array)[entry(hop, type, 0)];
  }

  __device__ int64_t rows_of(int hop) const {
    int64_t rows = 0;
    for (int t = 0; t < types(); ++t)
      rows += int64_t{begin_of(args.found_at, hop - 1, t + 1) - begin_of(args.found_at, hop - 1, t)} *
              args.lists.types[t].relations;
    return rows;
  }

  // Whether the outputs hold it; the host is told the sizes. All threads of a block get the answer.
  __device__ bool tell() const {
    const bool sampled = status() == SampleStatus::kOk;
    bool fits = sampled;
    if (sampled) {
      for (int h = 0; h <= args.hops; ++h)
        fits = fits && begin_of(args.found_at, h, types()) <= args.frontier_capacity[h];
      for (int h = 1; h <= args.hops; ++h)
        fits = fits && rows_of(h) <= args.row_capacity[h - 1] &&
               begin_of(args.edges_at, h - 1, types()) - begin_of(args.edges_at, h - 1, 0) <=
                   args.edge_capacity[h - 1];
    }
    if (block != 0) return fits;
    if (sampled) {
      auto* const host = static_cast<TypedHeader*>(batch().host_header)->new_by_type;
      for (int i = thread(); i < (args.hops + 1) * types(); i += kTreeBlock) {
        const int h = i / types(), t = i % types();
        host[h * kMaxTypes + t] = begin_of(args.found_at, h, t + 1) - begin_of(args.found_at, h, t);
      }
      __threadfence_system();
    }
    __syncthreads();
    if (thread() == 0) {
      SampleHeader& header = state().header;
      const uint64_t picks = state().picks.value, rows = state().rows.value;
      for (int h = 0; h <= args.hops; ++h)
        header.frontiers[h] = sampled ? int64_t{begin_of(args.found_at, h, types())} : trees();
      for (int h = 1; h <= args.hops; ++h)
        header.edges[h - 1] =
            sampled ? int64_t{begin_of(args.edges_at, h - 1, types())} - begin_of(args.edges_at, h - 1, 0)
                    : -1;
      header.hops_done = sampled ? args.hops : 0;
      header.tasks = static_cast<int64_t>(picks);
      if (sampled && !fits) fail(SampleStatus::kOverflow, 0);
      if (status() == SampleStatus::kOverflow) header.detail = static_cast<int64_t>(state().table.value);
      hand_over(header, batch().host_header, args.hops, status(), static_cast<int64_t>(rows),
                batch().sequence);
    }
    return fits;
  }

  // Leaves the counters as the next launch wants them. One thread, once nobody counts any more.
  __device__ void reset() const {
    TreeState& own = state();
    own.vertices.value = own.rows.value = own.picks.value = own.table.value = 0;
    for (int hop = 0; hop < kMaxHops; ++hop) own.tickets.of_hop[hop] = 0;
    own.tickets.value = 0;
  }

  // Copies the trees to where they go.
  __device__ void write() const {
    if (block == 0)
      for (int hop = 1 + thread(); hop <= args.hops; hop += kTreeBlock)
        indptr(hop)[rows_of(hop)] =
            static_cast<P>(begin_of(args.edges_at, hop - 1, types()) - begin_of(args.edges_at, hop - 1, 0));
    for (int64_t tree = block; tree < trees(); tree += blocks) write_tree(tree);
  }

  __device__ P* indptr(int hop) const { return static_cast<P*>(batch().edges) + args.indptr_at[hop - 1]; }

  __device__ void write_tree(int64_t tree) const {
    const int segments = (args.hops + 1) * types();
    __syncthreads();
    for (int i = thread(); i < segments; i += kTreeBlock) {
      const int64_t at = entry(i / types(), i % types(), tree);
      shared.number_at[i] = by_type(args.found)[at];
      shared.place_at[i] = by_type(args.found_at)[at];
    }
    __syncthreads();
    if (thread() == 0) {
      uint32_t sum = 0;
      for (int i = 0; i < segments; ++i) {
        const uint32_t count = shared.number_at[i];
        shared.number_at[i] = sum;
        sum += count;
      }
      shared.number_at[segments] = sum;
    }
    __syncthreads();
    const auto place_of = [&](uint32_t number) {
      const int i = last_before(shared.number_at, segments, number);
      return shared.place_at[i] + (number - shared.number_at[i]);
    };
    N* const nodes = static_cast<N*>(batch().vertices);
    for (int h = 0; h <= args.hops; ++h) {
      const uint32_t first = shared.number_at[h * types()], end = shared.number_at[(h + 1) * types()];
      const uint32_t at = by_tree(args.vertices_at, h, tree);
      for (uint32_t i = thread(); i < end - first; i += kTreeBlock) {
        const uint32_t place = place_of(first + i);
        nodes[place] = vertices()[at + i];
        batch().trees[place] = static_cast<int32_t>(tree);
      }
    }
    for (int hop = 1; hop <= args.hops; ++hop) write_hop(tree, hop, place_of);
  }

  template <typename PlaceOf>
  __device__ void write_hop(int64_t tree, int hop, const PlaceOf& place_of) const {
    const uint32_t rows = read_types(tree, hop), first_row = by_tree(args.rows_at, hop - 1, tree);
    const uint32_t edges = by_tree(args.picks_count, hop - 1, tree);
    const uint32_t first_pick = by_tree(args.picks_at, hop - 1, tree);
    const uint32_t* const firsts = args.row_first + row_number(first_row);
    // Where the rows of each type begin in the block, and the edges of this tree's.
    if (thread() == 0) {
      uint32_t before = 0;
      for (int t = 0; t < types(); ++t) {
        const auto relations = static_cast<uint32_t>(args.lists.types[t].relations);
        const uint32_t first = begin_of(args.found_at, hop - 1, t),
                       end = begin_of(args.found_at, hop - 1, t + 1);
        shared.first_row[t] = before + (by_type(args.found_at)[entry(hop - 1, t, tree)] - first) * relations;
        before += (end - first) * relations;
      }
    }
    for (int t = thread(); t < types(); t += kTreeBlock)
      shared.pick_at[t] = shared.row_at[t] < rows ? firsts[shared.row_at[t]] : edges;
    __syncthreads();
    const uint32_t hop_first = begin_of(args.edges_at, hop - 1, 0);
    const uint32_t* const of_type = by_type(args.edges_at) + entry(hop - 1, 0, tree);
    const int64_t stride = trees();
    for (uint32_t i = thread(); i < rows; i += kTreeBlock) {
      const int t = last_before(shared.row_at, types(), i);
      indptr(hop)[shared.first_row[t] + (i - shared.row_at[t])] =
          static_cast<P>(of_type[t * stride] - hop_first + (firsts[i] - shared.pick_at[t]));
    }
    N* const indices = static_cast<N*>(batch().vertices) + args.indices_at[hop - 1];
    P* const ids = args.edge_ids ? static_cast<P*>(batch().edges) + args.edge_ids_at[hop - 1] : nullptr;
    for (uint32_t i = thread(); i < edges; i += kTreeBlock) {
      const int t = last_before(shared.pick_at, types(), i);
      const int64_t to = int64_t{of_type[t * stride] - hop_first} + (i - shared.pick_at[t]);
      const int64_t at = pick_number(first_pick + i);
      indices[to] = static_cast<N>(place_of(args.picks[at]));
      if (ids) ids[to] = args.places[at];
    }
  }
};

template <int K, typename Args>
__device__ void run_trees(const Trees<Args>& trees) {
  const auto sync = [&] { group_barrier(&trees.state().barrier.value, trees.block, trees.blocks); };
  const auto& args = trees.args;
  using Sums = typename Trees<Args>::Sums;
  const auto of_hops = [&](int first, int last) {
    return Sums{trees.by_type(args.found), trees.by_type(args.found_at), trees.entry(first, 0, 0),
                trees.entry(last, 0, 0), 0};
  };
  Sums sums[2] = {
      of_hops(0, args.hops + 1),
      {trees.by_type(args.edges), trees.by_type(args.edges_at), 0, trees.entry(args.hops, 0, 0), 0}};
  if (args.paths) {
    uint64_t found = static_cast<uint64_t>(trees.trees());
    trees.each_tree(0, [&](int64_t tree) {
      if (trees.begin_tree(tree)) trees.template sample_hop<K>(tree, 1, 1);
    });
    for (int hop = 2; hop <= args.hops; ++hop) {
      sync();
      Sums before[1] = {of_hops(hop - 1, hop)};
      before[0].carry = found;
      trees.add_up(before, sync);
      found = before[0].carry;
      trees.each_tree(hop - 1, [&](int64_t tree) {
        uint32_t known = 0;
        for (int h = 0; h < hop; ++h) known += trees.by_tree(args.vertices_count, h, tree);
        trees.template sample_hop<K>(tree, hop, known);
      });
    }
  } else {
    trees.each_tree(0, [&](int64_t tree) {
      bool good = trees.begin_tree(tree);
      uint32_t known = 1;
      for (int hop = 1; good && hop <= args.hops; ++hop) {
        good = trees.template sample_hop<K>(tree, hop, known);
        known += trees.by_tree(args.vertices_count, hop, tree);
      }
    });
  }
  sync();
  trees.add_up(sums, sync);
  const bool fits = trees.tell();
  __syncthreads();
  if (trees.block == 0 && threadIdx.x == 0) trees.reset();
  if (fits) trees.write();
}

// The blocks of a launch are dealt out evenly to its mini-batches.
template <int K, typename Args>
__device__ void tree_block(const Args& args, unsigned char* memory) {
  __shared__ typename Trees<Args>::Shared shared;
  const int blocks = gridDim.x / args.num_batches, slot = blockIdx.x / blocks;
  if (slot < args.num_batches)
    run_trees<K>(Trees<Args>{args, slot, static_cast<int>(blockIdx.x % blocks), blocks, shared, memory});
}

}  // namespace loader
