"""train.py: every configuration composes, and a job runs from end to end."""

from __future__ import annotations

import csv
import inspect
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from hydra import compose
from hydra.utils import instantiate
from lightning.pytorch import Trainer
from lightning.pytorch.profilers import SimpleProfiler
from marks import needs_gpu
from omegaconf import DictConfig, OmegaConf
from shop import write_shop
from train_runs import CONF, FAST, Composer, in_process, run

from loader.samplers import DGLSampler, Sampler
from models.training.classifier import Classifier
from models.training.device import check_features
from models.training.embedder import NodeEmbedder
from models.training.node_types import takes_tables, takes_types
from models.training.profiler import NoProfiler
from models.training.relational_job import watch_task
from models.training.task_predictor import TaskPredictor
from models.training.trainer import make_trainer


def options(group: str) -> list[str]:
    return sorted(p.stem for p in (CONF / group).glob("*.yaml"))


# Configurations

HETERO_MODELS = ("to_hetero", "hgt", "rgcn", "rgat")
TABLES = ("relational", "rel-f1")
HETERO_DATASETS = ("dblp", "imdb", "aifb", "mutag", "ogbn-mag", "hetero_npz", "synthetic-mag", "synthetic-igb")


@pytest.mark.parametrize("experiment", options("experiment"))
def test_every_experiment_composes_and_instantiates(composed: Composer, experiment: str) -> None:
    check_instantiates(composed(f"experiment={experiment}", "device=cpu"))


@pytest.mark.parametrize(
    ("group", "option"),
    [
        (group, option)
        for group in ("dataset", "sampler", "features", "model", "trainer", "logger", "callbacks")
        for option in options(group)
    ],
)
def test_every_option_of_every_group_instantiates(composed: Composer, tmp_path: Path, group: str, option: str) -> None:
    overrides = [f"{group}={option}", "device=cpu"]
    if group == "model" and option in HETERO_MODELS:  # which take datasets with types only
        overrides.append("dataset=dblp")
    if group == "dataset" and option in HETERO_DATASETS:
        overrides.append("model=to_hetero")
    if (group == "dataset" and option in TABLES) or (group, option) == ("model", "rsage"):
        pytest.importorskip("torch_frame")
        pytest.importorskip("pyarrow")
        path = write_shop(tmp_path / "shop")
        of = "rel-f1" if option == "rsage" else option
        overrides += [
            "model=rsage",
            f"dataset={of}",
            f"dataset.path={path}",
            "dataset.task=again",
            "dataset.schema=null",
        ]
    if group == "dataset" and option in ("npz", "hetero_npz"):
        overrides.append("dataset.path=some.npz")
    if (group, option) == ("dataset", "edge_list"):
        overrides.append("dataset.edges=some.csv")
    if group == "logger" and option in ("tensorboard", "wandb", "mlflow"):
        pytest.importorskip(option)
    if (group, option) == ("sampler", "walks"):
        overrides.append("model=node2vec")
    try:
        check_instantiates(composed(*overrides))
    except Exception as error:
        if (group, option) == ("sampler", "dgl") and isinstance(error.__cause__, ImportError):
            pytest.skip(str(error.__cause__))
        raise


def check_instantiates(cfg: DictConfig) -> None:
    assert not OmegaConf.missing_keys(cfg)
    datamodule = instantiate(cfg.datamodule)
    of_tables = takes_tables(cfg)
    if of_tables:
        watch_task(cfg, [])
    typed = takes_types(cfg) or of_tables
    model = instantiate(cfg.model, **(datamodule.hetero_trial_sizes if typed else datamodule.trial_sizes))
    assert isinstance(model, (Classifier, NodeEmbedder, TaskPredictor))
    assert cfg.optimized_metric in model.METRICS
    check_features(cfg.features, "cuda")
    assert isinstance(datamodule.sampler, Sampler)
    if isinstance(model, (Classifier, TaskPredictor)):
        assert datamodule.sampler.num_hops == datamodule.eval_sampler.num_hops == cfg.model.num_layers
    trainer: Any = make_trainer(cfg)
    assert not cfg.get("callbacks") or trainer.checkpoint_callback.monitor in (None, *model.METRICS)
    assert not cfg.get("logger") or any(type(entry).__name__ == "CSVLogger" for entry in trainer.loggers)
    datamodule.sampler.close()
    datamodule.eval_sampler.close()


def test_another_profiler_may_replace_the_default(composed: Composer) -> None:
    for overrides, kind in (([], NoProfiler), (["trainer.profiler=simple"], SimpleProfiler)):
        trainer = instantiate(composed("device=cpu", *overrides).trainer, logger=False)
        assert isinstance(trainer.profiler, kind)


