"""The protocol of all stores: ids in, rows out; and how a store is made."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from loader.stores.rows import RowOptions

if TYPE_CHECKING:
    from loader.graph import Graph
    from loader.samples import MiniBatch


@runtime_checkable
class FeatureStore(Protocol):
    """Rows by id, wherever they are kept: features of vertices `[num_rows, F]` or of edges, labels `[num_rows]`.

    What an id stands for (a vertex, an edge) is the caller's business.

    All stores of the same rows, kept in the same type and returned in the same type, return equal bytes.
    """

    @property
    def num_rows(self) -> int:
        """Number of rows."""

    @property
    def row_shape(self) -> tuple[int, ...]:
        """Shape of a row: `(F,)` for features, `()` for labels."""

    @property
    def dim(self) -> int:
        """Elements a row, the product of `row_shape`."""

    @property
    def dtype(self) -> torch.dtype:
        """Element type of the rows that `gather` returns."""

    @property
    def device(self) -> torch.device:
        """Where the rows that `gather` returns lie."""

    @property
    def asynchronous(self) -> bool:
        """Whether `gather` only puts work on the current stream: the host does not wait, nor work itself."""

    def gather(self, ids: Tensor) -> Tensor:
        """The rows of `ids`.

        Args:
            ids: `[n]`, int32 or int64, in `[0, num_rows)`, on the CPU or on `device`; ids may repeat.

        Returns:
            `[n, *row_shape]` on `device`; row `i` belongs to `ids[i]`. The caller owns it. A store on a GPU
            writes it on the current stream of that GPU.

        Raises:
            TypeError: `ids` is neither int32 nor int64.
            ValueError: an id is out of range; the message names it. An asynchronous store gives such an id a row of
                zeros, and raises at a later `gather`, once the GPU has told, or at `check()`.
            RuntimeError: the store was closed.
        """

    def check(self) -> None:
        """Waits for the gathers begun so far, and raises what they have to say.

        Raises:
            ValueError: an id was out of range.
        """

    def close(self) -> None:
        """Frees threads and memory, after what was begun is done; the store cannot be used afterwards."""


@dataclass(frozen=True)
class StoreContext:
    """What a store may want to know of the run that it is made for, beside its rows.

    Attributes:
        graph: whose vertices the rows belong to.
        batches: an epoch of the mini-batches that the rows will be gathered for, without rows, each time it is called.
    """

    graph: Graph
    batches: Callable[[], Iterable[MiniBatch]] | None = None


def open_store(make: Callable[..., FeatureStore], tensor: Tensor, context: StoreContext | None = None) -> FeatureStore:
    """The store that the factory `make` makes of `tensor`.

    A factory takes the tensor of all rows: a store's class, or a `functools.partial` of it as `conf/features/`
    describes. One that has a keyword `context`, as `CachedFeatures` has, also gets `context`, unless it was given
    one before; others never see it.

    Args:
        make: `make(tensor)` or `make(tensor, context=context)`.
        tensor: `[num_rows, ...]` on the CPU.
        context: of the run; None where there is no graph (yet).

    Raises:
        TypeError: `make` makes nothing.
    """
    check_store_factory(make)
    if context is not None and _takes_context(make):
        return make(tensor, context=context)
    return make(tensor)


def check_store_factory(features: Any) -> None:
    """Raises TypeError unless it can make a store, see `open_store`."""
    if not callable(features):
        raise TypeError(
            f"features is a {type(features).__name__}; it must be what makes a store of the dataset's features, "
            "e.g. the class loader.stores.HostFeatures"
        )


def options_of(make: Callable[..., FeatureStore]) -> list[str]:
    """Names of the options of a store's class or of another factory, those of `RowOptions` included."""
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
