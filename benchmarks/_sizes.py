"""How large the mini-batches of a job were: its first epoch is sampled again."""

from __future__ import annotations

from typing import Any

import numpy as np

from loader import NodeLoader
from loader.datasets import NodeDataset


def open_dataset_of(config: dict[str, Any], data_dir: str, cache_dir: str | None) -> NodeDataset:
    """The dataset of a job, whose configuration has no folders."""
    from hydra.utils import instantiate

    return instantiate({**config["dataset"], "data_dir": data_dir, "cache_dir": cache_dir}).load()


def sizes_of(config: dict[str, Any], data: NodeDataset) -> dict[str, float]:
    """Mean numbers of input nodes and of edges of a job's training mini-batches, in one epoch.

    Args:
        config: of the job. Its sampler runs on the CPU here, also if it ran on a GPU: the mini-batches are the same.
        data: its dataset.
    """
    from hydra.utils import instantiate

    options = config["datamodule"]
    sampler = instantiate({**config["sampler"], **({"device": "cpu"} if "device" in config["sampler"] else {})})
    loader = NodeLoader(
        data.graph,
        None,
        None,
        data.splits["train"],
        sampler,
        options["batch_size"],
        seed=options["seed"],
        drop_last=options["drop_last"],
    )
    found = np.array([(batch.nodes.numel(), batch.num_edges) for batch in loader], dtype=float)
    loader.close()
    return {"nodes": round(float(found[:, 0].mean()), 1), "edges": round(float(found[:, 1].mean()), 1)}
