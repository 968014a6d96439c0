"""train.py refuses bad input in one line, before any work."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from lightning_utilities.core.imports import RequirementCache
from train_runs import CONF, FAST, Composer, in_process, run

from models.training.command_line import choices
from models.training.errors import one_line_errors


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["device=tpu"], "device is 'tpu'; it must be auto, cpu or cuda"),
        (
            ["device=cuda:7"],
            "device is 'cuda:7'; it must be auto, cpu or cuda: CUDA_VISIBLE_DEVICES=<number> says which GPU",
        ),
        (["num_threads=0"], "num_threads is 0; it must be an integer of at least 1"),
        (["num_threads=100000"], "num_threads is 100000; it must be an integer of at least 1 and at most 1024"),
        (
            ["callbacks.early_stopping.mode=maximum"],
            "error: callbacks.early_stopping: `mode` can be min, max, got maximum\n",
        ),
        (["sampler=trees"], "has one type of nodes and edges, and sampler=trees is for several, with times"),
        (
            ["task=link", "sampler=trees", "dataset=npz", "dataset.path=g.npz"],
            "has one type of nodes and edges, and sam",
        ),
        (
            ["task=link", "model=gin"],
            "model=gin does not go with task=link, which trains GraphSAGE; leave model out",
        ),
        (["schedule=cosine", "schedule.T_max=0"], "schedule CosineAnnealingLR with {'T_max': 0, "),
        (
            ["+sede=3"],
            "error: sede is set, but nothing reads it or refers to it: leave it out; did you mean seed?",
        ),
        (
            ["++colour.red=3"],
            "error: colour is set, but nothing reads it or refers to it: leave it out",
        ),
        (["device=gpu"], "device is 'gpu'; it must be auto, cpu or cuda"),
        (
            ["trainer.max_epochs=0"],
            "trainer.max_epochs is 0; it must be an integer of at least -1, but not 0, with which nothing would be",
        ),
        (["datamodule.prefetch=1.5"], "prefetch is 1.5; it must be an integer of at least 0"),
        (["sampler.fanouts=ten"], "fanouts is the text 'ten'; give a list of integers"),
        (
            ["ckpt_path=."],
            "ckpt_path is '.'; it must be the path of a checkpoint, and there is no such file: give <folder of",
        ),
        (
            ["ckpt_path=''"],
            "ckpt_path is ''; it must be the path of a checkpoint, and there is no such file: give <folder of the",
        ),
        (["ckpt_path=3"], "ckpt_path is 3; it must be the path of a checkpoint, and there is no such file"),
        (["debug=maybe"], "debug is 'maybe'; it must be true or false"),
        (["timeline=maybe"], "timeline is 'maybe'; it must be true or false"),
        (["data_dir=null"], "data_dir is None; it must be the path of a folder"),
        (
            ["run_dir=/dev/null/run"],
            "run_dir is '/dev/null/run'; it must be the path of a folder that can be written to or made",
        ),
        (
            ["trainer.fast_dev_run=yes"],
            "trainer.fast_dev_run is 'yes'; it must be true or false, or an integer of at least 0",
        ),
        (["callbacks.best.monitor=val/accc"], "callbacks.best.monitor is 'val/accc'; it must be one of train/loss"),
        (["callbacks.best.monitor=test/test_acc"], "test/test_acc, which is computed after the training; watch one of"),
        (["+trainer.gpus=1"], "trainer.gpus is no option of Trainer; leave it out"),
        (["+model.layers=3"], "model.layers is no option of NodeClassifier; leave it out"),
        (["model.hidden_channels=abc"], "hidden_channels is 'abc'; it must be an integer of at least 1"),
        (["model.hidden_channels=1000000000000"], "hidden_channels is 1000000000000; it must be at most 2147483647"),
        (["model.dropout=null"], "dropout is None; it must be a number"),
        (["model.num_layers=1.5"], "num_layers is 1.5; it must be an integer"),
        (["model.lr=nan"], "lr is nan; it must be greater than 0 and finite"),
        (["model.weight_decay=x"], "weight_decay is 'x'; it must be a number"),
        (["model.cuda_graph=true"], "model.cuda_graph is true, but this run has no GPU"),
        (["model=node2vec", "sampler=fused"], "model=node2vec learns from random walks, and fused gives none"),
        (["model=node2vec", "model.probe_c=x"], "probe_c is 'x'; it must be a number"),
        (["model=node2vec", "sampler.metapath=0"], "metapath is 0; it must be a list of integers"),
        (["sampler=walks"], "sampler is a WalkSampler; it must be one of nodes"),
        (["sampler.num_hops=3"], "sampler samples 3 hops, the model has 2 layers; give sampler.num_hops=2"),
        (["sampler.replace=yes"], "replace is 'yes'; it must be True or False"),
        (
            ["task=link", "sampler=walks"],
            "sampler is WalkSampler, and task=link needs one with fanouts, that samples around links",
        ),
        (["task=link", "datamodule.val=x"], "val is 'x'; it must be a number"),
        (["dataset.undirected=maybe"], "undirected is 'maybe'; it must be True or False"),
        (["dataset.split_seed=x"], "split_seed is 'x'; it must be an integer of at least 0"),
        (
            ["ckpt_path=nowhere.ckpt"],
            "ckpt_path is 'nowhere.ckpt'; it must be the path of a checkpoint, and there is no such file",
        ),
        (["optimized_metric=val/f1"], "optimized_metric is 'val/f1'; it must be one of"),
        (["datamodule.batch_size=0"], "batch_size is 0"),
        (["datamodule.batch_size=-4"], "batch_size is -4"),
        (["sampler.fanouts=[10,10,10]"], "has 3 entries for 2 layers"),
        (["sampler.fanouts=0"], "fanout 0 is not possible"),
        (["sampler.schedule=hopwise"], "schedule is 'hopwise', but the sampler runs on the CPU"),
        (["sampler.node_set=hash"], "node_set is 'hash', but the sampler runs on the CPU"),
        (["datamodule.graph=pinned"], "graph is 'pinned', for a GPU sampler to read, but the samplers run on the CPU"),
        (["sampler.device=cuda"], "a GPU sampler needs"),
        (["features=device"], "DeviceFeatures puts its rows on a GPU, but this run has none (device=cpu)"),
        (["features=memmap", "features.device=cuda"], "MemmapFeatures puts its rows on a GPU"),
        (["features=cached", "+features.fractoin=0.3"], "features.fractoin is no option of CachedFeatures"),
        (
            ["features.device=cuda"],
            "auto_features puts its rows on a GPU, but this run has none (device=cpu); leave out features.device=cuda",
        ),
        (
            ["features.dtype=float16"],
            "features.dtype is float16, but the model's layers have float32; give trainer.prec",
        ),
        (
            ["task=link", "features.storage_dtype=bfloat16"],
            "features.storage_dtype is bfloat16, but the model's layers",
        ),
        (
            ["model=node2vec", "trainer.gradient_clip_val=1"],
            "gradient_clip_val is 1, but gradients of model=node2vec are",
        ),
        (["timeline=true", "callbacks=none"], "timeline is true, but no callback records one"),
        (["timeline=true", "task=link"], "timeline is true, but no callback records one"),
        (
            ["timeline=true", "model=node2vec"],
            "timeline is true, but model=node2vec has no such stages; leave timeline",
        ),
        (["+callbacks.early_stopping.min_delta=x"], "callbacks.early_stopping.min_delta is 'x'; it must be a number"),
        (
            ["callbacks.curves.path=curves.xyz"],
            "callbacks.curves.path is curves.xyz; it must end with .png, .pdf, .svg",
        ),
        (
            ["callbacks.progress.refresh_rate=x"],
            "error: callbacks.progress.refresh_rate is 'x'; it must be an integer of",
        ),
        (["memory=16"], "memory is that of a GPU, but FusedSampler runs on the CPU; leave memory out"),
        (["memory=most"], "memory is 'most'; it must be 'auto', or a number of GiB"),
        (["memory=1", "datamodule.graph=pinned"], "memory and graph='pinned' are given"),
        (["memory=1", "task=link"], "memory is 1; task=link plans none"),
        (
            ["task=link", "datamodule.cached_edges=0.5"],
            "datamodule.cached_edges is 0.5, but task=link has no such option",
        ),
        (["task=link", "model.matmul_precision=high"], "model.matmul_precision is 'high', but task=link has no such"),
        (["datamodule.graph=disk"], "graph is 'disk'; it must be one of device, pinned"),
        (["model.norm=group"], "norm is 'group'; it must be one of none, batch, layer"),
        (["model.num_layers=0"], "num_layers is 0"),
        (["seed=-1"], "seed is -1"),
        (
            ["seed=4294967296"],
            "seed is 4294967296; it must be an integer of at least 0 and below 2**32: sampler.seed and datamodule",
        ),
        (["data_dir=/etc/passwd"], "data_dir is /etc/passwd, which is a file; it must be the path of a folder"),
        (["ckpt_path=/etc/passwd"], "ckpt_path is /etc/passwd, which is no checkpoint of train.py or is damaged"),
        (["result_path=/etc/passwd"], "result_path is /etc/passwd, and that file is no result of a job; give another"),
        (["trainer.default_root_dir=3"], "trainer.default_root_dir is 3; it must be the path of a folder"),
        (["model._target_=models.Nope"], "model._target_ is 'models.Nope', which cannot be imported (No module named"),
        (["+model.num_classes=5"], "model.num_classes is 5, but the data decide it; leave it out"),
        (
            ["task=link", "dataset.split=[0.8,0.1,0.1]"],
            "dataset.split is [0.8, 0.1, 0.1], which splits nodes, and task=link holds links out; give seed, data",
        ),
        (["task=link", "dataset.split_seed=3"], "dataset.split_seed is 3, which splits nodes, and task=link holds lin"),
        (["task=link", "+model.num_features=5"], "model.num_features is 5, but the data decide it; leave it out"),
        (["features._target_=builtins.int"], "features._target_ is builtins.int; it must be a store"),
        (
            ["dataset._target_=torch_geometric.datasets.FakeDataset"],
            "FakeDataset, which is no Dataset of loader.datasets",
        ),
        (
            ["sampler._target_=torch.nn.Linear"],
            "which is no Sampler of loader.samplers; give one, as the options of conf",
        ),
        (["datamodule.eval_sampler=full"], "eval_sampler is 'full'; it must be a loader.samplers.Sampler, e.g. Fused"),
        (
            ["model=node2vec", "features=host"],
            "features is HostFeatures, but model=node2vec reads none; leave features",
        ),
        (["+dataset.num_classes=2"], "error: dataset.num_classes is no option of Digits; it knows cache_dir, check"),
        (
            ["+callbacks.own={_target_: builtins.dict}"],
            "callbacks.own._target_ is builtins.dict; it must be a Callback",
        ),
        (
            [
                "+callbacks.own={_target_: lightning.pytorch.callbacks.StochasticWeightAveraging, swa_lrs: 0.01}",
            ],
            "StochasticWeightAveraging, whose average takes the place of the weights when training ends, so no score",
        ),
        (
            [
                "+callbacks.own={_target_: lightning.pytorch.callbacks.StochasticWeightAveraging, swa_lrs: 0.01}",
                "callbacks.best=null",
            ],
            "and no checkpoint has it; give Lightning's WeightAveraging or EMAWeightAveraging",
        ),
        (
            ["+callbacks.own={_target_: lightning.pytorch.callbacks.ModelPruning, pruning_fn: l1_unstructured}"],
            "callbacks have ModelPruning, which prunes after a validation, so checkpoints and the test would be of",
        ),
        (["+callbacks.own={_target_: nope.Own}"], "callbacks.own._target_ is 'nope.Own', which cannot be imported"),
        (["+logger.own={_target_: builtins.dict}"], "logger.own._target_ is builtins.dict; it must be a Logger"),
        (["features=partitioned", "features.fraction=2"], "features.fraction is 2; it must be in 0 to 1"),
        (
            ["features=host", "features.num_threads=x"],
            "features.num_threads is 'x'; it must be an integer of at least 1 and at most 1024",
        ),
        (["dataset=dblp"], "dataset dblp has types of nodes and edges, which model=graphsage does not take; take mod"),
        (["dataset=ogbn-mag", "model=gat"], "dataset ogbn-mag has types of nodes and edges, which model=gat does not"),
        (
            ["dataset=imdb", "task=link"],
            "dataset imdb has types of nodes and edges, and task=link predicts links of one relation; name it, data",
        ),
        (
            ["dataset=imdb", "task=link", "datamodule.edge_type=movie__to__actor"],
            "exclude is 'reverse', and edge_type ('movie', 'to', 'actor'): name the relation that has the links' rev",
        ),
        (
            ["dataset=imdb", "task=link", "datamodule.edge_type=movie", "datamodule.exclude=self"],
            "edge_type is 'movie'; give the edge type",
        ),
        (["dataset=imdb", "model=node2vec"], "imdb has types of nodes and edges, which model=node2vec does not take"),
        (
            ["dataset=cora", "model=hgt"],
            "dataset cora has one type of nodes and edges, and model=hgt is for several; tak",
        ),
        (["model=to_hetero", "dataset=imdb", "task=link"], "model=to_hetero does not go with task=link, which trains"),
        (
            ["model=to_hetero", "dataset=imdb", "exact_test=true"],
            "exact_test is true, but models.training.hetero_class",
        ),
        (["model=hgt", "dataset=imdb", "+model.target=x"], "model.target is 'x', but the data decide it; leave it out"),
        (
            ["model=to_hetero", "dataset=imdb", "model.base=pna"],
            "base is 'pna'; it must be one of graphsage, gat, gatv2",
        ),
        (["dataset=npz"], "dataset.path is not set; add dataset.path=..."),
        (["dataset=npz", "dataset.path=nowhere.npz"], "nowhere.npz"),
        (["dataset=npz", "dataset.path=."], "is a folder; set dataset.path to the .npz file in it"),
    ],
)
def test_bad_input_gives_one_line_and_leaves_nothing(
    composed: Composer, tmp_path: Path, capsys: pytest.CaptureFixture[str], overrides: list[str], message: str
) -> None:
    with pytest.raises(SystemExit) as ended, one_line_errors():
        in_process(composed, *overrides)
    assert ended.value.code == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    assert message in error
    assert not (tmp_path / "checkpoints").exists()
    assert not list(tmp_path.glob("data/cache/*"))


def test_the_command_fails_with_one_line(tmp_path: Path) -> None:
    done = run(tmp_path, "model.dropout=1")
    assert done.returncode == 1
    assert done.stderr == "error: dropout is 1; it must be in [0, 1)\n"
    assert not list(tmp_path.iterdir())  # the folder that Hydra makes before the job is removed


@pytest.mark.parametrize(
    ("flag", "line"),
    [
        ("--config-dir=nowhere", "Additional config directory '.*/nowhere' not found"),
        ("--config-name=own", "Cannot find primary config 'own'. Check that it's in your config search path."),
    ],
)
def test_a_configuration_that_is_missing_is_one_line(tmp_path: Path, flag: str, line: str) -> None:
    done = run(tmp_path, flag)
    assert done.returncode == 1
    assert re.fullmatch(f"error: {line}\n", done.stderr)
    assert not list(tmp_path.iterdir())


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    done = run(tmp_path, "model.dropout=1", "debug=true")
    assert done.returncode == 1
    assert "dropout is 1; it must be in [0, 1)" in done.stderr
    assert not done.stderr.startswith("error:")


def test_an_unknown_option_is_answered_with_known_ones(tmp_path: Path) -> None:
    done = run(tmp_path, "sampler=quantum")
    assert done.returncode == 1
    known = ", ".join(choices(CONF, "sampler"))
    assert done.stderr == f"error: sampler is 'quantum'; it must be one of {known}\n"


def test_a_transform_of_something_else_is_named(composed: Composer, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit), one_line_errors():
        in_process(composed, "dataset.transform={_target_: torch.nn.ReLU}")
    error = capsys.readouterr().err
    assert error.startswith("error: transform ReLU of digits failed: relu(): ")
    assert error.endswith("; it must take a NodeDataset and return one\n")
    with pytest.raises(SystemExit), one_line_errors():
        in_process(composed, "dataset.transform={_target_: torch_geometric.transforms.NormalizeFeatures}")
    assert capsys.readouterr().err.startswith("error: transform NormalizeFeatures of digits failed: 'NodeDataset' obj")


@pytest.mark.parametrize(
    ("logger", "place", "kept"),
    [
        ("tensorboard", "lightning.fabric.loggers.tensorboard", ("_TENSORBOARD_AVAILABLE", "_TENSORBOARDX_AVAILABLE")),
        ("wandb", "lightning.pytorch.loggers.wandb", ("_WANDB_AVAILABLE",)),
        ("mlflow", "lightning.pytorch.loggers.mlflow", ("_MLFLOW_AVAILABLE",)),
    ],
)
def test_a_logger_that_is_missing_names_its_package(
    composed: Composer,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    logger: str,
    place: str,
    kept: tuple[str, ...],
) -> None:
    for name in kept:
        monkeypatch.setattr(f"{place}.{name}", RequirementCache(f"no-{logger}>=1"))
    with pytest.raises(SystemExit), one_line_errors():
        in_process(composed, f"logger={logger}")
    error = capsys.readouterr().err
    assert error.startswith(f"error: logger.{logger}: ")
    assert f"Requirement 'no-{logger}>=1' not met. HINT: Try running `pip install" in error
    assert error.count("\n") == 1


def test_an_empty_validation_split_has_a_remedy(composed: Composer, capsys: pytest.CaptureFixture[str]) -> None:
    split = "dataset.split=[0.8,0,0.2]"
    with pytest.raises(SystemExit), one_line_errors():
        in_process(composed, split)
    error = capsys.readouterr().err
    assert "optimized_metric is val/acc, but the val split of the dataset is empty" in error
    way = error.partition(" or give ")[2].split()
    assert in_process(composed, split, *way) > 0.2
    assert "val" not in next(line for line in capsys.readouterr().out.splitlines() if line.startswith("accuracy: "))


def test_an_empty_test_split_has_no_accuracy(composed: Composer, capsys: pytest.CaptureFixture[str]) -> None:
    assert in_process(composed, "dataset.split=[0.8,0.2,0]") > 0.2
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("accuracy: ")]
    assert "test" not in line
    assert "nan" not in line


@pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("model.hidden_channels=32", "of another model: hidden_channels was 256 and is 32; give the options"),
        ("model.lr=100", "goes on with the options that it had: lr was 0.003 and is 100"),
        ("model.weight_decay=5", "goes on with the options that it had: weight_decay was 0.0 and is 5"),
        ("datamodule.batch_size=32", "cannot resume: batch_size was 256 when the state was saved and is 32 now"),
    ],
)
def test_a_checkpoint_of_another_run_is_one_line(
    composed: Composer, tmp_path: Path, capsys: pytest.CaptureFixture[str], change: str, message: str
) -> None:
    in_process(composed)
    capsys.readouterr()
    with pytest.raises(SystemExit), one_line_errors():
        in_process(
            composed, change, f"run_dir={tmp_path / 'second'}", f"ckpt_path={tmp_path / 'checkpoints' / 'step.ckpt'}"
        )
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_a_trial_of_one_batch_writes_no_checkpoint(composed: Composer, tmp_path: Path) -> None:
    in_process(composed, "trainer.fast_dev_run=true")
    assert not (tmp_path / "checkpoints").exists()


def test_a_link_run_goes_without_callbacks(composed: Composer, tmp_path: Path) -> None:
    assert 0 < in_process(composed, "task=link", "callbacks=none", "logger=none", "datamodule.eval_negatives=2") <= 1
    assert not (tmp_path / "checkpoints").exists()


def test_a_finished_link_run_is_not_run_again(
    composed: Composer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("task=link", "callbacks=none", "logger=none", f"result_path={tmp_path / 'result.json'}")
    first = in_process(composed, *words)
    assert json.loads((tmp_path / "result.json").read_text())["metric"] == first
    capsys.readouterr()
    assert in_process(composed, *words) == first
    assert capsys.readouterr().out == f"finished before: val/auc {first:.4f}, {tmp_path / 'result.json'}\n"


def test_null_leaves_out_loggers_and_callbacks(tmp_path: Path) -> None:
    done = run(tmp_path, *FAST, "logger=null", "callbacks=null", "hydra.run.dir=run")
    assert done.returncode == 0, done.stderr
    left = {"config.yaml", "train.log", ".hydra", "result.json", "README.txt"}
    assert {path.name for path in (tmp_path / "run").iterdir()} <= left
