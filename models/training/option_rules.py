"""Options that do not go together, and what is said of them, in the order in which they are asked."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

from omegaconf import DictConfig, OmegaConf

from models.training.options import entries
from models.training.ranks import MOST_PROCESSES
from models.training.target_classes import chosen, class_name

NEW_LINKS = 10  # by default, see conf/train.yaml


def of_parts(cfg: DictConfig) -> Iterator[str]:
    """What is said of parts that do not go together. Such parts may refer to options that others have not."""
    links, embeds = cfg.task == "link", "context_size" in cfg.model  # model=node2vec
    walks, length, window = "walk_length" in cfg.sampler, cfg.sampler.get("walk_length"), cfg.model.get("context_size")
    store, kind, model = class_name(cfg.features), class_name(cfg.sampler), chosen("model", cfg)
    encoder = class_name(cfg.model) == "LinkPredictor" and model not in ("graphsage", cfg.model["_target_"])
    if links and (embeds or encoder or "heads" in cfg.model or "unique_rows" in cfg.model):
        yield f"model={model} does not go with task=link, which trains GraphSAGE; leave model out"
    if links and (walks or kind == "FullSampler"):
        yield f"sampler is {kind}, and task=link needs one with fanouts, that samples around links; leave sampler out"
    clip, rows = cfg.trainer.get("gradient_clip_val"), "model=node2vec" if embeds else "model.trained_rows"
    if clip and (embeds or cfg.model.get("trained_rows") is not None):
        yield f"trainer.gradient_clip_val is {clip}, but gradients of {rows} are sparse: torch clips none; leave it out"
    if not embeds:
        return
    if not walks:
        yield f"model=node2vec learns from random walks, and {kind} gives none; take sampler=walks"
    if isinstance(length, int) and isinstance(window, int) and length + 1 < window:
        yield f"sampler.walk_length is {length}; it must be at least {window - 1} for model.context_size={window}"
    if store != "auto_features":
        yield f"features is {store}, but model=node2vec reads none; leave features out"
    if cfg.sampler.get("num_negatives") == 0:
        yield "sampler.num_negatives is 0, but model=node2vec learns from negatives; give at least 1"


def of_values(cfg: DictConfig) -> Iterator[str]:
    """What is said of values that do not go together, once the device is known."""
    links, embeds, predicts = cfg.task == "link", "context_size" in cfg.model, cfg.mode == "predict"
    trainer, of_nodes, of_tables = cfg.trainer, not links and not embeds, "task" in cfg.dataset
    if cfg.new_links != NEW_LINKS and not (predicts and links):
        yield f"new_links is {cfg.new_links}, but only mode=predict of task=link writes links; leave it out"
    if of_tables and cfg.dataset.get("items") is not None and not predicts:
        yield f"dataset.items is {cfg.dataset['items']}, but only mode=predict predicts items; leave it out"
    if cfg.embeddings and (not of_nodes or of_tables or not predicts or not cfg.exact_test):
        yield "embeddings is true, but only mode=predict of classes, with exact_test=true, adds them; leave it out"
    devices, most = trainer.get("devices", "auto"), MOST_PROCESSES * (os.cpu_count() or 1)
    count = int(str(devices)) if str(devices).strip().isdecimal() else 0
    if cfg.device == "cpu" and devices != "auto" and not 1 <= count <= most:
        limit = f"it is the number of processes, 1 to {most} on this machine"
        yield f"trainer.devices is {devices!r}; without a GPU (device=cpu) {limit}"
    for option in ("trainer.accelerator", "trainer.sync_batchnorm", "model.cuda_graph"):
        value = OmegaConf.select(cfg, option)
        if cfg.device == "cpu" and value in (True, "gpu", "cuda"):
            way = "leave it out, or give device=cuda"
            yield f"{option} is {str(value).lower()}, but this run has no GPU (device=cpu); {way}"
    if not cfg.exact_test and not of_nodes:
        which = "task=link" if links else "model=node2vec"
        yield f"exact_test is false, but {which} is only tested on the whole graph; leave exact_test out"
    targets = [class_name(entry) for _, entry in entries(cfg, "callbacks") if "_target_" in entry]
    if cfg.timeline and (embeds or "TimelineRecord" not in targets):
        why = "model=node2vec has no such stages" if embeds else "no callback records one, as callbacks.timeline does"
        yield f"timeline is true, but {why}; leave timeline out"
    for unit in ("epochs", "steps"):
        least, most = (trainer.get(f"{which}_{unit}") for which in ("min", "max"))
        if isinstance(least, int) and isinstance(most, int) and 0 <= most < least:
            yield f"trainer.min_{unit} is {least}, but training ends at trainer.max_{unit}={most}; give at most {most}"
    tested = {"train": ("val", "test"), "evaluate": ("test",)}.get(cfg.mode, ("predict",))
    overfit = cfg.mode == "train" and trainer.get("overfit_batches")
    for split in ("train", "val", "test", "predict"):
        option, limit = f"trainer.limit_{split}_batches", trainer.get(f"limit_{split}_batches")
        whole = split in tested and (not of_nodes or (split != "val" and cfg.exact_test))
        if whole and limit not in (None, 0, 1):  # 1.0: all
            way = ", or give exact_test=false" if of_nodes else ""
            yield f"{option} is {limit}, but the whole graph is one batch there; leave it out{way}"
        if overfit and split in ("train", "val") and limit is not None:
            yield f"{option} is {limit}, but trainer.overfit_batches={overfit} takes its place; leave one of them out"
    if isinstance(overfit, float) and 0 < overfit < 1 and not of_nodes:
        why = "the whole graph is one batch in validation, of which Lightning takes that share, too"
        yield f"trainer.overfit_batches is {overfit}, but {why}; give a number of mini-batches"
    watched, every = (cfg.get("schedule") or {}).get("monitor"), trainer.get("check_val_every_n_epoch", 1)
    if cfg.mode == "train" and str(watched).startswith("val/") and every != 1:
        why = f"is read after each epoch, but trainer.check_val_every_n_epoch is {every}"
        yield f"schedule.monitor is {watched}, which {why}; give 1, or schedule.monitor=train/loss"
    how, clip = trainer.get("gradient_clip_algorithm"), trainer.get("gradient_clip_val")
    if how is not None and not clip:
        yield f"trainer.gradient_clip_algorithm is {how}, but trainer.gradient_clip_val is {clip}; give both, or none"
    own = embeds or not str(cfg.model["_target_"]).startswith("models.")
    files = dict[tuple[str, str], str]()
    for name, entry in entries(cfg, "callbacks"):
        part, watched = f"callbacks.{name}", str(entry.get("monitor"))
        written: Any = OmegaConf.to_container(entry, resolve=False)  # the folder may be known later only
        file = written.get("filename")
        other = part if file is None else files.setdefault((str(written.get("dirpath")), str(file)), part)
        if other != part and cfg.mode == "train":
            yield f"{part}.filename is {file}, as {other}.filename is, so one would replace the other; give another one"
        every = next((key for key in ("every_n_train_steps", "train_time_interval") if entry.get(key)), None)
        before = {"val": "validation", "train": "epoch"}.get(watched.partition("/")[0])
        if every is not None and (before == "validation" or (before and not own)):
            why = f"{watched} is of the {before} before, not of the weights that would be kept"
            yield f"{part}.{every} is {entry[every]}, but {why}; leave it out"
        top_k, pattern = entry.get("save_top_k", 1), str(entry.get("filename") or "{epoch}")  # null: Lightning's own
        several = top_k not in (0, 1) and entry.get("enable_version_counter") is False
        if cfg.mode == "train" and several and "{" not in pattern:
            way = f"give '{part}.filename=\"best-{{epoch}}\"'"
            yield f"{part}.save_top_k is {top_k}, but all checkpoints have the name {pattern}, so one is left; {way}"
        best = entry.get("monitor") is not None and top_k != 0
        if best and entry.get("save_on_exception") and "{" not in pattern:
            why = f"its checkpoint would replace the best one, as both have the name {pattern}"
            yield f"{part}.save_on_exception is true, but {why}; leave it out: callbacks.step saves the last step"
    option = "features.dtype" if cfg.features.get("dtype") else "features.storage_dtype"
    dtype, full = OmegaConf.select(cfg, option), str(trainer.get("precision")) in ("None", "32", "32-true")
    if not own and full and str(dtype).removeprefix("torch.") in ("float16", "half", "bfloat16"):
        way = "give trainer.precision=bf16-mixed, or features.dtype=float32"
        yield f"{option} is {dtype}, but the model's layers have float32; {way}"


def check_rules(cfg: DictConfig, rules: Callable[[DictConfig], Iterator[str]]) -> None:
    """Raises ValueError for the first rule that a configuration breaks: `of_parts` or `of_values`."""
    for message in rules(cfg):
        raise ValueError(message)
