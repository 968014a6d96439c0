"""An error of the user's own code has its traceback, one of the program's checks has none."""

from __future__ import annotations

from pathlib import Path

import pytest
from train_runs import FAST, run

OWN = """
from torch import nn
from models.training.classifier import Classifier

class Net(Classifier):
    def __init__(self, num_features, num_classes, multilabel=False, num_layers=1, fault="", made=""):
        super().__init__(-3 if made == "check" else num_classes)
        self.num_layers, self.fault = num_layers, fault
        self.linear = nn.Linear(num_features, num_classes)
        if made == "type":
            len(None)
        if made == "raise":
            raise ValueError("made is raise; leave it out")

    def layer(self, i, x, block):
        if self.fault == "key":
            return {}["lost"]
        if self.fault == "import":
            import nowhere
        if self.fault == "torch":
            return self.linear(x.t())
        if self.fault == "raise":
            raise TypeError("fault is raise; leave it out")
        return self.linear(x)  # a row too many for each node that is no seed
"""


# The second is torch 2.15's.
MULTIPLIED = tuple(f"error: RuntimeError: {by}mat1 and mat2 shapes cannot be multiplied" for by in ("", "addmm: "))


@pytest.mark.parametrize(
    ("option", "line", "source"),
    [
        ("fault=key", "error: KeyError: 'lost'; it arose in your code, as", 'return {}["lost"]'),
        ("fault=import", "error: ModuleNotFoundError: No module named 'nowhere'; it arose in", "import nowhere"),
        ("fault=torch", MULTIPLIED, "return self.linear(x.t())"),
        ("made=type", "error: TypeError: object of type 'NoneType' has no len(); it arose in your code", "len(None)"),
    ],
)
def test_an_error_of_own_code_has_its_traceback(
    tmp_path: Path, option: str, line: str | tuple[str, ...], source: str
) -> None:
    (tmp_path / "mine.py").write_text(OWN)
    done = run(
        tmp_path, *FAST, "model._target_=mine.Net", "sampler.fanouts=[5]", "model.num_layers=1", f"+model.{option}"
    )
    lines = done.stderr.splitlines()
    assert done.returncode == 1
    assert lines[-1].startswith(line)
    assert lines[-1].endswith("as shown above: debug=true shows the whole traceback")
    begin = lines.index("Traceback (most recent call last):")
    assert "mine.py" in lines[begin + 1]  # no frame of the program or of Lightning before it
    assert any(one.strip() == source for one in lines)
    assert "HYDRA_FULL_ERROR" not in done.stderr


@pytest.mark.parametrize(
    ("option", "line"),
    [
        ("fault=raise", "error: fault is raise; leave it out"),
        ("made=raise", "error: made is raise; leave it out"),
        ("made=check", "error: num_classes is -3; it must be at least 1"),
        ("fault=none", "error: layer 0 of Net gives "),
    ],
)
def test_a_message_written_for_users_is_one_line(tmp_path: Path, option: str, line: str) -> None:
    (tmp_path / "mine.py").write_text(OWN)
    done = run(
        tmp_path, *FAST, "model._target_=mine.Net", "sampler.fanouts=[5]", "model.num_layers=1", f"+model.{option}"
    )
    assert done.returncode == 1
    assert done.stderr.startswith(line)
    assert done.stderr.count("\n") == 1
