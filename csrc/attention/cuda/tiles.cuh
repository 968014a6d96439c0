// The kernels of attend.h for bfloat16, on tensor cores. A team of warps copies the rows of x of a tile,
// which are those of up to 16 entries of up to 4 rows, to shared memory, and reads them there for the scores
// and for the sums; each warp has a share of the columns. Scores and shares take part as two bfloat16 each,
// what rounding left being the second one.
//
// In a step, g = lane / 4 and q = lane % 4, as in tensor_core.cuh. A row of more entries than a tile's has
// tiles of its own.
#pragma once

#include "attention/cuda/attend.cuh"
#include "attention/cuda/tensor_core.cuh"
#include "attention/cuda/tiles.h"
#include "launch_memory.cuh"

namespace loader {

static_assert(kHeadsAtOnce == 4 && kTeamWarps == kTileRows);
constexpr int kBatch = 12;  // rows that a team looks up at once: whole tiles if all have 4 or 5 entries
constexpr int kTeam = 32 * kTeamWarps;
constexpr int kTable = kTileEntries * kHeadsAtOnce;

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

__device__ __forceinline__ uint4 read_words(const bfloat16* at) {
  return *reinterpret_cast<const uint4*>(at);
}

// The rows of a tile; all lanes have the same. A row that is not there begins behind all entries.
struct Tile {
  int rows, count;  // in all
  int offset[kTileRows], begin[kTileRows];

  // From those on that lane `first` looked up, `here` in all; or one row of any length.
  __device__ Tile(const AttendedRow& mine, int first, int here) : rows(0), count(0) {
    const int begins = static_cast<int>(mine.begin), length = static_cast<int>(mine.end - mine.begin);
    bool open = true;
#pragma unroll
    for (int j = 0; j < kTileRows; ++j) {
      const int from = __shfl_sync(kWholeWarp, begins, first + j),
                more = __shfl_sync(kWholeWarp, length, first + j);
      open = open && first + j < here && (j == 0 || count + more <= kTileEntries);
      offset[j] = open ? count : INT32_MAX;
      begin[j] = from;
      rows += open;
      count += open ? more : 0;
    }
  }

  __device__ __forceinline__ int row_of(int slot) const {
    int row = 0;
#pragma unroll
    for (int j = 1; j < kTileRows; ++j) row += slot >= offset[j];
    return row;
  }
  __device__ __forceinline__ bool has(int slot, int row) const { return slot < count && row_of(slot) == row; }
  __device__ __forceinline__ int64_t entry_of(int slot) const {
    int before = begin[0];
#pragma unroll
    for (int j = 1; j < kTileRows; ++j)
      if (slot >= offset[j]) before = begin[j] - offset[j];
    return int64_t{before} + slot;
  }
};

// What a team has in shared memory, and the places of a thread of it there.
struct TeamRoom {
  const TileRoom& room;
  const int dim;
  bfloat16* const x;     // [16 slots, columns]
  float* const table;    // [16 slots, 4 heads]
  float* const partial;  // [warps, 16 slots, 4 heads]
  const int team, member, lane, g, q;

  __device__ TeamRoom(const TileRoom& of, int64_t of_dim, unsigned char* memory)
      : room(of),
        dim(static_cast<int>(of_dim)),
        x(reinterpret_cast<bfloat16*>(memory)),
        table(reinterpret_cast<float*>(memory + of.slots_bytes)),
        partial(table + kTable),
        team(threadIdx.x / kTeam),
        member(threadIdx.x / 32 % kTeamWarps),
        lane(threadIdx.x % 32),
        g(lane / 4),
        q(lane % 4) {}

  __device__ __forceinline__ void meet() const { meet_team<kTeam>(team); }

  // f(column) for the first columns of the steps of this warp.
  template <int kUnroll, typename F>
  __device__ __forceinline__ void each_step(const F& f) const {
#pragma unroll kUnroll
    for (int column = 32 * member; column < room.columns; column += kTeam) f(column);
  }

