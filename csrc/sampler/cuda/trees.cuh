// The sampling of trees, all hops of all trees in one launch. A block samples a tree at a time:
//
//   rows   what each row sees of its list, how many it picks, and where these picks begin
//   picks  a thread or a warp a row; then the vertices go into a table of the tree
//   order  the new vertices of the hop are sorted and numbered
//
// with barriers of the block only. If every pick is a vertex, there is no table, and all trees finish a hop
// before one begins the next. Then the counts of all trees tell where everything goes (tree_counts.cuh), and
// each tree is copied there.
#pragma once

#include "block_sums.cuh"
#include "sampler/cuda/device_pick.cuh"
#include "sampler/cuda/tree_counts.cuh"
#include "sampler/cuda/tree_scan.cuh"
#include "sampler/cuda/tree_table.cuh"
#include "sampler/cuda/tree_write.cuh"
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

template <typename T>
struct PrefixSum {
  T before, total;
};

// Exclusive prefix over the threads of a block, by sums[warps] in shared memory. Unlike `sum_before`, it
// takes blocks of any size and is out of line: kernels have it in several places, and wait for instructions,
// of which a block executes most only once.
template <typename T>
__device__ __noinline__ PrefixSum<T> prefix_of_block(T x, T* sums) {
  const int warp = threadIdx.x / 32, warps = blockDim.x / 32;
  const T up_to = sum_up_to(x);
  if (threadIdx.x % 32 == 31) sums[warp] = up_to;
  __syncthreads();
  T before = 0, total = 0;
#pragma unroll
  for (int w = 0; w < kMostTreeWarps; ++w) {
    if (w >= warps) break;
    const T of_warp = sums[w];
    if (w < warp) before += of_warp;
    total += of_warp;
  }
  __syncthreads();  // `sums` may be used again
  return {before + up_to - x, total};
}

// Words of the sums of a mini-batch, with both copies.
template <typename Args>
__device__ int64_t tree_sums_stride(const Args& args) {
  return kSumsAt + 2 * tree_sums(args.hops, args.lists.num_types, args.groups_capacity);
}

// One mini-batch of a launch, for its thread blocks.
template <typename ArgsOf>
struct Trees {
  using Args = ArgsOf;
  using P = typename Args::P;
  using N = typename Args::N;
  using Key = typename Args::Key;
  using Lists = TimedLists<P, N>;
  static constexpr bool kScans = !Args::Choice::kCountsByDegree;

  // Of a block, in shared memory.
  struct Shared : TreeScanShared<kScans> {
    // Of the vertices that the hop before found in a tree: where those of each type begin, their rows and the
    // picks of these.
    uint32_t vertex_at[kMaxTypes + 1], row_at[kMaxTypes + 1], pick_at[kMaxTypes + 1];
    uint64_t sums[kMostTreeWarps];
    int64_t ticket;
    uint32_t taken, fresh, drawn;
    uint32_t first_vertex;  // where those that the hop before found lie
    Bound bound;            // of the tree
    bool good;
    // Of a type: the number of its first vertex of this tree among all that the hop before found.
    uint32_t number_at[kMaxTypes], of_all_trees[kMaxTypes];
    // Of the tree that is written, see TreeArgs.
    uint32_t vertices_at[kMaxHops + 1], rows_at[kMaxHops + 1], picks_at[kMaxHops + 1];
    TreeCounts counts;
  };

  const Args& args;
  const int slot, block, blocks;
  Shared& shared;
  unsigned char* const memory;  // dynamic shared memory

  static constexpr uint32_t kDrawn = 0x80000000u;  // of a degree: the row is not taken whole

  __device__ const TreeBatch& batch() const { return args.batches[slot]; }
  __device__ TreeState& state() const { return args.state[slot]; }
  __device__ int64_t trees() const { return batch().num_seeds; }
  __device__ int types() const { return args.lists.num_types; }
  __device__ int thread() const { return static_cast<int>(threadIdx.x); }
  __device__ int size() const { return static_cast<int>(blockDim.x); }
  __device__ int warps() const { return size() / 32; }
  __device__ int64_t seed(int64_t tree) const {
    return args.times.are_there ? static_cast<const int64_t*>(batch().seeds)[2 * tree]
                                : int64_t{static_cast<const N*>(batch().seeds)[tree]};
  }
  __device__ Bound* tree_bounds() const { return args.tree_bounds + product_of(slot, args.trees_capacity); }

