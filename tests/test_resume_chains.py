"""Trainings that are cut and resumed again and again see each mini-batch once, and end with the same weights."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest
from resume_chains import CUTS, SAVING, Chain, check, check_chain, draw

ROOT = Path(__file__).parent.parent

# `RESUME_CHAINS=500 python -m pytest -m slow tests/test_resume_chains.py`
COUNT = int(os.environ.get("RESUME_CHAINS", "20"))


@pytest.mark.slow
@pytest.mark.parametrize("number", range(COUNT))
def test_a_random_chain_ends_as_the_unbroken_training(number: int) -> None:
    check(number)


def test_the_chains_draw_every_kind() -> None:
    """Also the first 20, which run by default: each source with each task, each way to cut a run and to save it."""
    chains = [draw(number) for number in range(20)]
    sources, tasks = ("direct", "own", "module", "combined"), ("node", "link", "walk")
    assert {(chain.source, chain.task) for chain in chains} == set(product(sources, tasks))
    assert {chain.mode for chain in chains if chain.source == "combined"} == {"max_size_cycle", "min_size", "max_size"}
    assert {chain.scheduler for chain in chains} == {"none", "one cycle", "per epoch"}
    assert {chain.prefetch for chain in chains} == {0, 1, 2}
    assert {chain.accumulate > 1 for chain in chains} == {False, True}
    assert len({name for chain in chains for name in chain.options}) == 4
    assert {cut for chain in chains for cut, _ in chain.cuts} == set(CUTS)
    assert {kind for chain in chains for kind in chain.saving} == set(SAVING)
    assert {len(chain.cuts) for chain in chains} == {1, 2, 3, 4}


# One of each kind that went wrong.
@pytest.mark.parametrize(
    "chain",
    [
        # A checkpoint of an epoch's last mini-batch, resumed, and another one within the next epoch.
        Chain(0, saving=["every"], cuts=[("batch end", 4), ("batch end", 3)]),
        Chain(0, batches=1, saving=["every"], cuts=[("batch end", 1), ("batch end", 1), ("batch end", 1)]),
        # The model asks for the number of steps.
        Chain(0, source="own", scheduler="one cycle", saving=["exception"], cuts=[("step", 2), ("step", 6)]),
        Chain(0, scheduler="one cycle", saving=["exception"], cuts=[("step", 3)]),
        # Two loaders, of which the second one begins again within an epoch, or is over before.
        Chain(0, source="combined", batches=5, second=2, saving=["exception"], cuts=[("step", 4), ("step", 9)]),
        Chain(0, source="combined", mode="max_size", batches=5, second=2, saving=["exception"], cuts=[("step", 4)]),
        # Amid accumulated gradients.
        Chain(0, accumulate=3, batches=7, saving=["exception"], cuts=[("batch end", 2), ("step", 8)]),
        # At the end of the last step of an epoch, in its validation, and where `max_steps` ends the training.
        Chain(0, saving=["exception"], cuts=[("validation", 4), ("validation", 4)]),
        Chain(0, saving=["epoch end"], cuts=[("max_steps", 2), ("max_steps", 3)]),
        Chain(0, saving=["step"], options={"limit_train_batches": 3}, cuts=[("signal", 2), ("epoch end", 6)]),
    ],
    ids=str,
)
def test_a_chain_ends_as_the_unbroken_training(chain: Chain) -> None:
    check_chain(chain)


@pytest.mark.slow
def test_chains_of_ranks_see_each_batch_once() -> None:
    """`RANK_CHAINS=30` for as many chains."""
    program, count = ROOT / "tests" / "support" / "rank_chains.py", os.environ.get("RANK_CHAINS", "6")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, str(program), "0", count], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stdout + done.stderr
