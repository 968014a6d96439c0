// The headers of mini-batches under way: where kernels tell the host what they sampled.
#pragma once

#include <vector>

#include "sampler/cuda/sampler.h"

namespace loader {

// Headers that no mini-batch has. One that is taken belongs to its mini-batch until it is given back: it is
// never that of two. A mini-batch that is given up may still be sampled and written; the next one of the
// header is launched behind it, and knows its own result by the sequence.
class FreeHeaders {
 public:
  template <typename Header>
  void add(Header* headers, size_t count) {
    free_.reserve(free_.size() + count);
    for (size_t i = 0; i < count; ++i) give_back(headers + i);
  }
  SampleHeader* take() {
    SampleHeader* const header = free_.back();
    free_.pop_back();
    return header;
  }
  void give_back(SampleHeader* header) { free_.push_back(header); }
  size_t count() const { return free_.size(); }

 private:
  std::vector<SampleHeader*> free_;
};

}  // namespace loader
