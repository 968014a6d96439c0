"""Marks for tests that need something which is not everywhere."""

from __future__ import annotations

import os
import shutil
from importlib.util import find_spec

import pytest
import torch

from loader.machine.optional import import_dgl


def _reason_without_dgl() -> str:
    try:
        import_dgl("this test")
    except ImportError as error:
        return str(error)
    return ""


_REASON = _reason_without_dgl()
HAS_DGL = not _REASON
needs_dgl = pytest.mark.skipif(bool(_REASON), reason=_REASON or "DGL is here")

_HAS_FRAME = all(map(find_spec, ("torch_frame", "torch_geometric", "pyarrow", "yaml")))
needs_frame = pytest.mark.skipif(not _HAS_FRAME, reason="needs pip install 'gnn-loader[relational]'")

needs_metis = pytest.mark.skipif(find_spec("pymetis") is None, reason="needs pip install 'gnn-loader[metis]'")

_HAS_COMPILER = any(shutil.which(tool) for tool in ("c++", "g++", "clang++"))
needs_compiler = pytest.mark.skipif(not _HAS_COMPILER, reason="needs a C++ compiler")

HAS_GPU = torch.cuda.is_available()
needs_gpu = [
    pytest.mark.gpu,
    pytest.mark.skipif(not HAS_GPU, reason="needs an NVIDIA GPU"),
    # Once a process: of torch's debug mode, and of a thread of autograd's that begins with a matrix product.
    pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype", "ignore:Attempting to run cuBLAS"),
]
# Few machines have them: what the other GPU tests show on one holds there too, but for what takes a GPU for granted.
needs_two_gpus = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")

# Only root can give a file to another user.
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make a file of another user")
