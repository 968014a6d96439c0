"""How an epoch, and the way to its first step, change with the number of GPUs.

    python benchmarks/scaling_gpu.py                         # 1 and 2 GPUs, and Lightning's DDP beside
    python benchmarks/scaling_gpu.py --gpus 1 2 4
    python benchmarks/scaling_gpu.py --long-steps            # and with Lightning's loop around each step

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
import threading
import time
from pathlib import Path
from typing import Any

import torch
from _common import RESULTS, ROOT, write_json
from rich.console import Console
from rich.table import Table

OPTIONS = (
    "experiment=ogbn-products", "dataset=synthetic-products", "callbacks.early_stopping=null",
    "callbacks.curves=null", "logger=none",
    "+callbacks.record._target_=models.training.callbacks.epoch_record.EpochRecord",
)  # fmt: skip
_SKIPPED = 2  # epochs: before and while steps are captured
_LONG = "Lightning's"
Kind = tuple[int, str, str, str]  # GPUs, strategy, features, steps


def measure(arguments: list[str], limit: float) -> dict[str, Any]:
    """One run: seconds of an epoch, and from the command to the first step.

    Raises:
        RuntimeError: the run failed, or took longer than `limit` seconds; the message ends with what it printed last.
    """
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        command = [sys.executable, str(ROOT / "train.py"), *arguments, f"hydra.run.dir={folder}/run"]
        start, first, lines = time.perf_counter(), None, []
        path = os.pathsep.join([str(ROOT / "benchmarks"), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": path}
        options: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        with subprocess.Popen([*command, f"result_path={result}"], env=environment, **options) as process:
            timer = threading.Timer(limit, process.kill)  # its other processes end with it
            timer.start()
            assert process.stdout is not None
            for line in process.stdout:
                lines.append(line)
                if first is None and line.startswith("sample: "):
                    first = time.perf_counter() - start
        timer.cancel()
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
    parser.add_argument("--no-sharded", action="store_true", help="leave out the rows of study/sharded.py")
    parser.add_argument("--long-steps", action="store_true", help="rows with Lightning's own steps, too")
    parser.add_argument("--no-warm-up", action="store_true", help="data and kernels are in their caches already")
    parser.add_argument("--option", action="append", default=[], help="a further argument of train.py")
    parser.add_argument("--out", type=Path, default=RESULTS / "scaling_gpu.json")
    options = parser.parse_args()
    common = [*OPTIONS, f"trainer.max_epochs={options.epochs}"]
    kinds: list[Kind] = []
    for gpus in options.gpus:
        kinds.append((gpus, "auto", "device", "short"))
        if options.long_steps:
            kinds.append((gpus, "auto", "device", _LONG))
        if gpus > 1 and not options.no_sharded:
            kinds.append((gpus, "auto", "sharded", "short"))
        if gpus > 1 and not options.no_ddp:
            kinds.append((gpus, "ddp", "device", "short"))
    if not options.no_warm_up:  # builds the data, compiles the kernels
        measure([*common, "features=device", *options.option, "trainer.max_epochs=3"], 2 * options.limit)
    runs: dict[Kind, list[dict[str, Any]]] = {kind: [] for kind in kinds}
    failed = False
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    for number in range(options.rounds):
        for kind in kinds:
            gpus, strategy, features, steps = kind
            chosen = [f"trainer.devices={gpus}", f"trainer.strategy={strategy}", f"features={features}"]
            if features == "sharded":
                chosen = ["--config-dir", str(ROOT / "benchmarks" / "study" / "conf"), *chosen]
            if steps == _LONG:
                chosen.append("+callbacks.hook._target_=_hook.Hook")
            try:
                run = measure([*common, *chosen, *options.option], options.limit)
            except RuntimeError as error:
                failed = True
                print(error, flush=True)
                continue
            runs[kind].append(run)
            found = f"{run['epoch_s']:.4f} s, first step {run['first_step_s']:.1f} s, {run['warnings']} warnings"
            print(f"run {number}, {gpus} GPUs, {strategy}, {features}, {steps} steps: {found}", flush=True)
            rows = _rows(runs)  # written at once: a later run may be cut off
            write_json(options.out, {"gpu": gpu, "rounds": number + 1, "epochs": options.epochs, "rows": rows})
    table = Table("GPUs", "gradients", "features", "steps", "epoch, s", "faster by", "first step, s", "against 1")
    for row in _rows(runs):
        against = [f"{row[name]:.2f}x" if row[name] else "-" for name in ("faster_by", "slower_start")]
        start = f"{row['first_step_s']:.1f}"
        names = str(row["gpus"]), row["gradients"], row["features"], row["steps"]
        table.add_row(*names, f"{row['epoch_s']:.4f}", against[0], start, against[1])
    Console().print(table)
    sys.exit(failed)


def _rows(runs: dict[Kind, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    rows = [_row(*kind, found) for kind, found in runs.items() if found]
    alone = next((row for row in rows if row["gpus"] == 1), None)
    for row in rows:
        row["faster_by"] = None if alone is None else alone["epoch_s"] / row["epoch_s"]
        row["slower_start"] = None if alone is None else row["first_step_s"] / alone["first_step_s"]
    return rows


def _row(gpus: int, strategy: str, features: str, steps: str, runs: list[dict[str, Any]]) -> dict[str, Any]:
    how = "one process" if gpus == 1 else "Lightning's DDP" if strategy == "ddp" else "one exchange"
    row: dict[str, Any] = {"gpus": gpus, "gradients": how, "features": features, "steps": steps}
    for name in ("epoch_s", "first_step_s", "train_loss"):
        row[name] = statistics.median(run[name] for run in runs)
    seconds = [run["epoch_s"] for run in runs]
    return {**row, "warnings": max(run["warnings"] for run in runs), "runs": len(runs), "runs_s": seconds}


if __name__ == "__main__":
    main()
