"""Chains of resumes with 1 to 4 processes over gloo, whose number changes between the runs of a chain.

`python tests/support/rank_chains.py FIRST COUNT` runs the chains of these numbers, and prints those that fail. Four
processes stay for all of them, since to start one takes seconds.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import random
import socket
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import Checkpoint
from resume_chains import Chain, Cut, Seen, fit_arguments, make_callbacks

from models.training.callbacks import RandomState
from models.training.strategy import OneExchangeStrategy

MOST = 4


def draw(number: int) -> tuple[Chain, list[int]]:
    """The chain of a number, and the processes of its runs; of half of the chains they are always as many."""
    r = random.Random(number)
    accumulate = r.choice((1, 1, 2))
    options = {"limit_val_batches": 0} if r.random() < 0.3 else {}
    batches, epochs = r.choice((3, 5, 8, 12)), r.randint(1, 3)
    saving = r.sample(("step", "every", "epoch end", "validation"), r.randint(1, 2))
    cuts = [(r.choice(("step", "batch end")), r.randint(1, 6)) for _ in range(r.randint(1, 3))]
    one = r.randint(2, MOST)
    ranks = [one if number % 2 else r.randint(1, MOST) for _ in range(len(cuts) + 1)]
    chain = Chain(
        number, r.choice(("direct", "own", "module")), "node", batches=batches, prefetch=r.choice((0, 2)),
        epochs=epochs, accumulate=accumulate, scheduler=r.choice(("none", "one cycle")), options=options,
        saving=saving, cuts=cuts,
    )  # fmt: skip
    return chain, ranks


class Together(Seen):
    """Writes what all processes saw into its checkpoints."""

    before: tuple[str, ...] = ()  # of earlier runs

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["seen"] = self.all_seen()

    def all_seen(self) -> list[str]:
        lists: list[Any] = [self.seen]
        if dist.is_initialized():
            lists = [None] * dist.get_world_size()
            dist.all_gather_object(lists, self.seen)
        return [*self.before, *(line for one in lists for line in one)]

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.before = tuple(checkpoint["seen"])

    def training_step(self, batch: Any, index: int) -> Any:
        loss = super().training_step(batch, index)
        if batch.repeats:  # which another process has
            self.given.pop()
        return loss


def run(chain: Chain, folder: Path, number: int, rank: int, ranks: int, cut: Any, resumed: str) -> dict[str, Any]:
    """One run of a chain in one of its processes."""
    folder.mkdir(exist_ok=True)
    port = folder / f"port-{number}"
    if rank == 0:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            draft = folder / f"draft-{number}"
            draft.write_text(str(probe.getsockname()[1]))
        draft.rename(port)
    while not port.exists():
        time.sleep(0.005)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port.read_text(), "LOCAL_RANK": str(rank)}
    os.environ |= {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "NODE_RANK": "0"}
    torch.manual_seed(0)
    model = Together(chain, cut)
    torch.manual_seed(rank + 10 * number if resumed else rank)
    callbacks = make_callbacks(chain, folder) if cut is not None else [RandomState()]
    several: dict[str, Any] = {"strategy": OneExchangeStrategy()} if ranks > 1 else {}
    trainer = Trainer(
        accelerator="cpu", devices=ranks, logger=False, callbacks=callbacks, enable_progress_bar=False,
        enable_checkpointing=any(isinstance(one, Checkpoint) for one in callbacks), enable_model_summary=False,
        default_root_dir=folder, max_epochs=chain.epochs, num_sanity_val_steps=0, use_distributed_sampler=False,
        accumulate_grad_batches=chain.accumulate, **several, **chain.options,
    )  # fmt: skip
    data = fit_arguments(chain, rank, ranks)
    with contextlib.suppress(Cut):
        trainer.fit(model, **data, ckpt_path=resumed or None)
    found = {"seen": model.all_seen(), "weights": {name: value.clone() for name, value in model.state_dict().items()}}
    if dist.is_initialized():
        dist.destroy_process_group()
    return found


def check(number: int, root: Path, rank: int) -> None:
    """Runs a chain in one of the processes. The first one raises AssertionError if it ends otherwise than it should."""
    chain, ranks = draw(number)
    folder = root / str(number)
    folder.mkdir(exist_ok=True)
    resumed = ""
    told = []
    last: dict[str, Any] = {}
    for i, (count, cut) in enumerate(zip(ranks, [*chain.cuts, None], strict=True)):
        if rank < count:
            last = run(chain, folder / "chain", i, rank, count, cut, resumed)
        chosen = folder / f"chosen-{i}"
        if rank == 0:
            saved = sorted((folder / "chain").glob("*.ckpt"))
            name = str(random.Random(number + i).choice(saved)) if saved else ""
            told.append(f"{count} processes, {cut} -> {Path(name).name}")
            (folder / f"draft-{i}").write_text(name)
            (folder / f"draft-{i}").rename(chosen)
        while not chosen.exists():
            time.sleep(0.005)
        resumed = chosen.read_text()
    whole: dict[str, Any] = {}
    alike = len(set(ranks)) == 1
    if rank < ranks[0] and alike:
        whole = run(chain, folder / "whole", 0, rank, ranks[0], None, "")
    if rank > 0:
        return
    found = sorted(tuple(map(int, line.split()[:2])) for line in last["seen"])
    expected = [(epoch, index) for epoch in range(chain.epochs) for index in range(chain.batches)]
    assert found == expected, f"{chain}\n{told}\n{found}"
    if alike:
        equal = [name for name, value in whole["weights"].items() if torch.equal(value, last["weights"][name])]
        assert len(equal) == len(whole["weights"]), f"{chain}\n{told}\nother weights: {equal} are equal"


def holds(number: int, root: Path, rank: int) -> bool:
    """Whether a chain ends as it should; if not, it is printed. After an error the process ends."""
    try:
        check(number, root, rank)
    except AssertionError as error:
        print(f"{number}: {error}\n", flush=True)
        return False
    except Exception:
        print(f"{number} in process {rank}: {draw(number)}\n{traceback.format_exc(limit=-6)}", flush=True)
        sys.exit(2)  # the others wait in vain
    return True


def worker(rank: int, root: Path, first: int, count: int) -> None:
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    failed = sum(not holds(number, root, rank) for number in range(first, first + count))
    if rank == 0:
        print(f"{count - failed} of {count} chains of 1 to {MOST} processes see each mini-batch once", flush=True)
    sys.exit(failed > 0)


def main(first: int, count: int) -> int:
    """Starts the processes, and ends all if one fails. They are forks: to import all of this takes them seconds."""
    with tempfile.TemporaryDirectory() as name:
        fork = multiprocessing.get_context("fork")
        workers = [fork.Process(target=worker, args=(rank, Path(name), first, count)) for rank in range(MOST)]
        for one in workers:
            one.start()
        try:
            while any(one.is_alive() for one in workers) and not any(one.exitcode for one in workers):
                time.sleep(0.05)
            return max(abs(one.exitcode or 0) for one in workers)
        finally:
            for one in workers:
                one.kill()
                one.join()


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