  // Copies the rows of x of the first kSlots entries; zeros for those from `count` on. A warp has every
  // fourth slot.
  template <int kSlots, typename EntryOf>
  __device__ __forceinline__ void fetch(const AttendedRows<bfloat16>& args, int count,
                                        const EntryOf& entry_of) const {
    constexpr int kAtOnce = 4;  // vectors of a row, of each lane
    const int slot = member + kTeamWarps * lane;
    const int place = slot < min(count, kSlots) ? args.entries[entry_of(slot)] : -1;
    meet();  // what was there is no longer read
#pragma unroll
    for (int i = 0; i < kSlots / kTeamWarps; ++i) {
      const int from_row = __shfl_sync(kWholeWarp, place, i);
      const bfloat16* const from = args.x.data + from_row * args.x.stride;
      bfloat16* const to = x + (member + kTeamWarps * i) * room.slot;
      const int end = from_row < 0 ? 0 : dim;
#pragma unroll 1
      for (int begin = 8 * lane; begin < end; begin += kAtOnce * 256)
#pragma unroll
        for (int k = 0; k < kAtOnce; ++k)
          if (begin + 256 * k < end) begin_copy(to + begin + 256 * k, from + begin + 256 * k);
      if (end != room.columns)
#pragma unroll 1
        for (int column = 8 * lane; column < room.columns; column += 256)
          if (column >= end) *reinterpret_cast<uint4*>(to + column) = {};
    }
  }
  __device__ __forceinline__ void fetched() const {
    finish_copies();
    meet();
  }

  // The slot of row g of the first operand, such that two lanes that read at the same time need different
  // banks.
  __device__ __forceinline__ int slot_of_row() const { return (g & 4) | (g & 1) << 1 | (g >> 1 & 1); }

  // Adds the products of the rows of x with eight vectors, of which `vector` is this lane's part of number g,
  // in the 32 columns from `column` on.
  __device__ __forceinline__ void add_scores(int column, const uint4& vector, float (&found)[2][4]) const {
    const bfloat16* const at = x + slot_of_row() * room.slot + column + 8 * q;
    const uint4 low = read_words(at), high = read_words(at + 8 * room.slot);
    add_product({low.x, high.x, low.y, high.y}, vector.x, vector.y, found[0]);
    add_product({low.z, high.z, low.w, high.w}, vector.z, vector.w, found[1]);
  }

  // From what the warps have of numbers lane / 4 and lane / 4 + 8 of the slots, for head lane % 4.
  __device__ __forceinline__ void of_partial(float (&of)[2]) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      of[i] = 0;
#pragma unroll
      for (int w = 0; w < kTeamWarps; ++w) of[i] += partial[w * kTable + 32 * i + lane];
    }
  }

  // The table's numbers of slots q, q + 4, q + 8 and q + 12, and of head g % 4; 0 for those from `count` on.
  __device__ __forceinline__ void of_table(int count, float (&of)[4]) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) of[i] = q + 4 * i < count ? table[(q + 4 * i) * 4 + g % 4] : 0.0f;
  }

  // The second operands for four steps of 8 columns: entries times columns. Column 2 i + h of the result of
  // step j is column 8 i + 2 j + h, so that a lane gets 8 columns that lie side by side.
  template <int kSlots>
  __device__ __forceinline__ void columns_at(int column, uint32_t (&low)[4], uint32_t (&high)[4]) const {
    const bfloat16* const at = x + q * room.slot + column + 8 * (g >> 1);
    const bool odd = g & 1;
    const auto both = [&](const bfloat16* from, uint32_t(&to)[4]) {
      const uint4 first = read_words(from), second = read_words(from + 4 * room.slot);
      to[0] = paired(first.x, second.x, odd), to[1] = paired(first.y, second.y, odd);
      to[2] = paired(first.z, second.z, odd), to[3] = paired(first.w, second.w, odd);
    };
    both(at, low);
    if constexpr (kSlots > 8)
      both(at + 8 * room.slot, high);
    else
      high[0] = high[1] = high[2] = high[3] = 0;
  }

  // Adds the rows of x times the table to `sums`. Those of head g % 4 and of columns 8 q + 4 (g / 4) and the
  // next three of a step lie where this lane's number says.
  template <int kSlots>
  __device__ __forceinline__ void add_weighted(int count, float* sums) const {
    const bool upper = g >= 4;
    float of[4];
    of_table(count, of);
#pragma unroll
    for (float& factor : of) factor = upper ? left_of(factor) : factor;
    const uint32_t factors[4] = {pair_of(of[0], of[1]), 0, kSlots > 8 ? pair_of(of[2], of[3]) : 0, 0};
    each_step<2>([&](int column) {
      uint32_t low[4], high[4];
      columns_at<kSlots>(column, low, high);
      float found[4][4] = {};
#pragma unroll
      for (int j = 0; j < 4; ++j) add_product(factors, low[j], high[j], found[j]);
      float* const at = sums + column * 4 + lane * 4;
      auto sum = load<float, 4>(at);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float first = found[i / 2][i % 2], second = found[2 + i / 2][i % 2];
        sum.v[i] += (upper ? second : first) + __shfl_xor_sync(kWholeWarp, upper ? first : second, 16);
      }
      store(at, sum);
    });
  }
};

