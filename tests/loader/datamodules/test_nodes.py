"""The DataModule under Lightning: splits, hooks, and resuming with exactly the mini-batches that were left."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import weakref
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer, seed_everything
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from small_datamodule import (
    BATCH_SIZE,
    NUM_BATCHES,
    Crash,
    Recorder,
    crash_at,
    lines,
    make_datamodule,
    make_dataset,
    make_trainer,
)
from small_loader import no_threads
from torch import Tensor

import loader
from loader.datasets import DatasetError, NodeDataset
from loader.samplers import FullSampler, FusedSampler, WalkSampler, fused
from loader.samples import MiniBatch
from loader.stores import HostFeatures

SUPPORT = Path(__file__).parents[2] / "support"


# Called by the subprocesses of the test below: {root} {log} {step to die at, or -1} {checkpoint or ""}.
def main(root: str, log: str, die_at: str, checkpoint: str) -> None:
    def on_step(step: int) -> None:
        if step == int(die_at):
            os.kill(os.getpid(), signal.SIGKILL)

    seed_everything(0, verbose=False)
    trainer = make_trainer(Path(root), every=4)
    trainer.fit(Recorder(Path(log), on_step), datamodule=make_datamodule(), ckpt_path=checkpoint or None)


def run_main(*arguments: object) -> int:
    paths = [
        Path(loader.__file__).parent.parent,
        Path(__file__).parent,
        SUPPORT,
        *filter(None, [os.environ.get("PYTHONPATH")]),
    ]
    return subprocess.run(
        [sys.executable, "-c", "import sys, test_nodes as t; t.main(*sys.argv[1:])", *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))},
        timeout=800,
        check=False,
    ).returncode


def test_a_run_killed_in_mid_epoch_resumes(tmp_path: Path) -> None:
    """Three processes: one that is left alone, one that kill -9 ends in its second epoch, one that resumes it."""
    alone, killed, resumed = (tmp_path / name for name in ("alone.log", "killed.log", "resumed.log"))
    assert run_main(tmp_path / "a", alone, -1, "") == 0
    assert run_main(tmp_path / "b", killed, 10, "") == -signal.SIGKILL
    assert run_main(tmp_path / "b", resumed, -1, tmp_path / "b" / "step=8.ckpt") == 0

    expected = lines(alone)
    assert len(expected) == len(set(expected)) == 4 * NUM_BATCHES
    assert lines(killed) == expected[:11]
    assert lines(resumed) == expected[8:]  # one mini-batch into the second epoch
    # Past are the sanity check (2 mini-batches) and the validation of epoch 0 (3 mini-batches).
    assert lines(resumed, "val") == lines(alone, "val")[2 + 3 :]


# A run that is resumed finds the checkpoints of the one before; Lightning warns of that.
resumes = pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty")


@resumes
@pytest.mark.parametrize(
    ("every", "step", "prefetch", "options"),
    [
        (3, 3, 0, {}),  # in the first epoch
        (4, 20, 3, {}),  # in the third
        (6, 6, 3, {}),  # before the last mini-batch of an epoch
        (7, 7, 3, {}),  # after the last one
        (7, 14, 0, {"limit_val_batches": 0}),
        (1, 8, 3, {}),  # after the first one
        (5, 10, 3, {"limit_train_batches": 5}),  # where a shortened epoch ends
        (3, 6, 0, {"limit_train_batches": 5}),
        (3, 9, 3, {"max_epochs": -1, "max_steps": 20}),
        (4, 8, 3, {"val_check_interval": 3}),
    ],
)
def test_resuming_gives_exactly_the_rest(
    tmp_path: Path, every: int, step: int, prefetch: int, options: dict[str, Any]
) -> None:
    make = partial(make_datamodule, prefetch=prefetch)
    alone, crashed, resumed = (tmp_path / name for name in ("alone.log", "crashed.log", "resumed.log"))
    make_trainer(tmp_path, **options).fit(Recorder(alone), datamodule=make())
    expected = lines(alone)

    with pytest.raises(Crash):
        make_trainer(tmp_path, every, **options).fit(Recorder(crashed, crash_at(step + 2)), datamodule=make())
    assert lines(crashed) == expected[: step + 3]
    assert no_threads()  # although the run ended with an exception

    checkpoint = tmp_path / f"step={step}.ckpt"
    trainer = make_trainer(tmp_path, every, **options)
    trainer.fit(Recorder(resumed), datamodule=make(), ckpt_path=checkpoint)
    assert lines(resumed) == expected[step:]
    assert trainer.global_step == len(expected)


@resumes
def test_a_checkpoint_of_other_rows_is_refused(tmp_path: Path) -> None:
    def module(kept: str | None) -> Any:
        return make_datamodule(features=partial(HostFeatures, num_threads=1, storage_dtype=kept))

    make_trainer(tmp_path, 3, max_epochs=1).fit(Recorder(tmp_path / "first.log"), datamodule=module("int8"))
    checkpoint = tmp_path / "step=3.ckpt"
    for kept, name in ((None, "float32"), ("float8", "float8_e4m3fn")):
        trainer = make_trainer(tmp_path, 3)
        with pytest.raises(
            ValueError, match=rf"trained with features kept as int8, .* as {name}; .*storage_dtype=int8"
        ):
            trainer.fit(Recorder(tmp_path / "other.log"), datamodule=module(kept), ckpt_path=checkpoint)
    make_trainer(tmp_path, 3).fit(Recorder(tmp_path / "same.log"), datamodule=module("int8"), ckpt_path=checkpoint)


class Scheduled(Recorder):
    """Asks for the number of steps, for which Lightning makes the loader before it reads the loader's state."""

    def configure_optimizers(self) -> Any:
        optimizer = super().configure_optimizers()
        steps = int(self.trainer.estimated_stepping_batches)
        schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1, 0.1, steps)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


