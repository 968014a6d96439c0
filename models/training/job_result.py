"""The result of a job in one small file, so that a sweep which was killed goes on with the jobs that are left."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from omegaconf import DictConfig, OmegaConf

from loader.machine.hardware import provenance
from loader.machine.trust import UntrustedError, open_trusted
from loader.machine.whole_files import replaced
from models.training.callbacks.epoch_record import EpochRecord
from models.training.ranks import rank_here

# Where things lie, not what is computed.
_PLACES = ("run_dir", "checkpoint_dir", "data_dir", "cache_dir", "result_path", "ckpt_path", "debug")


class JobResult:
    """What a job ended with, at `cfg.result_path`.

    The file holds the resolved configuration (but for paths), and counts only for a job of the same one: after a
    change the job runs again.

    Args:
        cfg: of the job, with its device chosen. Without `result_path` nothing is read or written.

    Raises:
        ValueError: there is a file that is no result of a job, or that others can have written.

    Attributes:
        metric: what the job returned when it ran before; None where it has to run.
    """

    def __init__(self, cfg: DictConfig) -> None:
        path = cfg.get("result_path")
        self.path = None if path is None else Path(path)
        self.config = _settings(cfg)
        self.metric: float | None = None
        if self.path is not None and self.path.is_file():
            settings, metric = _read(self.path)
            if settings == _digest(self.config):
                self.metric = metric
            if rank_here() > 0:
                return
            if self.metric is not None:
                print(f"finished before: {self.path}")
            else:
                print(f"settings have changed since {self.path} was written: this job runs again")

    def write(self, metric: float, metrics: dict[str, Any], callbacks: list[Any]) -> float:
        """Writes the file, all of it or none, in the first process of the run, and returns `metric`.

        Args:
            metric: what the job returns.
            metrics: name -> value, of the last epoch and of the test.
            callbacks: of the trainer; an `EpochRecord` among them gives the curves.
        """
        if self.path is None or rank_here() > 0:
            return metric
        machine = provenance()
        if self.config["device"] == "cuda":
            machine["hardware"]["gpu"] = torch.cuda.get_device_name()
        record = next((c for c in callbacks if isinstance(c, EpochRecord)), None)
        result = {
            "metric": metric,
            "metrics": {name: float(value) for name, value in metrics.items()},
            "epochs": [] if record is None else record.epochs,
            **machine,
            "settings": _digest(self.config),
            "config": self.config,
        }
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with replaced(self.path) as file:
            file.write(f"{json.dumps(result)}\n".encode())
        return metric


def _read(path: Path) -> tuple[str, float]:
    """The settings and the metric of a file that a job wrote.

    Raises:
        ValueError: another program wrote it, or others can have.
    """
    try:
        with open_trusted(path) as file:
            before = json.loads(file.read())
        return before["settings"], float(before["metric"])
    except UntrustedError as error:
        raise ValueError(f"result_path: {error}, or give another path") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"result_path is {path}, and that file is no result of a job; give another path, or remove the file"
        ) from error


def _settings(cfg: DictConfig) -> dict[str, Any]:
    """The resolved configuration without the places, wherever others refer to them.

    `data_dir` counts if it says which file of the user's the dataset is; the files of a name are the same everywhere.
    """
    given = [OmegaConf.select(cfg, f"dataset.{key}") for key in ("path", "edges", "nodes")]
    own = any(path is not None and not Path(str(path)).expanduser().is_absolute() for path in given)
    places = [key for key in _PLACES if not (own and key == "data_dir")]
    blank = cfg.copy()
    OmegaConf.set_readonly(blank, False)
    OmegaConf.set_struct(blank, False)
    for key in places:
        blank[key] = None
    settings = OmegaConf.to_container(blank, resolve=True)
    assert isinstance(settings, dict)
    return {str(key): value for key, value in settings.items() if key not in places}


def _digest(settings: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]
