"""The result of a job in one small file, for tables, and so that a killed sweep goes on with the jobs that are left."""

from __future__ import annotations

import hashlib
import json
import time
from pathlib import Path
from typing import Any

import torch
from hydra.core.hydra_config import HydraConfig
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from loader.datasets.base import CachedDataset
from loader.machine.hardware import provenance
from loader.machine.trusted_files import UntrustedError, open_trusted
from loader.machine.whole_files import replaced
from models.training.callbacks.epoch_record import EpochRecord
from models.training.console import wrapped
from models.training.own_files import digest_of_own_files
from models.training.ranks import rank_here

# Where things lie, not what is computed.
_PLACES = ("run_dir", "checkpoint_dir", "data_dir", "cache_dir", "result_path", "ckpt_path", "debug")


class JobResult:
    """What a job ended with, in `result.json` in its folder, or at `cfg.result_path`.

    The file holds the resolved configuration (but for paths). With `result_path`, a job whose file is there is not run
    again if its configuration is the same, and no file of the user's own dataset or classes has changed since. A run
    that went on from a checkpoint writes the file to the folder of the run that began it, too.

    Args:
        cfg: of the job, with its device chosen. Without `result_path` no earlier result is read.

    Raises:
        ValueError: there is a file that is no result of a job, or that others can have written.
        DatasetError: the user's own dataset has no such file.

    Attributes:
        metric: what the job returned when it ran before; None where it has to run.
    """

    def __init__(self, cfg: DictConfig) -> None:
        self._began = time.perf_counter()
        path = cfg.get("result_path")
        self.path = None if path is None else Path(path)
        self.written = _written(cfg)
        self.config = _settings(cfg)
        self.files = _files(cfg)
        self.code = digest_of_own_files(self.config)
        self.metric: float | None = None
        if self.path is not None and self.path.is_file():
            settings, files, code, metric = _read(self.path)
            changed = None
            if settings != _digest(self.config):
                changed = "settings"
            elif files not in (None, self.files):  # an earlier release kept no files
                changed = "files of the dataset"
            elif code not in (None, self.code):
                changed = "files of your own classes"
            else:
                self.metric = metric
            if rank_here() > 0:
                return
            if self.metric is not None:
                print(f"finished before: {self.config.get('optimized_metric')} {self.metric:.4f}, {self.path}")
            else:
                print(f"{changed} have changed since {self.path} was written: this job runs again")

    def write(self, metric: float, metrics: dict[str, Any], callbacks: list[Any]) -> float:
        """Prints the result and writes the file, all of it or none, in the first process of the run; returns `metric`.

        Args:
            metric: what the job returns.
            metrics: name -> value, of the last epoch and of the test.
            callbacks: of the trainer; an `EpochRecord` among them gives the curves.
        """
        if rank_here() > 0:
            return metric
        name, seconds = self.config.get("optimized_metric"), time.perf_counter() - self._began
        tested = {key: float(value) for key, value in metrics.items() if key.startswith("test/") and key != name}
        said = [f"result: {name} {metric:.4f}", *(f"{key} {value:.4f}" for key, value in tested.items())]
        print(wrapped(", ".join(said)))
        machine = provenance()
        if self.config["device"] == "cuda":
            machine["hardware"]["gpu"] = torch.cuda.get_device_name()
        record = next((c for c in callbacks if isinstance(c, EpochRecord)), None)
        result = {
            "metric": metric,
            "metrics": {name: float(value) for name, value in metrics.items()},
            "seconds": seconds,
            "overrides": list(HydraConfig.get().overrides.task) if HydraConfig.initialized() else [],
            "epochs": [] if record is None else record.epochs,
            **machine,
            "settings": _digest(self.config),
            "files": self.files,
            "code": self.code,
            "config": self.config,
        }
        for path in self.written:
            path.parent.mkdir(parents=True, exist_ok=True)
            with replaced(path) as file:
                file.write(f"{json.dumps(result)}\n".encode())
        return metric


def _written(cfg: DictConfig) -> list[Path]:
    """Where the result of a job goes."""
    own = cfg.get("result_path") or (None if cfg.get("run_dir") is None else Path(cfg.run_dir) / "result.json")
    paths = [] if own is None else [Path(own)]
    if cfg.get("ckpt_path") is not None:
        begun = Path(cfg.ckpt_path).absolute().parent.parent
        if (begun / ".hydra").is_dir():
            paths.append(begun / "result.json")
    return list({path.absolute(): path for path in paths}.values())


def _read(path: Path) -> tuple[str, str | None, str | None, float]:
    """The settings, the files of the dataset and of own classes, and the metric of a file that a job wrote.

    Raises:
        ValueError: another program wrote it, or others can have.
    """
    try:
        with open_trusted(path) as file:
            before = json.loads(file.read())
        return before["settings"], before.get("files"), before.get("code"), float(before["metric"])
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
    own = any(not Path(path).expanduser().is_absolute() for path in _given_files(cfg))
    places = [key for key in _PLACES if not (own and key == "data_dir")]
    blank = cfg.copy()
    OmegaConf.set_readonly(blank, False)
    OmegaConf.set_struct(blank, False)
    for key in places:
        blank[key] = None
    settings = OmegaConf.to_container(blank, resolve=True)
    assert isinstance(settings, dict)
    return {str(key): value for key, value in settings.items() if key not in places}


def _given_files(cfg: DictConfig) -> list[str]:
    """The paths of the user's own dataset."""
    given = [OmegaConf.select(cfg, f"dataset.{key}") for key in ("path", "edges", "nodes")]
    return [str(path) for path in given if path is not None]


def _files(cfg: DictConfig) -> str | None:
    """A digest of the state of the files of the user's own dataset, by which its conversion is found, too; None of
    other datasets. Not of where they lie: that is in the settings, and a folder may be moved with all that is in it.
    """
    dataset = instantiate(cfg.dataset) if _given_files(cfg) else None
    return _digest(_without_places(dataset.source())) if isinstance(dataset, CachedDataset) else None


def _without_places(source: Any) -> Any:
    if isinstance(source, list):
        return [_without_places(one) for one in source]
    return None if isinstance(source, str) and Path(source).is_absolute() else source


def _digest(settings: Any) -> str:
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]
