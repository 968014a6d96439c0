"""A job runs again if an own file that it runs has changed, and only then."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from models.training.finished_jobs import JobResult
from models.training.own_code import is_own
from models.training.own_files import digest_of_own_files

FILES = {
    "transform_of_mine.py": "from part_of_mine import scale\nfrom box_of_mine.inner import one\nclass Scale: ...\n",
    "part_of_mine.py": "import json\nfrom numbers_of_mine import WIDTH\ndef scale(): import late_of_mine.deep\n",
    "numbers_of_mine.py": "WIDTH = 3\n",
    "late_of_mine/__init__.py": "",
    "late_of_mine/deep.py": "from torch import ops\n",
    "box_of_mine/__init__.py": "",
    "box_of_mine/inner.py": "from .beside import one\n",
    "box_of_mine/beside.py": "from functools import lru_cache\none = lru_cache(int)\n",
    "other_of_mine.py": "",
}
CONFIG = {"transform": [{"_target_": "transform_of_mine.Scale"}, {"_target_": "loader.datasets.Nope"}]}


def forget() -> None:
    """What another process has not imported."""
    for name in [name for name in sys.modules if "_of_mine" in name]:
        del sys.modules[name]


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    forget()


@pytest.mark.parametrize("changed", FILES)
def test_changed_files_change_the_digest(own: Path, changed: str) -> None:
    before = digest_of_own_files(CONFIG)
    assert before is not None
    with (own / changed).open("a") as file:
        file.write("# changed\n")
    assert digest_of_own_files({"model": None}) is None
    forget()
    assert (digest_of_own_files(CONFIG) == before) == (changed == "other_of_mine.py")


def test_what_was_imported_changes_no_digest(own: Path) -> None:
    before = digest_of_own_files(CONFIG)
    sys.modules["part_of_mine"].scale()
    assert "late_of_mine.deep" in sys.modules
    assert digest_of_own_files(CONFIG) == before
    (own / "transform_of_mine.py").write_text("class Scale: ...\n")  # while a sweep runs, which has imported it
    assert digest_of_own_files(CONFIG) == before


def test_a_job_of_changed_classes_runs_again(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cfg = OmegaConf.create(
        {"result_path": str(own / "result.json"), "optimized_metric": "val/acc", "device": "cpu", "dataset": CONFIG}
    )
    JobResult(cfg).write(0.75, {}, [])
    assert JobResult(cfg).metric == 0.75
    (own / "part_of_mine.py").write_text("def scale(): return 3\n")
    forget()
    capsys.readouterr()
    assert JobResult(cfg).metric is None
    assert "files of your own classes have changed since" in capsys.readouterr().out


def test_packages_of_the_user_are_installed(tmp_path: Path) -> None:
    assert is_own(str(tmp_path / "mine.py"))
    assert not is_own(sysconfig.__file__)
    for place in ("home/.local/lib/python3.11/site-packages", "usr/lib/python3/dist-packages"):
        assert not is_own(str(tmp_path / place / "torch/nn/modules/linear.py"))
