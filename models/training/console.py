"""What a run says and keeps of itself besides its metrics: device, configuration, folder."""

from __future__ import annotations

import logging
import os
import shutil
import sys
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from loader.machine.command_line import called

BEST = "best checkpoint"


def tested_weights(checkpoint: Any) -> str:
    """What a test is of, in words: the best checkpoint, or None if there is none."""
    return "weights of the last step" if checkpoint is None else BEST


def save_config(cfg: DictConfig, run_dir: Path) -> Path:
    """Writes the resolved configuration to `run_dir/config.yaml`, and returns that path.

    What Hydra has written there is read back by `mode=predict`, so others cannot write to it, whatever the umask is.

    Raises:
        omegaconf.errors.OmegaConfBaseException: a value is missing or does not resolve.
    """
    resolved = OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True)
    assert isinstance(resolved, dict)
    run_dir.mkdir(parents=True, exist_ok=True)
    path = run_dir / "config.yaml"
    path.write_text(OmegaConf.to_yaml(OmegaConf.create(resolved)), encoding="utf-8")
    for options_file in (run_dir / ".hydra").glob("*.yaml"):
        with suppress(OSError):  # of another user, whose file it stays
            options_file.chmod(options_file.stat().st_mode & ~0o022)
    return path


def announce(cfg: DictConfig, why: str, first: bool) -> None:
    """Keeps the configuration, and says at once on which device the run works and where its files lie.

    Args:
        cfg: of the run, with its device chosen.
        why: of that choice.
        first: this process is the one that prints and writes.
    """
    if first:
        again = (Path(cfg.run_dir) / "config.yaml").is_file()
        written = save_config(cfg, Path(cfg.run_dir))
        (Path(cfg.run_dir) / "README.txt").write_text(described(cfg), encoding="utf-8")
        # Flushed, or a pipe shows nothing until the data are read.
        print(wrapped(f"device: {cfg.device} ({why}); configuration: {written}"), flush=True)
        if again and cfg.get("ckpt_path") is None:
            print(wrapped(f"{cfg.run_dir} has the files of an earlier run: this one replaces them"), flush=True)


def described(cfg: DictConfig) -> str:
    """What the files of a run are, and how to go on, for who finds the folder."""
    callbacks, loggers = (cfg.get(group) or {} for group in ("callbacks", "logger"))
    checkpoints = cfg.get("checkpoint_dir")
    files = {"config.yaml": "all options of the run", ".hydra/": "those options that were given, and Hydra's"}
    files["train.log"] = "what it said while it read the data, with times"
    if cfg.get("mode", "train") == "train":
        if callbacks.get("best"):
            files[f"{checkpoints}/best.ckpt"] = f"the weights with the best {callbacks['best'].get('monitor')}"
        if callbacks.get("step"):
            every = callbacks["step"].get("every_n_train_steps")
            files[f"{checkpoints}/step.ckpt"] = (
                f"a state of the training: after step 1, 2, 4 and so on, then every {every} steps, and on Ctrl-C"
            )
        files |= {
            one.get("tracking_uri") or f"{name}/": "the metrics of each epoch, counted from 0 there"
            for name, one in loggers.items()
            if one
        }
        if curves := callbacks.get("curves"):
            score = str(curves.get("score", "acc")).replace("acc", "accuracy")
            files["curves.png"] = f"loss and {score} of each epoch, and which epoch was best"
        if cfg.get("timeline"):
            files["timeline.png, timeline.json"] = (
                "when each stage worked on some mini-batches; https://ui.perfetto.dev shows the second one"
            )
        if "confusion" in ((cfg.get("model") or {}).get("metrics") or ()):
            files["confusion.csv"] = "nodes of the test split by true class (row) and predicted class (column)"
        files["result.json"] = f"what the run ended with; {called('results')} makes a table of several"
    else:
        name = "predictions.parquet" if cfg.mode == "predict" else "metrics.json"
        files[name] = f"what mode={cfg.mode} found with {cfg.get('ckpt_path')}"
        if cfg.mode == "predict":
            files[name] += f"; columns:\n    {_columns(cfg)}"
    lines = [f"A run of {called('train')}. Its files:", "", *(f"{name}\n    {what}" for name, what in files.items())]
    if f"{checkpoints}/step.ckpt" in files:
        lines += [
            "",
            "To go on if it was interrupted, repeat its command with",
            f"    ckpt_path={checkpoints}/step.ckpt",
        ]
    if f"{checkpoints}/best.ckpt" in files:
        lines += ["", "To predict with it (or mode=evaluate, to test it again):"]
        lines += [f"    {called('train')} mode=predict ckpt_path={checkpoints}/best.ckpt"]
    return "\n".join([*lines, ""])


