// Exports the gather on the GPU, and the pinning of host memory that Python owns.
#include <pybind11/pybind11.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "bindings/gatherer.h"
#include "bindings/gpu.h"
#include "bindings/views.h"
#include "features/cuda/gather.h"
#include "features/upload.h"

namespace loader {
namespace {

ElementType element_type(const std::string& dtype) {
  if (dtype == "torch.float32") return ElementType::kFloat32;
  if (dtype == "torch.float16") return ElementType::kFloat16;
  if (dtype == "torch.bfloat16") return ElementType::kBFloat16;
  throw py::type_error("rows of " + dtype +
                       " cannot be converted; torch.float32, torch.float16 and torch.bfloat16 can");
}

// One table's rows on one GPU, in memory that Python owns.
class CudaGatherer {
 public:
  static constexpr int64_t kAll = std::numeric_limits<int64_t>::max();

  CudaGatherer(const py::object& table, uintptr_t address, const std::string& to, const py::object& raised,
               const py::object& notes, const py::object& cache, const py::object& slots,
               const py::object& hits, const std::string& code, int64_t columns, const py::object& scales)
      : to_(to) {
    const bool on_gpu = table.attr("device").attr("type").cast<std::string>() == "cuda";
    if (slots.is_none() != hits.is_none() || slots.is_none() != cache.is_none())
      throw py::value_error("cache, slots and hits belong together; give all of them or none");
    if (on_gpu && !slots.is_none())
      throw py::value_error("table lies on cuda; it must lie on cpu beside a cache");
    device_ = device_index(raised);
    placement_ = on_gpu ? Placement::kDevice : slots.is_none() ? Placement::kHost : Placement::kCached;

    const RowsView rows = rows_view(table, "table", on_gpu ? place() : "cpu");  // [num_rows, ...]
    const auto from = dtype_of(table);
    format_.coded = !scales.is_none();
    format_.convert = from != to && !format_.coded;
    format_.in_bytes = format_.out_bytes = rows.row_bytes;
    if (format_.coded) {
      format_.to = element_type(to);
      format_.codes = coded_rows(code, columns, rows, scales, kGpu);
      format_.pitch = rows.row_bytes;
      format_.in_bytes = columns;
      format_.out_bytes = columns * (format_.to == ElementType::kFloat32 ? 4 : 2);
    }
    if (format_.convert) {
      format_.from = element_type(from);
      format_.to = element_type(to);
      const int64_t elements = rows.row_bytes / (format_.from == ElementType::kFloat32 ? 4 : 2);
      format_.out_bytes = elements * (format_.to == ElementType::kFloat32 ? 4 : 2);
    }
    if (on_gpu && reinterpret_cast<uint8_t*>(address) != rows.data)
      throw py::value_error("address is " + std::to_string(address) + ", and the table lies on cuda at " +
                            std::to_string(reinterpret_cast<uintptr_t>(rows.data)) + "; give that");
    args_.table = reinterpret_cast<const uint8_t*>(address);
    args_.num_rows = rows.num_rows;
    if (placement_ == Placement::kCached) {
      const RowsView cached = rows_view(cache, "cache", place());  // [num_cached, ...], rows of the table
      if (cached.row_bytes != rows.row_bytes || dtype_of(cache) != from)
        throw py::value_error("cache has rows of " + std::to_string(cached.row_bytes) +
                              " bytes, the table of " + std::to_string(rows.row_bytes) +
                              "; they must be equal, and of one dtype");
      args_.cache = cached.data;
    }
    // [num_rows]; an empty table has one all the same
    args_.slots = optional_view<const int32_t>(slots, "slots", std::max<int64_t>(rows.num_rows, 1), place());
    args_.hits =
        reinterpret_cast<unsigned long long*>(optional_view<int64_t>(hits, "hits", 1, place()));       // [1]
    args_.raised = reinterpret_cast<unsigned int*>(view<int32_t>(raised, "raised", 1, place()).data);  // [1]
    args_.notes =
        reinterpret_cast<Notes*>(view<uint8_t>(notes, "notes", sizeof(Notes)).data);  // [cuda_notes_bytes]
    order_from_ = gather_order_from(rows.num_rows * rows.row_bytes, placement_);
  }

