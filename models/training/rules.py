"""Options that do not go together, and what is said of them, in the order in which they are asked."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

from omegaconf import DictConfig, OmegaConf

from models.training.options import entries
from models.training.ranks import MOST_PROCESSES
from models.training.targets import chosen, class_name

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
    clip = cfg.trainer.get("gradient_clip_val")
    if clip and cfg.model.get("trained_rows") is not None:
        yield (
            f"trainer.gradient_clip_val is {clip}, but the gradients of trained rows (model.trained_rows) are sparse, "
            "and torch clips none of these; leave it out"
        )
    if not embeds:
        return
    if not walks:
        yield f"model=node2vec learns from random walks, and {kind} gives none; take sampler=walks"
    if isinstance(length, int) and isinstance(window, int) and length + 1 < window:
        yield (
            f"sampler.walk_length is {length}, model.context_size {window}; a walk must have at least as many nodes as "
            "a window, so make walks longer, or windows smaller"
        )
    if clip:
        yield (
            f"trainer.gradient_clip_val is {clip}, but the gradients of model=node2vec are sparse, and torch clips "
            "none of these; leave it out"
        )
    if store != "auto_features":
        yield f"features is {store}, but model=node2vec reads none; leave features out"
    if cfg.sampler.get("num_negatives") == 0:
        yield "sampler.num_negatives is 0, but model=node2vec learns from negatives; give at least 1"


def of_values(cfg: DictConfig) -> Iterator[str]:
    """What is said of values that do not go together, once the device is known."""
    links, embeds, predicts = cfg.task == "link", "context_size" in cfg.model, cfg.mode == "predict"
    clip = cfg.trainer.get("gradient_clip_val")
    most = MOST_PROCESSES * (os.cpu_count() or 1)
    if cfg.new_links != NEW_LINKS and not (predicts and links):
        yield f"new_links is {cfg.new_links}, but only mode=predict of task=link writes links; leave it out"
    if "task" in cfg.dataset and cfg.dataset.get("items") is not None and not predicts:
        yield f"dataset.items is {cfg.dataset['items']}, but only mode=predict predicts items; leave it out"
    if cfg.embeddings and (links or embeds or "task" in cfg.dataset or not predicts or not cfg.exact_test):
        yield "embeddings is true, but only mode=predict of classes, with exact_test=true, adds them; leave it out"
    devices = cfg.trainer.get("devices", "auto")
    count = int(str(devices)) if str(devices).strip().isdecimal() else 0
    if cfg.device == "cpu" and devices != "auto" and not 1 <= count <= most:
        yield (
            f"trainer.devices is {devices!r}; without a GPU (device=cpu) it is the number of processes, 1 to {most} on "
            "this machine"
        )
    for option in ("trainer.accelerator", "model.cuda_graph"):
        value = OmegaConf.select(cfg, option)
        if cfg.device == "cpu" and value in (True, "gpu", "cuda"):
            shown = str(value).lower()
            yield f"{option} is {shown}, but this run has no GPU (device=cpu); leave it out, or give device=cuda"
    if not cfg.exact_test and (links or embeds):
        which = "task=link" if links else "model=node2vec"
        yield f"exact_test is false, but {which} is only tested on the whole graph; leave exact_test out"
    targets = [class_name(entry) for _, entry in entries(cfg, "callbacks") if "_target_" in entry]
    if cfg.timeline and (embeds or "TimelineRecord" not in targets):
        why = "model=node2vec has no such stages" if embeds else "no callback records one, as callbacks.timeline does"
        yield f"timeline is true, but {why}; leave timeline out"
    for unit in ("epochs", "steps"):
        least, limit = (cfg.trainer.get(f"{which}_{unit}") for which in ("min", "max"))
        if isinstance(least, int) and isinstance(limit, int) and 0 <= limit < least:
            yield (
                f"trainer.min_{unit} is {least}, but training ends after trainer.max_{unit}, which is {limit}; give at "
                f"most {limit}"
            )
    for split in {"train": ("val", "test"), "evaluate": ("test",)}.get(cfg.mode, ("predict",)):
        limit = cfg.trainer.get(f"limit_{split}_batches")
        of_nodes = not links and not embeds
        if limit not in (None, 0, 1) and (not of_nodes or (split != "val" and cfg.exact_test)):  # 1.0: all
            way = ", or give exact_test=false" if of_nodes else ""
            yield (
                f"trainer.limit_{split}_batches is {limit}, but the whole graph is one batch there, of which there is "
                f"no part; leave it out{way}"
            )
    overfit = cfg.trainer.get("overfit_batches")
    for split in ("train", "val"):
        limit = cfg.trainer.get(f"limit_{split}_batches")
        if cfg.mode == "train" and overfit and limit is not None:
            yield (
                f"trainer.limit_{split}_batches is {limit}, but trainer.overfit_batches, which is {overfit}, takes its "
                "place; leave one of them out"
            )
    watched, every = (cfg.get("schedule") or {}).get("monitor"), cfg.trainer.get("check_val_every_n_epoch", 1)
    if cfg.mode == "train" and str(watched).startswith("val/") and every != 1:
        yield (
            f"schedule.monitor is {watched}, which the schedule reads after each epoch, but "
            f"trainer.check_val_every_n_epoch is {every}; give 1, or schedule.monitor=train/loss"
        )
    how = cfg.trainer.get("gradient_clip_algorithm")
    if how is not None and not clip:
        yield (
            f"trainer.gradient_clip_algorithm is {how}, but trainer.gradient_clip_val is {clip}, which clips nothing; "
            "give a value, or leave it out"
        )
    files = dict[tuple[str, str], str]()
    for name, entry in entries(cfg, "callbacks"):
        written: Any = OmegaConf.to_container(entry, resolve=False)  # the folder may be known later only
        if written.get("filename") is None:
            continue
        file = str(written.get("dirpath")), str(written["filename"])
        other = files.setdefault(file, name)
        if other != name and cfg.mode == "train":
            yield (
                f"callbacks.{name}.filename is {file[1]}, as callbacks.{other}.filename is, so their checkpoints would "
                "replace each other; give another one"
            )
    for name, entry in entries(cfg, "callbacks"):
        watched = str(entry.get("monitor"))
        every = next((key for key in ("every_n_train_steps", "train_time_interval") if entry.get(key)), None)
        before = {"val": "validation", "train": "epoch"}.get(watched.partition("/")[0])
        if (
            every is not None
            and before
            and (before == "validation" or str(cfg.model["_target_"]).startswith("models."))
        ):
            yield (
                f"callbacks.{name}.{every} is {entry[every]}, but {watched} is of the {before} before, not of the "
                f"weights that would be kept; leave {every} out, so that weights are kept after each {before}"
            )
    for name, entry in entries(cfg, "callbacks"):
        several = entry.get("save_top_k", 1) not in (0, 1) and entry.get("enable_version_counter") is False
        if (
            cfg.mode == "train" and several and "{" not in str(entry.get("filename") or "{epoch}")
        ):  # null: Lightning's own, with the epoch
            yield (
                f"callbacks.{name}.save_top_k is {entry['save_top_k']}, but its checkpoints would replace each other, "
                f"as all have the name {entry['filename']}; give 'callbacks.{name}.filename=\"best-{{epoch}}\"'"
            )
    for name, entry in entries(cfg, "callbacks"):
        best = entry.get("monitor") is not None and entry.get("save_top_k", 1) != 0
        if best and entry.get("save_on_exception") and "{" not in str(entry.get("filename") or "{epoch}"):
            yield (
                f"callbacks.{name}.save_on_exception is true, but its checkpoint would replace the best one, as both "
                f"have the name {entry['filename']}; leave it out: callbacks.step saves what training goes on from"
            )
    own = embeds or not str(cfg.model["_target_"]).startswith("models.")
    option = "features.dtype" if cfg.features.get("dtype") else "features.storage_dtype"
    dtype = OmegaConf.select(cfg, option)
    full = str(cfg.trainer.get("precision")) in ("None", "32", "32-true")
    if not own and full and str(dtype).removeprefix("torch.") in ("float16", "half", "bfloat16"):
        yield (
            f"{option} is {dtype}, but the model's layers have float32; give trainer.precision=bf16-mixed, or "
            "features.dtype=float32"
        )


def check_rules(cfg: DictConfig, rules: Callable[[DictConfig], Iterator[str]]) -> None:
    """Raises ValueError for the first rule that a configuration breaks: `of_parts` or `of_values`."""
    for message in rules(cfg):
        raise ValueError(message)
