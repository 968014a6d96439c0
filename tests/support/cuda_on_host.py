"""How the GPU sampler is compiled for the host."""

from __future__ import annotations

from sanitizers import ROOT

# Two warps a block: what matters happens between warps and between blocks. Few ranges of a hash set, a small window and
# few vertices that are compared: small graphs fill them. Lists are long soon. The folder has a stand-in for CUDA.
OPTIONS = (
    "-O0",
    "-DLOADER_SAMPLER_WARPS=2",
    "-DLOADER_SAMPLER_RANGES=64",
    "-DLOADER_SAMPLER_WINDOW=2",
    "-DLOADER_SAMPLER_COMPARED=8",
    "-DLOADER_SAMPLER_LONG_LIST=40",
    "-Wno-unknown-pragmas",
    f"-I{ROOT / 'tests' / 'csrc' / 'cuda_on_host'}",
)
