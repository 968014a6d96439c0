// Walks on the GPU. Pointers are to memory that the GPU reads; its context is the current one.
#pragma once

#include <cstdint>

#include "gpu/stream.h"
#include "walks/negatives.h"
#include "walks/starts.h"
#include "walks/walk.h"

namespace loader {

// Walks by `law` through `lists`, from `starts`; `out.starts` has no meaning here.
template <class Law, class Lists>
void walk_on_gpu(const Law& law, const Lists& lists,
                 const WalkOut<typename Lists::Edge, typename Lists::Vertex>& out, const WalkStarts& starts,
                 int device, gpu::Stream stream);

// Takes one step of the walks, whose earlier ones were taken, in this order of the walkers: [out.count].
template <class Law, class Lists>
void step_on_gpu(const Law& law, const Lists& lists,
                 const WalkOut<typename Lists::Edge, typename Lists::Vertex>& out, const WalkStarts& starts,
                 const int64_t* order, uint32_t step, int device, gpu::Stream stream);

// Marks all edges in `filter`, whose words are zero.
template <typename P, typename N>
void fill_filter_on_gpu(const PlainLists<P, N>& lists, int64_t num_nodes, int64_t num_edges,
                        const EdgeFilter& filter, int device, gpu::Stream stream);

// out [walkers, count]: row i are the negatives of walker `first_lane` + i.
template <typename N>
void draw_negatives_on_gpu(const Negatives& law, uint64_t first_lane, int64_t walkers, int64_t count, N* out,
                           int device, gpu::Stream stream);

}  // namespace loader
