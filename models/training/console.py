"""The configuration of a run, kept in a file."""

from __future__ import annotations

from pathlib import Path

from omegaconf import DictConfig, OmegaConf


def save_config(cfg: DictConfig, run_dir: Path) -> Path:
    """Writes the resolved configuration to `run_dir/config.yaml`, and returns that path.

    Raises:
        omegaconf.errors.OmegaConfBaseException: a value is missing or does not resolve.
    """
    resolved = OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True)
    assert isinstance(resolved, dict)
    run_dir.mkdir(parents=True, exist_ok=True)
    path = run_dir / "config.yaml"
    path.write_text(OmegaConf.to_yaml(OmegaConf.create(resolved)), encoding="utf-8")
    return path
