// What the stress programs share: random numbers and a verdict.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

namespace stress {

// Uniform integers from a fixed seed: a failure repeats.
class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  int64_t below(int64_t bound) { return static_cast<int64_t>(engine_() % static_cast<uint64_t>(bound)); }
  int64_t between(int64_t low, int64_t high) { return low + below(high - low + 1); }
  bool chance(double p) { return static_cast<double>(engine_() >> 11) * 0x1p-53 < p; }

 private:
  std::mt19937_64 engine_;
};

[[noreturn]] inline void fail(const std::string& what) {
  std::fprintf(stderr, "FAILED: %s\n", what.c_str());
  std::exit(1);
}

template <typename T>
void expect_equal(const std::vector<T>& got, const std::vector<T>& expected, const std::string& what) {
  if (got.size() != expected.size())
    fail(what + ": " + std::to_string(got.size()) + " values instead of " + std::to_string(expected.size()));
  for (size_t i = 0; i < got.size(); ++i)
    if (got[i] != expected[i])
      fail(what + "[" + std::to_string(i) + "] is " + std::to_string(got[i]) + " instead of " +
           std::to_string(expected[i]));
}

// Rounds to run, from the command line.
inline int rounds(int argc, char** argv, int otherwise) { return argc > 1 ? std::atoi(argv[1]) : otherwise; }

}  // namespace stress
