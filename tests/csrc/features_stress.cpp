// Gathers and the buffer pool from several threads at a time, without Python: made to run under a sanitizer.
#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <thread>

#include "compare.h"
#include "features/buffer_pool.h"
#include "features/gather.h"

namespace {

using stress::Random;

// Rows of random lengths, each gather compared with a plain loop.
template <typename Id>
int64_t gathers(uint64_t seed, int rounds) {
  Random random(seed);
  int64_t rows = 0;
  for (int round = 0; round < rounds; ++round) {
    loader::ThreadPool pool(static_cast<int>(random.between(1, 6)));
    for (int call = 0; call < 4; ++call) {
      const int64_t num_rows = random.between(1, 3000), bytes = random.between(1, 500);
      const int64_t n = random.between(0, 4000);
      std::vector<uint8_t> table(num_rows * bytes), out(n * bytes), expected(n * bytes);
      for (auto& byte : table) byte = static_cast<uint8_t>(random.below(256));
      std::vector<Id> nodes(n);
      for (auto& v : nodes) v = static_cast<Id>(random.below(num_rows));
      if (random.chance(0.5)) std::sort(nodes.begin(), nodes.end());
      for (int64_t i = 0; i < n; ++i)
        std::copy_n(table.begin() + nodes[i] * bytes, bytes, expected.begin() + i * bytes);
      const loader::RowTable view{table.data(), num_rows, bytes, random.chance(0.3)};
      loader::gather_rows(pool, view, nodes.data(), n, out.data());
      stress::expect_equal(out, expected, "gathered bytes");
      std::fill(out.begin(), out.end(), 0);
      loader::gather_rows(pool, view, nodes.data(), n, out.data(), loader::Reader::kDevice);
      stress::expect_equal(out, expected, "bytes gathered for a device");
      rows += n;
      if (n == 0) continue;
      nodes[random.below(n)] = static_cast<Id>(random.chance(0.5) ? num_rows : -1);
      try {
        loader::gather_rows(pool, view, nodes.data(), n, out.data());
      } catch (const std::invalid_argument&) {
        stress::expect_equal(out, expected, "bytes after a refused gather");
        continue;
      }
      stress::fail("an id out of range was accepted");
    }
  }
  return rows;
}

// A buffer handed out belongs to one thread alone until it gives it back.
void share_a_pool(int rounds) {
  loader::BufferPool pool(2);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&pool, t, rounds] {
      Random random(t);
      for (int round = 0; round < 20 * rounds; ++round) {
        const int64_t nbytes = random.between(1, 1 << 16);
        const loader::Buffer buffer = pool.take(nbytes);
        if (buffer.capacity < nbytes) stress::fail("a buffer is too small");
        std::fill_n(buffer.data, nbytes, static_cast<uint8_t>(t));
        std::this_thread::yield();
        for (int64_t i = 0; i < nbytes; ++i)
          if (buffer.data[i] != t) stress::fail("two threads were given one buffer");
        pool.give_back(buffer);
        if (t == 0 && round % 7 == 0) static_cast<void>(pool.idle_bytes());
      }
    });
  for (auto& thread : threads) thread.join();
}

// Whatever some parts throw, each part is called once, and the caller hears of it.
void throw_from_parts(int threads) {
  loader::ThreadPool pool(threads);
  std::vector<std::atomic<int>> calls(50);
  try {
    pool.each(50, [&](int part, int) {
      ++calls[part];
      if (part % 7 == 3) throw std::out_of_range("a part");
    });
  } catch (const std::out_of_range&) {
    for (const auto& count : calls)
      if (count != 1) stress::fail("a part was not called once beside others that threw");
    return;
  }
  stress::fail("what a part threw was lost");
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = stress::rounds(argc, argv, 10);
  const int64_t rows = gathers<int32_t>(1, rounds) + gathers<int64_t>(2, rounds);
  if (rows == 0) stress::fail("nothing was compared");
  share_a_pool(rounds);
  for (const int threads : {1, 4}) throw_from_parts(threads);
  std::printf("equal: %lld gathered rows\n", static_cast<long long>(rows));
}