def test_what_a_profiler_found_is_printed(tmp_path: Path) -> None:
    done = run(tmp_path, *FAST, "trainer.profiler=simple", "callbacks=none", "hydra.run.dir=run")
    assert done.returncode == 0, done.stderr
    assert "Profiler Report" in done.stdout
    assert "Profiler Report" in (tmp_path / "run" / "train.log").read_text()


def test_a_time_limit_ends_the_first_epoch(composed: Composer, tmp_path: Path) -> None:
    metric = in_process(composed, "trainer.max_time=00:00:00:00", "callbacks.progress=null", "callbacks.summary=null")
    assert math.isnan(metric)
    assert not list(tmp_path.rglob("*.ckpt"))


def test_the_trainers_options_have_lightnings_defaults(composed: Composer) -> None:
    chosen = {  # otherwise than by Lightning
        "default_root_dir", "accelerator", "devices", "max_epochs", "num_sanity_val_steps",
        "log_every_n_steps", "enable_model_summary", "profiler",
    }  # fmt: skip
    shown = composed("device=cpu").trainer
    known = inspect.signature(Trainer).parameters
    for name in shown.keys() - chosen - {"_target_"}:
        assert shown[name] == known[name].default, name
    given = {
        "precision": "bf16-mixed", "accumulate_grad_batches": 3, "gradient_clip_val": 0.5, "val_check_interval": 0.5,
        "limit_train_batches": 7, "limit_val_batches": 0.5, "limit_test_batches": 2, "max_steps": 9, "strategy": "ddp",
        "num_nodes": 2, "deterministic": "true",
    }  # fmt: skip
    cfg = composed("device=cpu", *(f"trainer.{name}={value}" for name, value in given.items()))
    assert {name: str(cfg.trainer[name]).lower() for name in given} == {k: str(v).lower() for k, v in given.items()}


@pytest.mark.parametrize("search", options("hparams_search"))
def test_every_search_names_parameters_that_exist(composed: Composer, search: str) -> None:
    plain = composed()
    params = compose("train", [f"hparams_search={search}"], return_hydra_config=True).hydra.sweeper.params
    assert params
    for key in params:
        assert OmegaConf.select(plain, key) is not None, key


def test_runs_of_one_second_have_a_folder_each(composed: Composer) -> None:
    hydra = compose("train", return_hydra_config=True).hydra
    for place, folder in ((hydra.run.dir, "outputs"), (hydra.sweep.dir, "multirun")):
        assert re.fullmatch(rf"{folder}/train/\d{{4}}(-\d\d){{2}}_(\d\d-){{3}}\d{{6}}", place)


# Runs


def test_the_default_job_reaches_95_percent(composed: Composer, tmp_path: Path, capsys: Any) -> None:
    metric = in_process(composed, "trainer.max_epochs=30")
    assert metric >= 0.95
    shown = capsys.readouterr().out
    assert "device: cpu (asked for)" in shown
    for words in (
        *("accuracy: train ", "val ", "test ", "with all neighbors; val ", "an epoch: ", "epoch 1, "),
        *("stages, which overlap: sample ", "gather ", "move ", "train ", "the model waited "),
        *(f"configuration: {tmp_path / 'config.yaml'}", "result: val/acc "),
    ):
        assert words in shown
    assert shown.count("\n") < 40
    assert (tmp_path / "curves.png").is_file()
    assert (tmp_path / "checkpoints" / "best.ckpt").is_file()
    assert OmegaConf.load(tmp_path / "config.yaml").sampler.num_hops == 2
    with (tmp_path / "csv" / "metrics.csv").open() as file:
        best = max(float(row["val/acc"]) for row in csv.DictReader(file) if row["val/acc"])
    assert metric == pytest.approx(best)


# Both are Lightning's, and right: there is nothing to choose a checkpoint by, nor to stop by.
@pytest.mark.filterwarnings("ignore:.*could not find the monitored key")
@pytest.mark.filterwarnings("ignore:Early stopping conditioned on metric")
@pytest.mark.parametrize("task", ["node", "link"])
def test_a_few_steps_need_no_validation(composed: Composer, capsys: Any, task: str) -> None:
    assert math.isnan(in_process(composed, f"task={task}", "trainer.max_steps=2"))
    metric = "val/auc" if task == "link" else "val/acc"
    shown = capsys.readouterr().out
    assert f"{metric} is not known: training ended before it was computed" in shown
    assert "weights of the last" in shown  # a table is as narrow as its columns
    assert "best checkpoint" not in shown


