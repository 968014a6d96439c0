"""Drawing splits of the nodes, and reading them from ids or masks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from loader.datasets.errors import DatasetError
from loader.datasets.node_dataset import SPLITS
from loader.datasets.numbers import as_int64, is_text
from loader.graph.checks import MISSING_TIME
from loader.machine.arguments import as_index, as_size, shown


def random_split(num_nodes: int, fractions: Sequence[float], seed: int) -> dict[str, Tensor]:
    """Draws disjoint splits uniformly.

    Args:
        num_nodes: number of nodes.
        fractions: of train, val and test; each in [0, 1], together at most 1. If their sum is 1, every node is in a
            split.
        seed: of the draw.

    Returns:
        For each split ascending int64 ids.

    Raises:
        ValueError: the fractions are not as said above.
    """
    order = np.random.default_rng(seed).permutation(num_nodes)
    return _cut(order, check_fractions(fractions))


def stratified_split(labels: Tensor, fractions: Sequence[float], seed: int) -> dict[str, Tensor]:
    """Draws disjoint splits in which every class has (nearly) the share that it has in the whole.

    Args:
        labels: `[num_nodes]` int64; nodes with a negative label are in no split.
        fractions: see `random_split`; they hold for each class.
        seed: of the draw.
    """
    fractions = check_fractions(fractions)
    rng = np.random.default_rng(seed)
    parts: dict[str, list[Tensor]] = {split: [] for split in SPLITS}
    for members in _by_class(labels):
        for split, ids in _cut(rng.permutation(members), fractions).items():
            parts[split].append(ids)
    return {split: torch.cat([torch.empty(0, dtype=torch.int64), *ids]).sort()[0] for split, ids in parts.items()}


def per_class_split(labels: Tensor, num_train: int, num_val: int, seed: int) -> dict[str, Tensor]:
    """Draws `num_train` training and `num_val` validation nodes of every class; the rest is for test.

    The protocol of Shchur et al. 2018, Pitfalls of graph neural network evaluation (arXiv:1811.05868), there
    with 20 and 30.

    Args:
        labels: `[num_nodes]` int64; nodes with a negative label are in no split.
        num_train, num_val: nodes per class; at least 1 and 0.
        seed: of the draw.

    Raises:
        ValueError: a count is too small.
        DatasetError: a class has not enough nodes.
    """
    if num_train < 1 or num_val < 0:
        raise ValueError(f"{num_train} training and {num_val} validation nodes per class; give at least 1 and 0")
    rng = np.random.default_rng(seed)
    parts: dict[str, list[NDArray[np.int64]]] = {split: [] for split in SPLITS}
    for members in _by_class(labels):
        if members.size < num_train + num_val:
            raise DatasetError(
                f"class {int(labels[members[0]])} has {members.size} nodes, the split takes {num_train} + "
                f"{num_val} of every class; ask for fewer"
            )
        order = rng.permutation(members)
        parts["train"].append(order[:num_train])
        parts["val"].append(order[num_train : num_train + num_val])
        parts["test"].append(order[num_train + num_val :])
    return {split: torch.from_numpy(np.sort(np.concatenate(ids))) for split, ids in parts.items()}


def ids_of(array: NDArray[np.generic], num_nodes: int, what: str) -> Tensor:
    """Ascending int64 ids from ids (any order) or a boolean mask over all nodes.

    Raises:
        DatasetError: neither integer ids nor a mask of `num_nodes` entries, or an id twice.
    """
    if array.ndim != 1:
        raise DatasetError(f"{what} has shape {list(array.shape)}; it must be ids [size] or a mask [{num_nodes}]")
    if array.dtype == np.bool_:
        if array.size != num_nodes:
            raise DatasetError(f"{what} is a mask of {array.size} entries; the graph has {num_nodes} nodes")
        return torch.from_numpy(np.flatnonzero(array))
    if not np.issubdtype(array.dtype, np.integer):
        way = ": numbers of nodes, as in the edges, in place of their names" if is_text(array) else ""
        raise DatasetError(f"{what} has dtype {array.dtype}; it must be integer ids or a boolean mask{way}")
    if array.size == num_nodes > 2 and ((array == 0) | (array == 1)).all():
        raise DatasetError(
            f"{what} has {num_nodes} entries, all of them 0 or 1, like a mask of dtype {array.dtype}; a mask must be "
            "boolean: astype(bool)"
        )
    ids = np.sort(as_int64(array, what))
    if ids.size > 1 and (ids[1:] == ids[:-1]).any():
        twice = ids[1:][ids[1:] == ids[:-1]][0]
        raise DatasetError(f"{what} holds node {twice} twice; each node may be there once")
    return torch.from_numpy(ids)


def check_fractions(fractions: Sequence[float]) -> tuple[float, float, float]:
    """The three fractions as floats; raises ValueError unless they are three in [0, 1] that sum to at most 1."""
    try:
        values = tuple(float(f) for f in fractions)
    except (TypeError, ValueError):
        raise ValueError(
            f"split is {fractions!r}; give three fractions (train, val, test), e.g. [0.6, 0.2, 0.2]"
        ) from None
    if len(values) != 3 or not all(0 <= f <= 1 for f in values) or sum(values) > 1 + 1e-9:
        raise ValueError(
            f"split fractions {list(values)}: give three (train, val, test), each in [0, 1], summing to at most 1"
        )
    return values[0], values[1], values[2]


def as_split_seed(seed: Any, *, drawn: bool, way: str) -> int:
    """The seed of a split as an integer.

    Args:
        seed: of a draw.
        drawn: whether the split is drawn.
        way: how it would be.

    Raises:
        TypeError, ValueError: it is no integer of at least 0, or other than 0 where nothing is drawn, so that all seeds
            would give one split.
    """
    seed = as_size("split_seed", seed, least=0)
    if seed and not drawn:
        raise ValueError(f"split_seed is {seed}, but no split is drawn; {way}, or leave it out")
    return seed


def check_split_times(times: Sequence[int]) -> tuple[int, int]:
    """The two times of a split by time as integers; raises ValueError unless they are two, in order."""
    found = [as_index(t) for t in times] if isinstance(times, Sequence) and not isinstance(times, str) else []
    if len(found) != 2 or found[0] is None or found[1] is None or found[0] > found[1]:
        raise ValueError(
            f"split_times is {shown(times)}; give two integers in order, the times at which val and test begin"
        )
    return found[0], found[1]


def time_split(labels: Tensor, times: Tensor, split_times: tuple[int, int]) -> dict[str, Tensor]:
    """A split of the nodes with a label by their times: val begins with the first of two times, test with the second.

    Args:
        labels: `[num_nodes]` int64; nodes with a negative label are in no split.
        times: `[num_nodes]` int64; nodes whose time is missing are in no split.
        split_times: see `check_split_times`.

    Raises:
        DatasetError: no node is for training.
    """
    val, test = split_times
    has = (labels >= 0) & (times != MISSING_TIME)
    parts = {"train": times < val, "val": (times >= val) & (times < test), "test": times >= test}
    splits = {split: (has & part).nonzero().view(-1) for split, part in parts.items()}
    if splits["train"].numel() == 0:
        raise DatasetError(f"split_times is {list(split_times)}; no node with a label is earlier than the first")
    return splits


def _cut(order: NDArray[np.int64], fractions: Sequence[float]) -> dict[str, Tensor]:
    # Rounding the running sums, not the parts, loses no node.
    ends = np.rint(np.minimum(np.cumsum(fractions), 1.0) * order.size).astype(np.int64)
    parts = np.split(order, ends)[:3]
    return {split: torch.from_numpy(np.sort(part)) for split, part in zip(SPLITS, parts, strict=True)}


def _by_class(labels: Tensor) -> list[NDArray[np.int64]]:
    array = labels.numpy()
    order = np.argsort(array, kind="stable")
    order = order[np.searchsorted(array[order], 0) :]
    if order.size == 0:
        raise DatasetError("no node has a label, so no split can be drawn")
    return np.split(order, np.flatnonzero(np.diff(array[order])) + 1)
