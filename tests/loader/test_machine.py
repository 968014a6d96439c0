"""What is said of the machine and the software beside a figure."""

from __future__ import annotations

import datetime
import json
import platform
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
import torch

from loader.machine import provenance
from loader.threads import available_cpus


def test_what_a_figure_is_judged_by() -> None:
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
def test_the_name_of_the_cpu(monkeypatch: pytest.MonkeyPatch, info: str, name: str) -> None:
    monkeypatch.setattr("importlib.metadata.distributions", lambda: [])  # they read files, too
    monkeypatch.setattr(platform, "processor", lambda: "a processor")
    monkeypatch.setattr(Path, "is_file", lambda _: True)
    monkeypatch.setattr(Path, "read_text", lambda *_, **__: info)
    assert provenance()["hardware"]["cpu"] == name


def test_packages_that_are_not_installed_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.metadata.distributions", lambda: [])
    assert provenance()["versions"].keys() == {"python", "torch"}
