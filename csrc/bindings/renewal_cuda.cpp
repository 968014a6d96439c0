// Exports the cache of rows that takes in what the next gathers need.
#include <pybind11/pybind11.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <string>

#include "bindings/gpu.h"
#include "bindings/views.h"
#include "features/cuda/renewal.h"
#include "gpu/fence.h"

namespace loader {
namespace {

// In memory that Python owns.
class CudaRenewal {
 public:
  CudaRenewal(py::handle rows, py::handle slots, py::handle owners, py::handle uses, py::handle leaving,
              py::handle coming, py::handle tally)
      : dtype_(dtype_of(rows)) {
    const RowsView cached = rows_view(rows, "rows", kGpu);        // [count, ...]
    const auto places = view<int32_t>(slots, "slots", -1, kGpu);  // [num_rows]
    if (places.size > std::numeric_limits<uint32_t>::max() ||
        cached.num_rows > std::numeric_limits<int32_t>::max())
      throw py::value_error("a table of " + std::to_string(places.size) + " rows, of which " +
                            std::to_string(cached.num_rows) +
                            " are cached, is too large to be renewed: at most 2^32 - 1 and 2^31 - 1");
    const int64_t words = (places.size + kUsesAWord - 1) / kUsesAWord;
    cache_.rows = cached.data;
    cache_.row_bytes = cached.row_bytes;
    cache_.count = static_cast<uint32_t>(cached.num_rows);
    cache_.num_rows = places.size;
    cache_.slots = places.data;
    cache_.owners = numbers(owners, "owners");                                 // [count]
    cache_.uses = view<uint8_t>(uses, "uses", words * kUsesAWord, kGpu).data;  // [num_rows], in whole words
    cache_.leaving = numbers(leaving, "leaving");                              // [count]
    cache_.coming = numbers(coming, "coming");                                 // [count]
    const auto counts = view<uint8_t>(tally, "tally", sizeof(Tally), kGpu);    // [renewal_tally_bytes]
    cache_.tally = reinterpret_cast<Tally*>(counts.data);
    device_ = device_index(rows);
    doing("making a cache that is renewed", [&] { fence_ = std::make_unique<gpu::Fence>(device_); });
  }

  void forget(StreamHandle stream) {
    launched([&] { launch_forget_uses(cache_, device_, stream_of(stream)); });
  }

  void note(py::handle ids, py::handle next, int turn, StreamHandle stream) {
    const Reading reading = checked(ids, next, turn);
    launched([&] { launch_note_uses(cache_, reading, device_, stream_of(stream)); });
  }

  void renew(py::handle ids, py::handle next, int turn, py::handle rows, StreamHandle choice_stream,
             StreamHandle bus_stream, StreamHandle stream) {
    Reading reading = checked(ids, next, turn);
    const RowsView read = rows_view(rows, "rows", place());  // [n, ...], as those that are cached
    if (!dtype_.is_of(rows))
      throw py::type_error("rows has dtype " + dtype_of(rows) + "; those that are cached have " +
                           dtype_.name());
    if (read.num_rows != reading.n || read.row_bytes != cache_.row_bytes)
      throw py::value_error("rows has " + std::to_string(read.num_rows) + " rows of " +
                            std::to_string(read.row_bytes) + " bytes; it must have " +
                            std::to_string(reading.n) + " of " + std::to_string(cache_.row_bytes));
    reading.rows = read.data;
    const RenewalStreams streams{stream_of(choice_stream), stream_of(bus_stream), stream_of(stream)};
    launched([&] { launch_renewal(cache_, reading, device_, streams, *fence_); });
  }

 private:
  uint32_t* numbers(py::handle tensor, const char* name) const {
    return reinterpret_cast<uint32_t*>(view<int32_t>(tensor, name, cache_.count, kGpu).data);
  }

  Place place() const { return {kGpu, device_}; }

  // `ids` [n], `next` [n].
  Reading checked(py::handle ids, py::handle next, int turn) const {
    if (turn < 0 || turn >= kMostTogether)
      throw py::value_error("turn is " + std::to_string(turn) + "; it must be 0 to " +
                            std::to_string(kMostTogether - 1));
    const auto read = integers_view(ids, "ids", -1, place());
    if (read.size > std::numeric_limits<int32_t>::max())  // with as many cached rows, 32 bits count them
      throw py::value_error("a gather of " + std::to_string(read.size) +
                            " ids cannot renew a cache: 0 to 2^31 - 1");
    uint8_t* const following = view<uint8_t>(next, "next", read.size, place()).data;
    return {read.data, read.wide, read.size, following, static_cast<uint8_t>(turn), nullptr};
  }

  template <typename F>
  void launched(const F& launch) const {
    doing("renewing a cache of rows", [&] {
      const py::gil_scoped_release release;
      const gpu::OnDevice current(device_);
      launch();
    });
  }

  const KnownDtype dtype_;  // of the rows
  RowCache cache_{};
  int device_;
  std::unique_ptr<gpu::Fence> fence_;
};

}  // namespace

void bind_renewal_cuda(py::module_& m) {
  py::class_<CudaRenewal>(m, "CudaRenewal")
      .def(py::init<py::handle, py::handle, py::handle, py::handle, py::handle, py::handle, py::handle>(),
           py::arg("rows"), py::kw_only(), py::arg("slots"), py::arg("owners"), py::arg("uses"),
           py::arg("leaving"), py::arg("coming"), py::arg("tally"))
      .def("forget", &CudaRenewal::forget, py::arg("stream"))
      .def("note", &CudaRenewal::note, py::arg("ids"), py::arg("next"), py::arg("turn"), py::arg("stream"))
      .def("renew", &CudaRenewal::renew, py::arg("ids"), py::arg("next"), py::arg("turn"), py::arg("rows"),
           py::arg("choice_stream"), py::arg("bus_stream"), py::arg("stream"));
  m.attr("renewal_tally_bytes") = sizeof(Tally);
  m.attr("most_together") = kMostTogether;
}

}  // namespace loader
