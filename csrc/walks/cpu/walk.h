// Walks on the CPU: threads share out the walkers, and each thread has many under way at a time.
#pragma once

#include <cstdint>

#include "parallel.h"
#include "walks/walk.h"

namespace loader {

// Walks by `law` through `lists`; starts are vertices of the graph.
template <class Law, class Lists>
void walk_on_cpu(const Law& law, const Lists& lists,
                 const WalkOut<typename Lists::Edge, typename Lists::Vertex>& out, ThreadPool& pool);

}  // namespace loader