@resumes
@pytest.mark.parametrize(("step", "prefetch"), [(4, 0), (8, 3), (20, 2)])
def test_a_scheduler_that_counts_steps_resumes(tmp_path: Path, step: int, prefetch: int) -> None:
    make = partial(make_datamodule, prefetch=prefetch)
    alone, resumed = tmp_path / "alone.log", tmp_path / "resumed.log"
    make_trainer(tmp_path, 4).fit(Scheduled(alone), datamodule=make())
    make_trainer(tmp_path, 4).fit(Scheduled(resumed), datamodule=make(), ckpt_path=tmp_path / f"step={step}.ckpt")
    assert lines(resumed) == lines(alone)[step:]


@resumes
def test_an_epoch_that_max_steps_cuts_goes_on(tmp_path: Path) -> None:
    """To Lightning the epoch is over."""
    alone, cut, resumed = (tmp_path / name for name in ("alone.log", "cut.log", "resumed.log"))
    options: dict[str, Any] = {"max_epochs": -1, "limit_val_batches": 0}
    make_trainer(tmp_path, max_epochs=3).fit(Recorder(alone), datamodule=make_datamodule())

    def at_epoch_ends() -> dict[str, Any]:
        saving = ModelCheckpoint(tmp_path, "{step}", every_n_epochs=1, save_on_train_epoch_end=True, save_top_k=-1)
        return {**options, "callbacks": [saving], "enable_checkpointing": True}

    make_trainer(tmp_path, max_steps=3, **at_epoch_ends()).fit(Recorder(cut), datamodule=make_datamodule())
    assert lines(cut) == lines(alone)[:3]
    make_trainer(tmp_path, max_steps=3 + NUM_BATCHES + 2, **at_epoch_ends()).fit(
        Recorder(resumed), datamodule=make_datamodule(), ckpt_path=tmp_path / "step=3.ckpt"
    )
    assert lines(resumed) == lines(alone)[3:][: NUM_BATCHES + 2]


def test_the_checkpoint_counts_trained_mini_batches(tmp_path: Path) -> None:
    make_trainer(tmp_path, every=3, max_epochs=2).fit(
        Recorder(tmp_path / "log"), datamodule=make_datamodule(prefetch=4)
    )
    for step in range(3, 2 * NUM_BATCHES, 3):
        saved = torch.load(tmp_path / f"step={step}.ckpt", weights_only=True)
        (state,) = saved["loops"]["fit_loop"]["state_dict"]["combined_loader"]
        assert (state["epoch"], state["next"]) == divmod(step, NUM_BATCHES)


