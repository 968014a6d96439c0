// Pages of a mapped file, asked for before they are read: the disk then works on many of them at a time,
// where a thread that reads a missing page waits for that one.
#pragma once

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>

namespace loader {

// For one run of reads by one thread, which first asks for all that it will read:
//
//   PagesAhead ahead(table.in_file);
//   if (ahead.asks()) for (i...) ahead.ask(row(i), bytes);
//   for (i...) read(row(i));
//   ahead.done(n);
//
// To ask for a page that is in memory costs about a microsecond, which is more than to read from it. So one
// run of 64 does not ask, and counts the pages that it had to wait for. If these are few, the next runs do
// not ask either, and each fourth of them counts.
class PagesAhead {
 public:
  explicit PagesAhead(bool in_file) {
    if (!in_file) return;
    if (int& left = runs_left(); left > 0) {
      --left;
      asks_ = true;
    } else if (left < 0) {
      ++left;
    } else {
      counts_ = true;
      before_ = pages_waited_for();
    }
  }
  PagesAhead(const PagesAhead&) = delete;
  PagesAhead& operator=(const PagesAhead&) = delete;

  bool asks() const { return asks_; }

  // Asks for the pages of `bytes` bytes at `at`; at once, or with those of a later call that follow them.
  void ask(const void* at, int64_t bytes) {
    const uintptr_t size = page(), first = reinterpret_cast<uintptr_t>(at) / size * size;
    const uintptr_t last =
        (reinterpret_cast<uintptr_t>(at) + static_cast<uintptr_t>(bytes) - 1) / size * size;
    if (bytes <= 0) return;
    if (begin_ <= first && first <= end_ && begin_ != 0) {
      if (last + size > end_) end_ = last + size;
      return;
    }
    flush();
    begin_ = first;
    end_ = last + size;
  }

  // Asks for what is left to be asked for.
  void flush() {
    // Advice: if the system takes none, the reads still work.
    if (begin_) static_cast<void>(madvise(reinterpret_cast<void*>(begin_), end_ - begin_, MADV_WILLNEED));
    begin_ = end_ = 0;
  }

  // The run is over; it made `reads` reads.
  void done(int64_t reads) {
    if (counts_) runs_left() = (pages_waited_for() - before_) * kReadsPerMiss > reads ? kAsking : -kQuiet;
  }

 private:
  static constexpr int kAsking = 63, kQuiet = 3;  // runs that follow one that counts
  // To wait for a page takes as long as to ask for about this many (measured: 60 to 100 microseconds,
  // and 1.2).
  static constexpr int64_t kReadsPerMiss = 64;

  // Of this thread: above 0 runs that ask, below 0 runs that neither ask nor count.
  static int& runs_left() {
    thread_local int left = 0;
    return left;
  }
  static uintptr_t page() {
    static const auto size = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    return size;
  }
  // By this thread so far.
  static int64_t pages_waited_for() {
    rusage used{};
    getrusage(RUSAGE_THREAD, &used);
    return used.ru_majflt;
  }

  bool asks_ = false, counts_ = false;
  int64_t before_ = 0;
  uintptr_t begin_ = 0, end_ = 0;  // pages that are still to be asked for
};

}  // namespace loader
