"""What is said of the machine and the software beside a figure."""

from __future__ import annotations

import datetime
import json
import os
import platform
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
import torch

from loader.machine.cpus import available_cpus
from loader.machine.hardware import provenance, usable_memory


def test_a_description_names_hardware_and_packages() -> None:
    found = json.loads(json.dumps(provenance()))
    assert list(found) == ["date", "hardware", "system", "versions"]
    assert datetime.datetime.fromisoformat(found["date"]).utcoffset() == datetime.timedelta(0)
    assert found["hardware"]["cores"] == available_cpus()
    assert found["hardware"]["memory_gib"] > 0
    assert found["system"] == platform.platform()
    versions = found["versions"]
    assert versions["python"] == platform.python_version()
    assert versions["torch"] == torch.__version__
    assert versions["numpy"] == np.__version__
    assert versions["lightning"] == version("lightning")


@pytest.mark.parametrize(
    ("info", "name"),
    [
        ("processor : 0\nmodel name\t: Abacus 7 : fast\nmodel name : other\n", "Abacus 7 : fast"),
        ("processor : 0\n", "a processor"),
    ],
)
def test_the_cpus_name_is_found(monkeypatch: pytest.MonkeyPatch, info: str, name: str) -> None:
    monkeypatch.setattr("importlib.metadata.distributions", lambda: [])  # they read files, too
    monkeypatch.setattr(platform, "processor", lambda: "a processor")
    monkeypatch.setattr(Path, "is_file", lambda _: True)
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: info)
    assert provenance()["hardware"]["cpu"] == name


def test_packages_that_are_not_installed_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.distributions", lambda: [])
    assert provenance()["versions"].keys() == {"python", "torch"}


MACHINE = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


@pytest.mark.parametrize(
    ("own", "limits", "usable"),
    [
        ("", {}, MACHINE),
        ("0::/job/step\n", {"memory.max": "max"}, MACHINE),
        ("0::/job/step\n", {"memory.max": "4096"}, 4096),  # seen from within a container
        ("0::/job/step\n", {"job/memory.max": "4096", "job/step/memory.max": "max"}, 4096),
        ("0::/job/step\n", {"job/memory.max": "8192", "job/step/memory.max": "4096"}, 4096),
        ("0::/job\n", {"other/memory.max": "4096"}, MACHINE),
        ("0::/\n", {"memory.max": str(2**62)}, MACHINE),
        ("2:cpu:/\n4:memory:/job\n0::/\n", {"memory/job/memory.limit_in_bytes": "4096"}, 4096),
        ("2:cpu:/\n4:hugetlb,memory:/job\n", {"memory/memory.limit_in_bytes": "4096"}, 4096),
        ("2:cpu:/\n", {"memory/memory.limit_in_bytes": "4096"}, MACHINE),
    ],
)
def test_usable_memory_respects_the_control_group(
    tmp_path: Path, own: str, limits: dict[str, str], usable: int
) -> None:
    (tmp_path / "own").write_text(own)
    for name, text in limits.items():
        path = tmp_path / "cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    assert usable_memory(tmp_path / "cgroup", tmp_path / "own") == usable


def test_without_control_groups_all_memory_is_usable(tmp_path: Path) -> None:
    assert usable_memory(tmp_path, tmp_path / "none") == MACHINE
    assert 0 < usable_memory() <= MACHINE