// f(element of the sums, column, head) for every fourth element, at which four columns begin, that a thread
// has.
template <typename F>
__device__ __forceinline__ void each_of_sums(const TileRoom& room, int thread, int threads, const F& f) {
  for (int i = thread; i < room.columns; i += threads) {
    const int lane = i % 32, g = lane / 4;
    f(4 * i, i / 32 * 32 + 8 * (lane % 4) + 4 * (g / 4), g % 4);
  }
}

// A row of more entries than a tile has, for the entry and head of a lane. One warp of the team has its
// scores.
struct LongRow {
  int64_t begin, end;
  int heads, head, lane;
  bool there;

  __device__ LongRow(const Tile& tile, int of_lane, int all_heads, int first, int left)
      : begin(tile.begin[0]),
        end(begin + tile.count),
        heads(all_heads),
        head(first + of_lane % kHeadsAtOnce),
        lane(of_lane),
        there(of_lane % kHeadsAtOnce < left) {}

  __device__ int here(int64_t e, int most) const { return static_cast<int>(min(end - e, int64_t{most})); }
  // f(entry * heads + head) for the entries of the row that the lane has.
  template <typename F>
  __device__ __forceinline__ void each(const F& f) const {
#pragma unroll 1
    for (int64_t e = begin + lane / kHeadsAtOnce; e < end && there; e += 8) f(e * heads + head);
  }
  // f(entry * heads + head, which) for entries e + lane / 4 and the eighth one after it.
  template <typename F>
  __device__ __forceinline__ void both(int64_t e, const F& f) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int64_t mine = e + lane / kHeadsAtOnce + 8 * i;
      if (there && mine < end) f(mine * heads + head, i);
    }
  }
};

struct AttendTilesForward {
  const AttendForward<bfloat16>& args;
  const TeamRoom team;
  const bfloat16* const vectors;  // [4 heads, then what rounding left of them; columns]
  const int first, left;          // heads

