"""train.py with several processes here: one is lost, fewer go on, and all see one sequence of mini-batches."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from digest_record import records
from hetero_datasets import make_purchases, write_hetero
from hydra.utils import instantiate
from marks import needs_frame
from omegaconf import open_dict
from shop import write_shop
from train_runs import ROOT, composer

from models.training.link_job import without_node_options

BATCH = 6
OPTIONS = (
    "device=cpu", "num_threads=1", "dataset=synthetic", "dataset.num_nodes=1000", "dataset.num_features=8",
    f"datamodule.batch_size={BATCH}", "callbacks=quiet", "callbacks.early_stopping=null", "logger=none",
)  # fmt: skip


def start(
    folder: Path, name: str, *arguments: str, options: Sequence[str] = OPTIONS, seconds: float = 0.0
) -> subprocess.Popen[str]:
    """train.py with a `DigestRecord`."""
    paths = [str(ROOT / "tests" / "support"), *filter(None, [os.environ.get("PYTHONPATH")])]
    launched = ("LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_PORT")
    return subprocess.Popen(
        [
            sys.executable, str(ROOT / "train.py"), *options, f"data_dir={folder / 'data'}", f"hydra.run.dir={name}",
            "+callbacks.digests._target_=digest_record.DigestRecord", f"+callbacks.digests.folder={folder / name}",
            f"+callbacks.digests.seconds={seconds}", *arguments,
        ],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**{k: v for k, v in os.environ.items() if k not in launched}, "PYTHONPATH": os.pathsep.join(paths)},
    )  # fmt: skip


def expected(folder: Path, epochs: int, options: Sequence[str] = OPTIONS) -> list[list[str]]:
    """The lines of each epoch, in the order of the mini-batches' numbers, by one process without a trainer."""
    with composer(folder) as composed:
        cfg = composed(*options, f"data_dir={folder / 'data'}")
    if cfg.task == "link":
        with open_dict(cfg):
            without_node_options(cfg)
    datamodule = instantiate(cfg.datamodule)
    datamodule.prepare_data()
    datamodule.setup()
    loader = datamodule.train_dataloader()
    lines = []
    for epoch in range(epochs):
        loader.set_epoch(epoch)
        lines.append([f"{epoch} {batch.digest()}" for batch in loader])
    datamodule.close()
    return lines


def turns(epoch: list[str], first: int, rank: int, ranks: int) -> list[str]:
    """The lines of a rank from mini-batch `first` on."""
    steps = math.ceil((len(epoch) - first) / ranks)
    return [epoch[(first + step * ranks + rank) % len(epoch)] for step in range(steps)]


@pytest.mark.slow
def test_four_ranks_lose_one_and_two_go_on(tmp_path: Path) -> None:
    four = start(tmp_path, "four", "trainer.devices=4", "trainer.max_epochs=2", seconds=0.05)
    seen: dict[int, tuple[int, list[str]]] = {}
    deadline = time.monotonic() + 300
    while not (3 in seen and len(seen[3][1]) > 5) and four.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
        seen = records(tmp_path / "four")
    if 3 in seen:
        os.kill(seen[3][0], signal.SIGKILL)
    _, said = four.communicate(timeout=300)
    assert four.returncode == 1, said
    assert said == "error: process 3 of this run was ended by SIGKILL, so the run ends\n"
    for pid, _ in seen.values():
        assert not Path(f"/proc/{pid}").exists()

    checkpoint = tmp_path / "four" / "checkpoints" / "step.ckpt"
    done = int(torch.load(checkpoint, weights_only=True)["global_step"])
    assert done in (1, 2, 4, 8, 16)
    two = start(tmp_path, "two", "trainer.devices=2", "trainer.max_epochs=2", f"ckpt_path={checkpoint}")
    shown, said = two.communicate(timeout=300)
    assert (two.returncode, said) == (0, ""), shown

    epochs = expected(tmp_path, 2)
    assert len(epochs[0]) == 100
    for rank, (_, lines) in records(tmp_path / "four").items():
        assert lines == turns(epochs[0], 0, rank, 4)[: len(lines)]
    resumed = records(tmp_path / "two")
    assert sorted(resumed) == [0, 1]
    for rank, (_, lines) in resumed.items():
        assert lines == turns(epochs[0], 4 * done, rank, 2) + turns(epochs[1], 0, rank, 2)


TYPED = {
    "node": ("model=to_hetero", "datamodule.batch_size=4"),
    "link": (
        "task=link", "datamodule.batch_size=100", "datamodule.edge_type=user__buys__item",
        "datamodule.eval_negatives=3", "datamodule.reverse=item__rev_buys__user",
    ),
    "table": ("model=rsage", "model.encoder_layers=1", "sampler.fanouts=[4,4]", "datamodule.batch_size=32"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("task", "ranks"), [("node", 2), ("link", 3), pytest.param("table", 2, marks=needs_frame)])
def test_ranks_share_mini_batches_of_types(tmp_path: Path, task: str, ranks: int) -> None:
    """Also if the last mini-batches are fewer than the ranks."""
    if task == "table":
        shop = write_shop(tmp_path / "shop")
        data = ["dataset=relational", f"dataset.path={shop}", "dataset.task=spent"]
    else:
        data = ["dataset=hetero_npz", write_hetero(tmp_path, make_purchases() if task == "link" else None)]
    options = (
        "device=cpu", "num_threads=1", *data, "model.hidden_channels=8", "callbacks=quiet", *TYPED[task],
        "callbacks.early_stopping=null", "logger=none",
    )  # fmt: skip
    run = start(tmp_path, "run", f"trainer.devices={ranks}", "trainer.max_epochs=2", options=options)
    shown, said = run.communicate(timeout=300)
    assert (run.returncode, said) == (0, ""), shown
    epochs = expected(tmp_path, 2, options)
    assert len(epochs[0]) in (4, 7, 8)
    found = records(tmp_path / "run")
    assert sorted(found) == list(range(ranks))
    for rank, (_, lines) in found.items():
        assert lines == turns(epochs[0], 0, rank, ranks) + turns(epochs[1], 0, rank, ranks)
    for epoch in epochs:
        met = {line for _, lines in found.values() for line in lines}
        assert set(epoch) <= met
