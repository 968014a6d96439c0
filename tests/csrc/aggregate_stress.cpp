// The mean over neighbors and its gradient on any number of threads beside one thread, without Python: made
// to run under a sanitizer.
#include <cmath>

#include "aggregate/mean.h"
#include "compare.h"

namespace {

using stress::Random;

template <typename P, typename I, typename T>
int64_t compare(Random& random, int rounds) {
  int64_t edges = 0;
  loader::ThreadPool one(1);
  for (int round = 0; round < rounds; ++round) {
    loader::ThreadPool pool(static_cast<int>(random.between(2, 6)));
    // The first two are large enough for each step to be shared out among threads, summing and checking; the
    // others are small and odd.
    const bool wide = round == 0, tall = round == 1;
    const int64_t num_dst = wide ? 16000 : tall ? 400000 : random.between(0, 400);
    const int64_t num_src = num_dst + (wide || tall ? 60000 : random.between(1, 2000));
    const int64_t dim = wide ? 32 : tall ? 1 : random.between(1, 70);
    std::vector<P> indptr{0};
    std::vector<I> indices;
    for (int64_t i = 0; i < num_dst; ++i) {
      for (int64_t e = random.between(0, 12); e > 0; --e)
        indices.push_back(static_cast<I>(random.below(num_src)));
      indptr.push_back(static_cast<P>(indices.size()));
    }
    const loader::BlockView<P, I> block{indptr.data(), indices.data(), num_dst, num_src,
                                        static_cast<int64_t>(indices.size())};
    int64_t where = 0;
    if (loader::check_block(block, pool, &where) != loader::BlockError::ok)
      stress::fail("a good block was refused");

    const auto random_values = [&](int64_t count) {
      std::vector<T> values(count);
      for (T& value : values) value = static_cast<T>(random.between(-1000, 1000)) / T(256);
      return values;
    };
    const auto x = random_values(num_src * dim), grad = random_values(num_dst * dim);
    std::vector<T> out(num_dst * dim), out_one(out), grad_x(num_src * dim), grad_x_one(grad_x);
    loader::mean_forward(block, x.data(), dim, out.data(), pool);
    loader::mean_forward(block, x.data(), dim, out_one.data(), one);
    stress::expect_equal(out, out_one, "means on several threads");
    loader::mean_backward(block, grad.data(), dim, grad_x.data(), pool);
    loader::mean_backward(block, grad.data(), dim, grad_x_one.data(), one);
    stress::expect_equal(grad_x, grad_x_one, "gradients on several threads");
    for (int64_t i = 0; i < num_dst; ++i) {
      const int64_t begin = indptr[i], end = indptr[i + 1];
      for (int64_t f = 0; f < dim; ++f) {
        double sum = 0;
        for (int64_t e = begin; e < end; ++e) sum += static_cast<double>(x[indices[e] * dim + f]);
        const double mean = begin < end ? sum / static_cast<double>(end - begin) : 0.0;
        if (std::abs(mean - static_cast<double>(out[i * dim + f])) > 1e-4) stress::fail("a mean is wrong");
      }
    }
    if (!indices.empty()) {
      const int64_t edge = random.below(block.num_edges);
      indices[edge] = static_cast<I>(num_src);
      if (loader::check_block(block, pool, &where) != loader::BlockError::bad_index || where != edge)
        stress::fail("a source out of range was not found");
    }
    edges += block.num_edges;
  }
  return edges;
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = stress::rounds(argc, argv, 10);
  Random random(7);
  const int64_t edges = compare<int32_t, int32_t, float>(random, rounds) +
                        compare<int64_t, int32_t, double>(random, rounds) +
                        compare<int64_t, int64_t, float>(random, rounds);
  if (edges == 0) stress::fail("nothing was compared");
  std::printf("equal: %lld edges\n", static_cast<long long>(edges));
}
