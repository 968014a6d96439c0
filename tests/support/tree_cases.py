"""Compares trees of the core with those of the oracle.

    PYTHONPATH=. python tests/support/tree_cases.py --first 0 --count 100000 --json tree_cases.json

Case `i` is drawn from the seed `i`: graph, times, seeds, fanouts and options. Each is sampled by one thread and by
several, or on a GPU, and all arrays are compared.
"""

from __future__ import annotations

from typing import Any

import hetero_cases
import numpy as np
import torch
import tree_oracle

from loader.graph import HeteroGraph
from loader.samplers import TreeSampler
from loader.samplers.base import Request
from loader.samplers.trees import pairs_of
from loader.samples.trees import TreeMiniBatch

Options = dict[str, Any]


def graph_of(given: tree_oracle.TimedGraph) -> HeteroGraph:
    def tensors(arrays):
        return None if arrays is None else {key: torch.from_numpy(times) for key, times in arrays.items()}

    return hetero_cases.graph_of(given, node_times=tensors(given.node_times), edge_times=tensors(given.edge_times))


def options_of(case: tree_oracle.Case) -> Options:
    """A case in the words of a sampler's options."""
    options: Options = {"trees": case.trees, "times": case.sight.times, "seed": case.seed, "edge_ids": True}
    if case.sight.times != "none":
        options |= {"rule": case.sight.rule, "window": case.sight.window, "bound": case.sight.bound}
        options |= {"missing_times": case.sight.missing_times, "last": case.picking.last}
    picked = case.picking.options()
    for name in ("weight_tables", "top_k"):
        picked.pop(name, None)
    return options | picked


def difference(found: TreeMiniBatch, wanted: tree_oracle.TreeBatch) -> str | None:
    """Names the first array that differs."""
    if not np.array_equal(found.tree.cpu().numpy(), wanted.tree):
        return "trees"
    return hetero_cases.difference(found, wanted)


def case_of(number: int) -> tree_oracle.Case:
    return tree_oracle.random_case(np.random.default_rng(number))


def picks_of(number: int) -> str:
    return hetero_cases.kind_of(case_of(number).picking)


def check(number: int, makers: list[Options]) -> str | None:
    """What differs in a case, if anything does."""
    case = case_of(number)
    wanted = tree_oracle.sample_case(case)
    graph = graph_of(case.graph)
    for options in makers:
        sampler = TreeSampler(hetero_cases.fanouts_of(case), **options_of(case), **options)
        session = sampler.open(graph.to(sampler.device))
        seeds = torch.from_numpy(case.seeds)
        if case.times is not None and case.sight.times != "none":
            seeds = pairs_of(seeds, torch.from_numpy(case.times))
        found = session.begin([Request(seeds.to(sampler.device), case.epoch, case.batch)])[0]()
        session.close()
        if what := difference(found, wanted):
            return f"case {number}, {sampler}: {what}"
    return None


def makers_of(device: str) -> list[Options]:
    if device == "cpu":
        return [{"num_threads": 1}, {"num_threads": 3}]
    return [{"device": "cuda"}]


if __name__ == "__main__":
    hetero_cases.main(check, makers_of, picks_of, __doc__)
