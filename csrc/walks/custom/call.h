// How the core calls what the system's compiler made of a user's function
// (loader/samplers/walk_next/host.py). Both are compiled from the same headers.
#pragma once

#include <cstdint>

#include "walks/custom/walker.h"

namespace loader {

// Philox blocks of many lanes, see sampler/cpu/pick_batch.h.
using PhiloxLanes = void (*)(int64_t lanes, const uint64_t* v, const uint32_t* hop, const uint32_t* index,
                             uint64_t key, uint32_t* words);

struct CustomCall {
  const CustomRules* rules;
  const void* lists;  // CustomLists<P, N>
  const void* out;    // WalkOut<P, N>, without places
  PhiloxLanes philox;
};

// The walks of walkers [first, last). The fault of the first row that has one is told in `fault`, which is
// zero; rows from there on may have no walk.
using WalkCustom = void (*)(const CustomCall* call, int64_t first, int64_t last, Fault* fault);

}  // namespace loader
