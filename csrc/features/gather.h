// Rows of a table by id: out[i, :] = table[ids[i], :].
#pragma once

#include <cstdint>

#include "parallel.h"
#include "scaled_codes.h"

namespace loader {

// `num_rows` rows of `row_bytes` bytes each, back to back. What a row means (element type, columns) is the
// caller's business: a gather copies bytes.
struct RowTable {
  const uint8_t* data;
  int64_t num_rows;
  int64_t row_bytes;
  bool in_file = false;  // a part may be on disk only, see PagesAhead
};

// Who reads the rows of a gather next. A device that copies them by itself waits for each line that a core
// has written and still has in a cache of its own: on an H200 beside a Xeon of 16 cores, it copies 16 MiB
// that threads have just written at 20 GB/s, and at 54 GB/s if they wrote past their caches.
enum class Reader { kThreads, kDevice };

// Throws std::invalid_argument, which names the first one, when an id is not in [0, num_rows).
template <typename Id>
void check_ids(ThreadPool& pool, int64_t num_rows, const Id* ids, int64_t n);

// Copies row ids[i] of `table` to row i of `out`, for 0 <= i < n; `out` holds n * row_bytes bytes and does
// not overlap the table. `Id` is int32_t or int64_t. The shares of the workers are contiguous in `out`.
// Throws as check_ids, before anything is written.
template <typename Id>
void gather_rows(ThreadPool& pool, const RowTable& table, const Id* ids, int64_t n, uint8_t* out,
                 Reader reader = Reader::kThreads);

enum class Element : int { kFloat32, kFloat16, kBfloat16, kInt8, kFloat8 };

constexpr int64_t bytes_of(Element element) {
  return element == Element::kFloat32                                    ? 4
         : element == Element::kFloat16 || element == Element::kBfloat16 ? 2
                                                                         : 1;
}

// What a row becomes on its way: its first `columns` elements, of a table of type `from`, become those of
// type `to`, one of the first three. Codes have scales.
struct Conversion {
  Element from;
  Element to;
  int64_t columns;
  Scales scales;
};

// The same with a conversion: writes row i of `out` [n, columns].
template <typename Id>
void gather_converted(ThreadPool& pool, const RowTable& table, const Conversion& by, const Id* ids, int64_t n,
                      uint8_t* out);

}  // namespace loader
