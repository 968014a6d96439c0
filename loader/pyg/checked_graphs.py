"""Graphs that torch_geometric hands over at every call, checked once."""

from __future__ import annotations

import os
import weakref
from collections import OrderedDict
from typing import NamedTuple

import torch
from torch import Tensor

from loader import _core
from loader.graph.checks import check_csc, check_length, check_weights, weight_vector
from loader.machine.cpus import available_cpus
from loader.machine.forks import ForkSafeLock
from loader.machine.memo import version_of
from loader.machine.pages import use_huge_pages
from loader.samplers.picks import without_zeros

_MOST = 8  # graphs whose workspaces, of some bytes per node, are kept


# A forked child shares its parent's memory; to put it on huge pages there would copy it.
_PROCESS = os.getpid()


class Sampled(NamedTuple):
    """What samples a graph."""

    engine: _core.SubgraphSampler
    places: Tensor | None  # in `indices`, of the edges that it samples; None where it samples all of them


class _Checked(NamedTuple):
    tensors: tuple[weakref.ref[Tensor], ...]
    versions: tuple[int, ...]  # as torch counts what is written to them
    num_threads: int
    sampled: Sampled


_lock = ForkSafeLock()
_checked: OrderedDict[tuple[int, ...], _Checked] = OrderedDict()


def engine_of(indptr: Tensor, indices: Tensor, weights: Tensor | None = None) -> Sampled:
    """What samples this graph, in as many threads as torch has. The arrays are checked when they are first seen, and
    put on huge pages, in place. Of the weights tables are made, of 16 bytes an edge.

    Known are the last graphs whose tensors still captured and were not written to. A forked process knows those of its
    parent.

    Raises:
        TypeError, ValueError: the arrays are no graph.
    """
    given = (indptr, indices) if weights is None else (indptr, indices, weights)
    key = tuple(map(id, given))
    threads = num_threads()
    versions = tuple(map(version_of, given))
    with _lock:
        known = _checked.get(key)
        if known is not None and any(
            reference() is not now for reference, now in zip(known.tensors, given, strict=True)
        ):
            known = None
        if known is not None and known.versions == versions and known.num_threads == threads:
            _checked.move_to_end(key)
            return known.sampled
    if known is None or known.versions != versions:
        _check(indptr, indices)
        if weights is not None:
            _check_weights(weights, indptr, indices)
    # The engine keeps tensors of its own that share the memory, so that it does not keep these alive.
    indptr, indices, places, picks = indptr.detach(), indices.detach(), None, None
    if weights is not None:
        lists = without_zeros(indptr, indices, weights.detach())
        indptr, indices, places = lists.indptr, lists.indices, lists.places
        cells, ends = lists.tables(threads)
        use_huge_pages(cells)
        picks = _core.WeightTables(cells, ends)
    if os.getpid() == _PROCESS:
        use_huge_pages(indptr)
        use_huge_pages(indices)
    sampled = Sampled(_core.SubgraphSampler(indptr, indices, threads, picks), places)
    tensors = tuple(weakref.ref(tensor, lambda _: _forget(key)) for tensor in given)
    with _lock:
        _checked[key] = _Checked(tensors, versions, threads, sampled)
        _checked.move_to_end(key)
        dropped = [_checked.popitem(last=False) for _ in range(len(_checked) - _MOST)]
    del dropped  # not under the lock: a graph may go with it, and call back
    return sampled


def num_threads() -> int:
    """As many threads as torch has here: a worker of a DataLoader has one."""
    return max(1, min(torch.get_num_threads(), available_cpus()))


def _forget(key: tuple[int, ...]) -> None:
    # Without the lock: whoever holds it may be interrupted by the collector, which calls this. One step of Python.
    _checked.pop(key, None)


def _check(indptr: Tensor, indices: Tensor) -> None:
    for name, array in (("rowptr", indptr), ("col", indices)):
        if array.dim() != 1 or array.dtype not in (torch.int32, torch.int64) or array.dtype != indptr.dtype:
            raise TypeError(
                f"{name} has shape {list(array.shape)} and dtype {array.dtype}; rowptr and col must have 1 dimension "
                "and both be int32 or int64"
            )
        if not array.is_contiguous():
            raise ValueError(f"{name} is not contiguous; call .contiguous() first")
    if indptr.numel() == 0:
        raise ValueError("rowptr is empty; it needs num_nodes + 1 entries")
    try:
        check_csc(indptr, indices, indptr.numel() - 1)
    except ValueError as error:
        raise ValueError(f"rowptr (indptr) and col (indices) are no graph: {error}") from None


def _check_weights(weights: Tensor, indptr: Tensor, indices: Tensor) -> None:
    weight_vector(weights, indptr.device)
    check_length("edge_weight", weights, indices.numel(), f"col has {indices.numel()}")
    if not weights.is_contiguous():
        raise ValueError("edge_weight is not contiguous; call .contiguous() first")
    check_weights(weights, indices, indptr)