@resumes
def test_resuming_with_another_configuration_is_refused(tmp_path: Path) -> None:
    make_trainer(tmp_path, every=3, max_epochs=1).fit(Recorder(tmp_path / "log"), datamodule=make_datamodule())
    with pytest.raises(ValueError, match=r"cannot resume: batch_size was 15 .* is 16 now"):
        make_trainer(tmp_path, every=3).fit(
            Recorder(tmp_path / "log"),
            datamodule=make_datamodule(batch_size=16),
            ckpt_path=tmp_path / "step=3.ckpt",
        )


def test_fit_and_test_see_their_mini_batches(tmp_path: Path) -> None:
    datamodule = make_datamodule(eval_sampler=FullSampler(2, num_threads=1), eval_batch_size=32, drop_last=True)
    trainer, model, log = make_trainer(tmp_path, max_epochs=1), Recorder(tmp_path / "log"), tmp_path / "log"
    trainer.fit(model, datamodule=datamodule)
    assert no_threads()
    assert len(lines(log)) == NUM_BATCHES - 1
    assert len(lines(log, "val")) == 2 * 2  # the sanity check sees the same two mini-batches
    trainer.test(model, datamodule=datamodule, verbose=False)
    tested = lines(log, "test")
    trainer.test(model, datamodule=datamodule, verbose=False)
    assert len(tested) == 2
    assert lines(log, "test") == tested * 2  # equal weights, equal numbers
    predicted = torch.cat(trainer.predict(model, datamodule=datamodule))
    assert predicted.tolist() == list(range(200))
    assert set(datamodule.loaders) == {"train", "val", "test", "predict"}
    assert datamodule.loaders["train"].stats.items == NUM_BATCHES - 1
    assert datamodule.loaders["train"] is datamodule.train_dataloader()
    assert datamodule.loaders["val"].neighbor_sampler is datamodule.eval_sampler is not datamodule.sampler
    assert no_threads()
    datamodule.close()
    with pytest.raises(RuntimeError, match="closed"):
        datamodule.features.gather(torch.tensor([0]))


def test_evaluation_outside_fit_is_that_of_epoch_0(tmp_path: Path) -> None:
    log = tmp_path / "log"
    datamodule, model = make_datamodule(eval_batch_size=16), Recorder(log)
    trainer = make_trainer(tmp_path, max_epochs=3, num_sanity_val_steps=0)

    def evaluated() -> list[str]:
        log.unlink(missing_ok=True)
        for evaluate in (trainer.validate, trainer.test, trainer.validate):
            evaluate(model, datamodule=datamodule, verbose=False)
        return lines(log, "val") + lines(log, "test")

    before = evaluated()
    assert {line.split()[1] for line in before} == {"0"}
    log.unlink()
    trainer.fit(model, datamodule=datamodule)
    assert [line.split()[1] for line in lines(log, "val")] == ["0"] * 3 + ["1"] * 3 + ["2"] * 3
    assert evaluated() == before


def test_overfitting_takes_the_same_mini_batches_each_epoch(tmp_path: Path) -> None:
    log = tmp_path / "log"
    make_trainer(tmp_path, overfit_batches=2, max_epochs=2, limit_val_batches=0).fit(
        Recorder(log), datamodule=make_datamodule(sampler=FullSampler(2, num_threads=1))
    )
    datamodule = make_datamodule()
    datamodule.setup()
    assert len(lines(log)) == 4
    assert [line.split()[1:3] for line in lines(log)] == [["0", "0"], ["0", "1"], ["1", "0"], ["1", "1"]]


def test_a_batch_size_set_later_counts() -> None:
    datamodule = make_datamodule()
    datamodule.setup()
    before = datamodule.train_dataloader()
    assert datamodule.train_dataloader() is before
    datamodule.batch_size = datamodule.eval_batch_size = 10  # as Lightning's BatchSizeFinder sets it
    for loader_of in (datamodule.train_dataloader, datamodule.val_dataloader, datamodule.predict_dataloader):
        assert next(iter(loader_of())).batch_size == 10
    datamodule.close()
    assert no_threads()


def test_a_sampler_set_later_samples() -> None:
    datamodule = make_datamodule()
    datamodule.setup()
    first = datamodule.val_dataloader()
    assert len(next(iter(first)).blocks) != 1
    for fanout in (1, 2):
        datamodule.eval_sampler = FusedSampler([fanout], num_threads=1)
        batch = next(iter(datamodule.val_dataloader()))
        assert int(batch.blocks[0].indptr.diff().max()) == fanout
    datamodule.close()
    assert no_threads()


