// Reads of a mapped file that fail: the file was cut short, or the disk does not give the page. The system
// then sends SIGBUS, which by default ends the process without a word about the file.
#pragma once

#include <cstdint>
#include <string>

namespace loader {

// From now on, a read of these `length` bytes that fails ends the process with status 1 and one line on
// stderr that names the file. They are mapped from byte `offset` on of the file that `handle` has open; the
// handle is duplicated. Returns the number to `forget` it by, before the memory is unmapped.
//
// The first call sets the process' handler of SIGBUS. Signals that concern no watched file go on to the
// handler that was set before.
//
// Throws std::runtime_error if the system gives no handle, or takes no handler.
int64_t watch_file(uintptr_t begin, uint64_t length, int handle, uint64_t offset, const std::string& path);

// Whether a watched file has this byte.
bool is_watched(uintptr_t at);

// Ends the process as a failed read does, if a watched file that has some of these bytes was cut short. Of
// the page in which a file ends now, the system gives zeros behind the end, without a signal: so whoever has
// read asks here, before what was read is given to anyone.
void require_whole(const void* begin, int64_t length);

// The same for the arrays of a graph's lists, and for one more that goes with them.
struct ListBytes {
  ListBytes() = default;
  template <typename P, typename N>
  ListBytes(const P* offsets, int64_t num_offsets, const N* sources, int64_t num_sources)
      : indptr(offsets),
        indices(sources),
        indptr_bytes(num_offsets * static_cast<int64_t>(sizeof(P))),
        indices_bytes(num_sources * static_cast<int64_t>(sizeof(N))) {}

  template <typename T>
  void add(const T* array, int64_t size) {
    more = array;
    more_bytes = array ? size * static_cast<int64_t>(sizeof(T)) : 0;
  }

  void require_whole() const {
    loader::require_whole(indptr, indptr_bytes);
    loader::require_whole(indices, indices_bytes);
    loader::require_whole(more, more_bytes);
  }

  const void *indptr = nullptr, *indices = nullptr, *more = nullptr;
  int64_t indptr_bytes = 0, indices_bytes = 0, more_bytes = 0;
};

void forget_file(int64_t number);

}  // namespace loader
