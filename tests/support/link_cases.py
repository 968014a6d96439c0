"""Compares links whose ends have trees with those of the oracle.

    PYTHONPATH=. python tests/support/link_cases.py --first 0 --count 10000 --json link_cases.json

Case `i` is drawn from the seed `i`: graph, times, links, negatives, what is excluded and how trees are sampled.
"""

from __future__ import annotations

from typing import Any

import hetero_cases
import link_oracle
import numpy as np
import torch
import tree_cases
import tree_oracle

from loader.samplers import LinkSampler, Negatives, TreeSampler
from loader.samples.links import Links

Options = dict[str, Any]


def sampler_of(case: link_oracle.Case, **options: Any) -> LinkSampler:
    around = TreeSampler(hetero_cases.fanouts_of(case.trees), **tree_cases.options_of(case.trees), **options)
    return LinkSampler(
        around,
        None if case.mode is None else Negatives(case.mode, case.amount, case.strict),
        exclude=case.exclude,
        seed=case.seed,
        edge_type=case.edge_type,
        reverse=case.reverse,
    )


def sampled(case: link_oracle.Case, **options: Any) -> Links:
    sampler = sampler_of(case, **options)
    graph = tree_cases.graph_of(case.trees.graph).to(sampler.device)
    times, ids = (None if of is None else torch.tensor(of) for of in (case.times, case.ids))
    at = {"epoch": case.trees.epoch, "batch": case.trees.batch}
    return sampler.sample(graph, torch.tensor(case.links), times, ids, **at)


def difference(found: Links, wanted: link_oracle.Links, case: link_oracle.Case) -> str | None:
    """Names the first array that differs."""
    if what := tree_cases.difference(found.around, wanted.trees):
        return what
    for name in ("sources", "targets", "negative_sources", "negative_targets"):
        mine = getattr(found, name)
        if (None if mine is None else mine.flatten().tolist()) != wanted.ends.get(name):
            return name
    if found.link_of_tree.tolist() != wanted.link_of_tree:
        return "link_of_tree"
    if (None if found.times is None else found.times.tolist()) != case.times:
        return "times"
    return None


def picks_of(number: int) -> str:
    case = link_oracle.random_case(np.random.default_rng(number))
    return "no links" if case is None else hetero_cases.kind_of(case.trees.picking)


def check(number: int, makers: list[Options]) -> str | None:
    """What differs in a case, if anything does."""
    case = link_oracle.random_case(np.random.default_rng(number))
    if case is None:
        return None
    try:
        wanted = link_oracle.sample(case)
    except tree_oracle.TooLarge:
        return None
    except link_oracle.NoNegative:
        wanted = None
    for options in makers:
        try:
            found = sampled(case, **options)
        except ValueError as error:
            told = any(part in str(error) for part in ("negatives have no end", "no negative link"))
            if wanted is not None or not told:
                return f"case {number}, {options}: {error}"
            continue
        if wanted is None:
            return f"case {number}, {options}: there are no negatives"
        if what := difference(found, wanted, case):
            return f"case {number}, {options}: {what}"
    return None


if __name__ == "__main__":
    hetero_cases.main(check, tree_cases.makers_of, picks_of, __doc__)