  void gather(py::handle ids, py::handle out, py::handle scratch, StreamHandle stream, int64_t misses_below,
              py::handle marks) {
    const bool marked = !marks.is_none();
    if ((misses_below != kAll || marked) && placement_ != Placement::kCached)
      throw py::value_error("misses_below or marks are given for a table without a cache");
    GatherArgs args = args_of(ids);         // [n]
    args.out = rows_of(out, args.n);        // [n, ...], rows of `dtype`
    args.scratch = optional_view<uint8_t>(  // [scratch_bytes(n)]
        scratch, "scratch", static_cast<int64_t>(gather_scratch(args.n, placement_)), place());
    args.misses_below = misses_below;
    args.marks = marks_of(marks, args.n);  // [(n + 31) / 32]
    // Not for a part of a gather: another part of it may have reported already.
    if (misses_below != 0 && !marked) raise_bad_id(stream);
    doing("gathering on the GPU", [&] {
      const py::gil_scoped_release release;
      const gpu::OnDevice current(device_);
      launch_gather(args, format_, placement_, device_, stream_of(stream));
    });
  }

  int64_t rows_a_range() const {
    return std::max<int64_t>(1, (args_.num_rows + kMissRanges - 1) / kMissRanges);
  }

  // See MissIds.
  void find_misses(py::handle ids, int64_t from, py::handle found, py::handle positions,
                   StreamHandle stream) {
    if (placement_ != Placement::kCached) throw py::value_error("find_misses is of a table with a cache");
    const GatherArgs args = args_of(ids);  // [n]
    const int64_t most = from < args_.num_rows ? args.n : 0;
    const int64_t words = args.wide_ids ? most : (most + 1) / 2;
    int64_t* const counts = view<int64_t>(found, "found", 2 + kMissRanges + words, place()).data;
    const MissIds to{counts + 2 + kMissRanges,
                     view<int64_t>(positions, "positions", most, place()).data,  // [n]
                     reinterpret_cast<unsigned long long*>(counts), rows_a_range()};
    doing("looking for rows that are not cached", [&] {
      const py::gil_scoped_release release;
      const gpu::OnDevice current(device_);
      launch_find_misses(args, from, to, device_, stream_of(stream));
    });
  }

  // A bit for each of the ids of a gather.
  void mark_misses(py::handle ids, py::handle marks, StreamHandle stream) {
    if (placement_ != Placement::kCached) throw py::value_error("mark_misses is of a table with a cache");
    const GatherArgs args = args_of(ids);             // [n]
    uint32_t* const words = marks_of(marks, args.n);  // [(n + 31) / 32]
    doing("marking rows that are not cached", [&] {
      const py::gil_scoped_release release;
      const gpu::OnDevice current(device_);
      launch_mark_misses(args, words, device_, stream_of(stream));
    });
  }

  int blocks() const { return args_.blocks; }
  void set_blocks(int blocks) {
    if (blocks < 0) throw py::value_error("blocks is " + std::to_string(blocks) + "; it must be at least 0");
    args_.blocks = blocks;
  }

  int64_t order_from() const { return order_from_; }
  void set_order_from(int64_t n) {
    if (n < 0) throw py::value_error("order_from is " + std::to_string(n) + "; it must be at least 0");
    order_from_ = n;
  }

  size_t scratch_bytes(int64_t n) {
    if (n < order_from_) return 0;
    // A gather with a cache takes less time than one without, of which asking is a larger part.
    if (placement_ == Placement::kCached && order_from_ > 0 && taken_to_lie_in_order()) return 0;
    return gather_scratch(n, placement_);
  }

  // Throws what a kernel has reported so far, once.
  void raise_bad_id(StreamHandle stream) {
    volatile Notes* const notes = args_.notes;
    if (notes->bad_raised == 0) return;
    const int64_t id = notes->bad_id, position = notes->position;
    notes->bad_raised = 0;
    doing("clearing the report of a bad id", [&] {
      const gpu::OnDevice current(device_);
      gpu::set_bytes(args_.raised, 0, sizeof(*args_.raised), stream_of(stream));
    });
    throw py::value_error("an earlier gather was given ids[" + std::to_string(position) +
                          "] = " + std::to_string(id) + "; the table has " + std::to_string(args_.num_rows) +
                          " rows, valid ids are 0 to " + std::to_string(args_.num_rows - 1) +
                          " (such rows were filled with zeros)");
  }

 private:
  Place place() const { return {kGpu, device_}; }

  GatherArgs args_of(py::handle ids) const {
    const auto wanted = integers_view(ids, "ids", -1, place());
    GatherArgs args = args_;
    args.ids = wanted.data;
    args.wide_ids = wanted.wide;
    args.n = wanted.size;
    return args;
  }

