"""train.py on two "hosts" of two processes each, here over gloo: the losses of one process; one that is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from digest_record import records
from host_ranks import finish_ranks, start_ranks
from train_runs import ROOT, composer, in_process

import train as train_module

OPTIONS = (
    "device=cpu", "num_threads=1", "dataset=synthetic", "dataset.num_nodes=1000", "dataset.num_features=8",
    "datamodule.batch_size=10", "datamodule.drop_last=true", "callbacks=quiet", "callbacks.early_stopping=null",
    "logger=none", "model.dropout=0", "features.num_threads=1", "trainer.val_check_interval=6",
    "+callbacks.losses._target_=loss_record.LossRecord",
)  # fmt: skip
PARTITIONED = ("features=partitioned", "features.fraction=0.05", "features.batches_per_exchange=3")


class Host:
    """The processes of a host, which end together as under torchrun: if one fails, the others get SIGTERM."""

    def __init__(self, ranks: list[subprocess.Popen[str]]) -> None:
        self.ranks, self.told = ranks, False

    def ended(self) -> bool:
        if not self.told and any(rank.poll() for rank in self.ranks):
            self.told = True
            for rank in self.ranks:
                rank.terminate()
        return all(rank.poll() is not None for rank in self.ranks)


def losses(folder: Path) -> dict[tuple[int, int], float]:
    """(epoch, number of the mini-batch) -> loss."""
    found = {}
    for _, lines in records(folder).values():
        for line in lines:
            epoch, number, loss = line.split()
            found[int(epoch), int(number)] = float(loss)
    return found


@pytest.mark.slow
def test_hosts_train_as_one_process_and_end_together(tmp_path: Path) -> None:
    folder = tmp_path / "hosts"
    command = [
        str(ROOT / "train.py"), *OPTIONS, *PARTITIONED, f"data_dir={tmp_path / 'data'}", f"hydra.run.dir={folder}",
        f"+callbacks.losses.folder={folder / 'losses'}", "+callbacks.losses.seconds=0.1", "trainer.devices=2",
        "trainer.num_nodes=2", "trainer.max_epochs=3",
    ]  # fmt: skip
    ranks = start_ranks(command, 2, 2, TORCHELASTIC_RUN_ID="test", TMPDIR=str(tmp_path))
    hosts = [Host(ranks[:2]), Host(ranks[2:])]
    try:
        deadline = time.monotonic() + 300
        seen: dict[int, tuple[int, list[str]]] = {}
        while not (3 in seen and len(seen[3][1]) > 17) and ranks[3].poll() is None and time.monotonic() < deadline:
            time.sleep(0.01)
            seen = records(folder / "losses")
        os.kill(ranks[3].pid, signal.SIGKILL)
        killed = time.monotonic()
        left = hosts
        while left and time.monotonic() < killed + 300:  # a second, if nothing else runs
            left = [host for host in left if not host.ended()]
            time.sleep(0.01)
        assert not left
    finally:
        for rank in ranks:
            rank.kill()
    said = "".join(rank.communicate()[1] for rank in ranks)
    assert len(seen[3][1]) > 17, said
    checkpoint = folder / "checkpoints" / "step.ckpt"
    assert said.startswith("error: another process of this run ended or no longer answers, in epoch 2, after step "), (
        said
    )
    assert said.endswith(f"give the same options again and ckpt_path={checkpoint}\n")
    assert said.count("\n") == 1

    # One process, whose steps take the mini-batches of four.
    with composer(tmp_path / "one") as composed:
        options = (f"data_dir={tmp_path / 'data'}", f"+callbacks.losses.folder={tmp_path / 'one' / 'losses'}")
        in_process(composed, *OPTIONS, *options, "trainer.max_epochs=1", "trainer.accumulate_grad_batches=4")
    alone, together = losses(tmp_path / "one" / "losses"), losses(folder / "losses")
    first = {at: loss for at, loss in together.items() if at[0] == 0}
    assert sorted(first) == sorted(alone) == [(0, number) for number in range(60)]
    # Lightning divides the losses of accumulated mini-batches.
    assert first == pytest.approx({at: 4 * loss for at, loss in alone.items()}, rel=1e-4)


def test_a_machine_says_whom_it_waits_for(tmp_path: Path) -> None:
    command = [
        str(ROOT / "train.py"), *OPTIONS[:7], "callbacks=none", "logger=none", f"data_dir={tmp_path / 'data'}",
        f"hydra.run.dir={tmp_path / 'run'}", "trainer.num_nodes=2", "trainer.max_epochs=1", "exact_test=false",
    ]  # fmt: skip
    (code, first, failed), (other, *_) = finish_ranks(start_ranks(command, 2, 1), 300)
    assert (code, other) == (0, 0), failed
    assert "trainer.num_nodes is 2: machine 0 (NODE_RANK) waits for the others at 127.0.0.1:" in first + failed


@pytest.mark.parametrize("options", [("trainer.num_nodes=2",), ("trainer.devices=2", "trainer.strategy=ddp")])
def test_hosts_that_nobody_tells_are_refused(tmp_path: Path, options: tuple[str, ...]) -> None:
    with composer(tmp_path) as composed:
        cfg = composed("device=cpu", "features=partitioned", *options)
        with pytest.raises(ValueError, match="would not know which process is on which host; start by torchrun"):
            train_module.train(cfg)


def test_one_host_has_all_rows(tmp_path: Path) -> None:
    with composer(tmp_path) as composed:
        small = ("dataset=synthetic", "dataset.num_nodes=300", "callbacks=none", "logger=none")
        host = in_process(composed, *small, "optimized_metric=train/loss")
        assert in_process(composed, *small, "optimized_metric=train/loss", "features=partitioned") == host
