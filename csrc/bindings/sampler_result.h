// What a mini-batch on the GPU tells the host, as Python sees it: its sizes, or why it has none.
#pragma once

#include <pybind11/stl.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "bindings/gpu.h"
#include "sampler/cuda/results.h"

namespace loader {

// The headers of a sampler, and the largest sizes that they told. The GIL is held.
class Results {
 public:
  // Of HeteroLists: the relations into each type, and whether a hop looks at the lists of the vertices alone
  // that the hop before found.
  explicit Results(std::vector<int64_t> relations = {}, bool once = false)
      : relations_(std::move(relations)), once_(once) {
    most_.counted = -1;  // even an empty mini-batch is larger than none
  }

  // `memory`: [n * bytes of a header] uint8, zero, in pinned host memory. It is kept.
  template <typename Header>
  void add(const py::object& memory) {
    const View<uint8_t> bytes = view<uint8_t>(memory, "headers");
    if (!is_pinned(memory)) throw py::value_error("headers is not pinned; kernels write there");
    held_.push_back(memory);
    free_.add(reinterpret_cast<Header*>(bytes.data), static_cast<size_t>(bytes.size) / sizeof(Header));
  }

  SampleHeader* take() {
    if (free_.count() == 0)
      throw std::runtime_error("there is no header left for a mini-batch; add_headers first");
    return free_.take();
  }
  void give_back(SampleHeader* header) { free_.give_back(header); }
  size_t count() const { return free_.count(); }
  size_t types() const { return relations_.size(); }

  // Of HeteroLists the vertices that each hop found, by type, and the lists that each hop looked at.
  std::pair<py::tuple, py::list> by_type(const HeteroHeader& h, int hops) const {
    py::tuple found(hops + 1);
    py::list rows;
    int64_t before = 0;
    for (int hop = 0; hop <= hops; ++hop) {
      const auto* const counts = h.new_by_type + hop * kMaxTypes;
      py::tuple of_hop(types());
      int64_t own = once_ ? 0 : before;
      for (size_t t = 0; t < types(); ++t) {
        of_hop[t] = int64_t{counts[t]};
        own += counts[t] * relations_[t];
      }
      found[hop] = std::move(of_hop);
      if (hop < hops) rows.append(before = own);
    }
    return {std::move(found), std::move(rows)};
  }

  // Remembers the sizes of a mini-batch where they are the largest so far. Here, because Python takes one to
  // three microseconds to compare them.
  bool grows(const SampleHeader& h, int hops) {
    bool grown = false;
    const auto see = [&grown](int64_t& most, int64_t size) {
      grown |= size > most;
      most = std::max(most, size);
    };
    for (int i = 0; i <= hops; ++i) see(most_.frontiers[i], h.frontiers[i]);
    for (int i = 0; i < hops; ++i) see(most_.edges[i], h.edges[i]);
    see(most_.counted, h.counted);
    see(most_.lines, h.lines);
    return grown;
  }

 private:
  const std::vector<int64_t> relations_;
  const bool once_;
  std::vector<py::object> held_;
  FreeHeaders free_;
  SampleHeader most_{};
};

// A mini-batch that was launched. Its header is its own until its sizes were told, or it is dropped.
class Result {
 public:
  Result(std::shared_ptr<Results> results, uint64_t sequence, int hops, int device, gpu::Stream stream)
      : results_(std::move(results)),
        header_(results_->take()),
        sequence_(sequence),
        hops_(hops),
        device_(device),
        stream_(stream) {}
  Result(Result&& other) noexcept
      : results_(std::move(other.results_)),
        header_(std::exchange(other.header_, nullptr)),
        sequence_(other.sequence_),
        hops_(other.hops_),
        device_(other.device_),
        stream_(other.stream_) {}
  Result& operator=(Result&&) = delete;
  ~Result() { let_go(); }

  SampleHeader* header() const { return header_; }

  // Of HeteroLists after that also what Results::by_type says, as far as is known.
  // Waits for the sizes: (status, detail, hops done, frontiers, edges, SampleHeader::counted, whether one
  // that was finished needed more of anything than all before it, lines of pinned memory that its launch
  // fetched).
  py::tuple wait() {
    if (!header_) throw std::runtime_error("this mini-batch was finished already");
    const SampleHeader& h = *header_;
    {
      py::gil_scoped_release release;
      wait_until_written();
    }
    const bool ok = h.status == SampleStatus::kOk;
    auto report = py::make_tuple(static_cast<int64_t>(h.status), h.detail, h.hops_done,
                                 std::vector<int64_t>(h.frontiers, h.frontiers + hops_ + 1),
                                 std::vector<int64_t>(h.edges, h.edges + hops_), h.counted,
                                 ok && results_->grows(h, hops_), h.lines);
    if (results_->types() > 0) {
      auto [found, rows] = results_->by_type(static_cast<const HeteroHeader&>(h), hops_);
      report = report + py::make_tuple(std::move(found), std::move(rows));
    }
    let_go();
    return report;
  }

  // (status, detail) of a mini-batch that may not be done: without waiting; None where it is not.
  py::object peek() {
    if (!header_) throw std::runtime_error("this mini-batch was finished already");
    if (!written()) return py::none();
    std::atomic_thread_fence(std::memory_order_acquire);
    auto report = py::make_tuple(static_cast<int64_t>(header_->status), header_->detail);
    let_go();
    return std::move(report);
  }

 private:
  bool written() const { return *static_cast<const volatile uint64_t*>(&header_->sequence) == sequence_; }

  // Waits until the kernel has written the sequence; the blocks may still be under way on the stream.
  void wait_until_written() const {
    for (uint64_t spins = 0; !written(); ++spins) {
      if (spins % 4096 != 4095) continue;
      const gpu::OnDevice current(device_);  // whose default stream is meant
      const gpu::Status state = gpu::driver().cuStreamQuery(stream_);
      if (state == gpu::kNotReady) {
        if (spins > (uint64_t{1} << 22)) std::this_thread::sleep_for(std::chrono::microseconds(50));
        continue;
      }
      gpu::check(state, "sampling on the GPU");
      if (!written()) throw std::runtime_error("the sampling kernel ended without a result");
    }
    std::atomic_thread_fence(std::memory_order_acquire);
  }

  void let_go() {
    if (SampleHeader* const header = std::exchange(header_, nullptr)) results_->give_back(header);
  }

  std::shared_ptr<Results> results_;
  SampleHeader* header_;
  uint64_t sequence_;
  int hops_, device_;
  gpu::Stream stream_;
};

}  // namespace loader
