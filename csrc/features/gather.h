// Rows of a table by id: out[i, :] = table[ids[i], :].
#pragma once

#include <cstdint>

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

// Copies row ids[i] of `table` to row i of `out`, for 0 <= i < n; `out` holds n * row_bytes bytes and does
// not overlap the table. `Id` is int32_t or int64_t. The shares of the workers are contiguous in `out`.
// Throws std::invalid_argument, before anything is written, when an id is not in [0, num_rows).
template <typename Id>
void gather_rows(ThreadPool& pool, const RowTable& table, const Id* ids, int64_t n, uint8_t* out);

}  // namespace loader