def test_samplers_that_were_replaced_are_let_go() -> None:
    opened = []

    class Seen(FusedSampler):
        def open(self, graph: Any) -> Any:
            session = super().open(graph)
            opened.append(weakref.ref(session))
            return session

    datamodule = make_datamodule()
    datamodule.setup()
    for fanout in (1, 2, 3):
        datamodule.sampler = datamodule.eval_sampler = Seen([fanout], num_threads=1)
        for loader_of in (datamodule.train_dataloader, datamodule.val_dataloader, datamodule.train_dataloader):
            next(iter(loader_of()))
    gc.collect()
    assert [session() is None for session in opened] == [True, True, False]
    datamodule.close()


def test_samplers_may_compare_by_what_they_are() -> None:
    class Alike(FusedSampler):  # as a dataclass does; so it has no hash
        def __eq__(self, other: object) -> bool:
            return isinstance(other, Alike)

    datamodule = make_datamodule(sampler=Alike([2], num_threads=1))
    datamodule.setup()
    for fanout in (2, 1):
        batch = next(iter(datamodule.train_dataloader()))
        assert int(batch.blocks[0].indptr.diff().max()) == fanout
        datamodule.sampler = Alike([1], num_threads=1)
    datamodule.close()


def test_the_dataset_is_loaded_once_a_process() -> None:
    class Source:
        loads = 0

        def load(self) -> NodeDataset:
            self.loads += 1
            return make_dataset()

    source = Source()
    datamodule = make_datamodule(dataset=source)
    with pytest.raises(RuntimeError, match="call setup"):
        _ = datamodule.num_features
    assert source.loads == 0
    datamodule.prepare_data()
    for stage in ("fit", "test", None):
        datamodule.setup(stage)
    assert source.loads == 1
    assert (datamodule.num_features, datamodule.num_classes, datamodule.multilabel) == (8, 4, False)
    assert datamodule.data.name == "toy"
    assert datamodule.eval_sampler is datamodule.sampler
    assert datamodule.val_dataloader().batch_size == BATCH_SIZE


def test_only_a_needed_empty_split_is_refused(tmp_path: Path) -> None:
    datamodule = make_datamodule(dataset=make_dataset(num_val=0))
    with pytest.warns(UserWarning, match="Total length of `list` across ranks is zero"):  # Lightning says it
        make_trainer(tmp_path, max_epochs=1).fit(Recorder(tmp_path / "log"), datamodule=datamodule)
    assert len(lines(tmp_path / "log")) == NUM_BATCHES
    datamodule = make_datamodule(dataset=make_dataset(num_test=0))
    datamodule.setup()
    with pytest.raises(ValueError, match="dataset toy has no nodes in its test split"):
        datamodule.test_dataloader()


@pytest.mark.parametrize("lacks", ["labels", "training split"])
def test_labels_and_a_split_are_needed(lacks: str) -> None:
    data, none = make_dataset(), torch.empty(0, dtype=torch.int64)
    data = replace(data, splits=dict.fromkeys(("train", "val", "test"), none))
    if lacks == "labels":
        data = replace(data, labels=torch.full_like(data.labels, -1), num_classes=0)
    with pytest.raises(DatasetError, match=f"toy has no {lacks}; .*, or train what needs none: task=link, or model="):
        make_datamodule(dataset=data).setup()


def test_moving_to_a_device_moves_nothing_twice() -> None:
    datamodule = make_datamodule()
    datamodule.setup()
    batch = next(iter(datamodule.train_dataloader()))
    assert datamodule.transfer_batch_to_device(batch, torch.device("cpu"), 0) is batch
    assert datamodule.move_seconds == 0
    moved = datamodule.transfer_batch_to_device(batch, torch.device("meta"), 0)
    assert {t.device.type for t in moved.tensors()} == {"meta"}
    assert datamodule.move_seconds > 0
    partly = batch.replace(x=batch.x.to("meta"))
    assert datamodule.transfer_batch_to_device(partly, torch.device("meta"), 0).x is partly.x
    assert datamodule.transfer_batch_to_device([torch.zeros(1)], torch.device("meta"), 0)[0].is_meta