  uint8_t* rows_of(py::handle out, int64_t n) const {
    const RowsView rows = rows_view(out, "out", place());
    if ((format_.convert || format_.coded) && !to_.is_of(out))  // else they are bytes, of any type
      throw py::type_error("out has dtype " + dtype_of(out) + "; rows are returned as " + to_.name());
    if (rows.num_rows != n || rows.row_bytes != format_.out_bytes)
      throw py::value_error("out has " + std::to_string(rows.num_rows) + " rows of " +
                            std::to_string(rows.row_bytes) + " bytes; it must have " + std::to_string(n) +
                            " of " + std::to_string(format_.out_bytes));
    return rows.data;
  }

  uint32_t* marks_of(py::handle marks, int64_t n) const {
    return reinterpret_cast<uint32_t*>(optional_view<int32_t>(marks, "marks", (n + 31) / 32, place()));
  }

  // Where ids lay in order every time that it was asked lately, the next ones are taken to do the same: to
  // ask costs little on an idle GPU, but waits for the thread blocks of whatever runs beside.
  bool taken_to_lie_in_order() {
    if (static_cast<const volatile Notes*>(args_.notes)->in_order == 0) asked_in_order_ = 0;
    if (asked_in_order_ == kAskedInOrder && ++since_asked_ < kAskedOnceIn) return true;
    since_asked_ = 0;
    asked_in_order_ = std::min(asked_in_order_ + 1, kAskedInOrder);
    return false;
  }

  const KnownDtype to_;  // of the rows that are returned
  GatherArgs args_{};
  RowFormat format_{};
  Placement placement_;
  int device_;
  int64_t order_from_ = 0;
  // The second is a prime, so that it is not always the same one of gathers that take turns that is asked.
  static constexpr int kAskedInOrder = 16, kAskedOnceIn = 17;
  int asked_in_order_ = 0;  // times in a row, up to kAskedInOrder
  int since_asked_ = 0;     // gathers
};

// Brings rows of tables in host memory to one GPU, through pinned memory that Python owns.
class RowUploader {
 public:
  RowUploader(Gatherer& gatherer, const py::object& ring, int buffers, int device) : gatherer_(gatherer) {
    const auto memory = view<uint8_t>(ring, "ring");  // [bytes]
    if (buffers < 1 || memory.size < buffers)
      throw py::value_error("ring has " + std::to_string(memory.size) + " bytes for " +
                            std::to_string(buffers) + " buffers; give at least one byte to each");
    buffer_bytes_ = memory.size / buffers;
    doing("making a ring of buffers",
          [&] { uploader_ = std::make_unique<Uploader>(memory.data, buffer_bytes_, buffers, device); });
  }

  void upload(py::handle table, py::handle ids, py::handle out, StreamHandle stream) {
    const RowsView from = rows_view(table, "table");  // [num_rows, ...]
    const RowsView to = rows_view(out, "out", kGpu);  // [n, ...]
    if (dtype_of(table) != dtype_of(out) || from.row_bytes != to.row_bytes)
      throw py::type_error("out has rows of " + std::to_string(to.row_bytes) + " bytes of " + dtype_of(out) +
                           ", the table of " + std::to_string(from.row_bytes) + " bytes of " +
                           dtype_of(table) + "; they must be equal");
    if (from.row_bytes > buffer_bytes_)
      throw py::value_error("a row has " + std::to_string(from.row_bytes) + " bytes, more than the " +
                            std::to_string(buffer_bytes_) + " of a buffer; give the ring more");
    with_ids(ids, to.num_rows, [&](const auto& wanted) {  // [n]
      doing("copying rows to the GPU", [&] {
        gatherer_.with_pool([&](ThreadPool& pool, bool in_file) {
          uploader_->upload(pool, {from.data, from.num_rows, from.row_bytes, in_file}, wanted.data,
                            wanted.size, reinterpret_cast<uintptr_t>(to.data), stream_of(stream));
          if (in_file) require_whole(from.data, from.num_rows * from.row_bytes);
        });
      });
    });
  }

  void wait() {
    doing("waiting for copies of rows",
          [&] { gatherer_.with_pool([&](ThreadPool&, bool) { uploader_->wait(); }); });
  }

