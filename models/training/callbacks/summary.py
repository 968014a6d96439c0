"""What a run says of itself: where its stages work, and at the end its accuracies and where the time went."""

from __future__ import annotations

from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import EarlyStopping

from models.training.callbacks.stage_times import StageTimes
from models.training.console import BEST, tested_weights, wrapped
from models.training.metric_names import ERRORS, SPLITS
from models.training.trainer_callbacks import callbacks_of


class RunSummary(Callback):
    """Prints what runs where when training starts, and at the end the accuracies and where the time went."""

    def __init__(self) -> None:
        self._early: list[str] = []
        self._sampled: float | None = None

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        placement = getattr(getattr(trainer, "datamodule", None), "placement", None)
        if placement is None or not trainer.is_global_zero:
            return
        several = f", {trainer.world_size} processes" if trainer.world_size > 1 else ""
        stages = [f"{stage}: {words}" for stage, words in placement().items() if stage != "ahead"]
        print(wrapped("; ".join(stages) + several))

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        # Not after the test, for which Lightning puts the callbacks back into their state at the best checkpoint. Its
        # Trainer does not declare `callbacks`.
        self._early = _stopped_early(callbacks_of(trainer))
        best = getattr(trainer, "checkpoint_callback", None)
        if (
            getattr(best, "monitor", None) == "val/acc"
            and (score := getattr(best, "best_model_score", None)) is not None
        ):
            self._sampled = float(score)

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not trainer.is_global_zero:
            return
        tested = {k: float(v) for k, v in trainer.callback_metrics.items() if k.startswith("test/")}
        accuracies = {k: v for k, v in tested.items() if k != "test/loss"}
        times = next((c for c in callbacks_of(trainer) if isinstance(c, StageTimes)), None)
        tested_by = getattr(pl_module, "TESTED_BY", None)
        hetero = bool(getattr(pl_module, "hparams", {}).get("edge_types"))  # which is tested with sampled neighbors
        of = tested_weights(getattr(trainer, "ckpt_path", None))
        lines = summary_lines(accuracies, times, _replayed(trainer, pl_module), tested_by, self._sampled, hetero, of)
        print("\n".join(map(wrapped, self._early + lines)))


def summary_lines(
    accuracies: dict[str, float],
    times: StageTimes | None,
    replayed: tuple[int, int] | None = None,
    tested_by: str | None = None,
    sampled: float | None = None,
    hetero: bool = False,
    weights: str = BEST,
) -> list[str]:
    """The lines of `RunSummary`.

    Args:
        accuracies: metric name -> share in [0, 1], or of a regression a number; `test/val_acc` is shown as "val",
            `test/acc` as "test". Each metric beside the accuracy has a line of its own.
        times: of the training, if it was timed.
        replayed: on a GPU, training steps by CUDA graphs, and all training steps.
        tested_by: what the accuracies are of, if not of the neighbors that a node has.
        sampled: accuracy of the best checkpoint on the validation split with sampled neighbors, if that is known.
        typed: the model is for several types of nodes and edges, so the test is of sampled neighbors.
        weights: which ones were tested.
    """
    lines = []
    shares: dict[str, list[str]] = {}  # metric -> of each split
    for name, share in accuracies.items():
        split, metric = _split_and_metric(name)
        shares.setdefault(metric, []).append(f"{split} {share:.4g}" if metric in _NUMBERS else f"{split} {share:.2%}")
    are_sampled = hetero or "test/acc" in accuracies
    how = f"by {tested_by}" if tested_by else f"with {'sampled' if are_sampled else 'all'} neighbors"
    for metric, splits in shares.items():
        also = ""
        if metric == "acc" and sampled is not None and tested_by is None:
            also = f"; val {sampled:.2%} with sampled neighbors"
        lines.append(f"{_NAMES.get(metric, metric)}: {', '.join(splits)} {how}{also} ({weights})")
    if times is None or not times.stage_seconds:
        return lines
    if times.median_epoch is not None:
        lines.append(f"an epoch: {times.median_epoch:.3g} s (median of {len(times.epoch_seconds)}, without validation)")
    parts = [f"{stage} {s:.2f} s" for stage, s in times.stage_seconds.items() if stage != "waiting"]
    waiting = times.stage_seconds.get("waiting")
    waited = "" if waiting is None else f"; the model waited {waiting:.2f} of {times.training_seconds:.2f} s for data"
    lines.append(f"stages, which overlap: {', '.join(parts)}{waited}")
    if replayed is not None:
        note = "" if replayed[0] else " (model.cuda_graph says when they are possible)"
        lines.append(f"steps by CUDA graphs {replayed[0]:,} of {replayed[1]:,}{note}")
    moved = [f"{_MOVED.get(stage, stage)} {_readable(count)}" for stage, count in times.moved_bytes.items()]
    if times.max_bytes:
        ahead = f" ({times.placement['ahead']})" if "ahead" in times.placement else ""
        moved.append(f"about {times.max_bytes / 2**20:.0f} MiB of mini-batches{ahead}")
    if moved:
        lines.append(f"data: {', '.join(moved)}")
    return lines


def _split_and_metric(name: str) -> tuple[str, str]:
    """`("val", "acc")` of `test/val_acc`, and `("test", "acc")` of `test/acc`, the test with sampled neighbors."""
    short = name.removeprefix("test/")
    split, _, metric = short.partition("_")
    return (split, metric) if split in SPLITS else ("test", short)


def _readable(count: int) -> str:
    return f"{count / 2**30:.2f} GiB" if count >= 2**30 else f"{count / 2**20:.1f} MiB"


def _stopped_early(callbacks: list[Callback]) -> list[str]:
    """The line that says why a training ended before its last epoch; none if it did not."""
    return [
        # Looked at after a validation, of which an epoch may have several or none.
        f"stopped after epoch {stop.stopped_epoch + 1}: {stop.monitor} got no better {stop.patience} times in a row"
        " (callbacks.early_stopping.patience)"
        for stop in callbacks
        if isinstance(stop, EarlyStopping) and stop.wait_count >= max(stop.patience, 1)
    ]


def _replayed(trainer: Trainer, pl_module: LightningModule) -> tuple[int, int] | None:
    graphed = getattr(pl_module, "graphed", None)
    if graphed is None or trainer.strategy.root_device.type != "cuda":
        return None
    return graphed.replayed, trainer.global_step


_NAMES = {"acc": "accuracy"}
_NUMBERS = (*ERRORS, "r2")  # which are no shares
_MOVED = {"gather": "features read", "move": "copied to the GPU"}