def test_an_early_stop_is_told_after_the_test(composed: Composer, capsys: Any) -> None:
    in_process(composed, "callbacks.early_stopping.patience=1", "+callbacks.early_stopping.min_delta=10")
    assert "stopped after epoch 2: val/acc got no better 1 times in a row" in capsys.readouterr().out


@pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty")
def test_a_resumed_run_has_the_patience_given(composed: Composer, tmp_path: Path, capsys: Any) -> None:
    options = "+callbacks.early_stopping.min_delta=10", "trainer.max_epochs=5"  # nothing is better by that
    in_process(composed, *options, "callbacks.early_stopping.patience=1")
    assert "stopped after epoch 2" in capsys.readouterr().out
    resumed = f"ckpt_path={tmp_path / 'checkpoints' / 'step.ckpt'}", f"run_dir={tmp_path / 'resumed'}"
    in_process(composed, *options, *resumed, "callbacks.early_stopping.patience=3")
    assert "stopped after epoch 4: val/acc got no better 3 times in a row" in capsys.readouterr().out


def test_steps_beyond_the_epochs_are_refused(composed: Composer) -> None:
    in_process(composed, "trainer.min_steps=6", "trainer.accumulate_grad_batches=2")  # 2 epochs of 5 mini-batches
    why = "min_steps is 7, but training ends after trainer.max_epochs, which is 2, of 3 steps each; give at most 6"
    with pytest.raises(ValueError, match=why):
        in_process(
            composed, "trainer.min_steps=7", "trainer.accumulate_grad_batches=2", "logger=none", "callbacks=none"
        )


@pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty")
def test_a_validation_beyond_the_epochs_is_refused(composed: Composer) -> None:
    options = "trainer.check_val_every_n_epoch=null", "logger=none"
    assert in_process(composed, *options, "trainer.val_check_interval=10") > 0  # 2 epochs of 5 mini-batches
    why = "val_check_interval is 11, but training ends after trainer.max_epochs, which is 2, of 5 mini-batches each"
    with pytest.raises(ValueError, match=why):
        in_process(composed, *options, "trainer.val_check_interval=11")


@pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty")
def test_scores_of_other_weights_are_refused(composed: Composer) -> None:
    options = "logger=none", "+callbacks.best.save_on_train_epoch_end=true"
    assert in_process(composed, *options, "trainer.val_check_interval=5") > 0  # an epoch has 5 mini-batches
    why = "is true, but the last val/acc of an epoch of 5 mini-batches is amid it, of other weights; leave it out"
    with pytest.raises(ValueError, match=why):
        in_process(composed, *options, "trainer.val_check_interval=2")


@pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty")
@pytest.mark.parametrize("change", ["newer", "cut"])
def test_a_resumed_run_knows_its_best_weights(
    composed: Composer, tmp_path: Path, caplog: pytest.LogCaptureFixture, change: str
) -> None:
    """Of a run that was killed after epoch 3, whose last checkpoint is of epoch 2."""
    score = in_process(composed, f"run_dir={tmp_path / 'short'}")  # of two epochs
    assert score < in_process(composed, "trainer.max_epochs=3")
    best, step = (tmp_path / "checkpoints" / name for name in ("best.ckpt", "step.ckpt"))
    assert torch.load(best, weights_only=True)["global_step"] > torch.load(step, weights_only=True)["global_step"]
    if change == "cut":
        best.write_bytes(best.read_bytes()[:1000])
    assert in_process(composed, f"ckpt_path={step}", f"run_dir={tmp_path / 'resumed'}") == score
    said = "is of step 15, and the run goes on from step 8" if change == "newer" else "best.ckpt is damaged"
    assert said in caplog.text


def test_checkpoints_without_a_score_are_not_the_best(composed: Composer, tmp_path: Path) -> None:
    found = []
    for name, options in (
        ("saves", ("callbacks.best.monitor=null", "+callbacks.best.every_n_epochs=2")),
        ("none", ("callbacks.best=null",)),
    ):
        in_process(composed, "trainer.max_epochs=3", *options, f"run_dir={tmp_path / name}")
        found.append(json.loads((tmp_path / name / "result.json").read_text())["metrics"])
    assert torch.load(tmp_path / "saves" / "checkpoints" / "best.ckpt", weights_only=True)["epoch"] == 1
    assert found[0] == found[1]


def test_equal_seeds_give_equal_runs(composed: Composer, tmp_path: Path) -> None:
    runs = [
        in_process(composed, "optimized_metric=train/loss", f"seed={seed}", f"run_dir={tmp_path / str(i)}")
        for i, seed in enumerate((1, 1, 2))
    ]
    assert runs[0] == runs[1] != runs[2]


