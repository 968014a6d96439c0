// Thread blocks of the walks' kernels, for host and device.
#pragma once

namespace loader {

constexpr int kWarpWalkers = 32;  // at most
constexpr int kWalkThreads = 64;  // of a block: few walkers are spread over all multiprocessors, too
// Blocks that a multiprocessor must have registers for. With 24 of them, 200,000 walkers go at once on 132.
constexpr int kWalkBlocks = 24, kSearchingBlocks = 18, kCustomBlocks = 16;

constexpr int kTransitThreads = 256;
constexpr int kFilterThreads = 256, kFilterEdges = 64;  // of a thread
constexpr int kNegativeThreads = 256;

}  // namespace loader
