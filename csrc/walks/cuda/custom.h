// Walks on the GPU by a user's function.
#pragma once

#include <string>

#include "gpu/stream.h"
#include "walks/custom/walker.h"
#include "walks/starts.h"

namespace loader {

// `header` has the function: a source that loader/kernels knows. `out.starts` and `out.places` have no
// meaning here.
template <typename P, typename N>
void walk_custom_on_gpu(const std::string& header, const CustomRules& rules, const CustomLists<P, N>& lists,
                        const WalkOut<P, N>& out, const WalkStarts& starts, Fault* fault, int* reported,
                        int device, gpu::Stream stream);

}  // namespace loader