def test_an_embedding_trains_on_walks(composed: Composer) -> None:
    settings = "sampler.walk_length=20", "datamodule.walks_per_node=10", "model.dim=32", "model.lr=0.05"
    assert in_process(composed, "model=node2vec", "sampler.q=0.5", *settings) > 0.5


@pytest.mark.parametrize("sampler", ["hopwise", "full", "labor"])
def test_other_samplers_train(composed: Composer, sampler: str) -> None:
    assert in_process(composed, f"sampler={sampler}") > 0.2


def test_fused_and_hopwise_train_the_same_model(composed: Composer, tmp_path: Path) -> None:
    losses = [
        in_process(composed, f"sampler={s}", "optimized_metric=train/loss", f"run_dir={tmp_path / s}")
        for s in ("fused", "hopwise")
    ]
    assert losses[0] == losses[1]


@pytest.mark.parametrize("precision", ["bf16-mixed", "bf16-true"])
def test_bfloat16_trains_on_a_cpu(composed: Composer, tmp_path: Path, precision: str) -> None:
    wide, narrow = (
        in_process(
            composed,
            "optimized_metric=train/loss",
            "model.dropout=0",
            f"trainer.precision={p}",
            f"run_dir={tmp_path / p}",
        )
        for p in ("32-true", precision)
    )
    assert narrow == pytest.approx(wide, rel=0.1)
    assert narrow != wide


def test_a_timeline_is_written(composed: Composer, tmp_path: Path, capsys: Any) -> None:
    in_process(composed, "timeline=true", "datamodule.batch_size=32")
    assert (tmp_path / "timeline.json").is_file()
    assert (tmp_path / "timeline.png").is_file()
    assert "sample: FusedSampler on cpu" in capsys.readouterr().out


def test_a_metric_of_the_test_can_be_optimised(composed: Composer, tmp_path: Path) -> None:
    assert 0 < in_process(composed, "optimized_metric=test/val_acc", "callbacks=quiet") <= 1
    assert not (tmp_path / "curves.png").exists()


def test_a_sampled_test_takes_the_test_split(composed: Composer, capsys: pytest.CaptureFixture[str]) -> None:
    in_process(composed, "exact_test=false", "trainer.max_epochs=1")
    shown = capsys.readouterr().out
    (line,) = [line for line in shown.splitlines() if line.startswith("accuracy: ")]
    assert line.startswith("accuracy: test ")
    assert "with sampled neighbors (best checkpoint)" in line


@pytest.mark.parametrize(("model", "fanouts", "warned"), [("gin", "[1,1]", True), ("graphsage", "[15,10]", False)])
def test_exact_scores_far_from_sampled_are_told(
    composed: Composer, tmp_path: Path, caplog: pytest.LogCaptureFixture, model: str, fanouts: str, warned: bool
) -> None:
    """GIN adds up the rows of neighbors: more neighbors than in training are other rows."""
    sampled = in_process(
        composed, f"model={model}", f"sampler.fanouts={fanouts}", "trainer.max_epochs=3", "callbacks=quiet"
    )
    exact = json.loads((tmp_path / "result.json").read_text())["metrics"]["test/val_acc"]
    assert (abs(exact - sampled) > 0.03) == warned
    lines = [one.getMessage() for one in caplog.records if "with sampled neighbors" in one.getMessage()]
    assert len(lines) == warned
    for line in lines:
        assert line.startswith(f"val/acc is {sampled:.4f} with sampled neighbors and {exact:.4f} with all, which mode=")
        assert "exact_test=false samples in both" in line


