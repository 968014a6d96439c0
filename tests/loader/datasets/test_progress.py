from __future__ import annotations

import io
import sys

import pytest

from loader.datasets.progress import ConversionProgress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stream", [Terminal(), io.StringIO()], ids=["terminal", "file"])
def test_a_bar_is_shown_on_a_terminal_only(stream, monkeypatch):
    monkeypatch.setattr(sys, "stderr", stream)
    with ConversionProgress("toy") as progress, progress.step("sorting edges", total=2) as advance:
        advance(1)
    shown = stream.getvalue()
    assert ("toy" in shown and "sorting edges" in shown) == stream.isatty()
    assert stream.isatty() or not shown
