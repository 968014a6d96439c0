"""Old names of options."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from omegaconf import DictConfig, OmegaConf
from train_runs import Composer, composer, in_process, run

import train
from models.training.link_predictor import LinkPredictor
from models.training.past_run import with_choices_of_past_run
from models.training.renamed_options import RENAMED, rename_options, with_new_names

AMOUNT = "datamodule.amount is now datamodule.num_negatives; the old name goes with the next release"


@pytest.fixture
def composed(tmp_path: Path) -> Iterator[Composer]:
    with composer(tmp_path) as make:
        yield make


def ring(path: Path) -> Path:
    """A ring of 40 nodes, both ways."""
    ids = np.arange(40)
    edges = np.stack([ids, (ids + 1) % 40])
    features = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
    np.savez(path, edge_index=np.concatenate([edges, edges[::-1]], axis=1), features=features, labels=ids % 2)
    return path


def test_old_names_of_arguments_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    given = ["task=link", "++datamodule.amount=2", "~datamodule.ranked", "model.out=8", "+datamodule.amount=1", "-m"]
    wanted = [
        *("task=link", "++datamodule.num_negatives=2", "~datamodule.eval_negatives", "model.out=8"),
        *("+datamodule.amount=1", "-m"),
    ]
    with pytest.warns(FutureWarning) as said:
        assert with_new_names(given, warn=True) == wanted
    assert [str(one.message) for one in said] == [AMOUNT, AMOUNT.replace("amount", "ranked").replace("num", "eval")]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert with_new_names(given, warn=False) == wanted
        monkeypatch.setenv("LOCAL_RANK", "1")  # the first process says it
        assert with_new_names(given, warn=True) == wanted


def test_both_names_of_an_option_are_refused() -> None:
    both = ["datamodule.num_negatives=1", "datamodule.amount=2"]
    with pytest.raises(ValueError, match=r"datamodule\.amount is the old name of datamodule\.num_negatives, which is"):
        with_new_names(both, warn=False)


def test_options_of_an_own_file_stay(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "gcn.yaml").touch()
    given = ["model=mine", "model.hidden=3", "--config-dir=conf_mine"]
    assert with_new_names(given, warn=True, conf=tmp_path) == given
    assert with_new_names(["model=gcn", *given[1:]], warn=False, conf=tmp_path)[1] == "model.hidden_channels=3"
    own = ["model._target_=mine.Net", "model.hidden=3"]  # which may take either, see `keep_options_of_own_classes`
    assert with_new_names(own, warn=True, conf=tmp_path) == [own[0], "model.hidden_channels=3"]


def test_every_new_name_is_an_option(composed: Composer) -> None:
    cfg = composed("task=link")
    for old, new in RENAMED.items():
        group, _, name = new.rpartition(".")
        assert name in OmegaConf.select(cfg, group)
        assert old.rpartition(".")[2] not in OmegaConf.select(cfg, group)


@pytest.mark.parametrize(("overrides", "number"), [((), 5), (("datamodule.num_negatives=7",), 7)])
def test_an_old_name_in_a_file_is_read(composed: Composer, overrides: tuple[str, ...], number: int) -> None:
    cfg = composed("task=link", "+datamodule.amount=5", *overrides)
    with pytest.warns(FutureWarning) as said:
        rename_options(cfg, cfg, overrides, warn=True)
    assert [str(one.message) for one in said] == [AMOUNT]
    assert cfg.datamodule.num_negatives == number
    assert "amount" not in cfg.datamodule
    own = DictConfig({"datamodule": {"amount": 5}})
    rename_options(own, composed("task=node"), (), warn=True)  # of a class of the user's own
    assert own.datamodule.amount == 5


def test_an_earlier_run_is_used(tmp_path: Path, composed: Composer, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "old"
    chosen = ["task=link", "dataset=npz", f"dataset.path={ring(tmp_path / 'ring.npz')}"]
    new, old = (["datamodule.num_negatives=2", "datamodule.eval_negatives=3"], ["amount: 2", "ranked: 3"])
    new, old = ([*new, "model.hidden_channels=8"], [*old, "hidden: 8"])
    in_process(composed, f"run_dir={folder}", "callbacks.progress=null", *chosen, *new)
    kept = folder / ".hydra"
    kept.mkdir()
    before = OmegaConf.to_yaml(composed("num_threads=1", "device=cpu", "callbacks.progress=null", *chosen, *new))
    for one, name in zip(new, old, strict=True):
        text = one.partition(".")[2].replace("=", ": ")
        assert text in before
        before = before.replace(text, name)
    (kept / "config.yaml").write_text(before)
    choices = {"dataset": "npz", "task": "link"}
    OmegaConf.save({"hydra": {"runtime": {"choices": choices}}}, kept / "hydra.yaml")
    OmegaConf.save([*chosen, "datamodule.amount=2", "datamodule.ranked=3", "model.hidden=8"], kept / "overrides.yaml")
    for path in kept.iterdir():
        path.chmod(0o644)
    path = folder / "checkpoints" / "best.ckpt"
    checkpoint = torch.load(path, weights_only=True)
    checkpoint["hyper_parameters"]["hidden"] = checkpoint["hyper_parameters"].pop("hidden_channels")
    torch.save(checkpoint, path)
    arguments = with_choices_of_past_run(["mode=evaluate", f"ckpt_path={path}"])
    assert 0 < train.train(composed(*arguments)) <= 1
    with pytest.raises(ValueError, match="of another model: hidden_channels was 8 and is 4; give"):
        train.train(composed(*arguments, "model.hidden_channels=4"))
    with pytest.warns(FutureWarning, match="LinkPredictor has hidden_channels in place of hidden"):
        model = LinkPredictor.load_from_checkpoint(path)
    assert dict(model.hparams)["hidden_channels"] == 8
    config = OmegaConf.load(tmp_path / "config.yaml").datamodule
    assert (config.num_negatives, config.eval_negatives, "amount" in config) == (2, 3, False)


def test_a_command_with_old_names_runs(tmp_path: Path) -> None:
    options = ("dataset=npz", f"dataset.path={ring(tmp_path / 'ring.npz')}", "trainer.max_epochs=1", "device=cpu")
    done = run(tmp_path, "task=link", *options, "run_dir=here", "datamodule.amount=2", "datamodule.ranked=3")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count(AMOUNT) == 1
    assert done.stderr.count("datamodule.ranked is now datamodule.eval_negatives") == 1
    config = OmegaConf.load(tmp_path / "here" / "config.yaml").datamodule
    assert (config.num_negatives, config.eval_negatives) == (2, 3)


@pytest.mark.parametrize("warn", [True, False])
def test_a_class_that_moved_is_found(warn: bool) -> None:
    cfg = OmegaConf.create({"dataset": {"_target_": "loader.datasets.SyntheticDataset", "num_nodes": 9}, "seed": 1})
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        rename_options(cfg, cfg, (), warn=warn)
    assert cfg == {"dataset": {"_target_": "models.synthetic.SyntheticDataset", "num_nodes": 9}, "seed": 1}
    text = "loader.datasets.SyntheticDataset is now models.synthetic.SyntheticDataset; the old name goes with the next "
    assert [str(one.message) for one in said] == [text + "release"] * warn
