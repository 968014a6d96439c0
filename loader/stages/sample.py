"""The first stage: it takes turns of the sequence of mini-batches and returns samples."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from loader.items import BatchSequence, Items, Order, Seeds, Turn
from loader.pipeline import Stage
from loader.samplers.base import Request, Session
from loader.samples import Sample
from loader.stores import FeatureStore


class SampleStage(Stage):
    """Takes the items of each turn and samples around them, a group of mini-batches at a time.

    If the labels lie on the items' device, they are gathered for the whole group before it is sampled. This takes only
    one launch per group.

    Args:
        session: a session of the sampler.
        items: on the session's device.
        order, sequence: they say which items a mini-batch has.
        labels: rows of the seeds, if they lie on the items' device.
        asynchronous: whether the session only puts work on the current stream.
        ahead: whether samples are prefetched, while the device does other work.
        owns_session: whether the stage closes the session when it is closed.
        prepares: kinds of rows for which samples are prepared, see `Sample.prepare`.
    """

    name = "sample"
    # Training needs these samples only several steps later, so it goes first, if it has a priority. Its CUDA graphs
    # have one, with a torch that gives the priority to their kernels (as 2.11).
    priority = -1

    def __init__(
        self,
        session: Session,
        items: Items,
        order: Order,
        sequence: BatchSequence,
        *,
        labels: FeatureStore | None = None,
        asynchronous: bool = False,
        ahead: bool = False,
        owns_session: bool = True,
        prepares: Collection[str] = (),
    ) -> None:
        self.device = items.device
        self.asynchronous = asynchronous
        self.together = session.together
        self._session, self._items, self._order, self._sequence = session, items, order, sequence
        self._labels, self._ahead, self._owns_session = labels, ahead, owns_session
        self._prepares = prepares

    def begin(self, group: Sequence[Turn]) -> Sequence[Callable[[], Any]]:
        seeds = self._seeds(group)
        requests = [Request(s.ids, t.epoch, t.number, s.numbers) for s, t in zip(seeds, group, strict=True)]
        finish = self._session.begin(requests, ahead=self._ahead)
        if self._prepares:
            finish = [partial(_prepared, f, self._prepares) for f in finish]
        if self._labels is None:
            return [
                partial(_finish, f, None, t.repeats) if t.repeats else f for f, t in zip(finish, group, strict=True)
            ]
        labels = self._rows(self._labels, seeds)
        return [partial(_finish, f, y, t.repeats) for f, y, t in zip(finish, labels, group, strict=True)]

    def check(self) -> None:
        self._session.check()
        if self._labels is not None:
            self._labels.check()

    def close(self) -> None:
        if self._owns_session:
            self._session.close()

    def _seeds(self, group: Sequence[Turn]) -> list[Seeds]:
        sequence = self._sequence
        first, stride = group[0], sequence.world_size
        length = min(sequence.batch_size, sequence.num_items)
        sizes = [sequence.size(turn.number) for turn in group]
        if any((t.epoch, t.number) != (first.epoch, first.number + i * stride) for i, t in enumerate(group)):
            return [seeds for turn in group for seeds in self._seeds([turn])]  # the last ones repeat the first
        at = self._order.at(
            first.epoch, first.number * length, sum(sizes), self._items.device, length=length, stride=stride * length
        )
        return self._items.take(at, sizes)

    def _rows(self, store: FeatureStore, seeds: Sequence[Seeds]) -> Sequence[Tensor | None]:
        if self._items.by_number:
            numbers = [s.numbers for s in seeds if s.numbers is not None]
            rows = store.gather(torch.cat(numbers))
        else:
            ids = seeds[0].ids if len(seeds) == 1 else torch.cat([s.ids for s in seeds])
            rows = store.gather(ids - self._items.first if self._items.first else ids)
        if len(seeds) == 1:
            return [rows]
        # "Unsafe": what is done to one part in place is not taken for a change of the others.
        parts: Sequence[Tensor | None] = rows.unsafe_split_with_sizes([s.ids.shape[0] for s in seeds])
        return parts


def _finish(finish: Callable[[], Sample], labels: Tensor | None, repeats: bool) -> Sample:
    sample = finish()
    if labels is not None:
        sample = sample.with_rows({"seed": labels})
    return sample.replace(repeats=True) if repeats else sample


def _prepared(finish: Callable[[], Sample], kinds: Collection[str]) -> Sample:
    sample = finish()
    sample.prepare(kinds)
    return sample
