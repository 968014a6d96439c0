"""Training on arrays of a folder, by a process that may take little memory besides: `python disk_training.py --help`.

It prints a line per step, "step digest-of-the-mini-batch loss", and saves a checkpoint before each, from which it goes
on if it finds one.
"""

from __future__ import annotations

import argparse
import os
import resource
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from loader.graph import Graph
from loader.loaders.nodes import NodeLoader
from loader.samplers import FusedSampler
from loader.stores import HostFeatures, MemmapFeatures
from models.sage import GraphSAGE

NUM_CLASSES = 4


def write_arrays(folder: Path, num_nodes: int, degree: int, num_features: int) -> int:
    """A random graph and features as .npy files; returns how many bytes they have."""
    rng = np.random.default_rng(0)
    np.save(folder / "indptr.npy", np.arange(num_nodes + 1, dtype=np.int32) * degree)
    np.save(folder / "indices.npy", rng.integers(0, num_nodes, num_nodes * degree, dtype=np.int32))
    np.save(folder / "features.npy", rng.random((num_nodes, num_features), dtype=np.float32))
    return sum(path.stat().st_size for path in folder.glob("*.npy"))


def mapped(path: Path) -> Tensor:
    return torch.from_numpy(np.load(path, mmap_mode="c"))


def open_loader(folder: Path, in_memory: bool) -> NodeLoader:
    """Of some nodes, with the arrays mapped or in memory."""
    indptr, indices, features = (mapped(folder / f"{name}.npy") for name in ("indptr", "indices", "features"))
    if in_memory:
        indptr, indices, features = indptr.clone(), indices.clone(), features.clone()
    graph = Graph(indptr, indices)
    assert graph.indices.data_ptr() == indices.data_ptr()  # neither kind is copied
    store = (HostFeatures if in_memory else MemmapFeatures)(features, num_threads=2)
    seeds, y = torch.arange(0, graph.num_nodes, graph.num_nodes // 96), torch.arange(graph.num_nodes) % NUM_CLASSES
    sampler = FusedSampler([10, 10, 3], num_threads=2)
    return NodeLoader(graph, store, y, seeds, sampler, 4, shuffle=True, prefetch=1)


def train(loader: NodeLoader, checkpoint: Path | None = None) -> Any:
    """One epoch, or what is left of it; gives the line of each step when it is done."""
    torch.manual_seed(0)
    net = GraphSAGE(loader.stores["node"].dim, 8, NUM_CLASSES, 3, dropout=0.0)
    step = 0
    if checkpoint is not None and checkpoint.exists():
        state = torch.load(checkpoint)
        step = state["step"]
        loader.load_state_dict(state["loader"])
        net.load_state_dict(state["net"])
    for batch in loader:
        loss = F.cross_entropy(net(batch.blocks, batch.x), batch.y)
        # Plain descent: to import torch.optim takes longer than all of this.
        with torch.no_grad():
            for weight, gradient in zip(
                net.parameters(), torch.autograd.grad(loss, list(net.parameters())), strict=True
            ):
                weight -= 0.1 * gradient
        step += 1
        if checkpoint is not None:
            states = {"step": step, "loader": loader.state_dict(), "net": net.state_dict()}
            torch.save(states, checkpoint.with_suffix(".part"))
            os.replace(checkpoint.with_suffix(".part"), checkpoint)
        yield f"{step} {batch.digest()} {loss.item().hex()}"


def data_bytes() -> int:
    """Private memory of this process that can be written to: what RLIMIT_DATA limits. Private mappings of files
    count as a whole."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmData:"):
            return int(line.split()[1]) * 1024
    raise OSError("/proc/self/status has no VmData")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--allowed", type=int, help="bytes, besides what the process has and the files")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    folder = arguments.folder
    (folder / "tiny").mkdir(exist_ok=True)
    write_arrays(folder / "tiny", 96, 2, 128)
    for _ in train(open_loader(folder / "tiny", in_memory=False)):  # whatever torch and threads take at first
        pass
    if arguments.allowed is not None:
        files = sum(path.stat().st_size for path in folder.glob("*.npy"))
        assert files >= 3 * arguments.allowed
        limit = data_bytes() + files + arguments.allowed
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    loader = open_loader(folder, in_memory=False)
    for line in train(loader, folder / "checkpoint"):
        print(line, flush=True)
    try:
        torch.empty((folder / "features.npy").stat().st_size, dtype=torch.uint8)
    except RuntimeError as error:
        print("no copy", "DefaultCPUAllocator" in str(error), flush=True)


if __name__ == "__main__":
    main()