class FailingAtStart(Recorder):
    def on_train_batch_start(self, batch: MiniBatch, index: int) -> None:
        if self.global_step == 9:
            raise Crash


class FailingAtEnd(Recorder):
    def on_train_batch_end(self, output: Any, batch: MiniBatch, index: int) -> None:
        if self.global_step == 10:
            raise Crash


class SavingOnException(Callback):
    def on_exception(self, trainer: Trainer, module: LightningModule, exception: BaseException) -> None:
        trainer.save_checkpoint(Path(trainer.default_root_dir) / "crash.ckpt")


@resumes
@pytest.mark.parametrize(
    ("make", "seen", "left"),
    [
        (FailingAtStart, 9, 9),
        (partial(Recorder, on_step=crash_at(9)), 10, 9),  # in hand, and written down, but not trained on
        (FailingAtEnd, 10, 10),
    ],
)
def test_a_checkpoint_keeps_the_mini_batch_in_hand(tmp_path: Path, make: Any, seen: int, left: int) -> None:
    alone, crashed, resumed = (tmp_path / name for name in ("alone.log", "crashed.log", "resumed.log"))
    make_trainer(tmp_path).fit(Recorder(alone), datamodule=make_datamodule())
    with pytest.raises(Crash):
        make_trainer(tmp_path, callbacks=[SavingOnException()]).fit(make(crashed), datamodule=make_datamodule())
    assert lines(crashed) == lines(alone)[:seen]
    make_trainer(tmp_path).fit(Recorder(resumed), datamodule=make_datamodule(), ckpt_path=tmp_path / "crash.ckpt")
    assert lines(resumed) == lines(alone)[left:]


def test_the_store_is_told_of_the_run() -> None:
    told: list[Any] = []

    def make_store(tensor: Tensor, *, context: Any) -> HostFeatures:
        told.append(context)
        return HostFeatures(tensor, 1)

    datamodule = make_datamodule(features=make_store, seed=3)
    datamodule.setup()
    (context,) = told
    assert context.graph is datamodule.data.graph
    for _ in range(2):  # each time from the begin
        counted, trained = list(context.batches()), list(datamodule.train_dataloader())
        assert [batch.nodes.tolist() for batch in counted] == [batch.nodes.tolist() for batch in trained]
        assert all(batch.x is None and batch.y is None for batch in counted)
        datamodule.train_dataloader().set_epoch(0)


def test_placement_names_the_device_of_each_stage(tmp_path: Path) -> None:
    datamodule = make_datamodule(prefetch=3)
    assert datamodule.device == torch.device("cpu")
    make_trainer(tmp_path, max_epochs=1).fit(Recorder(tmp_path / "log"), datamodule=datamodule)
    assert datamodule.placement() == {
        "sample": "FusedSampler on cpu",
        "gather": "HostFeatures, rows on cpu",
        "train": "cpu",
        "ahead": "a thread per stage runs ahead; at most 8 mini-batches exist",
    }
    assert {loader.device for loader in datamodule.loaders.values()} == {torch.device("cpu")}
    assert make_datamodule(prefetch=0).prefetch == 0


def test_edge_features_reach_the_batches() -> None:
    rows = torch.randn(1500, 2, generator=torch.Generator().manual_seed(0))
    datamodule = make_datamodule(edge_features=rows, sampler=FusedSampler([4, 3], num_threads=1, edge_ids=True))
    datamodule.setup()
    batch = next(iter(datamodule.train_dataloader()))
    assert torch.equal(batch.blocks[0].edge_features, rows[batch.blocks[0].edge_ids.long()])


def test_edge_features_set_later_reach_the_batches() -> None:
    rows = torch.zeros(1500, 2)
    datamodule = make_datamodule(edge_features=rows, sampler=FusedSampler([4, 3], num_threads=1, edge_ids=True))
    datamodule.setup()
    before = datamodule.train_dataloader()
    datamodule.edge_features = rows + 1
    assert (next(iter(datamodule.train_dataloader())).blocks[0].edge_features == 1).all()
    datamodule.edge_features = rows
    assert datamodule.train_dataloader() is not before
    assert (next(iter(datamodule.train_dataloader())).blocks[0].edge_features == 0).all()
    datamodule.close()
    assert no_threads()


