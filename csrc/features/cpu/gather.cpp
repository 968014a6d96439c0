#include "features/gather.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "disk/ahead.h"

namespace loader {
namespace {

constexpr int64_t kLine = 64;                // bytes of a cache line
constexpr int64_t kAheadBytes = 4096;        // rows to come that are asked for ahead of their copy
constexpr int64_t kMaxAheadRows = 32;        // short rows: more outstanding lines than a core can wait for
constexpr int64_t kMaxRowLines = 16;         // of a long row; the hardware follows the rest by itself
constexpr int64_t kMinShareBytes = 1 << 16;  // less is copied before a second worker has woken up
constexpr int64_t kMinPartBytes = 1 << 14;   // that a worker copies before it looks for more
constexpr int64_t kMaxPartBytes = 1 << 17;
constexpr int64_t kPartsPerWorker = 4;

template <typename Id>
void check_ids(const RowTable& table, const Id* ids, int64_t n) {
  using Unsigned = std::make_unsigned_t<Id>;  // a negative id becomes a large one: a single comparison
  const auto limit = static_cast<uint64_t>(table.num_rows);
  bool bad = false;
  for (int64_t i = 0; i < n; ++i) bad |= static_cast<Unsigned>(ids[i]) >= limit;
  if (!bad) return;
  for (int64_t i = 0; i < n; ++i)
    if (static_cast<Unsigned>(ids[i]) >= limit)
      throw std::invalid_argument("ids[" + std::to_string(i) + "] is " + std::to_string(ids[i]) +
                                  "; the table has " + std::to_string(table.num_rows) +
                                  " rows, valid ids are 0 to " + std::to_string(table.num_rows - 1));
}

inline void prefetch_row(const uint8_t* row, int64_t lines) {
  for (int64_t l = 0; l < lines; ++l) __builtin_prefetch(row + l * kLine, 0, 0);
}

template <typename Id>
void copy_rows(const RowTable& table, const Id* ids, int64_t begin, int64_t end, uint8_t* out) {
  const int64_t bytes = table.row_bytes;
  // A row that does not begin on a line touches one line more than its length says.
  const int64_t lines = std::min((bytes + kLine - 1) / kLine + (bytes % kLine != 0), kMaxRowLines);
  const int64_t distance = std::clamp(kAheadBytes / bytes, int64_t{2}, kMaxAheadRows);
  auto row = [&](int64_t i) { return table.data + static_cast<int64_t>(ids[i]) * bytes; };
  PagesAhead ahead(table.in_file);
  if (ahead.asks()) {
    for (int64_t i = begin; i < end; ++i) ahead.ask(row(i), bytes);
    ahead.flush();
  }
  for (int64_t i = begin; i < std::min(begin + distance, end); ++i) prefetch_row(row(i), lines);
  for (int64_t i = begin; i < end; ++i) {
    if (i + distance < end) prefetch_row(row(i + distance), lines);
    std::memcpy(out + i * bytes, row(i), static_cast<size_t>(bytes));
  }
  ahead.done(end - begin);
}

}  // namespace

template <typename Id>
void gather_rows(ThreadPool& pool, const RowTable& table, const Id* ids, int64_t n, uint8_t* out) {
  check_ids(table, ids, n);
  if (n == 0 || table.row_bytes == 0) return;
  if (n * table.row_bytes < 2 * kMinShareBytes) return copy_rows(table, ids, 0, n, out);
  const int64_t part =
      std::clamp(n * table.row_bytes / (kPartsPerWorker * pool.size()), kMinPartBytes, kMaxPartBytes);
  pool.share(n, std::max<int64_t>(part / table.row_bytes, 1),
             [&](int64_t begin, int64_t end) { copy_rows(table, ids, begin, end, out); });
}

template void gather_rows<int32_t>(ThreadPool&, const RowTable&, const int32_t*, int64_t, uint8_t*);
template void gather_rows<int64_t>(ThreadPool&, const RowTable&, const int64_t*, int64_t, uint8_t*);

}  // namespace loader
