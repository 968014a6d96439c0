// A stream of work on a GPU: CUDA's own.
#pragma once

struct CUstream_st;

namespace loader::gpu {
using Stream = CUstream_st*;
}  // namespace loader::gpu
