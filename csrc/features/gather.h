// Rows of a table by id: out[i, :] = table[ids[i], :].
#pragma once

#include <cstdint>

#include "codes.h"
#include "parallel.h"

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

// The same of a table whose rows are codes: decodes row ids[i] to row i of `out` [n, rows.columns].
template <typename Id>
void gather_decoded(ThreadPool& pool, const RowTable& table, const CodedRows& rows, const Id* ids, int64_t n,
                    float* out);

}  // namespace loader
