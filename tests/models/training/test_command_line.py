"""What is said of a command line that Hydra refuses."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from hydra.errors import HydraException
from omegaconf import OmegaConf

from models.training.command_line import check_keys, choices, explain, prepared

CONF = Path(__file__).resolve().parents[3] / "conf"
SAMPLERS = ", ".join(choices(CONF, "sampler"))


def refusal(*arguments: str) -> str:
    with pytest.raises((HydraException, ValueError)) as refused, initialize_config_dir(str(CONF), version_base="1.3"):
        compose("train", overrides=prepared(arguments, CONF))
    line = explain(refused.value, arguments, CONF)
    assert "\n" not in line
    return line


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        (
            "sampler=fsued",
            "sampler is 'fsued'; it must be one of " + ", ".join(choices(CONF, "sampler")) + "; did you mean fused?",
        ),
        ("dataset=ogbn_arxiv", "; did you mean ogbn-arxiv?"),
        ("experiment=quantum", "experiment is 'quantum'; it must be one of convergence, "),
        ("smapler=fused", "there is no option smapler; did you mean sampler?"),
        ("dataset.num_neighbours=3", "there is no option dataset.num_neighbours; did you mean dataset.num_neighbors?"),
        ("prefetch=3", "there is no option prefetch; did you mean datamodule.prefetch?"),
        (
            "model.colour=red",
            "there is no option model.colour; model has class_weights, cuda_graph, dropout, hidden_channels, ",
        ),
        ("callbacks.earlystopping=null", "; did you mean callbacks.early_stopping?"),
        ("colours.red=1", "there is no option colours.red"),
        ("sampler.fanouts=[1,", "sampler.fanouts=[1,; it ends within a list or a dict: with spaces it needs quotes"),
        ("ckpt_path=epoch=3.ckpt", "quote the value, and all again for the shell: 'ckpt_path=\"epoch=3.ckpt\"'"),
        ("dataset.path=a(1).npz", "cannot read the argument dataset.path=a(1).npz; quote the value, and all again"),
        ("dataset=npz,dataset.path=a.npz", "a space stands between two options, not a comma"),
        ("digits", "cannot read the argument digits; it must be NAME=VALUE"),
        ("dataset:=digits", "cannot read the argument dataset:=digits; quote the value"),
        ("--sampler.fanouts=10", "no option --sampler.fanouts; options have no dashes: sampler.fanouts=10"),
        ("-path=x", "there is no option -path; options have no dashes: "),
        ("-id=1", "there is no option -id; options have no dashes: id=1"),
        ("-heads=8", "there is no option -heads; options have no dashes: heads=8"),
        ("--epochs", "there is no option --epochs; options have no dashes: trainer.max_epochs=VALUE"),
        ("--lr=0.1", "there is no option --lr; options have no dashes: model.lr=0.1"),
        ("--dataset=cora", "there is no option --dataset; options have no dashes: dataset=cora"),
        ("--num-layers", "there is no option --num-layers; options have no dashes: model.num_layers=VALUE"),
        ("--config-dir", "argument --config-dir/-cd: expected one argument"),
        ("--info=models", "argument --info/-i: invalid choice: 'models' (choose from "),
        ("epochs=10", "there is no option epochs; did you mean trainer.max_epochs?"),
        ("model=gta", "; did you mean gat?"),
        ("hidden_channels=64", "there is no option hidden_channels; did you mean model.hidden_channels?"),
        ("hidden=64", "there is no option hidden; its name here is model.hidden_channels"),
        ("fanout=3", "there is no option fanout; did you mean sampler.fanouts?"),
        ("batchsize=4", "there is no option batchsize; did you mean datamodule.batch_size?"),
        ("layers=3", "there is no option layers; did you mean model.num_layers?"),
        (
            "heads=8",
            "there is no option heads here; model.heads needs model=gat or model=gatv2 or model=hgt or model=rgat",
        ),
        ("label=x", "there is no option label here; dataset.label needs dataset=edge_list"),
        ("+seed=3", "An item is already at 'seed'. Either remove + prefix: 'seed=3' Or add a second +"),
        ("dataset=own.npz", "dataset is own.npz, a file; give dataset=npz dataset.path=own.npz"),
        ("hydra.run.dir=", "hydra.run.dir is empty; give the folder of the run, or leave it out"),
        ("dataset=E.CSV", "dataset is E.CSV, a file; give dataset=edge_list dataset.edges=E.CSV"),
        ("dataset=g.pt", "dataset is g.pt, a file that is not read; make a .npz, .csv, .tsv or .parquet file of it"),
        (
            "model=GCN",
            "; did you mean gcn?",
        ),
        (
            "--resume",
            "no option --resume; ckpt_path=<folder of the run>/checkpoints/step.ckpt continues a run",
        ),
        (
            "checkpoint=a.ckpt",
            "no option checkpoint; ckpt_path=<folder of the run>/checkpoints/step.ckpt continues",
        ),
        ("--predict", "there is no option --predict; mode=predict ckpt_path=<folder of the run>/checkpoints/best.ckpt"),
        ("datamodule.num_workers=4", "there is no option datamodule.num_workers; num_threads says how many threads"),
        ("sampler.fanouts=(15,10)", "a list has brackets: 'sampler.fanouts=[15,10]'"),
        ("+logger=csv", "+logger=csv would add a second logger; leave out the +: logger=csv"),
        ("+logger=tensorboard", "; leave out the +: logger=tensorboard"),
        ("=", "cannot read the argument =; give NAME=VALUE, without spaces"),
        ("--multirn", "there is no option --multirn; did you mean --multirun?"),
        ("dataset.split={train: 1}", "cannot take the argument dataset.split={train: 1} (Cannot merge DictConfig with"),
        ("model=null", "model is null; it must be one of gat, gatv2, gcn"),
        ("hydra/launcher=nowhere", "hydra/launcher is 'nowhere'; it must be one of basic, joblib"),
        (
            "dataset.path=a.npz",
            "there is no option dataset.path here; dataset.path needs dataset=hetero_npz or dataset=npz or "
            "dataset=rel-f1 or dataset=relational",
        ),
        ("features.fraction=1", "features.fraction needs features=cached or features=partitioned"),
        ("sampler=5", "sampler is 5; it must be one of dgl, full, fused"),
        ("dataset=true", "dataset is true; it must be one of aifb, amazon-computers"),
        ("task=''", "task is ''; it must be one of link, node"),
        ("=3", "cannot read the argument =3; give NAME=VALUE"),
        ("modle=node2vec", "there is no option modle; did you mean model?"),
        ("net=graphsage", "there is no option net; did you mean model=graphsage?"),
        (
            "sampler.fanouts=15,10",
            "'sampler.fanouts=15,10' 1. To use it as a list, use key=[value1,value2] 2. To use it as string, quote",
        ),
        ("dataset=../cora", "dataset is '../cora'; it must be one of aifb, amazon-computers"),
        (
            "dataset@own=cora",
            "cannot read the argument dataset@own=cora; give NAME=VALUE, without spaces, and no @",
        ),
        ("@own=1", "cannot read the argument @own=1; give NAME=VALUE, without spaces, and no @ in NAME"),
        (
            "schedule={name: StepLR, step_size: 3}",
            "schedule={name: StepLR, step_size: 3} has an option that schedule has not; +schedule.NAME=VALUE adds one",
        ),
        (
            "callbacks.best={save_last: true}",
            "has an option that callbacks.best has not; +callbacks.best.NAME=VALUE adds one, ++callbacks.best={...} s",
        ),
        ("~seed=4", "Could not delete from config. The value of 'seed' is 0 and not 4."),
        ("~model.colour", "there is no option model.colour; model has class_weights, cuda_graph"),
        ("hydra.sweeper.colour=1", "there is no option hydra.sweeper.colour; `python train.py --help` lists all"),
    ],
)
def test_a_misspelt_argument_is_named_with_the_nearest(argument: str, message: str) -> None:
    assert message in refusal(argument)


def test_jobs_of_a_sweep_share_no_result() -> None:
    for sweep in (["-m", "seed=0,1"], ["--multirun"], ["hparams_search=grid"]):
        with pytest.raises(
            ValueError, match=r"result_path is a.json, one file for all jobs of the sweep; give 'result_p"
        ):
            prepared([*sweep, "result_path=a.json"], CONF)
        for path in ("null", "${run_dir}/a.json", "a.json,b.json"):
            prepared([*sweep, f"result_path={path}"], CONF)
    assert prepared(["result_path=a.json"], CONF) == ["result_path=a.json"]


def test_flags_of_hydra_are_let_through() -> None:
    arguments = ["-m", "--cfg", "job", "--config-name=train", "--multi", "-cd", "conf", "--info", "plugins"]
    assert prepared(arguments, CONF) == arguments
    assert prepared(["-i", "seed=1"], CONF) == ["--info=all", "seed=1"]


def test_flags_may_come_after_options() -> None:
    arguments = ["sampler=fused", "-m", "seed=1,2", "--cfg", "job", "model.lr=1"]
    assert prepared(arguments, CONF) == ["-m", "--cfg", "job", "sampler=fused", "seed=1,2", "model.lr=1"]


def test_additions_to_a_part_are_let_through() -> None:
    arguments = ["+features.fraction=0.3", "++sampler.replace=true", "+hydra.job.name=x", "+experiment=shchur"]
    assert prepared(arguments, CONF) == arguments


def test_a_folder_that_cannot_be_made_is_named() -> None:
    error = FileNotFoundError(errno.ENOENT, "No such file or directory", "/nowhere/run")
    assert explain(error, [], CONF) == (
        "cannot use /nowhere/run: No such file or directory; check that path and its permissions, or give another one"
    )


def test_keys_of_the_chosen_option_are_known() -> None:
    message = "there is no option dataset.pth; did you mean dataset.path?"
    assert refusal("dataset=npz", "dataset.pth=a.npz") == message


def test_null_means_none_of_a_group() -> None:
    arguments = ["logger=null", "callbacks=null", "experiment=null", "hparams_search=null", "cache_dir=null", "-m"]
    assert prepared(arguments, CONF) == ["-m", "logger=none", "callbacks=none", "cache_dir=null"]


def test_options_of_a_small_dataset_are_known() -> None:
    """Its file has options of other groups beside its own."""
    said = refusal("dataset=cora", "dataset.num_neighbors=3")
    assert said == "there is no option dataset.num_neighbors here; dataset.num_neighbors needs dataset=digits"


def test_a_key_that_nothing_reads_is_named() -> None:
    cfg = OmegaConf.create({"seed": 3, "width": 64, "model": {"hidden_channels": "${width}"}, "modell": {"lr": 0.1}})
    with pytest.raises(ValueError, match=r"modell is set, but nothing reads it or refers to it: .* did you mean model"):
        check_keys(cfg, CONF)
    del cfg["modell"]
    check_keys(cfg, CONF)  # other values refer to width


def test_a_folder_of_too_many_options_is_named(tmp_path: Path) -> None:
    name = ",".join(["model.hidden_channels=16", "seed=0", "x" * 250])
    with pytest.raises(OSError, match="File name too long") as long:
        (tmp_path / name / "0").mkdir()
    line = explain(long.value, ["-m", "hydra.sweep.subdir=${hydra.job.override_dirname}", "seed=0,1"], CONF)
    assert line.startswith("the folder of the run would have a name of 282 bytes, model.hidden_channels=16,seed=0,xxxx")
    assert "; leave options out of it by 'hydra.job.config.override_dirname.exclude_keys=[...]', or name it by" in line
