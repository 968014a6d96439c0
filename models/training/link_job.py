"""A job of `train.py task=link`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf, open_dict
from rich.table import Table

from loader.machine.arguments import shown
from models.training.finished_jobs import JobResult
from models.training.own_classes import check_sizes
from models.training.train_and_test import options_named, train_and_test

# Of the groups model and datamodule: what links have not. In conf/task/link.yaml it is null.
_NODE_OPTIONS = {
    "model": ("inference_chunk_mib", "matmul_precision", "cuda_graph", "class_weights", "label_smoothing", "metrics"),
    "datamodule": ("eval_sampler", "eval_batch_size", "cached_edges", "list_hotness", "memory"),
}
# Options of datasets that split nodes; a text names a column, which is then no feature.
_SPLITS = ("split", "split_seed", "split_times", "num_train", "num_val", "val_fraction")


def refuse_split_of_nodes(cfg: DictConfig, given: Sequence[str]) -> None:
    """Raises ValueError for an option of the command line that splits nodes, which would be ignored.

    Args:
        cfg: of the run.
        given: what the command line overrides.
    """
    named = options_named(given)
    for option in (f"dataset.{name}" for name in _SPLITS):
        value = OmegaConf.select(cfg, option)
        if option in named and value is not None and not isinstance(value, str):
            way = "give seed, datamodule.val and datamodule.test"
            raise ValueError(f"{option} is {shown(value)}, which splits nodes, and task=link holds links out; {way}")


def train_links(cfg: DictConfig, why: str, job: JobResult) -> float:
    """Fits, tests the best checkpoint, prints what it reaches.

    Args:
        cfg: composed from `conf/train.yaml` with `task=link`, its device chosen.
        why: of that choice.
        job: where the result goes.

    Returns:
        The best value of `cfg.optimized_metric` if checkpoints are chosen by it, else its last one; NaN if training
        ended before there was one.

    Raises:
        ValueError: something the user can mend, before work starts.
    """
    without_node_options(cfg)
    check_sizes(cfg.model, ["num_features", "num_nodes", "edge_types", "edge_type"])
    instantiate(cfg.model, num_features=1)
    return train_and_test(cfg, why, job, instantiate(cfg.datamodule), _table)


def without_node_options(cfg: DictConfig) -> None:
    """Takes the options out that only nodes have.

    Raises:
        ValueError: one of them has a value, which would be ignored.
    """
    if cfg.datamodule.get("memory") is not None:
        raise ValueError(f"memory is {cfg.datamodule.memory}; task=link plans none, so leave it out (null)")
    with open_dict(cfg):
        for group, names in _NODE_OPTIONS.items():
            for name in names:
                value = cfg[group].pop(name, None)
                if value is not None and not (name == "cuda_graph" and value is False):  # there are none anyway
                    why = "but task=link has no such option"
                    raise ValueError(f"{group}.{name} is {shown(value)}, {why}; leave it out, or null")


def _table(metrics: Mapping[str, Any], datamodule: Any, weights: str) -> Table:
    table = Table(title=f"links held out for test, {weights}")
    table.add_column("measure")
    table.add_column("value", justify="right")
    table.add_column("against")
    for name, value in metrics.items():
        if name.startswith("test/"):
            against = (
                "as many negatives"
                if name in ("test/auc", "test/ap")
                else f"{datamodule.eval_negatives} negatives per link"
            )
            table.add_row(name.removeprefix("test/"), f"{float(value):.4f}", against)
    return table
