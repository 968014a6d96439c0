// LABOR-0, written once for host and device: Balin and Catalyurek, "Layer-Neighbor Sampling: Defusing
// Neighborhood Explosion in GNNs", NeurIPS 2023.
//
// Each source t has one random number r_t of 64 bits, which all lists of a mini-batch share. A list of d > k
// entries picks t if r_t / 2^64 < k / d: floor(r_t * d / 2^64) < k, so with a probability that exceeds k / d
// by less than 2^-64. So k are picked on average, and lists that overlap pick the same sources. Parallel
// edges are picked together.
#pragma once

#include "sampler/pick.h"

namespace loader {

// Whether a list of `degree` entries picks the source that has this number.
LOADER_HD bool labor_picks(uint64_t number, uint32_t degree, uint32_t fanout) {
  return multiply_high(number, degree) < fanout;
}

// The numbers of the sources, at one step.
//
// Mini-batches may share them, so that they meet many of the same sources: of `period` mini-batches that
// follow each other each source has a new number in one, its own turn. In each mini-batch the numbers are
// independent and uniform.
struct SourceNumbers {
  uint64_t key, next_key;  // before and after a source's turn: batch_key with batch / period, and the next
  uint64_t turns_key;      // of the turns
  uint32_t step;           // the hop; 0 where all hops share the numbers
  uint32_t period, phase;  // phase: batch % period

  // Whether the turn is over of a source that has this word for it.
  LOADER_HD bool turned(uint32_t word) const {
    return static_cast<uint32_t>(uint64_t{word} * period >> 32) < phase;
  }
  LOADER_HD uint64_t key_of(uint64_t source) const {
    if (period == 1) return key;
    return turned(Draws{turns_key, source, 0}.block(0).w[0]) ? next_key : key;
  }
  LOADER_HD uint64_t operator()(uint64_t source) const {
    return Draws::pair_of(Draws{key_of(source), source, step}.block(0), 0);
  }
};

}  // namespace loader
