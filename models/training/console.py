"""What a run prints before it starts: its configuration."""

from __future__ import annotations

from pathlib import Path

from omegaconf import DictConfig, OmegaConf
from rich.console import Console
from rich.syntax import Syntax
from rich.tree import Tree


def show_config(cfg: DictConfig, run_dir: Path) -> None:
    """Prints the resolved configuration as a tree, a branch a group, and saves it as `run_dir/config.yaml`.

    Raises:
        omegaconf.errors.OmegaConfBaseException: a value is missing or does not resolve.
    """
    resolved = OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True)
    assert isinstance(resolved, dict)
    tree = Tree("config")
    for key, value in resolved.items():
        if isinstance(value, dict):
            # A group that another one refers to as a whole is shown once, in its own branch.
            own = {k: v for k, v in value.items() if not (isinstance(v, dict) and v == resolved.get(k))}
            text = OmegaConf.to_yaml(OmegaConf.create(own)).rstrip()
            tree.add(str(key)).add(Syntax(text, "yaml", background_color="default"))
        else:
            tree.add(f"{key!s}: {'null' if value is None else str(value)}")
    Console().print(tree)
    run_dir.mkdir(parents=True, exist_ok=True)
    (run_dir / "config.yaml").write_text(OmegaConf.to_yaml(OmegaConf.create(resolved)), encoding="utf-8")