  // Of the tile's slots, the products with the vectors, by warp.
  __device__ __forceinline__ void score() const {
    float found[2][4] = {};
    const bfloat16* const with = vectors + team.g * team.room.vector + 8 * team.q;
    team.each_step<4>([&](int column) { team.add_scores(column, read_words(with + column), found); });
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      found[0][i] += found[1][i];
      found[0][i] += __shfl_xor_sync(kWholeWarp, found[0][i], 2);  // the columns of what rounding left
    }
    if (team.q < 2) {
      float* const to = team.partial + team.member * kTable + team.slot_of_row() * 4 + 2 * team.q;
      to[0] = found[0][0], to[1] = found[0][1];
      to[32] = found[0][2], to[33] = found[0][3];
    }
    team.meet();
  }

  __device__ __forceinline__ float leaky(float x) const { return x > 0 ? x : x * args.slope; }

  // `row` and `at` are what lanes looked up, from lane `from` on. A warp has the scores of a row.
  __device__ __forceinline__ void run(const Tile& tile, int64_t row, int64_t at, int from) const {
    const int lane = team.lane, head = first + lane % kHeadsAtOnce;
    if (tile.count > 0) {
      team.fetch<kTileEntries>(args, tile.count, [&](int slot) { return tile.entry_of(slot); });
      const int64_t of_row = __shfl_sync(kWholeWarp, row, from + team.member);
      const bool head_there = lane % kHeadsAtOnce < left;
      const float sink = head_there && team.member < tile.rows ? args.sink[of_row * args.heads + head] : 0.0f;
      team.fetched();
      score();
      float of[2], share[2], top = kLowest, total = 0;
      bool there[2];
      team.of_partial(of);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        there[i] = head_there && tile.has(lane / kHeadsAtOnce + 8 * i, team.member);
        of[i] += sink;
        if (there[i]) top = fmaxf(top, leaky(of[i]));
      }
      top = max_of_head(top);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        share[i] = there[i] ? expf(leaky(of[i]) - top) : 0.0f;
        total += share[i];
      }
      const float inverse = 1.0f / sum_of_head(total);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int slot = lane / kHeadsAtOnce + 8 * i;
        if (!tile.has(slot, team.member)) continue;
        share[i] = there[i] ? share[i] * inverse : 0.0f;
        team.table[32 * i + lane] = share[i];
        if (there[i]) args.shares[tile.entry_of(slot) * args.heads + head] = of[i] > 0 ? share[i] : -share[i];
      }
      team.meet();
    }
    give(tile, at, from);
  }

  // Writes the sums of the tile's rows by the shares in the table.
  __device__ __forceinline__ void give(const Tile& tile, int64_t at, int from) const {
    const int r = team.g / kHeadsAtOnce, head = team.g % kHeadsAtOnce, q = team.q;
    uint32_t shares[4] = {}, rest[4] = {};
    if (tile.count > 0) {
      float of[4];
      team.of_table(tile.count, of);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float now[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) now[i] = tile.row_of(q + 4 * i) == r + 2 * half ? of[i] : 0.0f;
        shares[half] = pair_of(now[0], now[1]), shares[2 + half] = pair_of(now[2], now[3]);
        rest[half] = pair_of(left_of(now[0]), left_of(now[1]));
        rest[2 + half] = pair_of(left_of(now[2]), left_of(now[3]));
      }
    }
    bfloat16* out[2];
    int end[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      out[half] =
          args.out + __shfl_sync(kWholeWarp, at, from + r + 2 * half) + (first + head) * args.apart + 8 * q;
      end[half] = r + 2 * half < tile.rows && head < left ? team.dim - 8 * q : 0;
    }
    if (tile.count == 0) {
      team.each_step<1>([&](int column) {
#pragma unroll
        for (int half = 0; half < 2; ++half) store_if(column < end[half], out[half] + column, {});
      });
      return;
    }
    team.each_step<2>([&](int column) {
      float sum[4][4] = {};
      uint32_t low[4], high[4];
      team.columns_at<kTileEntries>(column, low, high);
#pragma unroll
      for (int j = 0; j < 4; ++j) add_product(shares, low[j], high[j], sum[j]);
#pragma unroll
      for (int j = 0; j < 4; ++j) add_product(rest, low[j], high[j], sum[j]);
#pragma unroll
      for (int half = 0; half < 2; ++half)
        store_if(
            column < end[half], out[half] + column,
            {pair_of(sum[0][2 * half], sum[0][2 * half + 1]), pair_of(sum[1][2 * half], sum[1][2 * half + 1]),
             pair_of(sum[2][2 * half], sum[2][2 * half + 1]),
             pair_of(sum[3][2 * half], sum[3][2 * half + 1])});
    });
  }

  // Half of the slots have room for the sums meanwhile.
  __device__ void run_long(const Tile& tile, int64_t row, int64_t at, int from) const {
    const int lane = team.lane;
    const LongRow mine(tile, lane, args.heads, first, left);
    const int64_t of_row = __shfl_sync(kWholeWarp, row, from), to = __shfl_sync(kWholeWarp, at, from);
    const float sink = mine.there ? args.sink[of_row * args.heads + mine.head] : 0.0f;
    for (int64_t e = mine.begin; e < mine.end; e += kTileEntries) {
      team.fetch<kTileEntries>(args, mine.here(e, kTileEntries), [&](int slot) { return e + slot; });
      team.fetched();
      score();
      float of[2];
      team.of_partial(of);
      if (team.member == 0) mine.both(e, [&](int64_t i, int which) { args.shares[i] = of[which] + sink; });
    }
    if (team.member == 0) {
      float top = kLowest, total = 0;
      mine.each([&](int64_t i) { top = fmaxf(top, leaky(args.shares[i])); });
      top = max_of_head(top);
      mine.each([&](int64_t i) { total += expf(leaky(args.shares[i]) - top); });
      const float inverse = 1.0f / sum_of_head(total);
      mine.each([&](int64_t i) {
        const float score = args.shares[i], share = expf(leaky(score) - top) * inverse;
        args.shares[i] = score > 0 ? share : -share;
      });
    }
    float* const sums = reinterpret_cast<float*>(team.x + 8 * team.room.slot);
    team.meet();
    const int thread = threadIdx.x % kTeam;
    each_of_sums(team.room, thread, kTeam, [&](int i, int, int) { store(sums + i, Vector<float, 4>{}); });
    for (int64_t e = mine.begin; e < mine.end; e += 8) {
      const int here = mine.here(e, 8);
      team.fetch<8>(args, here, [&](int slot) { return e + slot; });
      if (team.member == 0) {
        const int64_t entry = e + lane / kHeadsAtOnce;
        if (entry < mine.end)
          team.table[lane] = mine.there ? fabsf(args.shares[entry * mine.heads + mine.head]) : 0.0f;
      }
      team.fetched();
      team.add_weighted<8>(here, sums);
    }
    team.meet();
    each_of_sums(team.room, thread, kTeam, [&](int i, int column, int head) {
      if (head >= left || column >= args.dim) return;
      const auto sum = load<float, 4>(sums + i);
      store_scaled<bfloat16, 4>(args.out + to + (first + head) * args.apart + column, sum.v, 1.0f);
    });
  }
};

