"""The seams: a task that the package does not know runs through all of it, and nothing in the package is touched."""

from __future__ import annotations

import copy
import itertools
import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
import walks
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import Tensor
from torch.nn import functional as F
from walks import Mean, UniformWalks, Walkers, Walks, Waves

from loader.graph import Graph
from loader.loaders.base import Loader

NUM_NODES, LENGTH = 60, 5


@pytest.fixture
def graph(random_graph: Callable[..., Graph]) -> Graph:
    return random_graph(NUM_NODES, 150)  # some nodes have no neighbors


@pytest.fixture
def make(graph: Graph) -> Callable[..., Loader]:
    def make(**options: Any) -> Loader:
        walkers = Walkers(torch.arange(0, NUM_NODES, 2), 3)  # 90 of them: 12 mini-batches
        arguments: dict[str, Any] = {"stores": {"node": Waves()}, "stages": [Mean()], "shuffle": True, **options}
        return Loader(graph, walkers, UniformWalks(LENGTH), 8, **arguments)

    return make


def digests(batches: Any) -> list[str]:
    return [batch.digest() for batch in batches]


def test_the_extension_has_fewer_than_80_lines() -> None:
    assert len([line for line in Path(walks.__file__).read_text().splitlines() if line.strip()]) < 80


def test_walks_go_along_edges_and_have_their_rows(make: Callable[..., Loader], graph: Graph) -> None:
    loader = make(stages=())
    assert [stage.name for stage in loader.stages] == ["sample", "gather"]
    edges = {
        (v, int(u)) for v in range(NUM_NODES) for u in graph.indices[int(graph.indptr[v]) : int(graph.indptr[v + 1])]
    }
    starts, stopped = [], 0
    for number, batch in enumerate(loader):
        assert isinstance(batch, Walks)
        assert (batch.epoch, batch.index) == (0, number)
        starts += batch.steps[:, 0].tolist()
        for walk in batch.steps.tolist():
            for here, there in itertools.pairwise(walk):
                assert (
                    (here, there) in edges if there >= 0 else here < 0 or graph.indptr[here] == graph.indptr[here + 1]
                )
                stopped += there < 0
        rows = Waves().gather(batch.steps.clamp(min=0).flatten()).view(*batch.steps.shape, 4)
        assert torch.equal(batch.x, torch.where(batch.steps[..., None] >= 0, rows, 0.0))
    assert sorted(starts) == sorted([*range(0, NUM_NODES, 2)] * 3)
    assert stopped > 0


def test_running_ahead_changes_nothing(make: Callable[..., Loader]) -> None:
    plain, ahead = make(prefetch=0), make(prefetch=2)
    assert [stage.name for stage in ahead.stages] == ["sample", "gather", "mean"]
    epochs = [digests(plain) for _ in range(2)]
    assert [digests(ahead) for _ in range(2)] == epochs
    assert len({d for epoch in epochs for d in epoch}) == 24
    assert next(iter(ahead)).x.shape == (8, 4)
    assert ahead.stats.busy["mean"] > 0


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU")
def test_walks_arrive_on_a_gpu(make: Callable[..., Loader]) -> None:
    loader = make(device="cuda")
    assert [stage.name for stage in loader.stages] == ["sample", "gather", "mean", "move"]
    batches = list(loader)
    assert all(t.is_cuda for batch in batches for t in batch.tensors())
    assert digests(batches) == digests(make())


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_any_number_of_ranks_goes_on_mid_epoch(make: Callable[..., Loader], ranks: int) -> None:
    expected = digests(make())
    loader = make()
    begun = digests(itertools.islice(loader, 5))
    state = json.loads(json.dumps(loader.state_dict()))
    resumed = [make(rank=rank, world_size=ranks) for rank in range(ranks)]
    for rank in resumed:
        rank.load_state_dict(state)
    steps = zip(*resumed, strict=True)
    assert begun + digests(batch for step in steps for batch in step if not batch.repeats) == expected


def test_a_state_of_other_walks_is_refused(make: Callable[..., Loader], graph: Graph) -> None:
    longer = Loader(graph, Walkers(torch.arange(0, NUM_NODES, 2), 3), UniformWalks(LENGTH + 1), 8, shuffle=True)
    with pytest.raises(ValueError, match=r"sampler\.length was 5 .* and is 6 now"):
        longer.load_state_dict(make().state_dict())


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda loader: pickle.loads(pickle.dumps(loader))])
def test_a_copy_goes_on(make: Callable[..., Loader], copied: Callable[[Loader], Loader]) -> None:
    loader, expected = make(), digests(make())
    batches = iter(loader)
    begun = digests(next(batches) for _ in range(3))
    assert begun + digests(copied(loader)) == expected
    assert begun + digests(batches) == expected


class Classifier(pl.LightningModule):
    """Tells from the mean of a walk's rows whether it ended at a stop."""

    def __init__(self, seen: list[str]) -> None:
        super().__init__()
        self.layer, self.seen = torch.nn.Linear(4, 2), seen

    def training_step(self, batch: Walks, index: int) -> Tensor:
        self.seen.append(batch.digest())
        return F.cross_entropy(self.layer(batch.x), (batch.steps[:, -1] < 0).long())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters())


def fit(loader: Loader, folder: Path, *, ckpt_path: Path | None = None, **options: Any) -> list[str]:
    """Digests of the mini-batches that a module was trained on, and its weights as the last one."""
    torch.manual_seed(0)
    module = Classifier([])
    callbacks = [ModelCheckpoint(folder, "{step}", every_n_train_steps=7, save_top_k=-1)]
    trainer = pl.Trainer(
        accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False, callbacks=callbacks,
        default_root_dir=folder, **options,
    )  # fmt: skip
    trainer.fit(module, loader, ckpt_path=ckpt_path)
    return [*module.seen, str(module.layer.weight.tolist())]


@pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty")
def test_lightning_trains_and_resumes_from_a_checkpoint(make: Callable[..., Loader], tmp_path: Path) -> None:
    reference = make()
    expected = [*digests(reference), *digests(reference)]
    whole = fit(make(), tmp_path / "whole", max_epochs=2)
    assert whole[:-1] == expected
    begun = fit(make(), tmp_path / "begun", max_steps=7)
    assert begun[:-1] == expected[:7]
    checkpoint = tmp_path / "begun" / "step=7.ckpt"
    resumed = fit(make(prefetch=0), tmp_path / "begun", max_epochs=2, ckpt_path=checkpoint)
    assert resumed[:-1] == expected[7:]
    assert resumed[-1] == whole[-1]
