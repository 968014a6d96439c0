"""The values in conf/ are the defaults of the classes that they go to: who leaves an option out gets the same."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hydra.utils import get_object
from omegaconf import DictConfig, ListConfig, OmegaConf
from train_runs import CONF, Composer

from loader.datamodules.nodes import GraphDataModule
from loader.inspect import inspect as inspect_dataset
from loader.inspect import main
from loader.samplers import CudaSampler, fused
from models.sage import GraphSAGE
from models.training.module import NodeClassifier

FILES = sorted(
    path.relative_to(CONF)
    for path in CONF.rglob("*.yaml")
    if path.parent.name not in ("experiment", "hparams_search", "logger", "trainer")  # Lightning's classes, or meant so
)

# What differs on purpose. Datasets of a shape have its sizes, and the splits that were published for it.
SHAPES = {
    *("name", "split", "skew", "class_skew", "num_nodes", "mean_degree", "max_degree"),
    *("num_features", "num_classes", "homophily", "feature_noise", "multilabel"),
}
MEANT: dict[str, set[str]] = {
    "SyntheticDataset": SHAPES,
    "LargeSyntheticDataset": SHAPES,
    "HeteroSyntheticDataset": {*SHAPES, "shape", "num_paper_features", "check_features"},
    "CachedFeatures": {"fraction"},  # the class wants a fraction or a budget, and has a default for neither
    "PartitionedFeatures": {"fraction"},
    "DeviceFeatures": {"lazy"},  # a loop of one's own gets rows; train.py's models read them in the table
    "DGLSampler": {"fanouts"},  # without them a sampler says what to give
    "HopwiseSampler": {"fanouts"},
    "WalkSampler": {"num_negatives"},  # walks have none unless a model learns from them
    "PyGClassifier": {"heads"},  # which only some architectures have
    "RelationalDataset": {"schema"},  # dataset=rel-f1 is that choice
    "TaskDataModule": {"batch_size"},  # of RelBench's baseline
    "TreeSampler": {"fanouts", "times"},  # sampler=trees is that choice
    "fused": {"fanouts", "labor"},  # sampler=labor is that choice
}
# Options that task=link sets to null, because its classes have none of that name.
OF_NODES = {
    *("inference_chunk_mib", "matmul_precision", "cuda_graph", "class_weights", "label_smoothing", "metrics"),
    *("eval_sampler", "eval_batch_size", "cached_edges", "list_hotness"),
}


def parts(node: Any) -> Iterator[DictConfig]:
    """Every part of a configuration with a class of this project."""
    if not isinstance(node, DictConfig):
        return
    if str(node.get("_target_", "")).startswith(("loader.", "models.")):
        yield node
    for key in node:
        if not OmegaConf.is_missing(node, key) and not OmegaConf.is_interpolation(node, key):
            yield from parts(node[key])


def defaults(target: Any) -> dict[str, Any]:
    """Parameter -> default, of a class with those above it."""
    found: dict[str, Any] = {}
    kinds = target.__mro__ if inspect.isclass(target) else CudaSampler.__mro__ if target is fused else ()
    for kind in reversed(kinds):
        if "__init__" in vars(kind):
            found |= {name: one.default for name, one in inspect.signature(kind.__init__).parameters.items()}
    if not inspect.isclass(target):
        found |= {name: one.default for name, one in inspect.signature(target).parameters.items()}
    return found


def plain(value: Any) -> Any:
    return list(value) if isinstance(value, (ListConfig, list, tuple)) else value


def differences(part: DictConfig) -> Iterator[tuple[str, Any, Any]]:
    target = get_object(part["_target_"])
    of_class = defaults(target)
    for key in map(str, part):
        if key.startswith("_") or OmegaConf.is_missing(part, key) or OmegaConf.is_interpolation(part, key):
            continue
        value = part[key]
        # null is "the default of the class" for a function that hands options on.
        if isinstance(value, Mapping) or (value is None and (target is fused or key not in of_class)):
            continue
        default = of_class.get(key, "no default")
        if default is inspect.Parameter.empty or key in MEANT.get(target.__name__, ()):
            continue
        if plain(default) != plain(value):
            yield key, value, default


@pytest.mark.parametrize("file", FILES, ids=str)
def test_conf_has_the_defaults_of_its_classes(file: Path) -> None:
    for part in parts(OmegaConf.load(CONF / file)):
        assert list(differences(part)) == [], part["_target_"]


def test_links_lack_only_options_of_nodes() -> None:
    for part in parts(OmegaConf.load(CONF / "task" / "link.yaml")):
        known = defaults(get_object(part["_target_"]))
        assert {key for key in part if not str(key).startswith("_")} - known.keys() <= OF_NODES


def test_one_set_of_defaults_for_nodes(composed: Composer) -> None:
    cfg = composed("dataset=synthetic")
    assert (cfg.datamodule.batch_size, cfg.datamodule.eval_batch_size) == (1024, None)
    assert (cfg.sampler.fanouts, cfg.sampler.num_hops, cfg.model.num_layers, cfg.model.lr) == (10, 2, 2, 0.003)
    of_classes = [defaults(GraphDataModule)["batch_size"], defaults(inspect_dataset)["batch_size"]]
    assert of_classes == [1024, 1024]
    assert defaults(GraphSAGE)["num_layers"] == defaults(NodeClassifier)["num_layers"] == 2
    assert defaults(NodeClassifier)["lr"] == 0.003


def test_inspect_samples_as_training_does(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    said = capsys.readouterr().out
    assert "(default: 10,10)" in said
    assert "(default: 1024)" in said


def test_small_datasets_have_their_own_batch_size(composed: Composer) -> None:
    cfg = composed("dataset=digits")
    assert (cfg.datamodule.batch_size, cfg.datamodule.eval_batch_size) == (256, 1024)
    assert composed("dataset=digits", "model=node2vec").datamodule.batch_size == 1024  # walks, not seeds


@pytest.mark.parametrize("experiment", sorted(path.stem for path in (CONF / "experiment").glob("*.yaml")))
def test_experiments_say_their_batch_size(experiment: str) -> None:
    """Published figures do not change with a default."""
    assert said_by(experiment, "batch_size")
    assert said_by(experiment, "eval_batch_size") or said_by(experiment, "walks_per_node")  # walks are not evaluated


def said_by(experiment: str, option: str) -> bool:
    """Whether the file, or one that it builds on, sets this option of the data module."""
    cfg = OmegaConf.load(CONF / "experiment" / f"{experiment}.yaml")
    bases = [base for base in cfg.get("defaults", []) if isinstance(base, str)]
    return option in cfg.get("datamodule", {}) or any(said_by(base, option) for base in bases)
