// Makes streams, or the host, wait for a stream.
#pragma once

#include "gpu/driver.h"

namespace loader::gpu {

class Fence {
 public:
  // Throws Error if the driver refuses.
  explicit Fence(int device) : device_(device) {
    const OnDevice current(device_);
    check(driver().cuEventCreate(&event_, kEventWithoutTiming), "making an event");
  }
  ~Fence() {
    try {
      const OnDevice current(device_);
      driver().cuEventDestroy(event_);
    } catch (const std::exception&) {  // the process ends, and the driver with it
    }
  }
  Fence(const Fence&) = delete;
  Fence& operator=(const Fence&) = delete;

  // Those that wait do so for what was put on this stream so far. Streams are of the device, whose context is
  // the current one.
  void record(Stream earlier) { check(driver().cuEventRecord(event_, earlier), "recording an event"); }

  // What is put on `later` from now on waits for what was put on `earlier`.
  void between(Stream earlier, Stream later) {
    record(earlier);
    check(driver().cuStreamWaitEvent(later, event_, 0), "waiting for an event");
  }

  // The host waits; not at all before the first `record`.
  void wait() const { check(driver().cuEventSynchronize(event_), "waiting for an event"); }

 private:
  const int device_;
  Event event_ = nullptr;
};

}  // namespace loader::gpu
