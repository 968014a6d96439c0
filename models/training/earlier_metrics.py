"""The metrics that a run wrote to its folder before it was interrupted, for the run that goes on there."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import CSVLogger, Logger


def keep_earlier_metrics(loggers: Iterable[Logger], saved: Mapping[str, Any]) -> None:
    """Writes what the files of CSV loggers have of the steps up to a checkpoint into their new files.

    Lightning's logger removes the file when it begins. Rows of later steps, and of a test, come again.

    Args:
        loggers: of the run that goes on from the checkpoint, in its process that writes.
        saved: the parts of the checkpoint.
    """
    steps, validated = _steps_before(saved)
    for logger in loggers:
        if not isinstance(logger, CSVLogger) or not (path := Path(logger.log_dir) / "metrics.csv").is_file():
            continue
        with path.open(newline="") as file:
            rows = [{name: value for name, value in row.items() if name and value} for row in csv.DictReader(file)]
        # A row that was cut, as the process was killed, may have no step.
        earlier = [row for row in rows if str(row.get("step", "")).isdigit() and int(row["step"]) < steps]
        earlier = [row for row in earlier if not _has(row, "test/")]
        if validated:  # what follows on its row is of the end of the epoch, which comes again
            ends = [n for n, row in enumerate(earlier, 1) if int(row["step"]) == steps - 1 and _has(row, "val/")]
            earlier = earlier[: max(ends, default=len(earlier))]
        if earlier:
            writer = logger.experiment
            writer.metrics = [*earlier, *writer.metrics]
            writer.save()


def _has(row: Mapping[str, str], begin: str) -> bool:
    return any(name.startswith(begin) for name in row)


def _steps_before(saved: Mapping[str, Any]) -> tuple[int, bool]:
    """The first step whose rows come again when a run goes on from a checkpoint, and whether this was written at the
    end of the validation after the step before.
    """
    loops = saved["loops"].get("fit_loop", {})
    steps: int = loops.get("epoch_loop.state_dict", {}).get("_batches_that_stepped", saved["global_step"])
    trained = loops.get("epoch_loop.batch_progress", {}).get("total", {})
    validated = loops.get("epoch_loop.val_loop.batch_progress", {})
    # Lightning counts a step after the validation that follows it, at whose end the checkpoint may have been written.
    over = trained.get("completed") == trained.get("ready") and validated.get("is_last_batch", False)
    late: bool = over and saved["global_step"] == steps + 1
    return steps + late, late