  __device__ uint32_t& by_tree(uint32_t* array, int hop, int64_t tree) const {
    return array[product_of(slot * (args.hops + 1) + hop, args.trees_capacity) + tree];
  }
  __device__ const TreeCounts& counts() const { return shared.counts; }
  __device__ int segments() const { return (args.hops + 1) * types(); }
  __device__ int of_found(int hop, int type) const { return hop * types() + type; }
  __device__ int of_edges(int hop, int type) const { return segments() + hop * types() + type; }
  __device__ N* vertices() const { return args.vertices + product_of(slot, args.vertices_capacity); }
  __device__ Bound* vertex_bounds() const {
    return args.vertex_bounds + product_of(slot, args.vertices_capacity);
  }
  __device__ int64_t row_number(uint32_t row) const { return product_of(slot, args.rows_capacity) + row; }
  __device__ int64_t pick_number(uint32_t pick) const { return product_of(slot, args.picks_capacity) + pick; }
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
        state().detail = detail;
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
  template <typename T>
  __device__ T exclusive(T x, T& total) const {
    const auto [before, sum] = prefix_of_block(x, reinterpret_cast<T*>(shared.sums));
    total = sum;
    return before;
  }

  // Asks for room for `count` entries of an array. The first thread has the answer, on its way.
  __device__ unsigned long long ask(SampleState::Counter& counter, uint64_t count) const {
    return thread() == 0 ? atomicAdd(&counter.value, static_cast<unsigned long long>(count)) : 0;
  }
  // Whether there was room: the counter says how much it takes. All threads have the place after the next
  // barrier, in shared.taken, and in shared.good whether there is one.
  __device__ void answer(unsigned long long at, uint64_t count, int64_t capacity) const {
    if (thread() != 0) return;
    shared.good = at + count <= static_cast<uint64_t>(capacity);
    shared.taken = static_cast<uint32_t>(at);
    if (!shared.good) fail(SampleStatus::kOverflow, 0);
  }
  __device__ bool take(SampleState::Counter& counter, uint64_t count, int64_t capacity) const {
    __syncthreads();
    answer(ask(counter, count), count, capacity);
    __syncthreads();
    return shared.good;
  }

