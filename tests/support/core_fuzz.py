"""Calls of the core with arguments that it must refuse, or survive.

As a program it makes calls from number `begin` on, and writes the number of each to a file before it makes it. So
whoever started it knows which call ended the process.

Each call of `CALLS` is right as it is. It is made again with each of its arguments replaced by many others, and with
pairs of them. What is not tried: addresses, and the numbers in `indices`, which are the caller's to check.
"""

from __future__ import annotations

import faulthandler
import os
import random
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

from loader import _core

DTYPES = (torch.int32, torch.int64, torch.float32, torch.float64, torch.uint8, torch.bool)
NUMBERS = (-(2**63), -1, 0, 1, 2, 3, 255, 2**31 - 1, 2**31, 2**32, 2**40, 2**61, 2**62, 2**63 - 1, 2**64 - 1, 1.5, None)
FRACTIONS = (float("nan"), float("inf"), -float("inf"), -1.0, 0.0, 1e300, 5e-324, 1, None)
PAIRS = 60  # of replaced arguments, per call
ADDRESSES = ("function", "address")
LEFT_OUT = object()
SOME_FILE = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

Arguments = dict[str, Any]


def i64(*values: int) -> torch.Tensor:
    return torch.tensor(values)


def i32(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


def graph(dtype: torch.dtype = torch.int32) -> Arguments:
    """Five nodes with 0 to 4 neighbors, each list ascending."""
    return {
        "indptr": torch.tensor([0, 2, 2, 6, 7, 9], dtype=dtype),
        "indices": torch.tensor([1, 2, 0, 1, 3, 4, 2, 0, 4], dtype=dtype),
    }


def lists() -> tuple[torch.Tensor, torch.Tensor]:
    return tuple(graph().values())  # type: ignore[return-value]


def table_arrays() -> tuple[torch.Tensor, torch.Tensor]:
    cells, ends = torch.zeros(9, dtype=torch.int64), torch.zeros(9, dtype=torch.int64)
    _core.make_weight_tables(graph()["indptr"], torch.rand(9) + 0.1, cells, ends, 1)
    return cells, ends


def tables() -> _core.WeightTables:
    return _core.WeightTables(*table_arrays())


def core_sampler(**changes: Any) -> Arguments:
    options = {"fanouts": [2, -1], "replace": False, "edge_ids": True, "num_threads": 2, "part_edges": 1, "picks": None}
    given = graph() | options | changes
    return {name: value for name, value in given.items() if value is not LEFT_OUT}


def engine(**changes: Any) -> _core.WalkEngine:
    arrays = graph()
    given = arrays | {"sorted": arrays["indices"], "cells": None, "groups": 0, "num_threads": 2} | changes
    return _core.WalkEngine(**given)


def zeros(*shape: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return torch.zeros(*shape, dtype=dtype)


def walk(**changes: Any) -> Arguments:
    return {
        "starts": i32(0, 2, 4),
        "first_lane": 0,
        "key": 7,
        "length": 4,
        "stop_below": 10,
        "home_below": 1000,
        "accept": None,
        "path": [],
        "nodes": zeros(3, 5, dtype=torch.int32),
        "places": zeros(3, 4, dtype=torch.int32),
    } | changes


def second_order() -> Arguments:
    return walk(accept=(2**32 - 1, 2**32 - 1, 2**29, 2**31), stop_below=0, home_below=0)


# Refused as they are: for want of a GPU, and of a compiled function.
REFUSED = (
    "CudaWalkEngine",
    "CudaLinkEngine",
    "CudaRenewal",
    "CudaGatherer",
    "RowUploader",
    "WalkEngine.walk_by",
    "traverse_memory",
)

# Arguments that all calls of `_core.negatives` have.
NEGATIVES = {"num_sources": 5, "num_targets": 5, "one_type": True, "seed": 1, "epoch": 2, "batch": 3}

# Name -> what makes the function and its arguments anew, since a call may change them.
CALLS: dict[str, Callable[[], tuple[Callable[..., Any], Arguments]]] = {
    "batch_key": lambda: (_core.batch_key, {"seed": 1, "epoch": 2, "batch": 3}),
    "order_key": lambda: (_core.order_key, {"seed": 1, "epoch": 2}),
    "walk_key": lambda: (_core.walk_key, {"seed": 1, "epoch": 2, "batch": 3}),
    "negatives_key": lambda: (_core.negatives_key, {"seed": 1, "epoch": 2, "batch": 3}),
    "turns_key": lambda: (_core.turns_key, {"seed": 1}),
    "filter_words": lambda: (_core.filter_words, {"num_edges": 100}),
    "items_at": lambda: (
        _core.items_at,
        {"num_items": 100, "key": 1, "first": 2, "length": 5, "stride": 10, "out": zeros(17)},
    ),
    "make_weight_tables": lambda: (
        _core.make_weight_tables,
        {
            "indptr": graph()["indptr"],
            "weights": torch.rand(9) + 0.1,
            "cells": zeros(9),
            "ends": zeros(9),
            "num_threads": 2,
        },
    ),
    "order_by_weight": lambda: (
        _core.order_by_weight,
        {"indptr": graph()["indptr"], "weights": torch.rand(9), "order": zeros(9, dtype=torch.int32), "num_threads": 2},
    ),
    "HopwiseSampler": lambda: (lambda **a: _sampled(_core.HopwiseSampler(**a)), core_sampler()),
    "FusedSampler": lambda: (lambda **a: _sampled(_core.FusedSampler(**a)), core_sampler(in_file=False)),
    "FusedSampler by tables": lambda: (lambda **a: _sampled(_core.FusedSampler(**a)), core_sampler(picks=tables())),
    "FusedSampler by order": lambda: (
        lambda order, **a: _sampled(_core.FusedSampler(**a, picks=_core.WeightOrder(order))),
        core_sampler(picks=LEFT_OUT) | {"order": i32(1, 0, 3, 2, 1, 0, 0, 1, 0)},
    ),
    "FusedSampler by race": lambda: (
        lambda weights, **a: _sampled(_core.FusedSampler(**a, picks=_core.Race(weights))),
        core_sampler(picks=LEFT_OUT) | {"weights": torch.rand(9)},
    ),
    "HopwiseSampler by tables": lambda: (
        lambda cells, ends, **a: _sampled(_core.HopwiseSampler(**a, picks=_core.WeightTables(cells, ends))),
        core_sampler(picks=LEFT_OUT) | dict(zip(("cells", "ends"), table_arrays(), strict=True)),
    ),
    "FusedSampler by LABOR": lambda: (
        lambda layer_dependency, batch_dependency, turns_key, **a: _sampled(
            _core.FusedSampler(**a, picks=_core.Labor(layer_dependency, batch_dependency, turns_key))
        ),
        core_sampler(picks=LEFT_OUT) | {"layer_dependency": False, "batch_dependency": 1, "turns_key": 4},
    ),
    "FusedSampler.sample": lambda: (
        lambda **a: [one.take() for one in _core.FusedSampler(**core_sampler()).sample(**a)],
        {"seeds": [i32(0, 1), i32(4)], "keys": [1, 2], "next_keys": [3, 4], "phases": [0, 1]},
    ),
    "HopwiseSampler.sample": lambda: (
        lambda **a: [one.take() for one in _core.HopwiseSampler(**core_sampler()).sample(**a)],
        {"seeds": [i32(0, 1), i32(4)], "keys": [1, 2]},
    ),
    "WalkEngine": lambda: (
        lambda **a: engine(**a).walk(**walk()),
        graph() | {"sorted": graph()["indices"], "cells": None, "groups": 0, "num_threads": 2},
    ),
    "WalkEngine.walk": lambda: (engine().walk, walk()),
    "WalkEngine.walk of node2vec": lambda: (engine().walk, second_order()),
    "WalkEngine.walk of a metapath": lambda: (
        engine(indptr=i32(0, 1, 2, 2, 2, 4, 6, 7, 7, 8, 9), sorted=None, groups=2).walk,
        walk(path=[0, 1], stop_below=0, home_below=0),
    ),
    "WalkEngine.walk_by": lambda: (
        engine().walk_by,
        {
            "function": 0,
            "starts": i32(0),
            "first_lane": 0,
            "key": 1,
            "length": 2,
            "turns": 1,
            "constants": [1],
            "weights": None,
            "searches": False,
            "by_weight": False,
            "nodes": zeros(3, dtype=torch.int32),
        },
    ),
    "WalkEngine.negatives": lambda: (
        engine().negatives,
        {"first_lane": 0, "key": 1, "walkers": 3, "count": 2, "bound": 5, "out": zeros(3, 2, dtype=torch.int32)},
    ),
    "WalkEngine.sift_by": lambda: (engine().sift_by, {"words": zeros(_core.filter_words(9))}),
    "walk_cells": lambda: (
        _core.walk_cells,
        graph() | {"cells": zeros(9), "out": zeros(36, dtype=torch.int32), "num_threads": 2},
    ),
    "negatives": lambda: (
        _core.negatives,
        graph()
        | {
            **NEGATIVES,
            "given": i64(0, 1, 2),
            "sources": None,
            "targets": zeros(6),
            "strict": True,
        },
    ),
    "negatives of pairs": lambda: (
        _core.negatives,
        graph(torch.int64)
        | {
            **NEGATIVES,
            "given": None,
            "sources": zeros(6),
            "targets": zeros(6),
            "strict": True,
        },
    ),
    "negatives that exist": lambda: (
        _core.negatives,
        graph()
        | {
            **NEGATIVES,
            "given": None,
            "sources": zeros(2),
            "targets": zeros(2),
            "strict": True,
            "source_counts": i64(1, 5),
            "source_order": i64(4, 3, 2, 1, 0),
            "target_counts": i64(3, 4),
            "target_order": i64(0, 2, 4, 1, 3),
        },
    ),
    "SubgraphSampler": lambda: (
        lambda **a: _core.SubgraphSampler(**a).sample(i32(0, 2), [2, 2], 1, False, True, False),
        graph() | {"num_threads": 2, "picks": None},
    ),
    "SubgraphSampler.sample": lambda: (
        _core.SubgraphSampler(**graph(), num_threads=2).sample,
        {"seeds": i32(0, 0, 2), "fanouts": [2, 2], "key": 1, "replace": False, "edge_ids": True, "induced": False},
    ),
    "SubgraphSampler.sample by tables": lambda: (
        _core.SubgraphSampler(**graph(), num_threads=2, picks=tables()).sample,
        {"seeds": i32(0, 0, 2), "fanouts": [2, -1], "key": 1, "replace": True, "edge_ids": True, "induced": False},
    ),
    "SubgraphSampler.sample, induced": lambda: (
        _core.SubgraphSampler(**graph(), num_threads=2).sample,
        {"seeds": i32(0, 0, 2), "fanouts": [2, 2], "key": 1, "replace": False, "edge_ids": True, "induced": True},
    ),
    "InducedEdges": lambda: (
        _core.InducedEdges,
        {
            "lists": lists(),
            "num_ids": 5,
            "nodes": i32(4, 0, 2, 4),
            "sets": i32(0, 0, 1, 1),
            "rows": i64(2, 0, 2),
            "of_rows": i32(0, 1, 1),
            "num_sets": 2,
            "num_threads": 2,
        },
    ),
    "InducedEdges.write": lambda: (
        _core.InducedEdges(lists(), 5, i32(4, 0, 2), None, None, None, 1, 1).write,
        {"sources": zeros(5), "rows": zeros(5), "edges": zeros(5)},
    ),
    "induced_words": lambda: (_core.induced_words, {"num_nodes": 9, "num_rows": 4, "room": 100}),
    "traverse_bfs": lambda: (
        _core.traverse_bfs,
        {
            "onward": lists(),
            "back": lists(),
            "sources": i32(0),
            "most": 100,
            "turns": False,
            "distances": zeros(5, dtype=torch.int32),
            "predecessors": zeros(5, dtype=torch.int32),
            "num_threads": 2,
        },
    ),
    "traverse_sssp": lambda: (
        _core.traverse_sssp,
        {
            "onward": lists(),
            "weights": torch.rand(9),
            "sources": i32(0),
            "delta": 0.5,
            "lengths": torch.zeros(5),
            "num_threads": 2,
        },
    ),
    "traverse_sssp of integers": lambda: (
        _core.traverse_sssp,
        {
            "onward": lists(),
            "weights": torch.arange(9, dtype=torch.int32),
            "sources": i32(0),
            "delta": 2.0,
            "lengths": zeros(5, dtype=torch.int32),
            "num_threads": 2,
        },
    ),
    "traverse_components": lambda: (
        _core.traverse_components,
        {"lists": lists(), "symmetric": False, "labels": zeros(5, dtype=torch.int32), "num_threads": 2},
    ),
    "traverse_pagerank": lambda: (
        _core.traverse_pagerank,
        {
            "back": lists(),
            "damping": 2**61,
            "own": zeros(5) + 2**59,
            "close": 2**40,
            "max_iter": 5,
            "ranks": torch.zeros(5, dtype=torch.float64),
            "num_threads": 2,
        },
    ),
    "traverse_symmetric": lambda: (
        _core.traverse_symmetric,
        {"lists": lists(), "weights": torch.rand(9), "num_threads": 2},
    ),
    "traverse_memory": lambda: (_core.traverse_memory, {"lists": lists(), "with_numbers": True}),
    "mean_forward": lambda: (
        _core.mean_forward,
        graph() | {"x": torch.rand(5, 3), "out": torch.rand(5, 3), "num_threads": 2},
    ),
    "mean_backward": lambda: (
        _core.mean_backward,
        graph() | {"grad_out": torch.rand(5, 3), "grad_x": torch.rand(5, 3), "num_threads": 2},
    ),
    "Gatherer": lambda: (
        lambda num_threads, in_file, **a: _core.Gatherer(num_threads, in_file).gather(**a),
        {"num_threads": 2, "in_file": False, "table": torch.rand(6, 3), "ids": i64(0, 5), "out": torch.rand(2, 3)},
    ),
    "BufferPool": lambda: (
        lambda keep, nbytes: memoryview(_core.BufferPool(keep).take(nbytes))[-1:].tolist(),  # type: ignore[arg-type]
        {"keep": 2, "nbytes": 100},
    ),
    "RowUploader": lambda: (
        lambda **a: _core.RowUploader(_core.Gatherer(2), **a).upload(torch.rand(4, 2), i64(0), torch.rand(1, 2), 0),
        {"ring": zeros(256, dtype=torch.uint8), "buffers": 2, "device": 0},
    ),
    "watch_file": lambda: (_watched, {"length": 4096, "handle": SOME_FILE, "offset": 0, "path": "file"}),
    "is_watched": lambda: (_core.is_watched, {"at": 0}),
    "forget_file": lambda: (_core.forget_file, {"number": 12345}),
    "CudaSampler.plan": lambda: (_planned, planned()),
    "CudaSampler": lambda: (
        lambda **a: _planned(**planned(), **a),
        {"replace": False, "edge_ids": True, "pad": False, "reads": 0, "fanouts": [2, 2]},
    ),
    "CudaWalkEngine": lambda: (
        _core.CudaWalkEngine,
        graph() | {"sorted": None, "cells": None, "groups": 0, "bad": zeros(2), "device": 0},
    ),
    "CudaLinkEngine": lambda: (
        _core.CudaLinkEngine,
        graph() | {"sources": (0, 5), "targets": (0, 5), "num_nodes": 5, "device": 0},
    ),
    "CudaRenewal": lambda: (
        _core.CudaRenewal,
        {
            "rows": torch.rand(4, 2),
            "slots": zeros(8, dtype=torch.int32),
            "owners": zeros(4, dtype=torch.int32),
            "uses": zeros(8, dtype=torch.uint8),
            "leaving": zeros(4, dtype=torch.int32),
            "coming": zeros(4, dtype=torch.int32),
            "tally": zeros(_core.renewal_tally_bytes, dtype=torch.uint8),
        },
    ),
    "CudaGatherer": lambda: (
        _core.CudaGatherer,
        {
            "table": torch.rand(4, 2),
            "dtype": "torch.float32",
            "raised": zeros(1, dtype=torch.int32),
            "notes": zeros(_core.cuda_notes_bytes, dtype=torch.uint8),
            "address": 0,
            "cache": torch.rand(2, 2),
            "slots": zeros(4, dtype=torch.int32),
            "hits": zeros(1),
        },
    ),
    "subgraph_scratch": lambda: (_core.subgraph_scratch, {"nodes": 5, "edges": 9}),
    "cuda_mean_forward_workspace": lambda: (lambda n: _core.cuda_mean_forward_workspace(n), {"n": 9}),
    "cuda_mean_backward_workspace": lambda: (
        lambda a, b: _core.cuda_mean_backward_workspace(a, b),
        {"a": 5, "b": 9},
    ),
}


def planned() -> Arguments:
    return {
        "num_seeds": 4,
        "slots": 1,
        "schedule": 0,
        "node_set": 0,
        "frontier_capacity": [4, 12, 36],
        "edge_capacity": [8, 24],
        "indices_at": [0, 64],
        "indptr_at": [128, 192],
        "edge_ids_at": [256, 320],
        "edges_at": 384,
        "lines": 0,
    }


def _planned(
    *,
    replace: Any = False,
    edge_ids: Any = True,
    pad: Any = False,
    reads: Any = 0,
    fanouts: Any = (2, 2),
    **plan: Any,
) -> Any:
    arrays = {name: array.to("meta") for name, array in graph().items()}
    options = {"replace": replace, "edge_ids": edge_ids, "pad": pad, "reads": reads, "fanouts": fanouts}
    return _core.CudaSampler_i32_i32(**arrays, **options, device=-1).plan(**plan)


def _sampled(sampler: Any) -> None:
    for one in sampler.sample([i32(0, 2), i32(4)], [1, 2]):
        one.take()


def _watched(**given: Any) -> None:
    memory = zeros(512)  # of which nothing is read
    _core.forget_file(_core.watch_file(memory.data_ptr(), **given))


def offsets_of(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """Offsets of lists that fall, begin below 0, or end beyond the entries."""
    for at, value in (
        (0, -1),
        (0, 3),
        (1, 2**31 - 1),
        (2, -(2**31)),
        (-1, -5),
        (-1, 8),
        (-1, 10),
        (-1, 2**31 - 1),
        (3, 0),
    ):
        changed = tensor.clone()
        changed[at] = value
        yield changed


def others(name: str, value: Any) -> Iterator[Any]:
    """What is given in place of an argument."""
    if name in ADDRESSES:
        yield from (None, 1.5, "text")
    elif isinstance(value, torch.Tensor):
        yield from (value[None], value[:, None], torch.cat([value, value]), value[:-1], value[1:], value[:0], value[0])
        yield from (value.to(dtype) for dtype in DTYPES if dtype != value.dtype)
        yield from (value.repeat_interleave(2, 0)[::2], value.to("meta"), value.tolist(), None, 3, "text", object())
        gone = value.clone()
        gone.untyped_storage().resize_(0)
        yield gone
        if name == "indptr":
            yield from offsets_of(value)
        if name in ("starts", "seeds", "sources", "ids", "given"):
            yield from (torch.full_like(value, number) for number in (-1, 5, 6, 2**31 - 1))
        if name in ("weights", "own") and value.is_floating_point():
            wide = (torch.full_like(value, number, dtype=torch.float64) for number in (*FRACTIONS[:7], 1e-38))
            yield from (numbers.to(value.dtype) for numbers in wide)
        elif name in ("weights", "own"):
            yield from (torch.full_like(value, number) for number in (-1, 0, 2**31 - 1))
    elif isinstance(value, bool):
        yield from (not value, None, 2)
    elif isinstance(value, int):
        yield from NUMBERS
    elif isinstance(value, float):
        yield from FRACTIONS
    elif isinstance(value, str):
        yield from ("", "torch.int8", None)
    elif isinstance(value, (tuple, list)):
        kind = type(value)
        yield from (
            kind(),
            kind([*value, *value]),
            kind(value[:-1]),
            kind([value[0]] * 100) if value else None,
            None,
            3,
        )
        for at, one in enumerate(value):
            part = ("indptr", "indices")[at] if name in ("lists", "onward", "back") else name
            yield from (kind([*value[:at], other, *value[at + 1 :]]) for other in others(part, one))
    elif value is None:
        yield from (zeros(9), i32(*range(9)), torch.rand(9), 3, "text", (1, 2, 3, 5), (1, 2**32 - 1, 3, 5))
    else:
        yield from (None, 3, object())


def all_calls() -> list[tuple[str, tuple[tuple[str, int], ...]]]:
    """Of each call its name, and which arguments are replaced, by the number of the other value."""
    chosen = random.Random(0)
    calls: list[tuple[str, tuple[tuple[str, int], ...]]] = []
    for name, make in CALLS.items():
        arguments = make()[1]
        given = {argument: list(others(argument, value)) for argument, value in arguments.items()}
        calls.append((name, ()))
        calls += [(name, ((argument, i),)) for argument, values in given.items() for i in range(len(values))]
        # pybind11 prints the arguments that it does not take, and torch a tensor without memory only by a crash.
        usable = {argument: [i for i, v in enumerate(values) if not _is_gone(v)] for argument, values in given.items()}
        for _ in range(PAIRS if len(usable) > 1 else 0):
            pair = chosen.sample(sorted(usable), 2)
            calls.append((name, tuple((argument, chosen.choice(usable[argument])) for argument in pair)))
    return calls


def make_call(name: str, changes: tuple[tuple[str, int], ...]) -> str:
    """Makes the call; what it ended with."""
    function, arguments = CALLS[name]()
    for argument, number in changes:
        arguments[argument] = list(others(argument, arguments[argument]))[number]
    try:
        function(**arguments)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "returned"


def shown(name: str, changes: tuple[tuple[str, int], ...]) -> str:
    arguments = CALLS[name]()[1]
    return f"{name}({', '.join(f'{a}={_text(list(others(a, arguments[a]))[i])}' for a, i in changes)})"


def _is_gone(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return any(map(_is_gone, value))
    return isinstance(value, torch.Tensor) and not value.is_meta and not value.untyped_storage().nbytes()


def _text(value: Any) -> str:
    if isinstance(value, torch.Tensor) and (value.is_meta or _is_gone(value)):
        return f"<{value.dtype} {list(value.shape)} without memory>"
    return (
        f"{type(value).__name__}({', '.join(map(_text, value))})"
        if isinstance(value, (tuple, list))
        else repr(value)[:80]
    )


def main(progress: str, begin: int) -> None:
    faulthandler.enable()
    with open(progress, "r+b", buffering=0) as file:
        for number, call in list(enumerate(all_calls()))[begin:]:
            os.pwrite(file.fileno(), number.to_bytes(8, "little"), 0)
            told = make_call(*call)
            if not call[1] and told != "returned" and call[0] not in REFUSED:
                print(f"{call[0]} as it is: {told}", flush=True)
            if len(sys.argv) > 3:
                print(f"{number} {shown(*call)} -> {told}"[:400], flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
