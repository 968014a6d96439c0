"""The base class of all stores, which return the rows of ids, and the function that makes a store."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from loader.machine.arguments import kind_of, shown
from loader.stores.rows import RowOptions

if TYPE_CHECKING:
    from loader.graph import Graph
    from loader.samples import MiniBatch


@runtime_checkable
class FeatureStore(Protocol):
    """Rows by id, wherever they are kept: features of nodes `[num_rows, F]` or of edges, labels `[num_rows]`.

    The caller decides whether an id is that of a node or of an edge.

    Stores of the same rows return equal bytes, if they keep and return them in the same types.
    """

    @property
    def num_rows(self) -> int:
        """Number of rows."""

    @property
    def row_shape(self) -> tuple[int, ...]:
        """Shape of a row: `(F,)` for features, `()` for labels."""

    @property
    def dim(self) -> int:
        """Elements per row, the product of `row_shape`."""

    @property
    def dtype(self) -> torch.dtype:
        """Element type of the rows that `gather` returns."""

    @property
    def device(self) -> torch.device:
        """Where the rows that `gather` returns lie."""

    @property
    def asynchronous(self) -> bool:
        """Whether `gather` only puts work on the current stream. The host then neither waits nor gathers itself."""

    def gather(self, ids: Tensor) -> Tensor:
        """The rows of `ids`.

        Args:
            ids: `[n]`, int32 or int64, in `[0, num_rows)`, on the CPU or on `device`; ids may repeat.

        Returns:
            `[n, *row_shape]` on `device`; row `i` belongs to `ids[i]`. The caller owns it. A store on a GPU
            writes it on the current stream of that GPU.

        Raises:
            TypeError: `ids` is neither int32 nor int64.
            ValueError: an id is out of range; the message names it. An asynchronous store returns a row of zeros for
                such an id. It raises at `check()`, or at a `gather` after the GPU has reported the id.
            RuntimeError: the store was closed.
        """

    def check(self) -> None:
        """Waits for the gathers begun so far, and raises their errors.

        Raises:
            ValueError: an id was out of range.
        """

    def close(self) -> None:
        """Waits for the gathers begun so far, then frees threads and memory. The store cannot be used afterwards."""


@dataclass(frozen=True)
class StoreContext:
    """The run that a store is made for.

    Attributes:
        graph: the graph whose nodes have the rows.
        batches: returns, at each call, an epoch of the mini-batches that the rows will be gathered for, without their
            rows.
    """

    graph: Graph
    batches: Callable[[], Iterable[MiniBatch]] | None = None


def open_store(make: Callable[..., FeatureStore], tensor: Tensor, context: StoreContext | None = None) -> FeatureStore:
    """The store that the factory `make` makes of `tensor`.

    A factory takes the tensor of all rows. It is a store's class, or a `functools.partial` of one, as in
    `conf/features/`. If it has a keyword `context`, as `CachedFeatures` has, and the partial does not set it, it also
    gets `context`.

    Args:
        make: `make(tensor)` or `make(tensor, context=context)`.
        tensor: `[num_rows, ...]` on the CPU.
        context: of the run; None if there is no graph yet.

    Raises:
        TypeError: `make` is no function, or returns no store.
    """
    check_store_factory(make)
    store = make(tensor, context=context) if context is not None and _takes_context(make) else make(tensor)
    if not isinstance(store, (FeatureStore, Tensor)):
        raise TypeError(
            f"features returned {shown(store)}; it must return a store of the rows, e.g. HostFeatures(tensor)"
        )
    return store


def check_store_factory(features: Any) -> None:
    """Raises TypeError unless it can make a store, see `open_store`."""
    if not callable(features):
        raise TypeError(
            f"features is {kind_of(features)}; it must be a function that makes a store of the dataset's "
            "features, e.g. the class loader.stores.HostFeatures"
        )


def options_of(make: Callable[..., FeatureStore]) -> list[str]:
    """Names of the options of a factory, including those of `RowOptions`."""
    names: list[str] = []
    for name, parameter in list(inspect.signature(make).parameters.items())[1:]:  # the first one are the rows
        names += RowOptions.__annotations__ if parameter.kind is inspect.Parameter.VAR_KEYWORD else [name]
    return names


def _takes_context(make: Callable[..., Any]) -> bool:
    if isinstance(make, functools.partial) and "context" in make.keywords:
        return False
    try:
        parameter = inspect.signature(make).parameters.get("context")
    except (TypeError, ValueError):  # a builtin without a signature
        return False
    return parameter is not None and parameter.kind in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD)
