"""A job of `train.py mode=predict` or `mode=evaluate`: what a run has trained is used."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from hydra.utils import instantiate
from lightning.pytorch import Callback, LightningModule, Trainer
from omegaconf import DictConfig, open_dict
from torch import Tensor

from loader.datasets import HeteroDataset, NodeDataset
from loader.loaders.whole_graph import WholeGraph
from loader.machine.whole_files import replaced
from loader.samples import HeteroMiniBatch, MiniBatch
from models.predictions import (
    PredictionFile,
    best_new_targets,
    class_columns,
    embedding_columns,
    names_of_classes,
    split_column,
    split_places,
)
from models.training.checkpoints import check_model
from models.training.console import announce, folders
from models.training.link_job import without_node_options
from models.training.node_types import check_types, takes_tables
from models.training.own_classes import check_methods, model_of
from models.training.relational_job import WrittenItems, keep_label_range, with_columns_of_past_run
from models.training.trainer import make_trainer
from models.training.trainer_callbacks import callbacks_of

_ROWS = 2**16  # of a part of the file
_OF_EXTENDED = ("num_features", "num_classes", "multilabel", "classes", "columns", "categories")
_SCORES = 2**26  # of a part of the links: floats


def use_past_run(cfg: DictConfig, why: str, saved: Mapping[str, Any]) -> float:
    """Writes predictions, or prints and stores the metrics of the test, with the weights of `cfg.ckpt_path`.

    Args:
        cfg: of `options_of_past_run`, its device chosen.
        why: of that choice.
        saved: the parts of the checkpoint `cfg.ckpt_path`.

    Returns:
        The number of rows that were predicted; of an evaluation, the first metric.

    Raises:
        ValueError: something the user can mend: a checkpoint of another model or dataset, or an option.
        ImportError: pyarrow is missing.
    """
    predicts, of_links, of_tables = cfg.mode == "predict", cfg.task == "link", takes_tables(cfg)
    path = Path(cfg.run_dir) / "predictions.parquet"
    file = PredictionFile(path) if predicts else None  # else pyarrow would be missed after minutes
    with open_dict(cfg):
        if of_links:
            without_node_options(cfg)
        cfg.logger = None
        cfg.callbacks = {name: one for name, one in (cfg.callbacks or {}).items() if name == "progress"}
        cfg.trainer.devices, cfg.trainer.num_nodes, cfg.trainer.strategy = 1, 1, "auto"
    progress = bool((cfg.callbacks.get("progress") or {}).get("refresh_rate"))
    datamodule = instantiate(cfg.datamodule)
    if of_tables:
        with_columns_of_past_run(datamodule, saved)
        if predicts and "later_rows" not in cfg.dataset:  # as `options_of_past_run` has it
            datamodule.dataset.later_rows = True
    state = saved.get(type(datamodule).__qualname__, {})
    of_data = dict(state.get("data", {}))
    extends = getattr(datamodule.dataset, "extend", None) if predicts and "context_size" not in cfg.model else None
    extended = extends is not None and "tables" in state and extends(state["tables"])
    if extended:
        of_data = {key: of_data[key] for key in _OF_EXTENDED}  # it compares the first rows itself
        of_data["name"] = datamodule.dataset.name
    trainer = make_trainer(cfg)
    announce(cfg, why, first=True)
    datamodule.prepare_data()
    datamodule.trainer = trainer
    trainer.datamodule = datamodule  # type: ignore[attr-defined]  # as after a fit: the model asks for its classes
    datamodule.setup("fit" if of_links else "predict")
    data: NodeDataset = datamodule.data
    datamodule.require_data(of_data, f"ckpt_path is {cfg.ckpt_path}, which")
    if "learned_from" in state and not extended:  # which draws the splits of the training
        datamodule.require_learned_from(state, f"ckpt_path is {cfg.ckpt_path}, which")
    model = model_of(cfg, datamodule)
    if not of_links:
        check_types(cfg, data)
        check_methods(cfg, model)
    check_model(Path(cfg.ckpt_path), saved, model, dict(model.hparams))
    trainer.precision_plugin.convert_module(model)  # before the weights come, which float32 would round
    model.load_state_dict(saved["state_dict"])
    if of_tables:
        keep_label_range(model, saved)
    if file is None:
        return _evaluate(cfg, trainer, model, datamodule)
    model.to(trainer.strategy.root_device).eval()
    with file, torch.no_grad(), trainer.precision_plugin.forward_context():
        if of_tables:
            callbacks_of(trainer).append(WrittenItems(file, datamodule.data))
            trainer.predict(model, datamodule=datamodule, return_predictions=False)
            how = "trees of the rows up to the time of each item"
        elif of_links:
            how = _write_links(file, model, datamodule, cfg.new_links, progress)
        elif "context_size" in cfg.model:
            _write_rows(file, data, None, model())
            how = "embeddings"
        elif cfg.exact_test and hasattr(model, "infer"):
            how = _write_exact(file, model, data, bool(cfg.embeddings), progress)
        else:
            how = _write_sampled(file, trainer, model, datamodule)
    print(f"predictions: {path} ({file.rows:,} rows, {how})")
    if not of_tables and not of_links and "context_size" not in cfg.model:
        print("labelled nodes are among them: column split has their split, and is null for nodes without a label")
    print(folders(cfg))
    return float(file.rows)


def _evaluate(cfg: DictConfig, trainer: Trainer, model: LightningModule, datamodule: Any) -> float:
    data: NodeDataset = datamodule.data
    if cfg.exact_test and cfg.task != "link" and hasattr(model, "infer"):
        whole = WholeGraph(data.graph, data.features, data.labels, data.splits)
        trainer.test(model, dataloaders=whole, verbose=False)
    else:
        trainer.test(model, datamodule=datamodule, verbose=False)
    metrics = {name: float(value) for name, value in trainer.callback_metrics.items() if name.startswith("test/")}
    path = Path(cfg.run_dir) / "metrics.json"
    with replaced(path) as file:
        state = {"ckpt_path": str(Path(cfg.ckpt_path).absolute()), "metrics": metrics}
        file.write(f"{json.dumps(state)}\n".encode())
    print("\n".join(f"{name}: {value:.4f}" for name, value in metrics.items()))
    print(f"metrics: {path}")
    score = str(cfg.optimized_metric).rpartition("/")[2]  # of the test split: what a sweep compares
    names = [cfg.optimized_metric, f"test/test_{score}", f"test/{score}", "test/test_acc", *metrics]
    return next((metrics[name] for name in names if name in metrics), float("nan"))


def _ids(data: NodeDataset, nodes: Tensor) -> Any:
    """What the user calls these nodes."""
    return nodes if data.tables is None else data.tables.ids.of(nodes.cpu())


def _write_rows(file: PredictionFile, data: NodeDataset, logits: Tensor | None, embedded: Tensor | None) -> None:
    places = split_places(data)
    for first in range(0, data.num_nodes, _ROWS):
        last = min(first + _ROWS, data.num_nodes)
        columns: dict[str, Any] = {"id": _ids(data, torch.arange(first, last))}
        if logits is not None:
            columns |= split_column(places[first:last])
            columns |= class_columns(logits[first:last], names_of_classes(data), data.multilabel)
        if embedded is not None:
            columns |= embedding_columns(embedded[first:last])
        file.write(columns)


def _write_exact(file: PredictionFile, model: Any, data: NodeDataset, embeddings: bool, progress: bool) -> str:
    whole = WholeGraph(data.graph, data.features, data.labels, data.splits)
    logits, embedded = model.infer(whole, embeddings=embeddings, progress=progress)
    _write_rows(file, data, logits, embedded)
    return "each node with all its neighbors"


def _write_links(file: PredictionFile, model: Any, datamodule: Any, count: int, progress: bool) -> str:
    data, of_targets = datamodule.data, None
    if isinstance(data, HeteroDataset):
        edge_type = datamodule.sizes["edge_type"]
        embedded, of_targets = (
            rows.to(model.device) for rows in model.embed_types(partial(datamodule.all_nodes, data.graph))
        )
        if edge_type[0] == edge_type[2]:
            of_targets = None
        known = datamodule.split.known.relation(edge_type)
    else:
        known = datamodule.split.known
        embedded = model.embed(known, data.features, progress=progress).to(model.device)
    onward = known.reverse()  # in both directions, where training takes links so: a reverse is no new link
    step = max(1, _SCORES // max(1, onward.num_src))
    for first in range(0, onward.num_dst, step):
        last = min(first + step, onward.num_dst)
        source, target, score = best_new_targets(embedded, onward, first, last, count, of_targets)
        file.write({"source": _ids(data, source), "target": _ids(data, target), "score": score.sigmoid()})
    return f"the {count} best new targets of each source"


def _write_sampled(file: PredictionFile, trainer: Trainer, model: LightningModule, datamodule: Any) -> str:
    callbacks_of(trainer).append(_Written(file, datamodule.data))
    trainer.predict(model, datamodule=datamodule, return_predictions=False)
    return "sampled neighbors"


class _Written(Callback):
    """Writes the rows of each mini-batch."""

    def __init__(self, file: PredictionFile, data: NodeDataset) -> None:
        self.file, self.data, self.places = file, data, split_places(data)

    def on_predict_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, *_: Any, **__: Any
    ) -> None:
        assert isinstance(batch, (MiniBatch, HeteroMiniBatch))
        if not isinstance(outputs, Tensor) or outputs.shape != (batch.batch_size, self.data.num_classes):
            raise ValueError(
                f"predict_step of {type(pl_module).__name__} returns no logits [{batch.batch_size}, "
                f"{self.data.num_classes}], one row per seed; return these"
            )
        nodes = batch.ids("seed").long().cpu()
        classes = class_columns(outputs, names_of_classes(self.data), self.data.multilabel)
        self.file.write({"id": _ids(self.data, nodes)} | split_column(self.places[nodes]) | classes)
