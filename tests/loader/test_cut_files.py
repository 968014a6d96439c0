"""Mapped arrays whose file is cut short while a process reads them: it ends in one line, in whatever page that is."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from marks import HAS_GPU

from loader.graph import Graph, HeteroGraph
from loader.samplers import FusedSampler, TreeSampler
from loader.samplers.base import Request

# Reads once, cuts `less` bytes off the file of one array (0: all but the first page), and reads again.
_PROGRAM = """
import os, sys, warnings
import numpy as np, torch
import loader.pyg
from loader import FusedSampler, Graph, HeteroGraph, TreeSampler, WalkSampler, random_walk
from loader.graph import induced_edges, induced_subgraph
from loader.machine.mapped import watch
from loader.samplers import SubgraphSampler
from loader.pyg.numbered_loader import rows_of
from loader.samplers.base import Request
from loader.samplers.ego import EgoSampler
from loader.stores import MemmapFeatures, StagedFeatures, TensorRows
from loader.traverse import bfs, connected_components, pagerank, sssp
warnings.simplefilter("ignore")  # stderr is to have one line
what, of, less = sys.argv[1], sys.argv[2], int(sys.argv[3])
os.chdir(sys.argv[4])
rng, n, e = np.random.default_rng(0), 20_000, 200_000
ends = [torch.from_numpy(rng.integers(1, n, e)) for _ in range(2)]
plain = Graph.from_edges(*ends, n)
arrays = {"indptr": plain.indptr, "indices": plain.indices, "rows": torch.ones(n, 8),
          "edge_weights": torch.ones(e), "edge_ids": torch.arange(e)}
np.save(f"{of}.npy", arrays[of].numpy())
arrays[of] = torch.from_numpy(np.load(f"{of}.npy", mmap_mode="c"))
graph = Graph(arrays["indptr"], arrays["indices"], **({of: arrays[of]} if of.startswith("edge_") else {}))
ids = {"edge_ids": of == "edge_ids"}
last = torch.arange(n - 2_000, n)
if what in ("gather", "staged", "labels"):
    watch(arrays[of][:10])  # a part that is watched is not the whole
    store = {"gather": MemmapFeatures, "staged": StagedFeatures, "labels": TensorRows}[what](arrays[of])
    read = lambda number: store.gather(last)
elif what in ("bfs", "components", "pagerank", "sssp"):
    read = lambda number: {
        "bfs": lambda: bfs(graph, 1, num_threads=1),
        "components": lambda: connected_components(graph, num_threads=1),
        "pagerank": lambda: pagerank(graph, num_threads=1),
        "sssp": lambda: sssp(graph, 1, num_threads=1),
    }[what]()
elif what in ("ego", "rows_of", "induced_edges", "induced_subgraph", "reverse", "random_walk", "pyg"):
    read = lambda number: {
        "induced_edges": lambda: induced_edges(graph, last, num_threads=1),
        "ego": lambda: EgoSampler(1, 3, num_threads=1).sample(graph, last),
        "rows_of": lambda: rows_of(arrays[of], last),
        "induced_subgraph": lambda: induced_subgraph(graph, last, num_threads=1),
        "reverse": lambda: graph.reverse(),
        "random_walk": lambda: random_walk(graph, last, 3, num_threads=1, **ids),
        "pyg": lambda: torch.ops.pyg.neighbor_sample(graph.indptr, graph.indices, last.int(), [3]),
    }[what]()
else:
    sampler = {
        "fused": lambda: FusedSampler([-1], num_threads=1, **ids),
        "race": lambda: FusedSampler([3], weights="edge_weights", weight_tables=False, num_threads=1),
        "trees": lambda: TreeSampler([-1], num_threads=1, **ids),
        "walks": lambda: WalkSampler(5, num_threads=1, **ids),
        "subgraph": lambda: SubgraphSampler([3], num_threads=1, **ids),
    }[what]()
    if what == "trees":
        graph = HeteroGraph(graph, {"a": n}, [("a", "to", "a")])
    session = sampler.open(graph)
    read = lambda number: session.begin([Request(last, 0, number)])[0]()
read(0)
os.truncate(f"{of}.npy", os.path.getsize(f"{of}.npy") - less if less else 4096)
read(1)
"""


def test_lists_made_in_memory_outlive_their_file(tmp_path: Path) -> None:
    """Weights of 0 and times make lists of their own; nobody reads the files again."""
    plain = Graph(
        torch.tensor([0, 2, 3]),
        torch.tensor([1, 0, 0]),
        edge_ids=torch.arange(3),
        edge_weights=torch.tensor([1.0, 0.0, 2.0]),
        edge_times=torch.arange(3),
    )
    files = {name: tmp_path / f"{name}.npy" for name in ("indices", "edge_ids", "edge_weights", "edge_times")}
    graph = plain.place(**{name: f"disk:{file}" for name, file in files.items()})
    trees = HeteroGraph.of(graph)
    weighted = FusedSampler([-1], weights="edge_weights", edge_ids=True, num_threads=1)
    timed = TreeSampler([-1], times="edge", edge_ids=True, num_threads=1)
    sessions = weighted.open(graph), timed.open(trees)
    assert not any("begin" in vars(session) for session in sessions)  # else the process would end below
    for file in files.values():
        os.truncate(file, 100)
    seeds = torch.tensor([0, 1]), torch.tensor([[0, 9], [1, 9]])
    batches = [session.begin([Request(of, 0, 0)])[0]() for session, of in zip(sessions, seeds, strict=True)]
    assert [batch.blocks[0].edge_ids.tolist() for batch in batches] == [[0, 2], [0, 1, 2]]


@pytest.mark.parametrize(
    ("what", "of", "less"),
    [
        ("gather", "rows", 600),  # within the last page, whose rest the system fills with zeros
        ("gather", "rows", 0),  # all but the first page
        ("labels", "rows", 600),
        ("fused", "indices", 2_000),
        ("fused", "indptr", 200),
        ("fused", "edge_ids", 2_000),
        ("race", "edge_weights", 0),
        ("race", "edge_weights", 600),
        ("trees", "indices", 2_000),
        ("trees", "indptr", 200),
        ("trees", "edge_ids", 2_000),
        ("walks", "indices", 0),
        ("walks", "indices", 600),
        ("walks", "indptr", 200),
        ("random_walk", "edge_ids", 2_000),
        ("subgraph", "indices", 600),
        ("induced_edges", "indices", 0),
        ("induced_subgraph", "edge_ids", 2_000),
        ("ego", "edge_ids", 2_000),
        ("rows_of", "rows", 600),
        ("pyg", "indices", 600),
        ("reverse", "indices", 600),
        ("bfs", "indices", 600),
        ("components", "indices", 0),
        ("pagerank", "indices", 600),
        ("sssp", "edge_weights", 600),
        pytest.param("staged", "rows", 600, marks=[pytest.mark.gpu, pytest.mark.skipif(not HAS_GPU, reason="a GPU")]),
    ],
)
def test_a_cut_files_reads_end_in_one_line(what: str, of: str, less: int, tmp_path: Path) -> None:
    command = [sys.executable, "-c", _PROGRAM, what, of, str(less), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1, done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    line = done.stderr
    assert line.startswith(f"error: {tmp_path / of}.npy was cut short while it was open")