def test_a_sweep_runs_every_combination(tmp_path: Path) -> None:
    samplers = ["fused", "hopwise"]
    try:
        DGLSampler([2]).close()
        samplers[1] = "dgl"
    except ImportError:
        pass
    done = run(
        tmp_path, "-m", f"sampler={','.join(samplers)}", "model.num_layers=1,2", "trainer.max_epochs=1",
        "callbacks=quiet", "num_threads=1", "device=cpu",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    configs = [OmegaConf.load(p) for p in tmp_path.glob("multirun/train/*/*/config.yaml")]
    classes = {"fused": "fused", "hopwise": "HopwiseSampler", "dgl": "DGLSampler"}
    assert {(c.sampler["_target_"].split(".")[-1], c.model.num_layers) for c in configs} == {
        (classes[s], layers) for s in samplers for layers in (1, 2)
    }


def test_two_processes_share_an_epoch(tmp_path: Path) -> None:
    done = run(
        tmp_path, "dataset=synthetic", "dataset.num_nodes=3000", "trainer.devices=2", "trainer.max_epochs=3",
        "device=cpu", "num_threads=1", f"data_dir={tmp_path}", "hydra.run.dir=run",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    said = done.stdout.splitlines()
    assert len(set(said)) == len(said)  # nothing twice
    assert sum("converted in" in line for line in said) <= 1  # if the other process was first, it says nothing
    assert sum("; train: cpu, 2 processes" in line for line in said) == 1
    with next((tmp_path / "run").rglob("metrics.csv")).open() as file:
        rows = list(csv.DictReader(file))
    losses = [float(row["train/loss"]) for row in rows if row["train/loss"]]
    assert len(losses) == 3
    assert losses[-1] < losses[0]
    steps = [int(row["step"]) for row in rows if row["train/loss"]]
    seeds = int(3000 * 0.6)
    assert steps[0] + 1 == -(-seeds // (2 * 1024))  # each process has half of the mini-batches


class TestOnGPU:
    pytestmark = needs_gpu

    def test_most_steps_are_replayed(self, tmp_path: Path) -> None:
        done = run(tmp_path, "device=cuda", "features=device", "trainer.max_epochs=12", "callbacks.early_stopping=null")
        assert done.returncode == 0, done.stderr
        words = done.stdout.replace("│", " ").split()
        at = words.index("graphs")  # steps by CUDA graphs N of M
        replayed, of, steps = words[at + 1 : at + 4]
        assert of == "of"
        assert int(steps) > 40
        assert int(replayed) >= int(steps) - 16 - 12  # those before the capture, and the last one of each epoch

    def test_a_run_goes_on_amid_an_epoch(self, tmp_path: Path) -> None:
        """After a step that left out Lightning's loop, and with such steps again."""
        options = ["device=cuda", "features=device", "datamodule.batch_size=64", "callbacks.early_stopping=null"]
        options += ["model.dropout=0", "callbacks.step.every_n_train_steps=1"]
        options += ["+callbacks.record._target_=models.training.callbacks.epoch_record.EpochRecord"]

        def done(name: str, *more: str) -> dict[str, Any]:
            ended = run(tmp_path, *options, *more, f"hydra.run.dir={name}", f"result_path={tmp_path / name}.json")
            assert ended.returncode == 0, ended.stderr
            result: dict[str, Any] = json.loads((tmp_path / f"{name}.json").read_text())
            return result

        def saved(name: str) -> tuple[Path, int]:
            path = tmp_path / name / "checkpoints" / "step.ckpt"
            return path, torch.load(path, weights_only=False)["global_step"]

        whole = done("whole", "trainer.max_epochs=5")
        amid = saved("whole")[1] * 7 // 10  # in the fourth epoch
        done("part", "trainer.max_epochs=5", f"trainer.max_steps={amid}")
        checkpoint, step = saved("part")
        assert step == amid
        rest = done("rest", "trainer.max_epochs=5", f"ckpt_path={checkpoint}")
        assert [row["epoch"] for row in rest["epochs"]] == [row["epoch"] for row in whole["epochs"]] == [0, 1, 2, 3, 4]
        for name in ("train/loss", "val/loss"):  # a GPU adds up gradients in no fixed order
            assert rest["epochs"][-1][name] == pytest.approx(whole["epochs"][-1][name], rel=0.05)


@pytest.mark.filterwarnings("ignore")  # of packages that these need
@pytest.mark.parametrize(("logger", "offline"), [("wandb", ["logger.wandb.offline=true"]), ("mlflow", [])])
def test_loggers_of_services_get_each_epoch(
    composed: Composer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logger: str, offline: list[str]
) -> None:
    pytest.importorskip(logger)
    monkeypatch.chdir(tmp_path)
    in_process(composed, f"logger={logger}", *offline, "callbacks=quiet")
    if logger == "mlflow":
        pytest.importorskip("sqlalchemy")
        client = pytest.importorskip("mlflow.tracking").MlflowClient("sqlite:///mlflow.db")
        experiment = client.get_experiment_by_name("gnn-loader").experiment_id
        (found,) = client.search_runs([experiment])
        assert len(client.get_metric_history(found.info.run_id, "val/acc")) == 2
        assert "sqlite:///mlflow.db\n    the metrics of each epoch" in (tmp_path / "README.txt").read_text()
    else:
        assert list((tmp_path / "wandb").glob("offline-run-*/*.wandb"))
    assert (tmp_path / "csv" / "metrics.csv").is_file()
