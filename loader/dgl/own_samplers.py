"""Mini-batches of samplers with methods of the user's, which are called one after another."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from loader.dgl.edges import EdgePredictionSampler
from loader.dgl.original_dgl import dataloading, drawn_by_torch
from loader.dgl.samplers import BlockSampler, FanoutSampler
from loader.loaders.own_batches import Asked, seeded
from loader.machine.optional import import_dgl

_log = logging.getLogger("loader")


_OURS = {name: getattr(FanoutSampler, name) for name in ("sample", "sample_blocks", "assign_lazy_features")}
_OURS_OF_EDGES = {
    name: getattr(EdgePredictionSampler, name) for name in ("sample", "_build_neg_graph", "assign_lazy_features")
}


def own_methods(sampler: Any) -> list[str]:
    """What a sampler has of the user's or of DGL's, in place of this module's, and must be called."""
    edges = isinstance(sampler, EdgePredictionSampler)
    if not edges and not isinstance(sampler, BlockSampler):
        return [f"{type(sampler).__name__}.sample"]
    methods = [(name, getattr(sampler, name), ours) for name, ours in (_OURS_OF_EDGES if edges else _OURS).items()]
    found = [
        f"{type(sampler).__name__}.{name}" for name, now, ours in methods if getattr(now, "__func__", None) is not ours
    ]
    if not edges and not found and isinstance(sampler, FanoutSampler) and sampler.by_hop() is not None:
        found = [f"{type(sampler).__name__}.sample_blocks"]
    if edges:
        found += own_methods(sampler.sampler)
        found += ["exclude"] if callable(sampler.exclude) else []
        found += ["negative_sampler"] if sampler.negative_sampler is not None and sampler.negatives() is None else []
    return found


def tell(methods: list[str]) -> None:
    """Says what a loader with such methods is, compared with others."""
    _log.warning(
        "%s is called for each mini-batch, in the thread that asks for it: this is slower than the samplers of "
        "loader.dgl as they are, and num_workers and prefetch_factor have no effect",
        ", ".join(methods),
    )


def epoch_of(
    graph: Any,
    sampler: Any,
    device: torch.device,
    seed: int,
    items: Iterator[Asked],
    as_given: Callable[[Tensor], Any],
    take_back: Callable[[], None],
) -> Iterator[Any]:
    """The mini-batches that `sampler.sample(graph, ids)` gives, brought to `device` with their features by DGL.

    Before each call the generators of torch and of DGL are seeded for this mini-batch, so `seed` decides it, and a
    loader that goes on amid an epoch gives the same. DGL's kernels get one thread, since with more of them it is chance
    which draws what. After the call torch's generators get their states back. DGL's cannot be read; it gets a number
    that it drew before.

    Args:
        seed: of the loader.
        items: of the mini-batches.
        as_given: makes the sampler's ids of items.
        take_back: is called if a mini-batch fails after its items were taken.
    """
    dgl = import_dgl("loader.dgl")
    gpus = list({place for place in (graph.device, device) if place.type == "cuda"})
    now: list[Asked] = []

    class Items(torch.utils.data.IterableDataset[Any]):
        device = graph.device

        def __iter__(self) -> Iterator[Any]:
            for asked in items:
                now[:] = [asked]
                yield as_given(asked.items)

    class Seeded:
        def sample(self, g: Any, ids: Any) -> Any:
            with seeded(seed, now[0].epoch, now[0].index, gpus) as key, _dgl_seeded(dgl, key & 0x7FFFFFFF):
                return sampler.sample(g, ids)

    # A generator of its own: torch's loaders draw a number when they begin, which would move the user's.
    own = torch.Generator()
    made = dataloading("dataloader").DataLoader(
        graph, Items(), Seeded(), device=device, use_prefetch_thread=False, generator=own
    )
    made.cpu_affinity_enabled = True  # or it recommends to bind workers to processors, and there are none
    batches = iter(made)
    while True:
        now.clear()
        try:
            batch = next(batches)
        except StopIteration:
            return
        except BaseException:
            if now:
                take_back()
            raise
        yield batch


@contextmanager
def _dgl_seeded(dgl: Any, seed: int) -> Iterator[None]:
    """Within it DGL draws by `seed`, in one thread, and our functions by torch's generator."""
    threads, following = dgl.utils.get_num_threads(), int(dgl.random.choice(2**31 - 1, 1))
    dgl.utils.set_num_threads(1)
    try:
        dgl.seed(seed)
        with drawn_by_torch():
            yield
    finally:
        dgl.utils.set_num_threads(threads)
        dgl.seed(following)