 private:
  Gatherer& gatherer_;
  int64_t buffer_bytes_ = 0;
  std::unique_ptr<Uploader> uploader_;
};

// Pages of the host, locked and mapped for all GPUs as long as this lives.
class HostRegistration {
 public:
  HostRegistration(py::handle tensor, int device) : device_(device) {
    const auto bytes = bytes_view(tensor, "tensor");
    if (bytes.size < 1) throw py::value_error("tensor has no elements; at least 1 byte can be pinned");
    address_ = bytes.data;
    const py::gil_scoped_release release;  // gigabytes take seconds
    constexpr unsigned kPortable = 1, kMapped = 2;
    const gpu::OnDevice current(device);
    gpu::check(
        gpu::driver().cuMemHostRegister(address_, static_cast<size_t>(bytes.size), kPortable | kMapped),
        ("pinning " + std::to_string(bytes.size) + " bytes of host memory").c_str());
  }
  ~HostRegistration() {
    try {
      if (address_) unregister();
    } catch (const std::exception&) {  // the process ends, and the driver with it
    }
  }
  HostRegistration(const HostRegistration&) = delete;
  HostRegistration& operator=(const HostRegistration&) = delete;

  void release() {
    if (!address_) return;
    const py::gil_scoped_release release;
    unregister();
  }

 private:
  void unregister() {
    const gpu::OnDevice current(device_);
    gpu::check(gpu::driver().cuMemHostUnregister(std::exchange(address_, nullptr)), "unpinning host memory");
  }

  void* address_ = nullptr;
  const int device_;
};

uintptr_t device_address(py::handle pinned, int device) {
  void* const at = bytes_view(pinned, "pinned").data;
  const gpu::OnDevice current(device);
  uintptr_t address = 0;
  gpu::check(gpu::driver().cuMemHostGetDevicePointer(&address, at, 0),
             "asking for the GPU's address of pinned memory");
  return address;
}

}  // namespace

void bind_features_cuda(py::module_& m) {
  py::class_<CudaGatherer>(m, "CudaGatherer")
      .def(py::init<const py::object&, uintptr_t, const std::string&, const py::object&, const py::object&,
                    const py::object&, const py::object&, const py::object&, const std::string&, int64_t,
                    const py::object&>(),
           py::arg("table"), py::arg("address"), py::arg("dtype"), py::kw_only(), py::arg("raised"),
           py::arg("notes"), py::arg("cache") = py::none(), py::arg("slots") = py::none(),
           py::arg("hits") = py::none(), py::arg("code") = "", py::arg("columns") = 0,
           py::arg("scales") = py::none())
      .def("gather", &CudaGatherer::gather, py::arg("ids"), py::arg("out"), py::arg("scratch"),
           py::arg("stream"), py::kw_only(), py::arg("misses_below") = CudaGatherer::kAll,
           py::arg("marks") = py::none())
      .def("find_misses", &CudaGatherer::find_misses, py::arg("ids"), py::arg("from_id"), py::arg("found"),
           py::arg("positions"), py::arg("stream"),
           "found: [2 + miss_ranges] int64 zeros, which become counts, and room for the ids behind them.")
      .def("mark_misses", &CudaGatherer::mark_misses, py::arg("ids"), py::arg("marks").none(false),
           py::arg("stream"))
      .def_property_readonly("rows_a_range", &CudaGatherer::rows_a_range)
      .def_property("blocks", &CudaGatherer::blocks, &CudaGatherer::set_blocks,
                    "Thread blocks that read from host memory at a time; 0 for the default.")
      .def_property("order_from", &CudaGatherer::order_from, &CudaGatherer::set_order_from,
                    "Rows in host memory are read by where they lie, for so many ids and more. 0: for "
                    "all, whether or not those before lay in order.")
      .def("scratch_bytes", &CudaGatherer::scratch_bytes)
      .def("raise_bad_id", &CudaGatherer::raise_bad_id);
  py::class_<RowUploader>(m, "RowUploader", "Copies rows of host tensors by id to a GPU.")
      .def(py::init<Gatherer&, const py::object&, int, int>(), py::keep_alive<1, 2>(), py::arg("gatherer"),
           py::arg("ring"), py::arg("buffers"), py::arg("device"))
      .def("upload", &RowUploader::upload, py::arg("table"), py::arg("ids"), py::arg("out"),
           py::arg("stream"),
           "out[i] = table[ids[i]] in the order of the stream; ids int32 or int64, on the CPU as the table.")
      .def("wait", &RowUploader::wait, "Waits for the copies.");
  py::class_<HostRegistration>(m, "HostRegistration", "Locks pages of the host for the GPU while it lives.")
      .def(py::init<py::handle, int>(), py::arg("tensor"), py::arg("device"))
      .def("release", &HostRegistration::release, "Unlocks them now.");
  m.def("cuda_device_address", &device_address, py::arg("pinned"), py::arg("device"),
        "Where a GPU sees pinned host memory.");
  m.attr("cuda_notes_bytes") = sizeof(Notes);
  m.attr("miss_ranges") = kMissRanges;
}

}  // namespace loader
