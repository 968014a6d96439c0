// How the core computes while Python's other threads run.
#pragma once

#include <pybind11/pybind11.h>

#include "subnormals.h"

namespace loader {

// Python's lock is released while it lives, and the thread computes as the core's own threads do.
class Unlocked {
  const pybind11::gil_scoped_release release_;
  const WithSubnormals subnormals_;
};

}  // namespace loader