struct AttendTilesBackward {
  const AttendBackward<bfloat16>& args;
  const TeamRoom team;
  float* const sums;      // of this team
  const int first, left;  // heads

  // So that they come while the rows of x do. A warp asks for those of a row.
  __device__ __forceinline__ void ask_for_gradients(const Tile& tile, int64_t at, int from) const {
    constexpr int kLine = 64;  // elements
    const bfloat16* const grad =
        args.grad + __shfl_sync(kWholeWarp, at, from + team.member) + first * args.apart;
    const int lines = (team.dim + kLine - 1) / kLine, count = team.member < tile.rows ? left * lines : 0;
    for (int i = team.lane; i < count; i += 32) prefetch(grad + i / lines * args.apart + i % lines * kLine);
  }

  // Of the tile's slots, the products with the gradients of their rows, by warp.
  __device__ __forceinline__ void score(const Tile& tile, int64_t at, int from) const {
    const int slot = team.slot_of_row(), q = team.q;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (2 * half >= tile.rows) break;
      const int r = 2 * half + team.g / kHeadsAtOnce, head = team.g % kHeadsAtOnce;
      const int64_t begin = __shfl_sync(kWholeWarp, at, from + r);
      const bool there = r < tile.rows && head < left;
      const bfloat16* const grad = args.grad + (there ? begin + (first + head) * args.apart : 0) + 8 * q;
      const int end = there ? team.dim - 8 * q : 0;
      float found[2][4] = {};
      team.each_step<4>([&](int column) {
        uint4 of = {};
        if (column < end) of = read_words(grad + column);
        team.add_scores(column, of, found);
      });
#pragma unroll
      for (int up = 0; up < 2; ++up) {
        if (tile.row_of(slot + 8 * up) != 2 * half + q / 2) continue;
        float* const to = team.partial + team.member * kTable + (slot + 8 * up) * 4 + 2 * (q % 2);
        to[0] = found[0][2 * up] + found[1][2 * up];
        to[1] = found[0][2 * up + 1] + found[1][2 * up + 1];
      }
    }
    team.meet();
  }

  __device__ __forceinline__ float of_score(float share, float product, float mean) const {
    const bool above = (__float_as_uint(share) & 0x80000000u) == 0;
    return fabsf(share) * (product - mean) * (above ? 1.0f : args.slope);
  }

  // A warp has the scores of a row.
  __device__ __forceinline__ void run(const Tile& tile, int64_t row, int64_t at, int from) const {
    const int lane = team.lane, head = first + lane % kHeadsAtOnce;
    const int64_t of_row = __shfl_sync(kWholeWarp, row, from + team.member);
    const bool row_there = team.member < tile.rows && lane < left;
    if (tile.count == 0) {
      if (row_there) args.sink[of_row * args.heads + head] = 0;
      return;
    }
    team.fetch<kTileEntries>(args, tile.count, [&](int slot) { return tile.entry_of(slot); });
    ask_for_gradients(tile, at, from);
    float share[2], of[2], mean = 0, total = 0;
    bool there[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int slot = lane / kHeadsAtOnce + 8 * i;
      there[i] = lane % kHeadsAtOnce < left && tile.has(slot, team.member);
      share[i] = there[i] ? args.shares[tile.entry_of(slot) * args.heads + head] : 0.0f;
    }
    team.fetched();
    score(tile, at, from);
    team.of_partial(of);
#pragma unroll
    for (int i = 0; i < 2; ++i)
      if (there[i]) mean += fabsf(share[i]) * of[i];
    mean = sum_of_head(mean);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int slot = lane / kHeadsAtOnce + 8 * i;
      of[i] = there[i] ? of_score(share[i], of[i], mean) : 0.0f;
      total += of[i];
      if (tile.has(slot, team.member)) team.table[32 * i + lane] = of[i];
      if (there[i]) args.scores[tile.entry_of(slot) * args.heads + head] = of[i];
    }
    total = sum_of_head(total);
    if (row_there) args.sink[of_row * args.heads + head] = total;
    team.meet();
    team.add_weighted<kTileEntries>(tile.count, sums);
  }

  __device__ void run_long(const Tile& tile, int64_t row, int64_t at, int from) const {
    const int lane = team.lane;
    const LongRow mine(tile, lane, args.heads, first, left);
    const int64_t to = __shfl_sync(kWholeWarp, row, from);
    float mean = 0, total = 0;
    for (int64_t e = mine.begin; e < mine.end; e += kTileEntries) {
      team.fetch<kTileEntries>(args, mine.here(e, kTileEntries), [&](int slot) { return e + slot; });
      team.fetched();
      score(tile, at, from);
      float of[2];
      team.of_partial(of);
      if (team.member == 0)
        mine.both(e, [&](int64_t i, int which) {
          args.scores[i] = of[which];
          mean += fabsf(args.shares[i]) * of[which];
        });
    }
    if (team.member == 0) {
      mean = sum_of_head(mean);
      mine.each([&](int64_t i) {
        args.scores[i] = of_score(args.shares[i], args.scores[i], mean);
        total += args.scores[i];
      });
      total = sum_of_head(total);
      if (lane < left) args.sink[to * args.heads + mine.head] = total;
    }
    for (int64_t e = mine.begin; e < mine.end; e += kTileEntries) {
      const int here = mine.here(e, kTileEntries);
      team.fetch<kTileEntries>(args, here, [&](int slot) { return e + slot; });
      if (team.member == 0)
#pragma unroll
        for (int i = 0; i < 2; ++i) team.table[32 * i + lane] = 0;
      if (team.member == 0)
        mine.both(e, [&](int64_t i, int which) { team.table[32 * which + lane] = args.scores[i]; });
      team.fetched();
      team.add_weighted<kTileEntries>(here, sums);
    }
  }
};

