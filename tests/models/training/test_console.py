"""The configuration, printed and saved."""

from __future__ import annotations

from pathlib import Path

import pytest
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from models.training.console import show_config


def test_prints_a_tree_and_saves_what_was_resolved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cfg = OmegaConf.create(
        {"seed": 3, "sampler": {"seed": "${seed}"}, "datamodule": {"size": 2, "sampler": "${sampler}"}, "none": None}
    )
    show_config(cfg, tmp_path / "run")
    shown = capsys.readouterr().out
    assert "seed: 3" in shown
    assert "none: null" in shown
    assert shown.count("sampler") == 1  # a group that another holds is shown in its own branch alone
    saved = OmegaConf.load(tmp_path / "run" / "config.yaml")
    assert saved == OmegaConf.create(
        {"seed": 3, "sampler": {"seed": 3}, "datamodule": {"size": 2, "sampler": {"seed": 3}}, "none": None}
    )


def test_a_value_that_does_not_resolve_saves_nothing(tmp_path: Path) -> None:
    with pytest.raises(OmegaConfBaseException, match="elsewhere"):
        show_config(OmegaConf.create({"a": "${elsewhere}"}), tmp_path / "run")
    assert not (tmp_path / "run").exists()
