"""Options that do not go together, and what is said of them: one rule a pair, in the order in which they are asked."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from omegaconf import DictConfig, ListConfig

from models.training.options import entries
from models.training.ranks import MOST_PROCESSES, number_of_devices
from models.training.targets import chosen, class_name

NEW_LINKS = 10  # by default, see conf/train.yaml


class Facts:
    """A configuration, and what rules ask of it.

    A word in braces in a message is an attribute, or else an option of the configuration.

    Args:
        cfg: of a run whose parts all have a class.
    """

    def __init__(self, cfg: DictConfig) -> None:
        self.cfg, self.trainer, self.model, self.sampler = cfg, cfg.trainer, cfg.model, cfg.sampler
        self.links, self.walks = cfg.task == "link", "walk_length" in cfg.sampler
        self.embeds = "context_size" in cfg.model  # model=node2vec
        self.predicts_nodes = cfg.mode == "predict" and not self.links
        self.predicts_links = cfg.mode == "predict" and self.links
        self.on_cpu = cfg.device == "cpu"
        self.store, self.kind, self.choice = class_name(cfg.features), class_name(cfg.sampler), chosen("model", cfg)
        self.tested = "task=link" if self.links else "model=node2vec"
        self.most = MOST_PROCESSES * (os.cpu_count() or 1)

    def __getitem__(self, key: str) -> Any:
        return getattr(self, key) if hasattr(self, key) else self.cfg[key]

    def window_is_longer(self) -> bool:
        """Than a walk."""
        length, window = self.sampler.get("walk_length"), self.model.get("context_size")
        return isinstance(length, int) and isinstance(window, int) and length + 1 < window

    def has_too_many_processes(self) -> bool:
        """For a machine without a GPU, whose processes would all start at once."""
        if not self.on_cpu or "devices" not in self.trainer or self.trainer.devices == "auto":
            return False
        devices = self.trainer.devices
        count = None if isinstance(devices, ListConfig) else number_of_devices(devices)
        return count is None or not 1 <= count <= self.most or "," in str(devices)

    def records(self) -> bool:
        """Whether a callback records a timeline."""
        found = [entry for _, entry in entries(self.cfg, "callbacks") if "_target_" in entry]
        return any(class_name(entry) == "TimelineRecord" for entry in found)

    def narrow(self, option: str) -> bool:
        """Whether rows are of a narrow type, by that option, which the model's layers, of float32, cannot multiply."""
        if self.embeds or not str(self.model["_target_"]).startswith("models."):
            return False
        if str(self.trainer.get("precision")) not in ("None", "32", "32-true"):
            return False
        return str(self.cfg.features.get(option)).removeprefix("torch.") in ("float16", "half", "bfloat16")


class Rule(NamedTuple):
    """What must not be, and the message if it is."""

    broken: Callable[[Facts], object]
    message: str


# Of the parts; those that follow may have options that refer to options which a part that does not fit has not.
OF_PARTS = (
    Rule(
        lambda run: run.embeds and run.links,
        "model=node2vec does not go with task=link, which trains GraphSAGE; leave model out",
    ),
    Rule(
        lambda run: run.embeds and not run.walks,
        "model=node2vec learns from random walks, and {kind} gives none; take sampler=walks",
    ),
    Rule(
        Facts.window_is_longer,
        "sampler.walk_length is {sampler.walk_length}, model.context_size {model.context_size}; a walk must have at "
        "least as many nodes as a window, so make walks longer, or windows smaller",
    ),
    Rule(
        lambda run: run.embeds and run.trainer.get("gradient_clip_val"),
        "trainer.gradient_clip_val is {trainer.gradient_clip_val}, but the gradients of model=node2vec are sparse, and "
        "torch clips none of these; leave it out",
    ),
    Rule(
        lambda run: run.embeds and run.store != "auto_features",
        "features is {store}, but model=node2vec reads none; leave features out",
    ),
    Rule(
        lambda run: run.embeds and run.sampler.get("num_negatives") == 0,
        "sampler.num_negatives is 0, but model=node2vec learns from negatives; give at least 1",
    ),
    Rule(
        lambda run: run.links and ("heads" in run.model or "unique_rows" in run.model),
        "model={choice} does not go with task=link, which trains GraphSAGE; leave model out",
    ),
    Rule(
        lambda run: run.links and run.walks,
        "sampler=walks does not go with task=link, which samples around links; take sampler=fused",
    ),
    Rule(
        lambda run: run.links and run.kind == "FullSampler",
        "sampler=full has no fanouts, which task=link sets to -1, all neighbors; leave sampler out",
    ),
)

# Of the values, once the device is known.
OF_VALUES = (
    Rule(
        lambda run: run.cfg.new_links != NEW_LINKS and not run.predicts_links,
        "new_links is {new_links}, but only mode=predict of task=link writes links; leave it out",
    ),
    Rule(
        lambda run: run.cfg.embeddings and (run.embeds or not run.predicts_nodes),
        "embeddings is true, but only mode=predict of a model with classes adds them; leave it out",
    ),
    Rule(
        lambda run: run.cfg.embeddings and not run.cfg.exact_test,
        "embeddings is true, but with exact_test=false predictions are of sampled neighbors, which have none; leave "
        "one of them out",
    ),
    Rule(
        Facts.has_too_many_processes,
        "trainer.devices is {trainer.devices!r}; without a GPU (device=cpu) it is the number of processes, 1 to {most} "
        "on this machine",
    ),
    Rule(
        lambda run: run.on_cpu and run.trainer.get("accelerator") in ("gpu", "cuda"),
        "trainer.accelerator is {trainer.accelerator}, but this run has no GPU (device=cpu); leave it out, and give "
        "device",
    ),
    Rule(
        lambda run: run.on_cpu and run.model.get("cuda_graph") in (True,),
        "model.cuda_graph is true, but this run has no GPU (device=cpu); leave it null, or false",
    ),
    Rule(
        lambda run: not run.cfg.exact_test and (run.links or run.embeds),
        "exact_test is false, but {tested} is only tested on the whole graph; leave exact_test out",
    ),
    Rule(
        lambda run: run.cfg.timeline and not run.records(),
        "timeline is true, but no callback records one (callbacks=default has callbacks.timeline, task=link leaves it "
        "out); leave timeline out",
    ),
    Rule(
        lambda run: run.cfg.timeline and run.embeds,
        "timeline is true, but model=node2vec has no such stages; leave timeline out",
    ),
    Rule(
        lambda run: run.narrow("dtype"),
        "features.dtype is {features.dtype}, but the model's layers have float32; give trainer.precision=bf16-mixed, "
        "or leave features.dtype out",
    ),
    Rule(
        lambda run: not run.cfg.features.get("dtype") and run.narrow("storage_dtype"),
        "features.storage_dtype is {features.storage_dtype}, but the model's layers have float32; give "
        "trainer.precision=bf16-mixed, or features.dtype=float32",
    ),
)


def check_rules(cfg: DictConfig, rules: Sequence[Rule]) -> None:
    """Raises ValueError for the first rule that a configuration breaks."""
    run = Facts(cfg)
    for rule in rules:
        if rule.broken(run):
            raise ValueError(rule.message.format_map(run))
