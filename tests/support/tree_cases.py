"""Compares trees of the core with those of the oracle.

    PYTHONPATH=. python tests/support/tree_cases.py --first 0 --count 100000 --json tree_cases.json

Case `i` is drawn from the seed `i`: graph, times, seeds, fanouts and options. Each is sampled by one thread and by
several, or on a GPU, and all arrays are compared.
"""

from __future__ import annotations

import torch
import tree_oracle
import typed_cases

from loader.graph import HeteroGraph


def graph_of(given: tree_oracle.TimedGraph) -> HeteroGraph:
    def tensors(arrays):
        return None if arrays is None else {key: torch.from_numpy(times) for key, times in arrays.items()}

    return typed_cases.graph_of(given, node_times=tensors(given.node_times), edge_times=tensors(given.edge_times))
