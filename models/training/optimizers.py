"""Optimizers and schedules of torch, by name."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from lightning.pytorch import LightningModule
from torch import nn

from loader.machine.arguments import as_finite, shown
from loader.machine.spelling import nearest
from models.trained_rows import rows_in
from models.training.rows_optimizer import WithRows


class Optimization:
    """How the parameters of a module are optimized.

    Args:
        lr: learning rate.
        weight_decay: the optimizer's L2 penalty.
        optimizer: `name` of a class of `torch.optim`, and options of that class; None is Adam.
        schedule: `name` of a class of `torch.optim.lr_scheduler`, and options of that class; `monitor` is the metric
            that ReduceLROnPlateau watches. The learning rate changes after each epoch. None, or None as the name, keeps
            the learning rate.

    Raises:
        ValueError: there is no such class, or it does not take the options.

    Attributes:
        hparams: the arguments as plain values, which a checkpoint keeps.
    """

    def __init__(
        self,
        lr: float,
        weight_decay: float,
        optimizer: Mapping[str, Any] | None = None,
        schedule: Mapping[str, Any] | None = None,
    ) -> None:
        self.lr = as_finite("lr", lr, positive=True)
        self.weight_decay = as_finite("weight_decay", weight_decay)
        self._optimizer, self._options = _named("optimizer", optimizer or {"name": "Adam"}, torch.optim)
        self._schedule, self._schedule_options = _named("schedule", schedule or {}, torch.optim.lr_scheduler)
        self._monitor = self._schedule_options.pop("monitor", None)
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau
        if self._monitor is not None and not (self._schedule and issubclass(self._schedule, plateau)):
            name = self._schedule and self._schedule.__name__
            why = f"schedule.name is {name}, and only ReduceLROnPlateau watches a metric"
            raise ValueError(f"schedule.monitor is {shown(self._monitor)}, but {why}; leave schedule.monitor out")
        if self._optimizer is torch.optim.SparseAdam:
            raise ValueError("optimizer.name is SparseAdam, and the gradients here are dense; give Adam")
        for name in ("lr", "weight_decay"):
            if name in self._options:
                raise ValueError(f"optimizer.{name} is {shown(self._options[name])}; give model.{name} in its place")
        if "weight_decay" in inspect.signature(self._optimizer).parameters:
            self._options["weight_decay"] = self.weight_decay
        elif self.weight_decay:
            raise ValueError(f"weight_decay is {weight_decay}, but {self._optimizer.__name__} has none; give 0")
        periods = self._schedule_options.get("T_max")
        if isinstance(periods, (int, float)) and periods < 0:  # which torch takes: the rate is 0 every other epoch
            raise ValueError(f"schedule.T_max is {periods}; give a number of epochs, or trainer.max_epochs")
        trial, changes = self._make([nn.Parameter(torch.zeros(1))])
        if changes is not None and self._monitor is None:
            with _options_of("schedule", self._schedule, self._schedule_options):  # of which a period of 0 is met here
                trial.step(lambda: 0.0)
                changes.step()
        self.hparams = {"optimizer": _plain(optimizer), "schedule": _plain(schedule)}

    def configure(self, module: LightningModule) -> Any:
        """What `LightningModule.configure_optimizers` returns for all parameters of a module.

        Trained rows are updated by `torch.optim.SparseAdam`, with the learning rate, betas and eps of the others. The
        weight decay is an L2 penalty of rows that were read.
        """
        # On a GPU one kernel for all parameters, on the CPU torch's own choice. Lightning does not clip the gradients
        # of an optimizer that undoes the loss scaling by itself, as the fused one does.
        trainer = module._trainer
        clips = trainer is not None and trainer.gradient_clip_val and "mixed" in str(trainer.precision)
        fused = all(p.is_cuda for p in module.parameters()) and not clips
        optimizer, schedule = self._make(list(module.parameters()), list(rows_in(module)), fused=fused)
        if schedule is None:
            return optimizer
        scheduler = {"scheduler": schedule, "interval": "epoch"}
        return {
            "optimizer": optimizer,
            "lr_scheduler": scheduler | ({"monitor": self._monitor} if self._monitor else {}),
        }

    def _make(
        self, parameters: list[nn.Parameter], rows: Sequence[nn.Parameter] = (), fused: bool = False
    ) -> tuple[torch.optim.Optimizer, Any]:
        assert self._optimizer is not None
        options = dict(self._options)
        if fused and "fused" in inspect.signature(self._optimizer).parameters:
            options.setdefault("fused", True)
        of_rows = set(map(id, rows))
        with _options_of("optimizer", self._optimizer, options):
            optimizer = self._optimizer([p for p in parameters if id(p) not in of_rows], lr=self.lr, **options)
        if rows:
            same = {name: options[name] for name in ("betas", "eps") if name in options}
            optimizer = WithRows(optimizer, torch.optim.SparseAdam(rows, lr=self.lr, **same), self.weight_decay)
        if self._schedule is None:
            return optimizer, None
        with _options_of("schedule", self._schedule, self._schedule_options):
            return optimizer, self._schedule(optimizer, **self._schedule_options)


@contextmanager
def _options_of(what: str, kind: Any, options: Mapping[str, Any]) -> Iterator[None]:
    """Within this, what a class of torch raises is said of the options that it was given."""
    try:
        yield
    except (ArithmeticError, IndexError, TypeError, ValueError) as error:
        raise ValueError(f"{what} {kind.__name__} with {options}: {error}; correct or leave out that option") from error


def _named(what: str, part: Mapping[str, Any], module: Any) -> tuple[Any, dict[str, Any]]:
    """The class of `module` that `part["name"]` names, None if that is None, and the other options."""
    if not isinstance(part, Mapping):
        raise TypeError(f"{what} is {shown(part)}; it must have a name, that of a class of {module.__name__}")
    options = _plain(part) or {}
    name = options.pop("name", None)
    if name is None and not options and what == "schedule":
        return None, options
    # Before torch 2.2, ReduceLROnPlateau was no LRScheduler.
    lr = torch.optim.lr_scheduler
    bases = (torch.optim.Optimizer,) if what == "optimizer" else (lr.LRScheduler, lr.ReduceLROnPlateau)
    known = [
        key
        for key, one in vars(module).items()
        if isinstance(one, type) and issubclass(one, bases) and one is not bases[0] and not key.startswith("_")
    ]
    if name not in known:
        way = f"e.g. {'SGD' if what == 'optimizer' else 'CosineAnnealingLR'}{nearest(str(name), known)}"
        raise ValueError(f"{what}.name is {shown(name)}; it must be a class of {module.__name__}, {way}")
    return getattr(module, name), options


def _plain(part: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Of Python's own types, for checkpoints: Hydra gives lists and dicts of its own."""

    def plain(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {str(key): plain(inner) for key, inner in value.items()}
        return value if isinstance(value, (str, int, float, bool, type(None))) else [plain(inner) for inner in value]

    return None if part is None else plain(part)
