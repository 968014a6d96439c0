"""Models and samplers of the user's own: options, and what they lack, is said before the training."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn
from train_runs import Composer, in_process

from loader.samplers import FullSampler, Sampler
from loader.samples import Block, MiniBatch
from models.training import own_classes
from models.training.classifier import Classifier
from models.training.errors import one_line_errors
from models.training.own_classes import check_depth
from models.training.renamed_options import with_new_names

HERE = "own_of_test"


class Net(Classifier):
    def __init__(self, num_features: int, num_classes: int, *, num_layers: int = 2, **options: Any) -> None:
        super().__init__(num_classes, **options)
        self.linears = nn.ModuleList(nn.Linear(num_features, num_features) for _ in range(num_layers - 1))
        self.linears.append(nn.Linear(num_features, num_classes))
        self.num_layers = num_layers

    def layer(self, i: int, x: Tensor, block: Block) -> Tensor:
        found: Tensor = self.linears[i](x[: block.num_dst])
        return found


class OnlyForward(Classifier):
    def __init__(self, num_features: int, num_classes: int, *, num_layers: int = 2, **options: Any) -> None:
        super().__init__(num_classes, **options)
        self.linear = nn.Linear(num_features, num_classes)
        self.num_layers = num_layers

    def forward(self, batch: MiniBatch) -> Tensor:
        found: Tensor = self.linear(self.input_of(batch)[: batch.batch_size])
        return found


class NoLayer(OnlyForward):
    forward = Classifier.forward


class Foreign(LightningModule):
    def __init__(self, num_features: int, num_classes: int, *, multilabel: bool = False, num_layers: int = 2) -> None:
        super().__init__()
        self.linear, self.num_layers = nn.Linear(num_features, num_classes), num_layers

    def training_step(self, batch: MiniBatch, index: int) -> Tensor:
        return nn.functional.cross_entropy(self.linear(batch.x)[: batch.batch_size], batch.y)

    def validation_step(self, batch: MiniBatch, index: int, name: str = "val/acc") -> None:
        found = (self.linear(batch.x)[: batch.batch_size].argmax(1) == batch.y).float().mean()
        self.log(name, found, batch_size=batch.batch_size)

    def test_step(self, batch: MiniBatch, index: int) -> None:
        self.validation_step(batch, index, "test/acc")

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters())


class NoTest(Foreign):
    test_step = LightningModule.test_step
    configure_optimizers = LightningModule.configure_optimizers


class NoDepth(Foreign):
    def __init__(self, num_features: int, num_classes: int, *, multilabel: bool = False) -> None:
        super().__init__(num_features, num_classes)


class NoSizes(Foreign):
    def __init__(self, num_classes: int, num_layers: int = 2) -> None:
        super().__init__(1, num_classes)


class Needs(Foreign):
    def __init__(
        self, num_features: int, num_classes: int, depth: int, width: int, *, multilabel: bool, num_layers: int
    ) -> None:
        super().__init__(num_features, num_classes)


class Plain(nn.Linear):
    def __init__(self, num_features: int, num_classes: int, multilabel: bool = False, num_layers: int = 2) -> None:
        super().__init__(num_features, num_classes)


class NoModule:
    def __init__(self, width: int) -> None:
        self.width = width


class OwnSampler(FullSampler):
    def __init__(self, num_hops: int = 2, every: int = 1) -> None:
        super().__init__(num_hops)
        self.every = every


class NoSample(Sampler):
    def __init__(self, num_hops: int = 2) -> None:
        super().__init__()
        self.num_hops = num_hops

    def spec(self) -> dict[str, Any]:
        return {}


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """This module by the name that the options below have."""
    import sys

    monkeypatch.setitem(sys.modules, HERE, sys.modules[__name__])


def target(name: str, group: str = "model") -> str:
    return f"{group}._target_={HERE}.{name}"


def test_only_the_options_that_it_takes_are_kept(composed: Composer) -> None:
    overrides = [target("Net"), "model.lr=0.1", target("OwnSampler", "sampler")]
    cfg = composed(*overrides, "device=cpu")
    own_classes.keep_options_of_own_classes(cfg, overrides)
    shared = ("optimizer", "schedule", "class_weights", "label_smoothing", "metrics", "weight_decay")
    assert {*cfg.model} == {"_target_", "num_layers", "lr", "inference_chunk_mib", "matmul_precision", *shared}
    assert {*cfg.sampler} == {"_target_", "num_hops"}


def test_an_option_that_was_given_stays(composed: Composer) -> None:
    overrides = [target("Net"), "model.hidden_channels=3"]
    with pytest.raises(Exception, match="unexpected keyword argument 'hidden_channels'"):
        in_process(composed, *overrides)


class Narrow(Net):
    def __init__(self, num_features: int, num_classes: int, *, hidden: int = 5, **options: Any) -> None:
        super().__init__(num_features, num_classes, **options)
        self.hidden = hidden


def test_an_own_class_may_have_an_old_name(composed: Composer) -> None:
    overrides = with_new_names([target("Narrow"), "model.hidden=3"], warn=True)
    cfg = composed(*overrides)
    own_classes.keep_options_of_own_classes(cfg, overrides)
    assert (cfg.model.hidden, "hidden_channels" in cfg.model) == (3, False)
    in_process(composed, *overrides, "trainer.max_epochs=1")


def test_own_model_and_sampler_train(composed: Composer, tmp_path: Path) -> None:
    overrides = [target("Net"), target("OwnSampler", "sampler"), "+sampler.every=2", "model.lr=0.03"]
    assert in_process(composed, *overrides, "optimized_metric=test/val_acc", "trainer.max_epochs=4") > 0.5
    assert "hidden_channels" not in (tmp_path / "config.yaml").read_text()


@pytest.mark.parametrize("name", ["OnlyForward", "Foreign"])
def test_models_without_exact_test_are_tested_on_samples(composed: Composer, name: str, capsys: Any) -> None:
    in_process(composed, target(name), "exact_test=false", "trainer.max_epochs=1")
    assert "with sampled neighbors" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "OnlyForward",
            r"OnlyForward has no layer\(i, x, block\), so it can be tested with .*; give exact_test=false$",
        ),
        ("Foreign", r"exact_test is true, but own_of_test.Foreign has no infer\(whole\), .*; give exact_test=false$"),
        ("NoLayer", "which has no layer; add what it lacks"),
        ("NoTest", "which has no test_step, configure_optimizers; add what it lacks, or derive it from models.trai"),
        ("NoDepth", "NoDepth takes no num_layers, of hops; add it or give sampler.num_hops=..."),
        ("NoSizes", "whose __init__ takes no num_features, multilabel; each model is given num_features, num_classes,"),
        ("NoModule", "NoModule, which is none; it must make a LightningModule"),
        ("Plain", "Plain, which is none; it must make a LightningModule, e.g. of a class derived from models.train"),
    ],
)
def test_what_a_class_lacks_is_said_at_once(
    composed: Composer, monkeypatch: pytest.MonkeyPatch, name: str, message: str
) -> None:
    from loader.datasets import Digits

    monkeypatch.setattr(Digits, "load", lambda self: pytest.fail("the data were read"))
    with pytest.raises(ValueError, match=message):
        in_process(composed, target(name))


def test_a_sampler_that_does_not_sample_is_refused(composed: Composer, monkeypatch: pytest.MonkeyPatch) -> None:
    from loader.datasets import Digits

    monkeypatch.setattr(Digits, "load", lambda self: pytest.fail("the data were read"))
    with pytest.raises(ValueError, match=r"^sampler is a NoSample, which has neither open\(graph\) nor a samp"):
        in_process(composed, target("NoSample", "sampler"))


def test_every_missing_argument_is_named(composed: Composer, capsys: Any) -> None:
    with pytest.raises(SystemExit), one_line_errors():
        in_process(composed, target("Needs"))
    said = capsys.readouterr().err
    assert said.startswith("error: model gives no depth and width, which")
    assert said.count("\n") == 1


class TooManyRows(Net):
    def layer(self, i: int, x: Tensor, block: Block) -> Tensor:
        found: Tensor = self.linears[i](x)
        return found


class TooFewLogits(Net):
    def __init__(self, num_features: int, num_classes: int, **options: Any) -> None:
        super().__init__(num_features, num_classes, **options)
        self.linears[-1] = nn.Linear(num_features, num_classes - 1)


class NoSuper(Classifier):
    def __init__(self, num_features: int, num_classes: int, *, num_layers: int = 2, **options: Any) -> None:
        self.linear = nn.Linear(num_features, num_classes)


class NoSpec(Sampler):
    def sample(self, graph: Any, seeds: Any, *, epoch: int = 0, batch: int = 0) -> Any: ...


class NoEpoch(Sampler):
    num_hops = 2

    def spec(self) -> dict[str, Any]:
        return {}

    def sample(self, graph: Any, seeds: Any, *, batch: int = 0) -> Any: ...


class OnlyBlocks(NoEpoch):
    def sample(self, graph: Any, seeds: Any, *, epoch: int = 0, batch: int = 0) -> Any:
        return ()


@pytest.mark.parametrize(
    ("option", "line"),
    [
        (f"model._target_={HERE}.TooManyRows", "layer 0 of TooManyRows gives "),
        (f"model._target_={HERE}.TooFewLogits", "gives rows of 9 numbers; it must give a logit for each of the 10 "),
        (f"model._target_={HERE}.NoSuper", "model sets a part before super().__init__() was called; call that first"),
        (f"sampler._target_={HERE}.NoSpec", "sampler is a NoSpec, which has no spec; add what it lacks"),
        (
            f"sampler._target_={HERE}.NoEpoch",
            "sampler is a NoEpoch, which has neither open(graph) nor a sample(graph, seeds, epoch=0, batch=0) that",
        ),
        (f"sampler._target_={HERE}.OnlyBlocks", "OnlyBlocks.sample gives a tuple; it must give a sample, e.g. a "),
    ],
)
def test_mistakes_in_own_classes_are_one_line(
    composed: Composer, capsys: pytest.CaptureFixture[str], option: str, line: str
) -> None:
    with pytest.raises(SystemExit), one_line_errors():
        in_process(composed, option, "trainer.max_epochs=1")
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert line in said
    assert said.count("\n") == 1


def test_an_optimizer_that_nobody_reads_is_refused(composed: Composer) -> None:
    with pytest.raises(
        ValueError, match=r"optimizer.name is 'SGD', but own_of_test.Foreign has an optimizer of its own"
    ):
        in_process(composed, target("Foreign"), "optimizer=sgd", "exact_test=false")
    with pytest.raises(ValueError, match=r"schedule.name is 'CosineAnnealingLR', but models.training.embedder.NodeEmb"):
        in_process(composed, "model=node2vec", "schedule=cosine")
    with pytest.raises(ValueError, match=r"optimizer.betas is .*, but models.training.embedder.NodeEmbedder has an"):
        in_process(composed, "model=node2vec", "+optimizer.betas=[0.5,0.9]")


def test_a_module_not_found_names_the_path(composed: Composer) -> None:
    with pytest.raises(
        ValueError,
        match=r"No module named 'nowhere'.*and let this folder or PYTHONPATH have its file",
    ):
        in_process(composed, "model._target_=nowhere.Net")


def test_hops_and_layers_that_differ_are_named() -> None:
    model = SimpleNamespace(net=SimpleNamespace(num_layers=2))
    two, three = SimpleNamespace(num_hops=2), SimpleNamespace(num_hops=3)
    check_depth(model, SimpleNamespace(sampler=two, eval_sampler=two))
    check_depth(SimpleNamespace(), SimpleNamespace(sampler=three))
    with pytest.raises(
        ValueError, match=r"^eval_sampler samples 3 hops, the model has 2 layers; give eval_sampler.num"
    ):
        check_depth(model, SimpleNamespace(sampler=two, eval_sampler=three))
