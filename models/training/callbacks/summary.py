"""The table at the end of a run."""

from __future__ import annotations

from lightning.pytorch import Callback, LightningModule, Trainer
from rich.console import Console
from rich.table import Table
from rich.tree import Tree

from models.training.callbacks.stage_times import StageTimes


class RunSummary(Callback):
    """Prints what runs where when training starts, and at the end the accuracies and where the time went."""

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        placement = getattr(getattr(trainer, "datamodule", None), "placement", None)
        if placement is None or not trainer.is_global_zero:
            return
        tree = Tree("runs")
        for stage, words in placement().items():
            tree.add(f"{stage}: {words}")
        Console().print(tree)

    def on_test_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not trainer.is_global_zero:
            return
        accuracies = {k: float(v) for k, v in trainer.callback_metrics.items() if k.startswith("test/")}
        times = next((c for c in trainer.callbacks if isinstance(c, StageTimes)), None)  # type: ignore[attr-defined]
        Console().print(summary_table(accuracies, times, _replayed(trainer, pl_module)))


def summary_table(
    accuracies: dict[str, float], times: StageTimes | None, replayed: tuple[int, int] | None = None
) -> Table:
    """The table of `RunSummary`.

    Args:
        accuracies: metric name -> share in [0, 1]; `test/val_acc` is shown as "accuracy, val".
        times: of the training, if it was timed.
        replayed: on a GPU, training steps by CUDA graphs, and all training steps.
    """
    table = Table(title="Run", title_justify="left", show_header=False, caption_justify="left")
    table.add_column("what")
    table.add_column("value", justify="right")
    table.add_column("note", style="dim")
    for name, value in accuracies.items():
        split = name.removeprefix("test/").removesuffix("_acc")
        exact = split in ("train", "val", "test")
        table.add_row(f"accuracy, {split}", f"{value:.2%}", "all neighbours, best checkpoint" if exact else "sampled")
    if times is None or not times.stage_seconds:
        return table
    table.caption = "the stages before train run beside it, unless datamodule.prefetch=0"
    table.add_section()
    if times.median_epoch is not None:
        note = f"median of {len(times.epoch_seconds)}, validation excluded"
        table.add_row("seconds an epoch", f"{times.median_epoch:.3g}", note)
    if replayed is not None:
        note = "" if replayed[0] else "model.cuda_graph says when they are possible"
        table.add_row("steps by CUDA graphs", f"{replayed[0]:,}", f"of {replayed[1]:,} {note}".rstrip())
    for stage, seconds in times.stage_seconds.items():
        share = f"{seconds / times.training_seconds:.0%} of training" if times.training_seconds else ""
        if stage in times.placement:
            share = ", ".join(filter(None, (share, times.placement[stage])))
        table.add_row(f"time, {stage}", f"{seconds:.2f} s", share)
    if times.moved_bytes:
        table.add_section()
    for stage, count in times.moved_bytes.items():
        table.add_row(f"bytes, {stage}", f"{count / 2**30:.2f} GiB", _MOVED.get(stage, ""))
    if times.max_bytes:
        table.add_row("mini-batches ahead", f"<= {times.max_bytes / 2**20:.0f} MiB", times.placement.get("ahead", ""))
    return table


def _replayed(trainer: Trainer, pl_module: LightningModule) -> tuple[int, int] | None:
    graphed = getattr(pl_module, "graphed", None)
    if graphed is None or trainer.strategy.root_device.type != "cuda":
        return None
    return graphed.replayed, trainer.global_step


_MOVED = {"gather": "rows of features read", "move": "copied from host memory to the GPU"}
