"""From the results of jobs to curves and differences."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import convergence
import numpy as np
import pytest
import torch
from _jobs import check_comparable, read_jobs, side_of

OURS, DGLS = (0.70, 0.702, 0.698), (0.701, 0.699, 0.70)


@pytest.fixture
def jobs(job) -> list[dict[str, Any]]:
    return [job("FusedSampler", seed, x) for seed, x in enumerate(OURS)] + [
        job("DGLSampler", seed, x) for seed, x in enumerate(DGLS)
    ]


def test_a_row_holds_curves_and_difference(jobs) -> None:
    (row,) = convergence.summarise(jobs[::-1], "dgl", 0.5, 0.95)
    assert (row["dataset"], row["layers"], row["batch_size"], row["epochs"]) == ("graph", 2, 4, 2)
    ours = row["sides"]["fused"]
    assert ours["seeds"] == [0, 1, 2]
    assert ours["test"] == pytest.approx([70.0, 70.2, 69.8])
    assert ours["val_mean"] == pytest.approx([60.0, 70.0])
    assert ours["seconds_mean"] == [1.0, 2.0]
    assert list(row["differences"]) == ["fused"]
    assert row["differences"]["fused"]["value"] == pytest.approx(0.0)
    assert row["differences"]["fused"]["first_loss_gap"] == pytest.approx(0.003)
    assert row["differences"]["fused"]["low"] < 0 < row["differences"]["fused"]["high"]


def test_single_seeds_are_shown_without_a_difference(job) -> None:
    (row,) = convergence.summarise([job("FusedSampler", 0, 0.7), job("DGLSampler", 0, 0.7)], "dgl", 0.5, 0.95)
    assert row["differences"] == {}
    assert row["sides"]["dgl"]["val_half_width"] == [None, None]
    assert row["sides"]["dgl"]["test_std"] is None


def test_types_of_rows_and_steps_are_sides(job) -> None:
    plain, eight, half = (job("FusedSampler", 0, 0.5) for _ in range(3))
    eight["config"]["features"] = {"storage_dtype": "int8"}
    half["config"]["features"] = {"storage_dtype": "bfloat16"}
    half["config"]["trainer"]["precision"] = "bf16-mixed"
    plain["config"]["trainer"]["precision"] = "32-true"
    sides = ["fused", "fused, int8 rows", "fused, bfloat16 rows, bf16-mixed"]
    assert [side_of(one) for one in (plain, eight, half)] == sides
    check_comparable([plain, eight, half])


def test_the_command_writes_json_and_pictures(jobs, tmp_path: Path, monkeypatch, capsys) -> None:
    for i, result in enumerate(jobs):
        (tmp_path / "sweep" / str(i)).mkdir(parents=True)
        (tmp_path / "sweep" / str(i) / "result.json").write_text(json.dumps(result))
    out = tmp_path / "found.json"
    monkeypatch.setattr(
        sys, "argv", ["convergence.py", str(tmp_path / "sweep"), "--json", str(out), "--images", str(tmp_path)]
    )
    convergence.main()
    found = json.loads(out.read_text())
    assert found["images"] == ["found-graph.svg"]
    assert found["jobs"] == ["python train.py -m experiment=convergence"]
    assert found["command"] == "python benchmarks/convergence.py multirun/convergence"
    assert found["hardware"] == {"cpu": "some"}  # of the jobs
    assert found["date"].startswith("2026-01-03")  # of the last of them
    picture = (tmp_path / "found-graph.svg").read_text()
    assert "<svg" in picture
    assert "fused" in capsys.readouterr().out
    convergence.main()
    assert (tmp_path / "found-graph.svg").read_text() == picture


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model__hidden_channels": 16}, r"model\.hidden_channels: 8 and 16"),
        ({"sampler__fanouts": 5}, r"sampler\.fanouts: \[10, 10\] and \[5, 5\]"),
        ({"datamodule__batch_size": 8}, r"datamodule\.batch_size: 4 and 8"),
        ({"trainer__max_epochs": 9}, r"trainer\.max_epochs: 2 and 9"),
        ({}, "this job .* is there twice"),
    ],
)
def test_jobs_that_cannot_be_compared_are_refused(job, jobs, changes, message) -> None:
    with pytest.raises(ValueError, match=message):
        check_comparable([*jobs, job("DGLSampler", 2, 0.7, **changes)])


def test_fanouts_for_each_hop_may_be_one_number(job) -> None:
    check_comparable([job("FusedSampler", 0, 0.7), job("DGLSampler", 0, 0.7, sampler__fanouts=[10, 10])])


def test_curves_of_unequal_length_are_refused(jobs) -> None:
    jobs[0]["epochs"].pop()
    with pytest.raises(ValueError, match="turn early stopping off"):
        convergence.summarise(jobs, "dgl", 0.5, 0.95)
    for of in jobs:
        of["epochs"] = []
    with pytest.raises(ValueError, match="left no curves"):
        convergence.summarise(jobs, "dgl", 0.5, 0.95)


@pytest.mark.parametrize(
    ("sampler", "device", "name"),
    [
        ("FusedSampler", None, "fused"),
        ("fused", "cpu", "fused"),
        ("fused", "cuda", "fused, GPU"),
        ("DGLSampler", None, "dgl"),
        ("Other", None, "Other"),
    ],
)
def test_sides_have_names(job, sampler, device, name) -> None:
    assert side_of(job(sampler, 0, 0.5, sampler__device=device)) == name


def test_a_folder_without_results_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no result\.json below"):
        read_jobs([tmp_path])


def test_labor_has_a_name_of_its_own(job) -> None:
    uniform = job("fused", 0, 0.7, sampler__device="cpu", sampler__labor=False)
    labor = job("fused", 0, 0.7, sampler__device="cpu", sampler__labor=True)
    on_gpu = job("fused", 0, 0.7, sampler__device="cuda", sampler__labor=True)
    assert [side_of(one) for one in (uniform, labor, on_gpu)] == ["fused", "labor", "labor, GPU"]


def test_sizes_are_those_of_the_jobs_mini_batches(job, tmp_path: Path) -> None:
    n = 400
    g = torch.Generator().manual_seed(0)
    src, dst = (torch.rand(2, 20 * n, generator=g) ** 2 * n).long()
    arrays = {"src": src, "dst": dst, "features": np.zeros((n, 1)), "labels": np.arange(n) % 2}
    splits = {"train": np.arange(200), "val": np.arange(200, 300), "test": np.arange(300, n)}
    np.savez(tmp_path / "mine.npz", **arrays, **splits)
    dataset = {"_target_": "loader.datasets.NpzDataset", "path": "mine.npz", "name": "mine"}
    jobs = [
        job("fused", seed, 0.7 + seed / 1000, dataset=dataset, datamodule__batch_size=100, sampler__labor=labor)
        for seed in range(2)
        for labor in (False, True)
    ]
    for one in jobs:
        one["config"]["sampler"].update(fanouts=4, num_hops=2, device="cpu")
    rows = convergence.summarise(jobs, "fused", 0.5, 0.95)
    convergence.add_sizes(rows, jobs, str(tmp_path), None)
    fused, labor = (rows[0]["sides"][name] for name in ("fused", "labor"))
    assert 100 < labor["nodes"] < fused["nodes"] < n
    assert labor["edges"] == pytest.approx(fused["edges"], rel=0.5)
