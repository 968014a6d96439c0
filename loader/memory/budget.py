"""The option `memory` of a data module: plans a budget of a GPU's memory, and places lists and rows by the plan."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.distributed
from torch import Tensor

from loader.datasets.hetero import HeteroDataset
from loader.machine.devices import as_device
from loader.machine.gpu import counted_bytes, free_bytes
from loader.memory.counting import COUNTED_OF_SPLIT, first_batches, most_rows
from loader.memory.graph import COUNTED, GraphMemory
from loader.memory.hetero import SplitSeeds, locked_bytes, plan_types
from loader.memory.hetero_plan import HeteroPlan
from loader.memory.plan import MemoryNeeds, MemoryPlan, NarrowerPlan, as_memory, check_budget, readable
from loader.memory.split import Reads
from loader.samplers import Sampler
from loader.samplers.gpu.memory_needs import SamplerNeeds, check_counted
from loader.samplers.gpu.sizes import GpuOptions
from loader.samples import MiniBatch
from loader.stores import FeatureStore, StoreContext, auto_features
from loader.stores.auto import GPU_SHARE, may_lock, open_rows
from loader.stores.cached import is_large
from loader.stores.host_part import gpu_bytes
from loader.stores.rows import RowFormat, RowOptions, narrower_rows
from loader.stores.tensor import narrowest_dtype

if TYPE_CHECKING:
    from loader.datasets import NodeDataset

# What makes the store of the rows, or those of each type that has some.
StoreMakers = Callable[..., FeatureStore] | dict[str, Callable[..., FeatureStore]]

_log = logging.getLogger(__name__)

_AUTO_SHARE = 0.75  # of the free memory: the rest is for the activations of the model
_TRAINED = 4  # copies of a model's parameters: themselves, their gradients, two moments of Adam
_LOOKAHEAD = 8  # gathers that are announced together: as many mini-batches are sampled together in any case
# Cached rows over those of a mini-batch. With fewer, next to none wait for the gather that needs them; with more, few
# rows cross the bus in any case. Then the renewal takes longer than it saves (shortcuts_gpu.py).
_LEAST_RENEWED, _MOST_RENEWED = 0.3, 1.5


@dataclass(frozen=True)
class MemoryBudget:
    """A budget of GPU memory for graph, features, sampler and mini-batches in flight.

    Args:
        memory: "auto", or bytes.
        options: of the rows, see `RowOptions`.
    """

    memory: str | int
    options: RowOptions

    @classmethod
    def checked(
        cls,
        memory: str | float | None,
        graph: str,
        features: Callable[..., FeatureStore] | None,
        edge_features: Any,
        samplers: Sequence[Sampler],
    ) -> MemoryBudget | None:
        """The budget that a data module was asked for; None if it was not.

        Raises:
            TypeError, ValueError: `memory` is out of range; another option says where graph or features lie; edge
                features are given; or a sampler is not on a GPU, or takes memory that is not counted.
        """
        wanted = as_memory(memory)
        if wanted is None:
            return None
        if graph != "auto":
            raise ValueError(f"memory and graph='{graph}' are given, and memory decides where the graph lies; give one")
        function = features.func if isinstance(features, partial) else features
        if function is not None and function is not auto_features:
            name = getattr(function, "__name__", str(function))
            raise ValueError(
                f"memory and features={name} are given, and memory decides where the rows lie; give one, or "
                "features=auto"
            )
        if edge_features is not None:
            raise ValueError("memory counts no rows of edges; leave one of memory and edge_features out")
        for sampler in samplers:
            if sampler.device.type == "cpu":
                raise ValueError(
                    f"memory is that of a GPU, but {type(sampler).__name__} runs on the CPU; leave memory out"
                )
            if not isinstance(sampler, GpuOptions):
                raise ValueError(f"memory does not count what {type(sampler).__name__} takes; leave memory out")
            check_counted(sampler)
        given = features.keywords if isinstance(features, partial) else {}
        if given.get("gpu_share", GPU_SHARE) != GPU_SHARE:
            raise ValueError(f"memory and gpu_share={given['gpu_share']} are given; leave gpu_share out")
        if given.get("device") is not None and as_device(given["device"]).type == "cpu":
            raise ValueError("memory is that of a GPU, but features has device='cpu'; leave one of them out")
        if given.get("num_threads") is not None:
            raise ValueError(
                f"memory and num_threads={given['num_threads']} of features are given, and memory decides which "
                "threads gather; leave num_threads out"
            )
        options = {name: given[name] for name in RowOptions.__annotations__ if name in given}
        return cls(wanted, cast(RowOptions, options))

    def plan(
        self,
        data: NodeDataset,
        samplers: Sequence[tuple[Sampler, int]],
        prefetch: int,
        seed: int,
        available: int | None = None,
    ) -> MemoryPlan:
        """What of lists and rows lies in GPU memory. Reads the graph, of features that are kept in 8 bits a sample, and
        nothing of the GPU.

        Args:
            data: the dataset.
            samplers: of training and of evaluation, on a GPU, each with its seeds per mini-batch.
            prefetch: of the loaders.
            seed: of the order of the training seeds.
            available: bytes of the GPU's memory that may be taken; None: as many as the budget has.

        Raises:
            ValueError: the budget is larger than what is available, or does not hold what training needs whatever is
                kept; or what would have to be page-locked is too much for this machine.
        """
        budget = self.checked_bytes(available)
        rows = RowFormat(data.features, **self.options)
        rows.choose(data.features)
        # The same on every machine, whatever its processors: all processes choose the same.
        helped = is_large(rows)
        loaders = 2 if data.splits["val"].numel() else 1
        needs, bound = _needs(data, samplers, prefetch, int(helped), loaders)
        scales = counted_bytes(rows.all_scale_bytes) if rows.coded else 0
        needs = needs._replace(tables=needs.tables + scales)
        check_budget(budget, needs)  # before mini-batches are counted
        # Threads of the host read rows where they lie. Rows that were converted cannot be taken into a cache.
        lookahead = _LOOKAHEAD if prefetch and not helped and rows.dtype == rows.storage_dtype else 0

        def batches(split: str, sampler: Sampler, size: int, count: int) -> Iterator[MiniBatch]:
            options: dict[str, Any] = {"shuffle": split == "train", "seed": seed}
            return first_batches(data.graph, data.splits[split], _options(sampler), size, count, **options)

        (train, size), (other, eval_size) = samplers
        reads = Reads.of(data.graph, batches("train", train, size, COUNTED), _options(train).fanouts)
        counted = [reads.rows_of]
        for split in ("val", "test"):
            if data.splits[split].numel():
                of_split = [len(b.input_nodes) for b in batches(split, other, eval_size, COUNTED_OF_SPLIT)]
                counted.append(torch.tensor(of_split))

        def rows_of(count: int) -> int:
            return min(count * bound, max(most_rows(each, count) for each in counted))

        beside = partial(gpu_bytes, rows) if helped else None
        out_bytes = rows.dim * rows.dtype.itemsize
        needs = needs.with_rows(rows_of, out_bytes, prefetch, loaders, beside)
        plan = MemoryPlan.make(budget, needs, data.graph, rows.nbytes, reads)
        if lookahead and plan.rows == "cached":
            needs, _ = _needs(data, samplers, prefetch, 0, loaders, lookahead)  # without codes, which are not renewed
            together = max(lookahead, *(_options(sampler).batches_per_launch for sampler, _ in samplers))
            needs = needs.with_rows(rows_of, out_bytes, prefetch, loaders, announced=together)
            if budget >= needs.total:
                renewed = MemoryPlan.make(budget, needs, data.graph, rows.nbytes, reads, lookahead)
                batches_cached = renewed.share_of_rows * data.num_nodes / float(reads.rows_of.double().mean())
                if renewed.lookahead and _LEAST_RENEWED <= batches_cached <= _MOST_RENEWED:
                    plan = renewed
        if plan.rows != "device" and not rows.coded and (eight := narrower_rows(data.features, **self.options)):
            name, codes = list(eight.items())[-1]
            narrow = MemoryPlan.make(budget, plan.needs, data.graph, codes.nbytes, reads)
            plan = plan._replace(narrower=NarrowerPlan(name, narrow.share_of_rows, narrow.split.bus))
        locked = 0 if plan.rows == "device" else rows.num_rows * rows.nbytes
        if plan.lists != "device":
            locked += data.graph.indptr.nbytes + data.graph.indices.nbytes
        _require_lockable(budget, locked)
        return plan

    def plan_types(
        self,
        data: HeteroDataset,
        seeds: Mapping[str, SplitSeeds],
        samplers: Sequence[tuple[Sampler, int]],
        prefetch: int,
        seed: int,
        available: int | None = None,
    ) -> HeteroPlan:
        """`plan` for a graph with types.

        Args:
            seeds: of each split.
            data, samplers, prefetch, seed, available: see `plan`.

        Raises:
            ValueError: as `plan`; or an option of a sampler is for graphs of one type.
        """
        budget, of_gpu = self.checked_bytes(available), [(_options(sampler), size) for sampler, size in samplers]
        plan = plan_types(budget, self.options, data, seeds, of_gpu, prefetch, seed)
        _require_lockable(budget, locked_bytes(plan, data, self.options, samplers[0][0].timed))
        return plan

    def checked_bytes(self, available: int | None) -> int:
        """The bytes of the budget.

        Args:
            available: bytes of the GPU's memory that may be taken; None: as many as the budget has.

        Raises:
            ValueError: the budget is larger than what is available.
        """
        budget = available if self.memory == "auto" else int(self.memory)
        assert budget is not None
        if available is not None and budget > available:
            raise ValueError(
                f"memory is {readable(budget)}, more than the {readable(available)} that are free on the GPU; give at "
                "most that, or 'auto'"
            )
        return budget

    def choose(
        self,
        data: NodeDataset | HeteroDataset,
        seeds: Mapping[str, SplitSeeds],
        samplers: Sequence[tuple[Sampler, int]],
        prefetch: int,
        seed: int,
        trainer: Any,
    ) -> tuple[MemoryPlan | HeteroPlan, GraphMemory, StoreMakers]:
        """Plans for the GPU of the samplers, says in one line of the log what was chosen, and returns the plan, where
        it has the graph, and what makes the store of the rows, of a graph with types for each type that has some.

        Args:
            seeds: of each split, of a graph with types; else they are the dataset's.
            trainer: of Lightning, or None.
            data, samplers, prefetch, seed: see `plan`.
        """
        device = samplers[0][0].device
        available = available_bytes(self.memory, device, getattr(trainer, "lightning_module", None))
        plan: MemoryPlan | HeteroPlan
        if isinstance(data, HeteroDataset):
            plan = self.plan_types(data, seeds, samplers, prefetch, seed, available)
        else:
            plan = self.plan(data, samplers, prefetch, seed, available)
        if trainer is None or trainer.is_global_zero:
            _log.info("%s", plan)
        if isinstance(plan, HeteroPlan):
            graph = GraphMemory(plan.lists, only_lists=True)
            return plan, graph, {name: self.store_of(plan, name, device) for name in plan.rows}
        return plan, self.lists(plan), self.store(plan, device)

    def lists(self, plan: MemoryPlan) -> GraphMemory:
        """Where the plan has the graph."""
        return GraphMemory(plan.lists, nodes=plan.split.lists, only_lists=True)

    @staticmethod
    def labels(labels: Tensor) -> Tensor:
        """The labels as they are kept on the GPU, in the narrowest type that holds them."""
        return labels.to(narrowest_dtype(labels))

    def store(self, plan: MemoryPlan, device: torch.device) -> Callable[..., FeatureStore]:
        """Makes the store of the rows as the plan has it."""
        # Threads of the host as for large tables, which `plan` counts.
        cache = {"host_threads": None, "lookahead": plan.lookahead}
        return self._opening(plan.rows, plan.split.rows, device, cache)

    def store_of(self, plan: HeteroPlan, node_type: str, device: torch.device) -> Callable[..., FeatureStore]:
        """Makes the store of the rows of a type as the plan has it."""
        return self._opening(plan.rows[node_type], plan.split.rows[node_type], device, {})

    def _opening(
        self, kind: str, ids: Tensor | None, device: torch.device, options: Mapping[str, Any]
    ) -> Callable[..., FeatureStore]:
        """Makes a store of this kind.

        Args:
            ids: of the rows that a cache has.
            options: of a cache.
        """

        def make(tensor: Tensor, *, context: StoreContext | None = None) -> FeatureStore:
            cache: dict[str, Any] = {}
            if ids is not None and ids.numel():
                scores = torch.zeros(tensor.shape[0], dtype=torch.int8)
                scores[ids] = 1
                # A share that rounds down to exactly this many.
                cache = {"hotness": scores, "fraction": min(1.0, (ids.numel() + 0.5) / tensor.shape[0]), **options}
            return open_rows(kind, tensor, device, cache=cache, context=context, **self.options)

        return make


def available_bytes(memory: str | int, device: torch.device, model: torch.nn.Module | None) -> int:
    """Bytes of the GPU's memory that may be taken: all that is free or, for "auto", three quarters of what is left
    beside the model, and no more than the least of all processes of the run.

    Args:
        model: that will be trained, if it is known. It takes four times its parameters, less what is there already.
    """
    free = free_bytes(device)
    if memory != "auto":
        return free
    parameters = [] if model is None else list(model.parameters())
    taken = _TRAINED * sum(p.nbytes for p in parameters) - sum(p.nbytes for p in parameters if p.device == device)
    share = max(0, int(_AUTO_SHARE * (free - taken)))
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        least = torch.tensor([share], device=device)
        torch.distributed.all_reduce(least, op=torch.distributed.ReduceOp.MIN)
        share = int(least)
    return share


def _require_lockable(budget: int, locked: int) -> None:
    """Raises ValueError if each process here may not page-lock this many bytes."""
    if not may_lock(locked):
        raise ValueError(
            f"memory is {readable(budget)}, so each process would page-lock {readable(locked)} of lists and rows, "
            "more than half of this machine's memory in all; leave memory out (features=auto reads rows from their "
            "file)"
        )


def _needs(
    data: NodeDataset,
    samplers: Sequence[tuple[Sampler, int]],
    prefetch: int,
    begun: int,
    loaders: int,
    lookahead: int = 0,
) -> tuple[MemoryNeeds, int]:
    """What training takes whatever is kept of lists and rows, without rows; and the most nodes of a mini-batch."""
    sizes: dict[int, tuple[GpuOptions, list[int]]] = {}
    for sampler, size in samplers:
        sizes.setdefault(id(sampler), (_options(sampler), []))[1].append(size)
    # `fit` and `validate` have a loader of the validation split each.
    splits = [data.splits[name].numel() for name in ("train", "val", "val", "test")]
    needs = MemoryNeeds.of(
        list(sizes.values()), data.graph, data.labels, splits, prefetch, begun, loaders, lookahead=lookahead
    )
    return needs, max(SamplerNeeds.of(sampler, data.graph, each).nodes for sampler, each in sizes.values())


def _options(sampler: Sampler) -> GpuOptions:
    assert isinstance(sampler, GpuOptions)  # as was checked
    return sampler