  // Calls f(tree) for trees that no other block takes: the first of each block is known. All threads.
  template <typename F>
  __device__ void each_tree(int ticket, const F& f) const {
    int64_t tree = block;
    while (tree < trees()) {
      f(tree);
      if (trees() <= blocks) return;
      __syncthreads();
      if (thread() == 0)
        shared.ticket = blocks + static_cast<int64_t>(atomicAdd(&state().tickets.of_hop[ticket], 1ull));
      __syncthreads();
      tree = shared.ticket;
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

  // How many of the distinct times are at most `time`, or earlier; by a warp.
  __device__ int32_t times_until(int64_t time, bool with_equal) const {
    return static_cast<int32_t>(first_by_warp(0, args.times.num_values, [&](int64_t at) {
      const int64_t value = load(args.times.values + at);
      return with_equal ? value <= time : value < time;
    }));
  }

  // What the tree of a seed may see. Two warps.
  __device__ void find_bound(int64_t tree) const {
    const int64_t time = static_cast<const int64_t*>(batch().seeds)[2 * tree + 1];
    const int warp = thread() / 32;
    Bound& bound = tree_bounds()[tree];
    if (warp == 0) {
      const int32_t end = times_until(time, !args.bounds.strict);
      if (thread() == 0) bound.end = end;
    } else if (warp == 1) {
      int32_t first = 0;
      if (args.times.has_window) first = times_until(args.times.since(time), true);
      if (thread() % 32 == 0) bound.first = first;
    }
  }

  // The seed as what hop 0 found. False if it is none.
  __device__ bool begin_tree(int64_t tree) const {
    const int64_t v = seed(tree), before = seed(tree > 0 ? tree - 1 : 0);  // on their way
    if (args.times.are_there) find_bound(tree);
    const bool good = v >= 0 && v < args.num_nodes;
    const int type = good ? args.lists.type_of(v) : 0;
    if (thread() == 0) {
      if (!good) fail(SampleStatus::kSeedRange, v);
      if (good && before >= 0 && before < args.num_nodes && args.lists.type_of(before) > type)
        fail(SampleStatus::kSeedOrder, v);
      vertices()[tree] = static_cast<N>(v);
      by_tree(args.vertices_at, 0, tree) = static_cast<uint32_t>(tree);
      by_tree(args.vertices_known, 0, tree) = good;
    }
    if (args.bounds.of_edge) {
      __syncthreads();
      if (thread() == 0) vertex_bounds()[tree] = tree_bounds()[tree];
    }
    for (int t = thread(); t < types(); t += size()) counts().tell(of_found(0, t), tree, good && t == type);
    if (!good) find_nothing(tree, 1, 0);
    __syncthreads();
    return good;
  }

  // What the hop before found in a tree, by type, and where these are among those of all trees if a vertex is
  // drawn for by that. Returns the number of its rows.
  __device__ uint32_t read_types(int64_t tree, int hop) const {
    const bool numbered = args.paths && hop > 1;
    __syncthreads();
    if (thread() == size() - 1) {
      shared.first_vertex = by_tree(args.vertices_at, hop - 1, tree);
      if (args.times.are_there) shared.bound = tree_bounds()[tree];
    }
    for (int t = thread(); t < types(); t += size()) {
      const int segment = of_found(hop - 1, t);
      const uint32_t count = counts().of_segment(segment)[tree], all = numbered ? counts().total(segment) : 0;
      shared.vertex_at[t] = count;
      shared.of_all_trees[t] = all;
    }
    if (numbered)
      counts().each_before(of_found(hop - 1, 0), types(), tree, [&](int segment, uint32_t before) {
        shared.number_at[segment - of_found(hop - 1, 0)] = before;
      });
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
    if (thread() == 1 && numbered) {
      uint32_t before = 0;
      for (int t = 0; t < types(); ++t) {
        shared.number_at[t] += before;
        before += shared.of_all_trees[t];
      }
    }
    __syncthreads();
    return shared.row_at[types()];
  }

  struct RowOf {
    TreeRow row;
    Bound bound;
  };

  // Row `number` of those that `read_types` counted.
  __device__ RowOf row_of(int64_t tree, int hop, uint32_t number) const {
    const int t = last_before(shared.row_at, types(), number);
    const VertexType& type = args.lists.types[t];
    const auto relations = static_cast<uint32_t>(type.relations);
    const uint32_t k = number - shared.row_at[t], of_type = k / relations, slot_of = k - of_type * relations;
    const uint32_t at = shared.first_vertex + shared.vertex_at[t] + of_type;
    const int64_t v = vertices()[at];
    uint64_t lane = tree_lane(tree, v);
    if (args.paths) lane = hop == 1 ? static_cast<uint64_t>(tree) : shared.number_at[t] + of_type;
    const Bound bound = args.bounds.of_edge ? vertex_bounds()[at] : shared.bound;
    return {{type.row(v, slot_of), lane}, bound};
  }

  // Samples a hop of a tree that has `known` vertices. False where there is no room.
  template <int K>
  __device__ bool sample_hop(int64_t tree, int hop, uint32_t known) const {
    const uint32_t rows = read_types(tree, hop);
    uint64_t edges = 0;
    bool good;
    if constexpr (kScans) {
      good = take(state().rows, rows, args.rows_capacity);
      if (good) edges = TreeScan<Trees>{*this, tree, hop, rows, shared.taken}.see_rows();
    } else {
      good = see_rows<K>(tree, hop, rows, edges);
    }
    const uint32_t first_row = shared.taken;
    if (good) {
      const auto at = ask(state().picks, edges);
      count_by_type(tree, hop, rows, first_row, edges);
      if (thread() == 0) by_tree(args.rows_at, hop - 1, tree) = first_row;
      answer(at, edges, args.picks_capacity);
      __syncthreads();
      good = shared.good;
    }
    const auto count = static_cast<uint32_t>(edges);
    const uint32_t first_pick = shared.taken;
    if (good && thread() == 0) by_tree(args.picks_at, hop - 1, tree) = first_pick;
    if (good) {
      pick_rows<K>(tree, hop, rows, first_row, count, first_pick);
      good = args.paths ? grow_paths(tree, hop, known, count, first_pick)
                        : TreeTable<Trees>{*this}.grow_unique(tree, hop, known, count, first_pick);
    }
    if (!good) find_nothing(tree, hop, known);
    __syncthreads();
    return good;
  }

  __device__ void find_nothing(int64_t tree, int hop, uint32_t known) const {
    for (int t = thread(); t < types(); t += size()) counts().of_segment(of_found(hop, t))[tree] = 0;
    if (thread() == 0) by_tree(args.vertices_known, hop, tree) = known;
  }

  // Makes the rows, which have `edges` picks. False where there is no room for them, which is asked for while
  // the first lists are read.
  template <int K>
  __device__ bool see_rows(int64_t tree, int hop, uint32_t rows, uint64_t& edges) const {
    using Sum = std::conditional_t<K == kWide, uint64_t, uint32_t>;
    const auto asked = ask(state().rows, rows);
    if (K == kWide) {
      if (thread() == 0) shared.drawn = 0;
      __syncthreads();
    }
    uint32_t begin = 0;
    do {
      const uint32_t number = begin + thread();
      Sum count = 0;
      bool drawn = false;
      ListOf<P> seen{0, 0};
      if (number < rows) {
        const RowOf own = row_of(tree, hop, number);
        const int most = fanout(own.row.relation, hop);
        if (most != 0) seen = args.lists.list(own.row, own.bound);
        count = static_cast<Sum>(args.choice.count(seen.end - seen.begin, most));
        drawn = count > 0 && !args.choice.whole(seen.end - seen.begin, most);
      }
      if (begin == 0) answer(asked, rows, args.rows_capacity);
      Sum sum;
      const Sum before = exclusive(count, sum);
      if (!shared.good) return false;
      const uint32_t first_row = shared.taken;
      if (number < rows) {
        const int64_t at = row_number(first_row + number);
        args.row_begin[at] = seen.begin;
        args.row_degree[at] = seen.degree() | (drawn ? kDrawn : 0);
        if (K == kWide && drawn)
          args.row_drawn[row_number(first_row + atomicAdd(&shared.drawn, 1u))] = number;
        args.row_first[at] = static_cast<uint32_t>(edges + before);
      }
      edges += sum;
      begin += size();
    } while (begin < rows);
    return true;
  }

  // Tells the picks of the rows of each type.
  __device__ void count_by_type(int64_t tree, int hop, uint32_t rows, uint32_t first_row,
                                uint64_t edges) const {
    __syncthreads();
    for (int t = thread(); t <= types(); t += size())
      shared.pick_at[t] = shared.row_at[t] < rows ? args.row_first[row_number(first_row + shared.row_at[t])]
                                                  : static_cast<uint32_t>(edges);
    __syncthreads();
    for (int t = thread(); t < types(); t += size())
      counts().tell(of_edges(hop - 1, t), tree, shared.pick_at[t + 1] - shared.pick_at[t]);
  }

  // A pick of a row: what it is, and who is there.
  __device__ void put(uint32_t pick, P place, N v, const RowOf& own) const {
    const int64_t at = pick_number(pick);
    args.places[at] = place;
    args.sources[at] = v;
    if (args.bounds.of_edge)
      args.pick_bounds[at] = args.lists.has_times(own.row.relation)
                                 ? args.bounds.after(own.bound, load(args.lists.ranks + place))
                                 : own.bound;
  }

  // Picks of all rows.
  template <int K>
  __device__ void pick_rows(int64_t tree, int hop, uint32_t rows, uint32_t first_row, uint32_t edges,
                            uint32_t first_pick) const {
    const uint64_t key = batch().key;
    if constexpr (K != kWide) {
#pragma unroll 1
      for (uint32_t number = thread(); number < rows; number += size()) {
        const int64_t at = row_number(first_row + number);
        const P begin = args.row_begin[at];
        const uint32_t degree = args.row_degree[at] & ~kDrawn, first = first_pick + args.row_first[at];
        const RowOf own = row_of(tree, hop, number);
        if (degree == 0) continue;
        const auto most = static_cast<uint32_t>(fanout(own.row.relation, hop));
        uint32_t t[K];
        const uint32_t count =
            pick_row<K>(args.choice, args.lists, begin, degree, draws_of(key, own.row, hop), most, t);
        N v[K];  // all are on their way before the first is used
#pragma unroll
        for (int i = 0; i < K; ++i)
          if (i < static_cast<int>(count)) v[i] = args.lists.read(begin, t[i]);
#pragma unroll
        for (int i = 0; i < K; ++i)
          if (i < static_cast<int>(count)) {
            args.places[pick_number(first + i)] = begin + static_cast<P>(t[i]);
            args.sources[pick_number(first + i)] = v[i];
          }
        if (args.bounds.of_edge) {
          const bool timed = args.lists.has_times(own.row.relation);
#pragma unroll
          for (int i = 0; i < K; ++i)
            if (i < static_cast<int>(count))
              args.pick_bounds[pick_number(first + i)] =
                  timed ? args.bounds.after(own.bound, load(args.lists.ranks + begin + t[i])) : own.bound;
        }
      }
    } else {
      // Lists that are taken whole, a thread an entry; then a warp a row of the others.
      const uint32_t* const firsts = args.row_first + row_number(first_row);
#pragma unroll 1
      for (uint32_t pick = thread(); pick < edges; pick += size()) {
        const auto number = static_cast<uint32_t>(last_before(firsts, static_cast<int>(rows), pick));
        const int64_t at = row_number(first_row + number);
        if (args.row_degree[at] & kDrawn) continue;
        const P place = args.row_begin[at] + static_cast<P>(pick - args.row_first[at]);
        const N v = args.lists.read(place);
        put(first_pick + pick, place, v, args.bounds.of_edge ? row_of(tree, hop, number) : RowOf{});
      }
      if constexpr (kScans) {
        TreeScan<Trees>{*this, tree, hop, rows, first_row}.pick_rows(edges, first_pick);
      } else {
        uint32_t* const stage = reinterpret_cast<uint32_t*>(memory) + thread() / 32 * args.widest;
        const uint32_t lane = thread() % 32;
        const uint32_t drawn = shared.drawn;
#pragma unroll 1
        for (uint32_t i = thread() / 32; i < drawn; i += warps()) {
          const uint32_t number = args.row_drawn[row_number(first_row + i)];
          const int64_t at = row_number(first_row + number);
          const uint32_t degree = args.row_degree[at] & ~kDrawn;
          const RowOf own = row_of(tree, hop, number);
          const auto count = static_cast<uint32_t>(args.choice.count(degree, fanout(own.row.relation, hop)));
          const P list = args.row_begin[at];
          pick_row_by_warp(args.choice, args.lists, list, degree, draws_of(key, own.row, hop), count, stage);
#pragma unroll 1
          for (uint32_t j = lane; j < count; j += 32) {
            const P place = list + static_cast<P>(stage[j]);
            put(first_pick + args.row_first[at] + j, place, args.lists.read(place), own);
          }
          __syncwarp();
        }
      }
    }
    __syncthreads();
  }

  // Makes each of the picks of a hop a vertex: they are ordered by type. A thread has two picks that follow
  // on each other. Of four types at a time the counts of a turn of the block are 16 bits each of one number,
  // so one prefix sum serves all.
  __device__ bool grow_paths(int64_t tree, int hop, uint32_t known, uint32_t edges,
                             uint32_t first_pick) const {
    constexpr int kTogether = 4, kEach = 2;
    const uint32_t first = static_cast<uint32_t>(trees()) + first_pick;  // as many vertices as picks
    const uint32_t turn = kEach * size();
    uint32_t found = 0;
    const auto part = [](uint64_t sums, int k) { return static_cast<uint32_t>(sums >> 16 * k) & 0xFFFFu; };
    for (int t = 0; t < types(); t += kTogether) {
      N v[kEach];
      int mine[kEach];  // the types of the thread's picks, from t on
      uint64_t before = 0, total = 0;
      const auto count = [&](uint32_t begin) {
        const uint32_t pick = begin + kEach * thread();
#pragma unroll
        for (int i = 0; i < kEach; ++i)
          v[i] = pick + i < edges ? args.sources[pick_number(first_pick + pick + i)] : N{0};
        uint64_t own = 0;
#pragma unroll
        for (int i = 0; i < kEach; ++i) {
          mine[i] = pick + i < edges ? args.lists.type_of(v[i]) - t : -1;
          if (mine[i] >= kTogether) mine[i] = -1;
          if (mine[i] >= 0) own += uint64_t{1} << 16 * mine[i];
        }
        before = exclusive(own, total);
      };
      uint32_t to[kTogether] = {};
#pragma unroll 1
      for (uint32_t begin = 0; begin < edges; begin += turn) {
        count(begin);
#pragma unroll
        for (int k = 0; k < kTogether; ++k) to[k] += part(total, k);
      }
      uint32_t own_type = 0;  // a thread a type
#pragma unroll
      for (int k = 0; k < kTogether; ++k) {
        const uint32_t of_type = to[k];
        if (k == thread()) own_type = of_type;
        to[k] = found;
        found += of_type;
      }
      if (thread() < min(kTogether, types() - t)) counts().tell(of_found(hop, t + thread()), tree, own_type);
#pragma unroll 1
      for (uint32_t begin = 0; begin < edges; begin += turn) {
        if (edges > turn) count(begin);
#pragma unroll
        for (int i = 0; i < kEach; ++i) {
          if (mine[i] < 0) continue;
          uint32_t number = 0;
#pragma unroll
          for (int k = 0; k < kTogether; ++k)
            if (k == mine[i]) number = to[k] + part(before, k);
          before += uint64_t{1} << 16 * mine[i];
          const int64_t at = pick_number(first_pick + begin + kEach * thread() + i);
          vertices()[first + number] = v[i];
          if (args.bounds.of_edge) vertex_bounds()[first + number] = args.pick_bounds[at];
          args.picks[at] = known + number;
        }
#pragma unroll
        for (int k = 0; k < kTogether; ++k) to[k] += part(total, k);
      }
    }
    if (thread() == 0) {
      by_tree(args.vertices_at, hop, tree) = first;
      by_tree(args.vertices_known, hop, tree) = known + edges;
    }
    return true;
  }

  // Leaves the counters as the next launch wants them. One thread, once nobody counts any more.
  __device__ void reset() const {
    TreeState& own = state();
    own.vertices.value = own.rows.value = own.picks.value = own.table.value = 0;
    for (int hop = 0; hop < kMaxHops; ++hop) own.tickets.of_hop[hop] = 0;
    own.tickets.value = 0;
    args.sums[slot * tree_sums_stride(args)] ^= 1;
  }
};

template <int K, typename Args>
__device__ void run_trees(const Trees<Args>& trees) {
  const auto sync = [&] { group_barrier(&trees.state().barrier, trees.block, trees.blocks); };
  const auto& args = trees.args;
  // In paths a round is a hop of all trees; else it is all hops of each.
  const int rounds = args.paths ? args.hops : 1, hops_of_round = args.paths ? 1 : args.hops;
#pragma unroll 1
  for (int round = 0; round < rounds; ++round) {
    trees.each_tree(round, [&](int64_t tree) {
      bool good = round > 0 || trees.begin_tree(tree);
#pragma unroll 1
      for (int hop = round + 1; good && hop <= round + hops_of_round; ++hop)
        good = trees.template sample_hop<K>(tree, hop, trees.by_tree(args.vertices_known, hop - 1, tree));
    });
    sync();
  }
#ifdef __CUDACC__  // what the compiler knows to be shared memory is read at once
  auto* const memory = reinterpret_cast<uint32_t*>(launch_memory());
#else
  auto* const memory = reinterpret_cast<uint32_t*>(trees.memory);
#endif
  const TreeWriter<Trees<Args>> writer{trees, memory};
  const bool fits = writer.tell();
  __syncthreads();
  if (trees.block == 0 && threadIdx.x == 0) trees.reset();
  if (fits) writer.write();
}

// Finds which copy of the sums a mini-batch has. Its blocks make the other one zero.
template <typename Args>
__device__ void begin_sums(const Trees<Args>& trees) {
  const Args& args = trees.args;
  uint32_t* const mine = args.sums + trees.slot * tree_sums_stride(args);
  const int64_t each = tree_sums(args.hops, trees.types(), args.groups_capacity);
  const uint32_t copy = mine[0];
  uint32_t* const other = mine + kSumsAt + (copy ^ 1) * each;
  const int64_t stride = int64_t{trees.blocks} * trees.size();
#pragma unroll 1
  for (int64_t i = int64_t{trees.block} * trees.size() + trees.thread(); i < each; i += stride) other[i] = 0;
  if (trees.thread() == 0) {
    const int64_t at = int64_t{trees.slot} * trees.segments() * args.trees_capacity;
    uint32_t* const sums = mine + kSumsAt + copy * each;
    trees.shared.counts = {args.found + at,
                           args.edges + at,
                           sums,
                           trees.trees(),
                           trees.segments(),
                           args.groups_capacity,
                           tree_group_bits(trees.trees())};
  }
  __syncthreads();
}

// The blocks of a launch are dealt out evenly to its mini-batches.
template <int K, typename Args>
__device__ void tree_block(const Args& args, unsigned char* memory) {
  __shared__ typename Trees<Args>::Shared shared;
  const int blocks = gridDim.x / args.num_batches, slot = blockIdx.x / blocks;
  if (slot >= args.num_batches) return;
  const Trees<Args> trees{args, slot, static_cast<int>(blockIdx.x % blocks), blocks, shared, memory};
  begin_sums(trees);
  run_trees<K>(trees);
}

}  // namespace loader
