// Every kernel that a run can ask for, by subject: to compile them ahead.
#pragma once

#include <vector>

#include "gpu/kernel.h"

namespace loader {
std::vector<gpu::Kernel*> sampler_kernels();
std::vector<gpu::Kernel*> tree_kernels();
std::vector<gpu::Kernel*> gather_kernels();
std::vector<gpu::Kernel*> renewal_kernels();
std::vector<gpu::Kernel*> mean_kernels();
std::vector<gpu::Kernel*> layer_kernels();
std::vector<gpu::Kernel*> layout_kernels();
std::vector<gpu::Kernel*> attention_kernels();
std::vector<gpu::Kernel*> item_kernels();
std::vector<gpu::Kernel*> link_kernels();
std::vector<gpu::Kernel*> subgraph_kernels();
std::vector<gpu::Kernel*> induced_kernels();
std::vector<gpu::Kernel*> walk_kernels();
std::vector<gpu::Kernel*> traverse_kernels();
}  // namespace loader