def test_half_precision_changes_only_the_rows(tmp_path: Path) -> None:
    """Lightning's precision plugin exchanges the tensors of a batch."""

    class Half(Recorder):
        def training_step(self, batch: MiniBatch) -> Tensor:
            assert batch.x.dtype == torch.bfloat16
            assert batch.blocks[0].indices.dtype == torch.int32
            return self.loss(batch)

    make_trainer(tmp_path, max_epochs=1, precision="bf16-true", limit_val_batches=0).fit(
        Half(tmp_path / "log"), datamodule=make_datamodule()
    )


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
@pytest.mark.parametrize(
    ("sample_on", "memory"), [("cpu", "device"), ("cuda", "device"), ("cuda", "pinned"), ("cuda", "cached")]
)
def test_training_on_a_gpu_sees_the_cpus_batches(tmp_path: Path, sample_on: str, memory: str) -> None:
    logs = []
    for device in ("cpu", "gpu"):
        on_gpu = device == "gpu" and sample_on == "cuda"
        datamodule = make_datamodule(
            sampler=fused([4, 3], device="cuda" if on_gpu else "cpu"),
            graph=memory if on_gpu else "device",
            list_hotness="visits" if on_gpu and memory == "cached" else "degree",
        )
        logs.append(tmp_path / device)
        make_trainer(tmp_path, max_epochs=2, accelerator=device, devices=1).fit(
            Recorder(logs[-1]), datamodule=datamodule
        )
        assert (datamodule.device.type == "cuda") == (device == "gpu")
        assert datamodule.move_seconds == 0  # nothing is moved twice
        if on_gpu:
            graph = datamodule.loaders["train"].graph
            assert graph.indices.is_cuda if memory == "device" else graph.indices.is_pinned()
            assert (graph.list_cache is not None) == (memory == "cached")
            assert datamodule.data.graph.device.type == "cpu"
        datamodule.close()
    assert lines(logs[0]) == lines(logs[1])
    assert lines(logs[0], "val") == lines(logs[1], "val")
    assert no_threads()


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"graph": "disk"}, ValueError, "graph is 'disk'; it must be one of device, pinned, cached"),
        (
            {"cached_edges": 0.5},
            ValueError,
            "cached_edges is 0.5, which only graph='cached' reads, and graph is 'auto'",
        ),
        (
            {"list_hotness": "visits", "graph": "device"},
            ValueError,
            "list_hotness is 'visits', which only graph='cached'",
        ),
        ({"cached_edges": 2}, ValueError, "cached_edges is 2; it must be in 0 to 1, a share of the edges"),
        ({"list_hotness": "age"}, ValueError, "list_hotness is 'age'; it must be 'degree' or 'visits'"),
        (
            {"graph": "cached"},
            ValueError,
            "graph is 'cached', for a GPU sampler to read, but the samplers run on the CPU",
        ),
        ({"batch_size": 0}, ValueError, "batch_size is 0"),
        ({"eval_batch_size": -1}, ValueError, "eval_batch_size is -1"),
        ({"prefetch": -1}, ValueError, "prefetch is -1"),
        ({"sampler": None}, TypeError, "sampler is None"),
        (
            {"eval_sampler": "full"},
            TypeError,
            "eval_sampler is 'full'; it must be a loader.samplers.Sampler, e.g. FusedSampler",
        ),
        ({"dataset": 3}, TypeError, "dataset is an int"),
        ({"dataset": "cora"}, TypeError, r"dataset is 'cora'; .* loader\.datasets\.open_dataset\('cora'\) opens one"),
        ({"sampler": WalkSampler(3)}, TypeError, "sampler is a WalkSampler; it must be one of nodes"),
        ({"drop_last": "maybe"}, TypeError, "drop_last is 'maybe'; it must be True or False"),
        ({"prioritize_loading": "no"}, TypeError, "prioritize_loading is 'no'; it must be True or False"),
        ({"seed": -1}, ValueError, "seed is -1"),
        ({"features": 3}, TypeError, "features is an int; it must be a function that makes a store"),
    ],
)
def test_bad_arguments_are_told_before_anything_is_loaded(
    change: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        make_datamodule(**change)
