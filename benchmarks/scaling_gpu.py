"""How an epoch, and the way to its first step, change with the number of GPUs.

    python benchmarks/scaling_gpu.py                         # 1 and 2 GPUs, and Lightning's DDP beside
    python benchmarks/scaling_gpu.py --gpus 1 2 4

Each row is a run of `train.py experiment=ogbn-products dataset=synthetic-products`: GraphSAGE of three layers, fanouts
(15, 10, 5), 1,024 seeds per GPU and step. An epoch is the median over a run's epochs but the first two, without
validation, and waits for the GPU. The first step is timed from the command on, in a run whose data and kernels are in
their caches already. The runs take turns, and the median run counts.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from _common import RESULTS, ROOT, write_json
from rich.console import Console
from rich.table import Table

OPTIONS = (
    "experiment=ogbn-products", "dataset=synthetic-products", "features=device", "callbacks.early_stopping=null",
    "callbacks.curves=null", "logger=none",
    "+callbacks.record._target_=models.training.callbacks.epoch_record.EpochRecord",
)  # fmt: skip
_SKIPPED = 2  # epochs: before and while steps are captured


def measure(arguments: list[str], limit: float) -> dict[str, Any]:
    """One run: seconds of an epoch, and from the command to the first step.

    Raises:
        RuntimeError: the run failed, or took longer than `limit` seconds; the message ends with what it printed last.
    """
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        command = [sys.executable, str(ROOT / "train.py"), *arguments, f"hydra.run.dir={folder}/run"]
        start, first, lines = time.perf_counter(), None, []
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        with subprocess.Popen(
            [*command, f"result_path={result}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                lines.append(line)
                if first is None and line.startswith("sample: "):
                    first = time.perf_counter() - start
                if time.perf_counter() - start > limit:
                    process.kill()
        if process.returncode or first is None:
            raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}:\n{''.join(lines[-30:])}")
        found = json.loads(result.read_text())
    seconds = [row["seconds"] for row in found["epochs"]]
    epochs = [after - before for before, after in zip(seconds[_SKIPPED - 1 :], seconds[_SKIPPED:], strict=False)]
    return {
        "epoch_s": statistics.median(epochs),
        "epochs_s": epochs,
        "first_step_s": first,
        "train_loss": found["epochs"][-1]["train/loss"],
        "warnings": sum("Warning" in line for line in lines),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpus", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3, help="runs of each row")
    parser.add_argument("--limit", type=float, default=600, help="seconds of a run")
    parser.add_argument("--no-ddp", action="store_true", help="leave out the rows of Lightning's DDP")
    parser.add_argument("--no-warm-up", action="store_true", help="data and kernels are in their caches already")
    parser.add_argument("--option", action="append", default=[], help="a further argument of train.py")
    parser.add_argument("--out", type=Path, default=RESULTS / "scaling_gpu.json")
    options = parser.parse_args()
    common = [*OPTIONS, f"trainer.max_epochs={options.epochs}", *options.option]
    kinds = [(gpus, strategy) for gpus in options.gpus for strategy in ("auto", "ddp")[: 1 if gpus == 1 else 2]]
    kinds = [kind for kind in kinds if kind[1] == "auto" or not options.no_ddp]
    if not options.no_warm_up:
        measure([*common, "trainer.max_epochs=3"], 2 * options.limit)  # builds the data, compiles the kernels
    runs: dict[tuple[int, str], list[dict[str, Any]]] = {kind: [] for kind in kinds}
    for number in range(options.rounds):
        for gpus, strategy in kinds:
            run = measure([*common, f"trainer.devices={gpus}", f"trainer.strategy={strategy}"], options.limit)
            runs[gpus, strategy].append(run)
            print(
                f"run {number}, {gpus} GPUs, {strategy}: {run['epoch_s']:.4f} s, first step {run['first_step_s']:.1f} s"
            )
    rows = [_row(gpus, strategy, found) for (gpus, strategy), found in runs.items()]
    alone = next((row for row in rows if row["gpus"] == 1), None)
    for row in rows:
        row["faster_by"] = None if alone is None else alone["epoch_s"] / row["epoch_s"]
        row["slower_start"] = None if alone is None else row["first_step_s"] / alone["first_step_s"]
    table = Table("GPUs", "gradients", "epoch, s", "faster by", "first step, s", "against 1")
    for row in rows:
        against = [f"{row[name]:.2f}x" if row[name] else "-" for name in ("faster_by", "slower_start")]
        table.add_row(
            str(row["gpus"]),
            row["gradients"],
            f"{row['epoch_s']:.4f}",
            against[0],
            f"{row['first_step_s']:.1f}",
            against[1],
        )
    Console().print(table)
    write_json(options.out, {"rounds": options.rounds, "epochs": options.epochs, "rows": rows})


def _row(gpus: int, strategy: str, runs: list[dict[str, Any]]) -> dict[str, Any]:
    how = "one process" if gpus == 1 else "Lightning's DDP" if strategy == "ddp" else "one exchange"
    row: dict[str, Any] = {"gpus": gpus, "gradients": how}
    for name in ("epoch_s", "first_step_s", "train_loss"):
        row[name] = statistics.median(run[name] for run in runs)
    return {**row, "warnings": max(run["warnings"] for run in runs), "runs_s": [run["epoch_s"] for run in runs]}


if __name__ == "__main__":
    main()
