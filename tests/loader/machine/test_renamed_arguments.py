"""Old names of arguments and attributes."""

import copy
import inspect
import pickle
import warnings
from dataclasses import replace
from typing import Any

import pytest
import torch
from lightning.pytorch import LightningModule

from loader.graph import Graph
from loader.machine.renamed_arguments import renamed, renamed_arguments
from loader.samplers import Negatives, fused


@renamed({"amount": "number", "kind": "mode"})
class Made:
    def __init__(self, number: int = 1, *, mode: str = "a") -> None:
        self.number, self.mode = number, mode


def test_old_names_give_a_warning_each() -> None:
    with pytest.warns(FutureWarning) as given:
        made: Any = Made(amount=3, kind="b")  # type: ignore[call-arg]
    assert sorted(str(one.message) for one in given) == [
        "Made has mode in place of kind; the old name goes with the next release",
        "Made has number in place of amount; the old name goes with the next release",
    ]
    assert {one.filename for one in given} == {__file__}
    assert (made.number, made.mode) == (3, "b")
    with pytest.warns(FutureWarning, match="Made has number in place of amount") as read:
        assert made.amount == 3
    assert [one.filename for one in read] == [__file__]


def test_new_names_give_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (Made(2).number, Made(mode="b").mode) == (2, "b")
    assert list(inspect.signature(Made).parameters) == ["number", "mode"]


def test_both_names_are_refused() -> None:
    with pytest.raises(TypeError, match="amount is the old name of number, which is given, too; leave out amount"):
        Made(number=1, amount=1)  # type: ignore[call-arg]


def test_negatives_are_copied_without_a_warning() -> None:
    made = Negatives("triplet", 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert replace(made, num_negatives=2) == Negatives("triplet", 2)
        assert pickle.loads(pickle.dumps(made)) == copy.copy(made) == made
        assert repr(made).startswith("Negatives(mode='triplet', num_negatives=3, strict=False")
    with pytest.warns(FutureWarning, match="Negatives has num_negatives in place of amount"):
        assert Negatives(amount=2) == Negatives(num_negatives=2)  # type: ignore[call-arg]
    with pytest.warns(FutureWarning, match="Negatives has num_negatives in place of amount"):
        assert made.amount == 3  # type: ignore[attr-defined]


def test_functions_take_old_names() -> None:
    graph = Graph.from_edges(torch.tensor([0, 1]), torch.tensor([1, 0]), 2)
    with pytest.warns(FutureWarning, match="fused has node_set in place of vertex_set; the old name goes with"):
        fused([2], device="cpu", vertex_set=None)
    with (
        pytest.warns(FutureWarning, match="cache_lists has nodes in place of vertices"),
        pytest.raises((RuntimeError, ValueError)),
    ):
        graph.cache_lists("cuda", vertices=torch.tensor([0]))
    assert "nodes" in inspect.signature(Graph.cache_lists).parameters


@renamed_arguments({"hidden": "hidden_channels"})
class Net(LightningModule):
    def __init__(self, hidden_channels: int = 1) -> None:
        super().__init__()
        self.save_hyperparameters()


class Derived(Net):
    def __init__(self, depth: int = 2, **options: Any) -> None:
        super().__init__(**options)
        self.hidden = depth  # an attribute of its own


def test_hyperparameters_of_derived_classes_are_saved() -> None:
    with pytest.warns(FutureWarning, match="Net has hidden_channels in place of hidden"):
        assert dict(Net(hidden=5).hparams) == {"hidden_channels": 5}  # type: ignore[call-arg]
    derived = Derived(3, hidden_channels=4)
    assert (dict(derived.hparams), derived.hidden) == ({"hidden_channels": 4, "depth": 3}, 3)
