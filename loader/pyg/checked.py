"""Graphs that torch_geometric hands over at every call, checked once."""

from __future__ import annotations

import weakref
from collections import OrderedDict
from typing import NamedTuple

import torch
from torch import Tensor

from loader import _core
from loader.graph.checks import check_csc
from loader.machine.cpus import available_cpus
from loader.machine.forks import ForkSafeLock
from loader.machine.kept import version_of

_MOST = 8  # graphs whose workspaces, of some bytes per vertex, are kept


class _Checked(NamedTuple):
    tensors: tuple[weakref.ref[Tensor], weakref.ref[Tensor]]
    versions: tuple[int, int]  # as torch counts what is written to them
    num_threads: int
    engine: _core.SubgraphSampler


_lock = ForkSafeLock()
_checked: OrderedDict[tuple[int, int], _Checked] = OrderedDict()


def engine_of(indptr: Tensor, indices: Tensor) -> _core.SubgraphSampler:
    """What samples this graph, in as many threads as torch has. The arrays are checked when they are first seen.

    Known are the last graphs whose two tensors still live and were not written to. A forked process knows those of its
    parent.

    Raises:
        TypeError, ValueError: the arrays are no graph.
    """
    key = id(indptr), id(indices)
    threads = num_threads()
    versions = version_of(indptr), version_of(indices)
    with _lock:
        known = _checked.get(key)
        if known is not None and (known.tensors[0]() is not indptr or known.tensors[1]() is not indices):
            known = None
        if known is not None and known.versions == versions and known.num_threads == threads:
            _checked.move_to_end(key)
            return known.engine
    if known is None or known.versions != versions:
        _check(indptr, indices)
    # The engine keeps tensors of its own that share the memory, so that it does not keep these two alive.
    engine = _core.SubgraphSampler(indptr.detach(), indices.detach(), threads)
    tensors = weakref.ref(indptr, lambda _: _forget(key)), weakref.ref(indices, lambda _: _forget(key))
    with _lock:
        _checked[key] = _Checked(tensors, versions, threads, engine)
        _checked.move_to_end(key)
        dropped = [_checked.popitem(last=False) for _ in range(len(_checked) - _MOST)]
    del dropped  # not under the lock: a graph may go with it, and call back
    return engine


def num_threads() -> int:
    """As many threads as torch has here: a worker of a DataLoader has one."""
    return max(1, min(torch.get_num_threads(), available_cpus(), _core.max_threads))


def _forget(key: tuple[int, int]) -> None:
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