def _columns(cfg: DictConfig) -> str:
    """The columns of the predictions of a run."""
    if cfg.task == "link":
        return "source; target; score, the probability of a link"
    if "context_size" in cfg.model:
        return "id; emb_0, emb_1, ..., the embedding"
    if "task" in cfg.dataset:
        return (
            "the key of the row, under its name in the items; time; prediction, a class or a number; p_1, the "
            "probability of a 1, or p_<class> of each class"
        )
    return (
        "id; split (train, val, test; null: the node has no label; none: it has one, and is in no split); prediction; "
        "p_<class>, the probability of each class; with embeddings=true emb_0, emb_1, ..."
    )


def wrapped(line: str) -> str:
    """A line that a run says, broken between words where the terminal ends. A file or a pipe has it whole."""
    if not sys.stdout.isatty():
        return line
    width = shutil.get_terminal_size().columns
    # Paths stay whole, to be copied.
    return textwrap.fill(line, width, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)


def announce_resume(cfg: DictConfig, saved: Mapping[str, Any]) -> None:
    """Says in one line what a run goes on from, and where its files go.

    Args:
        cfg: of the run.
        saved: the parts of its checkpoint.
    """
    print(
        f"resumed: epoch {saved['epoch'] + 1}, after step {saved['global_step']}, from {cfg.ckpt_path}; checkpoints go "
        f"to {cfg.checkpoint_dir}, all else to {cfg.run_dir}",
        flush=True,
    )


def leave_no_empty_folder(run_dir: Path, started_in: Path, *, refused: bool = False) -> None:
    """Removes the folder of a run that wrote nothing, and empty folders above it.

    Hydra makes the folder before the job starts, with its own configuration in `.hydra` and an empty log.

    Args:
        run_dir: the folder.
        started_in: the folder where the program was started, which stays.
        refused: whether what is written before the first step counts as nothing: logs, and the configuration, which
            loggers keep as `hparams.yaml`.
    """
    if refused and all(_before_steps(path) for path in _files(run_dir)):
        with suppress(OSError):
            for path in _files(run_dir):
                path.unlink()
            for name, _, _ in os.walk(run_dir, topdown=False):
                if Path(name) not in (run_dir, run_dir / ".hydra"):
                    os.rmdir(name)
    with suppress(OSError):  # up to the first one that is not empty, or was removed by a run of the same second
        logs = [path for path in run_dir.glob("*.log") if path.is_file() and path.stat().st_size == 0]
        if {path.name for path in run_dir.iterdir()} - {path.name for path in logs} != {".hydra"}:
            return
        for path in [*logs, *(run_dir / ".hydra").iterdir()]:
            path.unlink()
        (run_dir / ".hydra").rmdir()
        for folder in (run_dir, *run_dir.parents):
            if folder == started_in:
                break
            folder.rmdir()


def _files(run_dir: Path) -> list[Path]:
    """The files in the folder of a run, but for Hydra's configuration."""
    return [path for path in run_dir.rglob("*") if not path.is_dir() and path.parent != run_dir / ".hydra"]


def _before_steps(path: Path) -> bool:
    return path.name in ("config.yaml", "hparams.yaml", "README.txt") or path.suffix == ".log"


def folders(cfg: DictConfig) -> str:
    """The last line of a run: where its files lie. A run that went on has its checkpoints beside the ones before."""
    run_dir, checkpoint_dir = Path(cfg.run_dir), Path(cfg.checkpoint_dir)
    beside = "" if run_dir.absolute() in checkpoint_dir.absolute().parents else f"; checkpoints: {checkpoint_dir}"
    return f"outputs: {run_dir}{beside}"


@contextmanager
def same_levels(name: str) -> Iterator[None]:
    """Keeps the level of a logger, as Hydra's configuration has it, where the package sets one at its import."""
    logger = logging.getLogger(name)
    level = logger.level
    try:
        yield
    finally:
        logger.setLevel(level)
