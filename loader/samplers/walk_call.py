"""`random_walk`: walks by one call."""

from __future__ import annotations

import copy
import functools
import inspect
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from loader import _core
from loader.graph import Graph, require_graph
from loader.machine.arguments import as_seed, as_size, check_known
from loader.machine.forks import ForkSafeLock
from loader.machine.mapped import whole
from loader.machine.memo import version_of
from loader.samplers.base import check_position
from loader.samplers.walk_next.next import as_next
from loader.samplers.walked_graph import WalkedGraph
from loader.samplers.walks import WalkSampler, searches, walk, walked_graph

if TYPE_CHECKING:
    from loader.samplers.gpu.walked_graph import CudaWalkedGraph

_MOST_FORMS = 4  # forms of one graph
_NEGATIVES = frozenset(("num_negatives", "negative_exponent"))

_OWN = ("walk_length", "walks_per_node", "seed", "epoch", "batch")
_OPTIONS = (*_OWN, *(name for name in inspect.signature(WalkSampler).parameters if name not in (*_OWN, *_NEGATIVES)))

_lock = ForkSafeLock()
_graphs: weakref.WeakKeyDictionary[Graph, dict[Any, Any]] = weakref.WeakKeyDictionary()


def random_walk(
    graph: Graph,
    start: Tensor,
    walk_length: int,
    *,
    walks_per_node: int = 1,
    seed: int = 0,
    epoch: int = 0,
    batch: int = 0,
    **options: Any,
) -> Tensor | tuple[Tensor, Tensor]:
    """Random walks from `start`: `loader.random_walk(graph, torch.arange(graph.num_nodes), 80, p=2, q=0.5)`.

    A step goes from a node to one of its listed neighbors. `WalkSampler` says how to walk along the direction of
    edges. Equal arguments give equal walks, on any device and with any number of threads. For other walks, give another
    `seed`, `epoch` or `batch`. If a call makes something for its walks, for example sorted lists, it is kept with the
    graph for the next call.

    Args:
        graph: where to walk.
        start: `[n]`, integer, nodes of the graph. If a node is given twice, two independent walks start there.
        walk_length: steps of each walk.
        walks_per_node: walks from each start.
        seed: of the random choices, `0 <= seed < 2**64`.
        epoch, batch: like `seed`, they decide the random choices; both count from 0.
        options: `p`, `q`, `stop`, `restart`, `weights`, `metapath`, `next`, `edge_ids`, `schedule`, `device`,
            `num_threads`: see `WalkSampler`. By default it walks where the graph lies.

    Returns:
        `[walks_per_node * n, walk_length + 1]` nodes, dtype of `graph.indices`: the first walk of each start, then the
        second walk of each start, and so on. After the end of a walk there is -1. With `edge_ids=True` also a second
        tensor, `[walks_per_node * n, walk_length]`: ids of the followed edges, or -1. Its dtype is that of
        `graph.edge_ids`, or of `graph.indptr` without ids. The call returns when the walks are done, also on a GPU.

    Raises:
        TypeError, ValueError: an argument is not as said above; the message says which, and the way out.
    """
    if not _NEGATIVES.isdisjoint(options):
        raise TypeError("random_walk draws no negatives; WalkSampler does")
    require_graph(graph, hetero=False)
    if "device" not in options:
        options["device"] = graph.device
    metapath = options.get("metapath")
    if metapath is not None and isinstance(metapath, Sequence):
        options["metapath"] = tuple(metapath)
    if options.get("next") is not None:  # the integers around a function may be others than in the call before
        options["next"] = as_next(options["next"])
    check_known("random_walk", options, _OPTIONS)
    try:
        sampler = _sampler(walk_length, **options)
    except TypeError:
        sampler = WalkSampler(walk_length, **options)  # with an option that cannot be a key, or one that is refused
    times = as_size("walks_per_node", walks_per_node, most=2**31 - 1)
    starts = start.repeat(times) if times > 1 and isinstance(start, Tensor) and start.dim() == 1 else start
    check_position(epoch, batch)
    key = _core.walk_key(as_seed(seed), epoch, batch)
    try:
        with whole(*graph._arrays().values()):
            walked = _walked(graph, sampler)
            if sampler.next is not None:
                walked.prepare(sampler.next)
            nodes, edges = walk(walked, sampler, starts, key)
        walked.check(wait=True)
    except (TypeError, ValueError) as error:  # samplers call them seeds
        if not str(error).startswith("seeds "):
            raise
        raise type(error)(f"start {str(error).removeprefix('seeds ')}") from None
    return nodes if edges is None else (nodes, edges)


@functools.lru_cache(maxsize=64, typed=True)
def _sampler(walk_length: int, **options: Any) -> WalkSampler:
    """To check its arguments takes longer than a short walk."""
    return WalkSampler(walk_length, **options)


def _walked(graph: Graph, sampler: WalkSampler) -> WalkedGraph | CudaWalkedGraph:
    """The graph, made ready; that is kept with the graph for the next call."""
    arrays = (graph.indptr, graph.indices, graph.edge_ids, graph.edge_types, graph.edge_weights)
    path = None if sampler.metapath is None else tuple(sampler.metapath)
    key = (searches(sampler), sampler.weights, path, sampler.num_threads, sampler.device)
    state = [None if a is None else (id(a), version_of(a)) for a in arrays]
    with _lock:
        forms = _graphs.setdefault(graph, {})
        found = forms.get(key)
        if found is None or found[0] != state:
            forms.pop(key, None)
            while len(forms) >= _MOST_FORMS:
                del forms[next(iter(forms))]
            # A copy shares the arrays, whose ids stay theirs: what is kept with the graph must not keep it.
            same = copy.copy(graph)
            found = forms[key] = (state, walked_graph(sampler, same), same)
        walked: WalkedGraph | CudaWalkedGraph = found[1]
        return walked
