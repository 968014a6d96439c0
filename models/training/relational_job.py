"""A job of `train.py` on tables: `model=rsage`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hydra.utils import instantiate
from lightning.pytorch import Callback, LightningModule, Trainer
from omegaconf import DictConfig, OmegaConf
from rich.table import Table

from loader.datasets.relational import RelationalData, RelationalDataset
from models.predictions import PredictionFile, class_columns
from models.training.finished_jobs import JobResult
from models.training.metric_names import is_error
from models.training.own_classes import datamodule_of
from models.training.task_predictor import SCORES, TASK_METRICS
from models.training.train_and_test import draw_score, options_named, train_and_test


def watch_task(cfg: DictConfig, given: Sequence[str]) -> None:
    """Sets what is watched to the first score of the task's kind, where the command line says nothing else.

    Args:
        cfg: of the run; its metrics are changed.
        given: what the command line overrides.

    Raises:
        ValueError: the dataset has no task on tables, or a metric is none of the task's kind.
        DatasetError: there is no such folder, schema or task.
    """
    dataset = instantiate(cfg.dataset)
    if not isinstance(dataset, RelationalDataset):
        way = "give dataset=relational dataset.path=FOLDER dataset.task=NAME"
        raise ValueError(f"model=rsage learns a task on tables, and dataset is {cfg.dataset['_target_']}; {way}")
    kind, named = dataset.task.kind, options_named(given)
    score = SCORES[kind][0]
    if cfg.optimized_metric == "auto":
        cfg.optimized_metric = f"val/{score}"
    logged = {f"{split}/{name}" for split in ("val", "test") for name in ("loss", *SCORES[kind])} | {"train/loss"}
    watched = {"optimized_metric": cfg.optimized_metric}
    for place, default in (
        ("callbacks.best", "val/acc"),
        ("callbacks.early_stopping", "val/acc"),
        ("schedule", "val/loss"),
    ):
        part = OmegaConf.select(cfg, place)
        if part is None or part.get("monitor") is None:
            continue
        if part.monitor == default and f"{place}.monitor" not in named:  # an experiment may say another one
            part.monitor = f"val/{score}"
        watched[f"{place}.monitor"] = part.monitor
        if "mode" in part and f"{place}.mode" not in named:
            part.mode = "min" if is_error(str(part.monitor)) else "max"
    draw_score(cfg, given, score)
    for option, metric in watched.items():
        if metric in TASK_METRICS and metric not in logged:
            known = f"a {kind}; it must be one of {', '.join(sorted(logged))}"
            raise ValueError(f"{option} is {metric}, and task {dataset.task.name} is {known}")


def train_task(cfg: DictConfig, why: str, job: JobResult) -> float:
    """Fits, tests the best checkpoint, prints what it reaches; see `train_and_test`.

    Args:
        cfg: composed from `conf/train.yaml` with `model=rsage`, its device chosen.
        why: of that choice.
        job: where the result goes.

    Raises:
        ValueError: something the user can mend, before work starts.
    """
    return train_and_test(cfg, why, job, datamodule_of(cfg, hetero=True), _table)


def with_columns_of_past_run(datamodule: Any, saved: Mapping[str, Any]) -> None:
    """Makes the dataset of a run encode its tables as that of a checkpoint did.

    Args:
        datamodule: whose dataset was not read yet.
        saved: the parts of the checkpoint.

    Raises:
        ValueError: the checkpoint is of no task on tables.
    """
    state = saved.get(type(datamodule).__qualname__, {})
    if "columns" not in state:
        raise ValueError("ckpt_path is a checkpoint without the columns of tables; give one of a run with model=rsage")
    datamodule.dataset.use_columns(state["columns"])


def keep_label_range(model: Any, saved: Mapping[str, Any]) -> None:
    """Keeps predictions of a regression between the labels that a model was trained on; the dataset may have others.

    Args:
        model: of a past run, made with the sizes of that dataset.
        saved: the parts of its checkpoint.
    """
    if hasattr(model, "label_range"):
        model.label_range = saved["hyper_parameters"].get("label_range", model.label_range)


class WrittenItems(Callback):
    """Writes a row for each item of each mini-batch: its entity, time and prediction.

    Args:
        file: open.
        data: of the items.

    Raises:
        ValueError: the entity is called as a column of the predictions.
    """

    def __init__(self, file: PredictionFile, data: RelationalData) -> None:
        if data.entity in ("time", "prediction") or data.entity.startswith("p_"):
            taken = (
                "predictions have the columns time, prediction and p_<class>; rename it in the items and in the schema"
            )
            raise ValueError(f"the entity of task {data.task} is in column {data.entity}, and {taken}")
        self.file, self.data = file, data

    def on_predict_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, *_: Any, **__: Any
    ) -> None:
        data = self.data
        assert data.entity_ids is not None
        assert data.entity_rows is not None
        rows = data.entity_rows[(batch.nodes[: batch.batch_size].long() - batch.node_types[data.target].start).cpu()]
        times = batch.seed_times.cpu().numpy().astype("datetime64[s]")
        columns: dict[str, Any] = {data.entity: data.entity_ids.of(rows), "time": times}
        if data.task_kind == "multiclass":
            columns |= class_columns(outputs, data.classes, False)
        elif data.task_kind == "binary":
            share = outputs.float().sigmoid()
            columns |= {"prediction": (share > 0.5).long(), "p_1": share}  # as scores count them
        else:
            columns["prediction"] = outputs.float()
        self.file.write(columns)


def _table(metrics: Mapping[str, Any], datamodule: Any, weights: str) -> Table:
    data = datamodule.data
    table = Table(title=f"task {data.task}, {data.items['test'].ids.numel():,} items of test, {weights}")
    table.add_column("measure")
    table.add_column("value", justify="right")
    for name, value in metrics.items():
        if name.startswith("test/"):
            table.add_row(name.removeprefix("test/"), f"{float(value):.4f}")
    return table
