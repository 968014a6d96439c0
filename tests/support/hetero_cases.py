"""Compares typed mini-batches of the core with those of the oracle.

    PYTHONPATH=. python tests/support/hetero_cases.py --first 0 --count 50000 --json hetero_cases.json

Case `i` is drawn from the seed `i`: graph, seeds, fanouts and options. Each is sampled hop by hop and fused, by one
thread and by several, and all arrays are compared.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import hetero_oracle
import numpy as np
import torch
from torch import Tensor

from loader.graph import HeteroGraph
from loader.samplers import FusedSampler, HopwiseSampler, NeighborSampler, Request
from loader.samples.hetero import HeteroMiniBatch


def graph_of(given: hetero_oracle.HeteroGraph, **options: Any) -> HeteroGraph:
    edges = {key: torch.from_numpy(np.stack(pair)) for key, pair in given.edges.items()}
    weights = None
    if given.weights is not None:
        weights = {key: torch.from_numpy(np.asarray(mass)) for key, mass in given.weights.items()}
    return HeteroGraph.from_edges(edges, given.num_nodes, edge_weights=weights, **options)


def fanouts_of(case: hetero_oracle.Case) -> dict | list[int]:
    """A list for all relations has no 0: nothing would be picked at all."""
    if isinstance(case.fanouts, dict) or 0 not in case.fanouts:
        return case.fanouts
    return dict.fromkeys(case.graph.edges, case.fanouts) or [k or 1 for k in case.fanouts]


def difference(found: HeteroMiniBatch, wanted: hetero_oracle.HeteroBatch) -> str | None:
    """Names the first array that differs."""

    def differs(mine: Tensor | None, other: np.ndarray) -> bool:
        assert mine is not None
        return mine.shape != other.shape or not np.array_equal(mine.cpu().numpy(), other)

    if differs(found.nodes, wanted.nodes):
        return "nodes"
    if found.sizes != wanted.sizes:
        return f"sizes {found.sizes} for {wanted.sizes}"
    for h, (block, hop) in enumerate(zip(found.blocks[::-1], wanted.hops, strict=True), start=1):
        for name in ("indptr", "indices", "edge_ids"):
            if differs(getattr(block, name), getattr(hop, name)):
                return f"{name} of hop {h}"
        if (block.first_dst, block.num_dst, block.num_src) != (hop.first_dst, hop.num_dst, hop.num_src):
            return f"numbers of hop {h}"
    return None


def check(number: int, makers: list[tuple[type[NeighborSampler], dict]]) -> str | None:
    """What differs in a case, if anything does."""
    case = hetero_oracle.random_case(np.random.default_rng(number))
    if case.picking.labor or case.picking.race:  # on a GPU they have a hash set
        makers = [(kind, options) for kind, options in makers if options.get("node_set") != "bitmap"]
    wanted = hetero_oracle.sample_case(case)
    graph = graph_of(case.graph)
    for kind, options in makers:
        sampler = kind(
            fanouts_of(case),
            expand=case.expand,
            seed=case.seed,
            edge_ids=True,
            **case.picking.options(),
            **options,
        )
        on = graph.to(sampler.device)
        session = sampler.open(on)
        seeds = torch.from_numpy(case.seeds).to(sampler.device)
        found = session.begin([Request(seeds, case.epoch, case.batch)])[0]()
        session.close()
        if what := difference(found, wanted):
            return f"case {number}, {sampler}: {what}"
    return None


def makers_of(device: str) -> list[tuple[type[NeighborSampler], dict]]:
    if device == "cpu":
        return [
            (HopwiseSampler, {"num_threads": 1}),
            (FusedSampler, {"num_threads": 1}),
            (FusedSampler, {"num_threads": 3}),
        ]
    from loader.samplers import CudaSampler

    return [(CudaSampler, {"node_set": kind}) for kind in ("bitmap", "hash")]


def picks_of(number: int) -> str:
    return kind_of(hetero_oracle.random_case(np.random.default_rng(number)).picking)


def kind_of(picking: hetero_oracle.Picking) -> str:
    """How a case picks."""
    kinds = [name for name in ("labor", "race", "top_k", "weighted", "last") if getattr(picking, name)]
    return ", ".join([(kinds or ["uniform"])[0], *(["replace"] if picking.replace else [])])


def check_all(
    check: Callable[..., str | None],
    makers_of: Callable[[str], Any],
    picks_of: Callable[[int], str],
    numbers: range,
    device: str,
) -> tuple[list[str], Counter[str]]:
    """What differs in these cases, and how many pick in which way."""
    torch.set_num_threads(1)
    makers = makers_of(device)
    return [what for number in numbers if (what := check(number, makers))], Counter(map(picks_of, numbers))


def main(
    check: Callable[..., str | None],
    makers_of: Callable[[str], Any],
    picks_of: Callable[[int], str],
    description: str | None,
) -> None:
    """Runs the cases that the command line names.

    Args:
        check: tells what differs in a case, given its number and what to sample it by.
        makers_of: what to sample by on a device.
        picks_of: how a case picks, given its number.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    last, start = arguments.first + arguments.count, time.perf_counter()
    parts = [range(first, min(first + 100, last)) for first in range(arguments.first, last, 100)]
    wrong, picks = list[str](), Counter[str]()
    with ProcessPoolExecutor(arguments.processes, multiprocessing.get_context("spawn")) as pool:
        for found, kinds in pool.map(partial(check_all, check, makers_of, picks_of, device=arguments.device), parts):
            wrong += found
            picks += kinds
            print(*found, sep="\n", end="\n" if found else "", flush=True)
    seconds = time.perf_counter() - start
    print(f"{arguments.count - len(wrong)} of {arguments.count} mini-batches are equal ({seconds:.0f} s)")
    if arguments.json:
        sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))
        from _common import write_json

        equal, makers = arguments.count - len(wrong), makers_of(arguments.device)
        result = {"first": arguments.first, "count": arguments.count, "equal": equal}
        result["picks"] = dict(picks.most_common())
        result["samplers"] = [str(made) for made in makers]
        write_json(
            arguments.json, result | ({"gpu": torch.cuda.get_device_name()} if arguments.device == "cuda" else {})
        )
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    main(check, makers_of, picks_of, __doc__)