// Gives the rows to `work` in tiles. Teams have batches of rows in turns, of `teams` teams.
template <typename T, typename Work>
__device__ __forceinline__ void each_tile(const AttendedRows<T>& args, int64_t team, int64_t teams,
                                          const Work& work) {
  const int lane = threadIdx.x % 32;
  for (int64_t begin = team * kBatch; begin < args.count; begin += teams * kBatch) {
    const int here = static_cast<int>(min(args.count - begin, int64_t{kBatch}));
    const AttendedRow mine = AttendedRow::of(args, lane < here ? begin + lane : args.count);
    const int64_t at = lane < here ? args.at[begin + lane] : 0;
    for (int from = 0; from < here;) {
      const Tile tile(mine, from, here);
      if (tile.count > kTileEntries)
        work.run_long(tile, mine.row, at, from);
      else
        work.run(tile, mine.row, at, from);
      from += tile.rows;
    }
  }
}

#endif

template <typename T>
__global__ void __launch_bounds__(kMostTeams* kTeam, 1) attend_tiles(AttendForward<T> args) {
  static_assert(std::is_same_v<T, bfloat16>);
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  const TileRoom room(args.dim);
  const int groups = (args.heads + kHeadsAtOnce - 1) / kHeadsAtOnce, teams = blockDim.x / kTeam;
  const int first = static_cast<int>(blockIdx.x % groups) * kHeadsAtOnce,
            left = min(args.heads - first, kHeadsAtOnce);
  unsigned char* const memory = launch_memory();
  bfloat16* const vectors = reinterpret_cast<bfloat16*>(memory);
  for (int i = threadIdx.x; i < kHeadsAtOnce * room.columns; i += blockDim.x) {
    const int head = i / room.columns, column = i % room.columns;
    const float x = head < left && column < args.dim ? args.source[(first + head) * args.dim + column] : 0.0f;
    vectors[head * room.vector + column] = narrow<bfloat16>(x);
    vectors[(kHeadsAtOnce + head) * room.vector + column] = narrow<bfloat16>(left_of(x));
  }
  __syncthreads();
  const int team = threadIdx.x / kTeam;
  const AttendTilesForward work{
      args, {room, args.dim, memory + room.forward_bytes(team)}, vectors, first, left};
  each_tile(args, int64_t{blockIdx.x / groups} * teams + team, int64_t{gridDim.x / groups} * teams, work);
#endif
}

