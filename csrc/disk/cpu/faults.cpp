#include "disk/faults.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "fork.h"

namespace loader {
namespace {

// A mapped file. The signal handler walks the list of them without a lock, so an entry is never freed; one
// that was forgotten has the length 0 and is used again.
struct Entry {
  std::atomic<uint64_t> length{0};
  uintptr_t begin = 0;
  uint64_t offset = 0;
  int handle = -1;
  char* path = nullptr;
  int64_t number = 0;
  Entry* next = nullptr;
};

std::atomic<Entry*> first_entry{nullptr};
struct sigaction handler_before {};

BriefMutex& mutex() {  // of who changes the list; never destroyed, as the process may end meanwhile
  static BriefMutex* const instance = new BriefMutex;
  return *instance;
}

Entry* entry_of(uintptr_t at) {
  for (Entry* entry = first_entry.load(std::memory_order_acquire); entry; entry = entry->next) {
    const uint64_t length = entry->length.load(std::memory_order_acquire);
    if (length && at >= entry->begin && at - entry->begin < length) return entry;
  }
  return nullptr;
}

// The size of the file if it no longer reaches as far as its mapping, else -1.
int64_t size_if_cut(const Entry& entry, uint64_t length) {
  struct stat now {};
  if (fstat(entry.handle, &now) != 0) return -1;
  return static_cast<uint64_t>(now.st_size) < entry.offset + length ? now.st_size : -1;
}

// A line that is put together without memory of the heap, which a signal handler may not take.
class Line {
 public:
  Line& operator<<(const char* text) {
    while (*text && size_ < sizeof(data_)) data_[size_++] = *text++;
    return *this;
  }
  Line& operator<<(uint64_t number) {
    char digits[21];
    char* at = digits + sizeof(digits) - 1;
    *at = 0;
    do *--at = static_cast<char>('0' + number % 10);
    while (number /= 10);
    return *this << at;
  }
  void write_to(int handle) {
    for (size_t at = 0; at < size_;) {
      const ssize_t written = ::write(handle, data_ + at, size_ - at);
      if (written > 0)
        at += static_cast<size_t>(written);
      else if (errno != EINTR)
        return;
    }
  }

 private:
  char data_[8192];
  size_t size_ = 0;
};

// Not on the stack, which may be a signal handler's own and short.
Line line;
std::atomic_flag is_ending = ATOMIC_FLAG_INIT;

[[noreturn]] void end(const Entry& entry, int64_t size) {
  while (is_ending.test_and_set()) pause();  // another thread says it, and ends the process
  const uint64_t needed = entry.offset + entry.length.load(std::memory_order_relaxed);
  line << "error: " << entry.path;
  if (size >= 0)
    line << " was cut short while it was open: it has " << static_cast<uint64_t>(size) << " bytes, " << needed
         << " are needed; ";
  else
    line << " could not be read while it was open: the disk reported an error; ";
  line << "restore the file (a converted dataset: dataset.rebuild=true), then continue from the last "
          "checkpoint\n";
  line.write_to(STDERR_FILENO);
  // No destructors and no functions of atexit: other threads may be in the midst of anything.
  _exit(1);
}

void pass_on(int signal, siginfo_t* info, void* context) {
  const struct sigaction& before = handler_before;
  if (before.sa_flags & SA_SIGINFO) return before.sa_sigaction(signal, info, context);
  if (before.sa_handler == SIG_IGN && info->si_code <= 0) return;  // somebody sent it
  if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) return before.sa_handler(signal);
  // The default ends the process: when the read is repeated, or when the signal comes again.
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  sigaction(signal, &standard, nullptr);
  if (info->si_code <= 0) raise(signal);
}

void on_bus_error(int signal, siginfo_t* info, void* context) {
  const int error = errno;
  if (info->si_code == BUS_ADRERR) {
    if (const Entry* entry = entry_of(reinterpret_cast<uintptr_t>(info->si_addr)))
      end(*entry, size_if_cut(*entry, entry->length.load(std::memory_order_relaxed)));
  } else if (info->si_code <= 0) {
    // Sent by a program, and without an address: Python's faulthandler, if it was enabled later, sends the
    // signal again when it has printed the stack.
    for (const Entry* entry = first_entry.load(std::memory_order_acquire); entry; entry = entry->next) {
      const uint64_t length = entry->length.load(std::memory_order_acquire);
      const int64_t size = length ? size_if_cut(*entry, length) : -1;
      if (size >= 0) end(*entry, size);
    }
  }
  errno = error;
  pass_on(signal, info, context);
}

void set_handler() {
  static bool is_set = false;
  if (is_set) return;
  struct sigaction own {};
  own.sa_sigaction = on_bus_error;
  own.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&own.sa_mask);
  if (sigaction(SIGBUS, nullptr, &handler_before) != 0 || sigaction(SIGBUS, &own, nullptr) != 0)
    throw std::runtime_error(std::string("the system takes no handler of SIGBUS: ") + std::strerror(errno));
  is_set = true;
}

}  // namespace

int64_t watch_file(uintptr_t begin, uint64_t length, int handle, uint64_t offset, const std::string& path) {
  static int64_t last_number = 0;
  std::lock_guard<BriefMutex> lock(mutex());
  const int own = fcntl(handle, F_DUPFD_CLOEXEC, 3);
  if (own < 0)
    throw std::runtime_error("the system gives no further handle for " + path + ": " + std::strerror(errno));
  set_handler();
  Entry* entry = first_entry.load(std::memory_order_relaxed);
  while (entry && entry->length.load(std::memory_order_relaxed)) entry = entry->next;
  const bool is_new = entry == nullptr;
  if (is_new) entry = new Entry;
  entry->begin = begin;
  entry->offset = offset;
  entry->handle = own;
  entry->path = strdup(path.c_str());
  entry->number = ++last_number;
  entry->length.store(length, std::memory_order_release);
  if (is_new) {
    entry->next = first_entry.load(std::memory_order_relaxed);
    first_entry.store(entry, std::memory_order_release);
  }
  return entry->number;
}

bool is_watched(uintptr_t at) {
  std::lock_guard<BriefMutex> lock(mutex());
  return entry_of(at) != nullptr;
}

void require_whole(const void* begin, int64_t length) {
  if (length <= 0 || first_entry.load(std::memory_order_acquire) == nullptr) return;
  const auto first = reinterpret_cast<uintptr_t>(begin), last = first + static_cast<uintptr_t>(length);
  std::lock_guard<BriefMutex> lock(mutex());
  for (const Entry* entry = first_entry.load(std::memory_order_relaxed); entry; entry = entry->next) {
    const uint64_t known = entry->length.load(std::memory_order_relaxed);
    if (known == 0 || first >= entry->begin + known || entry->begin >= last) continue;
    if (const int64_t size = size_if_cut(*entry, known); size >= 0) end(*entry, size);
  }
}

void forget_file(int64_t number) {
  std::lock_guard<BriefMutex> lock(mutex());
  for (Entry* entry = first_entry.load(std::memory_order_relaxed); entry; entry = entry->next) {
    if (entry->number != number || !entry->length.load(std::memory_order_relaxed)) continue;
    entry->length.store(0, std::memory_order_release);
    close(entry->handle);
    free(entry->path);
    entry->path = nullptr;
  }
}

}  // namespace loader
