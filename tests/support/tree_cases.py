"""Compares trees of the core with those of the oracle.

    PYTHONPATH=. python tests/support/tree_cases.py --first 0 --count 100000 --json tree_cases.json

Case `i` is drawn from the seed `i`: graph, times, seeds, fanouts and options. Each is sampled by one thread and by
several, or on a GPU, and all arrays are compared. On a GPU no case picks by weight or by LABOR, which it refuses.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np
import torch
import tree_oracle
import typed_cases

from loader.samplers import Request
from loader.samplers.trees import TreeSampler


def options_of(case: tree_oracle.Case) -> dict[str, Any]:
    """The case in the words of a sampler's options."""
    options = {"trees": case.trees, **asdict(case.sight), "seed": case.seed, "edge_ids": True}
    picking = case.picking.options()
    for name in ("top_k", "weight_tables"):  # there are no tables for a part of a list
        picking.pop(name, None)
    return {**options, **picking, "last": case.picking.last}


def seeds_of(case: tree_oracle.Case) -> torch.Tensor:
    """As a session takes them."""
    seeds = torch.from_numpy(case.seeds)
    return seeds if case.times is None else torch.stack([seeds, torch.from_numpy(case.times)], 1)


def check(number: int, makers: list[dict]) -> str | None:
    """What differs in a case, if anything does."""
    on_gpu = any("device" in options for options in makers)
    case = tree_oracle.random_case(np.random.default_rng(number), uniform=on_gpu)
    wanted = tree_oracle.sample_case(case)
    graph = typed_cases.graph_of(case.graph)
    for options in makers:
        sampler = TreeSampler(typed_cases.fanouts_of(case), **options_of(case), **options)
        session = sampler.open(graph.to(sampler.device))
        found = session.begin([Request(seeds_of(case), case.epoch, case.batch)])[0]()
        session.close()
        what = typed_cases.difference(found, wanted)
        if what is None and not np.array_equal(found.tree.cpu().numpy(), wanted.tree):
            what = "tree"
        if what:
            return f"case {number}, {sampler}, {case.sight}, {case.picking}: {what}"
    return None


def makers_of(device: str) -> list[dict]:
    return [{"num_threads": 1}, {"num_threads": 3}] if device == "cpu" else [{"device": "cuda"}]


def check_all(numbers: range, device: str) -> list[str]:
    """What differs in these cases."""
    torch.set_num_threads(1)
    return [what for number in numbers if (what := check(number, makers_of(device)))]


if __name__ == "__main__":
    typed_cases.main(check_all, makers_of, __doc__)
