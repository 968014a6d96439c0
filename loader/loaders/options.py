"""Arguments that loaders and data modules share: what is said of those that are wrong."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from loader.graph.checks import check_range
from loader.loaders.base import Loader
from loader.machine.arguments import check_dense, check_known, kind_of, shown
from loader.samplers import Sampler

_AHEAD = "threads of this process load ahead; prefetch says how many mini-batches are held ready"
_MOVED = "the loader moves mini-batches itself, from pinned memory to a GPU: device says where they arrive"
_NEGATIVES = "the sampler draws negatives: LinkSampler(sampler, Negatives('binary', 1)), from loader.samplers"
# What torch's DataLoader, torch_geometric and DGL call options of a loader, and where these are here.
_OTHERS_OPTIONS = {
    **dict.fromkeys(("num_workers", "persistent_workers", "prefetch_factor", "worker_init_fn"), _AHEAD),
    **dict.fromkeys(("pin_memory", "pin_memory_device", "non_blocking"), _MOVED),
    **dict.fromkeys(("collate_fn", "transform"), "a stage changes mini-batches: stages=[...], see loader.stages"),
    **dict.fromkeys(("fanouts", "num_neighbors"), "the sampler has them: FusedSampler(fanouts=[15, 10])"),
    **dict.fromkeys(("neg_sampling_ratio", "neg_sampling", "negative_sampler", "num_negatives"), _NEGATIVES),
    **dict.fromkeys(("input_nodes", "indices"), "its name here is seeds"),
    **dict.fromkeys(("edge_label_index", "edge_label"), "links are pairs [n, 2], and their labels are labels"),
    "generator": "seed gives the order and the picks",
}
GRAPH_MEMORY = ("device", "pinned")
# What samples around items of a kind.
_EXAMPLES = {"node": "FusedSampler([10, 5])", "walker": "WalkSampler(80)"}
_SAMPLERS = {
    "node": "one of nodes, as FusedSampler (sampler=fused; walks go with model=node2vec)",
    "walker": "one of walks, as WalkSampler (sampler=walks)",
}


def check_options(options: Mapping[str, Any], who: str) -> None:
    """Raises TypeError for an option that `Loader` does not know; the message names the nearest.

    Args:
        options: by name.
        who: whose options they are.
    """
    known = [name for name, p in inspect.signature(Loader).parameters.items() if p.kind is p.KEYWORD_ONLY]
    known.remove("stores")  # which they make of their features and labels
    check_known(who, options, known, _OTHERS_OPTIONS)


def check_timed(sampler: Sampler, times: Any) -> None:
    """Raises ValueError unless seeds have times if, and only if, the sampler wants them."""
    if sampler.timed and times is None:
        raise ValueError(f"times is None, and {sampler!r} samples by the seeds' times; give the time of each seed")
    if times is not None and not sampler.timed:
        raise ValueError(
            f"times is given, and {sampler!r} does not sample by the seeds' times; take a TreeSampler whose `times` "
            "count, or leave times out"
        )


def check_distinct(name: str, ids: Tensor, num_nodes: int, way: str = "") -> None:
    """Raises ValueError unless `ids` are nodes, each there once.

    Args:
        name: what the message calls them.
        ids: `[n]`, integer.
        num_nodes: of the graph.
        way: another way out, for the end of the message on a node that is there twice.
    """
    if not are_distinct(name, ids, num_nodes):
        values, counts = torch.unique(ids, return_counts=True)
        twice = int(values[counts > 1][0])
        raise ValueError(f"{name} holds node {twice} more than once; remove duplicates with {name}.unique(){way}")


def are_distinct(name: str, ids: Tensor, num_nodes: int) -> bool:
    """Whether each of `ids`, `[n]` nodes, is there once.

    Raises:
        ValueError: these are no nodes, or they look like a mask.
    """
    check_range(name, ids, num_nodes)
    ids = ids.cpu()
    seen = torch.zeros(num_nodes, dtype=torch.bool)
    seen[ids.long()] = True
    if int(seen.sum()) == ids.numel():
        return True
    if ids.numel() == num_nodes and int(ids.max()) <= 1:
        raise ValueError(
            f"{name} has {num_nodes} entries, one per node, all of them 0 or 1, like a mask of dtype {ids.dtype}; "
            "give ids: mask.nonzero().view(-1)"
        )
    return False


def check_labels(labels: Any, count: int, why: str) -> None:
    """Raises TypeError or ValueError unless it is a dense tensor of `count` rows, as `why` says."""
    if not isinstance(labels, Tensor):
        raise TypeError(f"labels is {kind_of(labels)}; it must be a torch tensor (torch.as_tensor)")
    check_dense("labels", labels)
    if labels.device.type not in ("cpu", "cuda"):
        raise ValueError(f"labels lies on {labels.device}; it must lie on cpu or cuda")
    if labels.dim() == 0 or labels.shape[0] != count:
        raise ValueError(f"labels has shape {list(labels.shape)}, {why}")


def check_dataset(dataset: Any) -> None:
    """Raises TypeError unless it is a `NodeDataset`, or loads one."""
    if not hasattr(dataset, "load") and not hasattr(dataset, "splits"):
        named = isinstance(dataset, str)
        name = shown(dataset) if named else "name"
        raise TypeError(
            f"dataset is {name if named else kind_of(dataset)}; give a NodeDataset, or an object of loader.datasets: "
            f"loader.datasets.open_dataset({name}) opens one by its name"
        )


def check_sampler(name: str, sampler: Any, kind: str) -> None:
    """Raises TypeError unless it is a `Sampler` that takes items of that kind."""
    if isinstance(sampler, type) and issubclass(sampler, Sampler):
        raise TypeError(
            f"{name} is the class {sampler.__name__}; give an object of it, e.g. {sampler.__name__}([10, 5])"
        )
    if not isinstance(sampler, Sampler):
        raise TypeError(f"{name} is {shown(sampler)}; it must be a loader.samplers.Sampler, e.g. {_EXAMPLES[kind]}")
    if sampler.items != kind:
        raise TypeError(f"{name} is {kind_of(sampler)}; it must be {_SAMPLERS[kind]}")


def check_graph_memory(graph: Any, *more: str) -> None:
    """Raises ValueError unless it is a name of `GRAPH_MEMORY`, or one of `more`."""
    names = (*GRAPH_MEMORY, *more)
    if not isinstance(graph, str) or graph not in names:
        raise ValueError(f"graph is {shown(graph)}; it must be one of {', '.join(names)}")