template <typename T>
__global__ void __launch_bounds__(kMostTeams* kTeam, 1) attend_tiles_gradient(AttendBackward<T> args) {
  static_assert(std::is_same_v<T, bfloat16>);
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  const TileRoom room(args.dim);
  const int groups = (args.heads + kHeadsAtOnce - 1) / kHeadsAtOnce, teams = blockDim.x / kTeam;
  const int first = static_cast<int>(blockIdx.x % groups) * kHeadsAtOnce,
            left = min(args.heads - first, kHeadsAtOnce);
  const int64_t part = blockIdx.x / groups;
  const int each = room.sums_bytes / 4;
  unsigned char* const memory = launch_memory();
  float* const sums = reinterpret_cast<float*>(memory);  // [teams, ...]
  for (int i = threadIdx.x; i < teams * each; i += blockDim.x) sums[i] = 0;
  __syncthreads();
  const int team = threadIdx.x / kTeam;
  unsigned char* const own = memory + teams * room.sums_bytes + team * (room.slots_bytes + room.table_bytes);
  const AttendTilesBackward work{args, {room, args.dim, own}, sums + team * each, first, left};
  each_tile(args, part * teams + team, args.parts * teams, work);
  __syncthreads();
  float* const of_part = args.source + (part * args.heads + first) * args.dim;
  each_of_sums(room, threadIdx.x, blockDim.x, [&](int i, int column, int head) {
    if (head >= left || column >= args.dim) return;
    float sum[4] = {};
    for (int t = 0; t < teams; ++t) add_scaled(1.0f, load<float, 4>(sums + t * each + i), sum);
    store_scaled<float, 4>(of_part + head * args.dim + column, sum, 1.0f);
  });
#endif
}

}  // namespace loader
