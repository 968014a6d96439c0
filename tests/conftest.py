"""Fixtures of the whole test tree."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# Before torch and DGL are loaded: OpenMP's threads spin while they wait, and each of several processes would have one
# for every core. On two cores a file of many small calls of DGL takes 18 s of the processor, and 128 s otherwise.
if workers := int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", 0)):
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // workers)))

import torch

from loader.graph import Graph

# No test asserts a time, an example of hypothesis neither: a machine may be busy. Each run draws other examples.
settings.register_profile("any-speed", deadline=None, max_examples=50)
settings.load_profile("any-speed")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With -m "compiles or slow", files without these markers are not imported, which takes a worker half a minute."""
    if config.option.markexpr != "compiles or slow" or collection_path.suffix != ".py":
        return None
    text = collection_path.read_text(encoding="utf-8")
    return None if "mark.compiles" in text or "mark.slow" in text else True


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """With --durations, the files that take longest: many short tests cost as much as a long one."""
    if not terminalreporter.config.getoption("durations"):
        return
    seconds: dict[str, float] = defaultdict(float)
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                seconds[report.nodeid.partition("::")[0]] += report.duration
    terminalreporter.section("slowest files")
    for file in sorted(seconds, key=seconds.__getitem__, reverse=True)[:40]:
        terminalreporter.write_line(f"{seconds[file]:7.1f}s {file}")


@pytest.fixture(autouse=True)
def same_matmul_precision() -> Iterator[None]:
    """A training that ends in an error leaves the precision of its model behind."""
    before = torch.get_float32_matmul_precision()
    yield
    if torch.get_float32_matmul_precision() != before:
        torch.set_float32_matmul_precision(before)


@pytest.fixture
def composed(tmp_path: Path) -> Iterator[Any]:
    """`composed(*overrides)`: the configuration of a run of train.py whose folder is `tmp_path`."""
    from train_runs import composer

    with composer(tmp_path) as compose:
        yield compose


@pytest.fixture
def random_graph() -> Callable[..., Graph]:
    """`random_graph(num_nodes, num_edges, seed)`: uniform random edges, parallel ones and self loops included."""

    def make(num_nodes: int = 200, num_edges: int = 1500, seed: int = 0) -> Graph:
        g = torch.Generator().manual_seed(seed)
        src = torch.randint(num_nodes, (num_edges,), generator=g)
        dst = torch.randint(num_nodes, (num_edges,), generator=g)
        return Graph.from_edges(src, dst, num_nodes)

    return make
