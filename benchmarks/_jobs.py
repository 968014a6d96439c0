"""The jobs of a sweep, as `result_path` made them leave their results."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

# What makes no difference to what is compared: who computes, and where things lie or are shown.
_FREE = (
    *("seed", "sampler", "device", "num_threads", "features", "logger", "callbacks", "trainer", "task_name"),
    *("datamodule", "timeline"),
)
_NAMES = {"FusedSampler": "fused", "HopwiseSampler": "hopwise", "DGLSampler": "dgl", "CudaSampler": "fused, GPU"}


def read_jobs(folders: Iterable[Path]) -> list[dict[str, Any]]:
    """The results below the folders.

    Raises:
        FileNotFoundError: a folder has none.
    """
    jobs = []
    for folder in folders:
        found = sorted(folder.rglob("result.json"))
        if not found:
            raise FileNotFoundError(f"there is no result.json below {folder}; give the folder of a sweep that ran")
        jobs += [json.loads(path.read_text(encoding="utf-8")) for path in found]
    return jobs


def side_of(job: dict[str, Any]) -> str:
    """How the job's sampler is called in tables, with the types of its rows and of its step if they are not float32."""
    sampler = job["config"]["sampler"]
    name = sampler["_target_"].rsplit(".", 1)[-1]
    if name == "fused":
        kind = "labor" if sampler.get("labor") else "fused"
        name = kind if sampler["device"] == "cpu" else f"{kind}, GPU"
    name = _NAMES.get(name, name)
    if stored := (job["config"].get("features") or {}).get("storage_dtype"):
        name += f", {stored} rows"
    precision = (job["config"].get("trainer") or {}).get("precision")
    return name if precision in (None, 32, "32", "32-true") else f"{name}, {precision}"


def setting_of(job: dict[str, Any]) -> tuple[str, int]:
    """What is compared within: the dataset and the model's depth."""
    dataset = job["config"]["dataset"]
    name = dataset.get("name") or dataset["_target_"].rsplit(".", 1)[-1].lower()
    return name, job["config"]["model"]["num_layers"]


def check_comparable(jobs: list[dict[str, Any]]) -> None:
    """Raises ValueError where jobs of one setting differ in more than sampler, seed and place."""
    first: dict[tuple[str, int], dict[str, Any]] = {}
    seen: set[tuple[Any, ...]] = set()
    for job in jobs:
        setting, config = setting_of(job), _fixed(job["config"])
        expected = first.setdefault(setting, config)
        if config != expected:
            keys = sorted(k for k in config.keys() | expected.keys() if config.get(k) != expected.get(k))
            values = "; ".join(f"{k}: {expected.get(k)} and {config.get(k)}" for k in keys)
            raise ValueError(f"{setting[0]}, {setting[1]} layers: the jobs cannot be compared, they differ in {values}")
        identity = (*setting, side_of(job), job["config"]["seed"])
        if identity in seen:
            raise ValueError(
                f"{', '.join(map(str, identity))}: this job (dataset, layers, sampler, seed) is there twice"
            )
        seen.add(identity)


def _fixed(config: dict[str, Any]) -> dict[str, Any]:
    """What has to be equal, flat: `model.lr` -> 0.003."""
    flat: dict[str, Any] = {}

    def walk(value: Any, path: str) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                walk(inner, f"{path}.{key}" if path else key)
        else:
            flat[path] = value

    walk({k: v for k, v in config.items() if k not in _FREE}, "")
    for key in ("batch_size", "eval_batch_size", "drop_last"):
        flat[f"datamodule.{key}"] = config["datamodule"][key]
    flat["trainer.max_epochs"] = config["trainer"]["max_epochs"]
    fanouts = config["sampler"].get("fanouts")
    layers = config["model"]["num_layers"]
    flat["sampler.fanouts"] = [fanouts] * layers if isinstance(fanouts, int) else fanouts
    flat["sampler.replace"] = config["sampler"].get("replace", False)
    return flat
