"""Stores of somebody else with each ability: through loaders, prefetching, Lightning and resume."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from torch import Tensor, nn

import loader
from loader import FusedSampler, Graph, NodeLoader
from loader.samples import LazyRows
from loader.stores import Abilities, FeatureStore, abilities_of

NUM_NODES, DIM = 300, 5


class Rows:
    """A store of a table that only gathers. `asked` has the sizes of what was asked of it otherwise."""

    row_shape, dim, dtype, device, asynchronous = (DIM,), DIM, torch.float32, torch.device("cpu"), False

    def __init__(self, table: Tensor) -> None:
        self.table, self.num_rows = table, len(table)
        self.asked: list[int] = []
        self.checks = 0

    def gather(self, ids: Tensor) -> Tensor:
        return self.table[ids.long()]

    def check(self) -> None:
        self.checks += 1

    def close(self) -> None:
        pass


class LazyStore(Rows):
    can = Abilities(lazy=True)

    def lazy_rows(self, ids: Tensor) -> LazyRows:
        self.asked.append(1)
        return LazyRows(self.table, ids)


class Announced(Rows):
    can = Abilities(announced=3)

    def begin_together(self, group: Sequence[Tensor]) -> list[Callable[[], Tensor]]:
        self.asked.append(len(group))
        return [partial(self.gather, ids) for ids in group]


class Begun(Rows):
    can = Abilities(begun=True)

    def begin(self, ids: Tensor) -> Callable[[], Tensor]:
        self.asked.append(1)
        return partial(self.gather, ids)


class Exchange:
    open = 0

    def __init__(self) -> None:
        Exchange.open += 1

    def close(self) -> None:
        Exchange.open -= 1


class Collective(Rows):
    can = Abilities(collective=True, together=2)

    def open_exchange(self) -> Exchange:
        return Exchange()

    def gather_together(self, group: Sequence[Tensor], exchange: Any) -> list[Tensor]:
        assert isinstance(exchange, Exchange)
        self.asked.append(len(group))
        return [self.gather(ids) for ids in group]


@pytest.fixture(scope="module")
def graph() -> Graph:
    generator = torch.Generator().manual_seed(0)
    src, dst = torch.randint(NUM_NODES, (2, 3000), generator=generator)
    return Graph.from_edges(src, dst, NUM_NODES)


@pytest.fixture(scope="module")
def table() -> Tensor:
    return torch.randn(NUM_NODES, DIM, generator=torch.Generator().manual_seed(1))


def loader_of(graph: Graph, features: Any, prefetch: int = 2) -> NodeLoader:
    labels = torch.arange(NUM_NODES) % 3
    options = {"batch_size": 16, "shuffle": True, "prefetch": prefetch}
    return NodeLoader(graph, features, labels, torch.arange(200), FusedSampler([4, 3]), **options)


KINDS = (Rows, LazyStore, Announced, Begun, Collective)


@pytest.mark.parametrize("prefetch", [0, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_mini_batches_are_those_of_the_table(graph: Graph, table: Tensor, kind: type[Rows], prefetch: int) -> None:
    store = kind(table)
    assert isinstance(store, FeatureStore)
    loader, plain = loader_of(graph, store, prefetch), loader_of(graph, table)
    for _ in range(2):
        assert [batch.digest() for batch in loader] == [batch.digest() for batch in plain]
    assert store.checks == 2
    batches = 2 * len(loader)
    if kind is Rows:
        assert not store.asked
    elif kind is LazyStore:
        assert next(iter(loader)).x is None
    elif kind is Begun:
        assert len(store.asked) == batches
    else:
        assert sum(store.asked) == batches
        assert max(store.asked) == (1 if prefetch == 0 else {Announced: 3, Collective: 2}[kind])
    loader.release()
    assert Exchange.open == 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_loader_resumes_amid_an_epoch(graph: Graph, table: Tensor, kind: type[Rows]) -> None:
    whole = [batch.digest() for batch in loader_of(graph, table)]
    loader = loader_of(graph, kind(table))
    iterator = iter(loader)
    begun = [next(iterator).digest() for _ in range(5)]
    other = loader_of(graph, kind(table))
    other.load_state_dict(loader.state_dict())
    assert begun + [batch.digest() for batch in other] == whole
    loader.release()
    other.release()


class Module(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(DIM, 3)
        self.losses: list[float] = []

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        loss = nn.functional.cross_entropy(self.linear(batch.gathered().x[: batch.batch_size]), batch.y)
        self.losses.append(float(loss.detach()))
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


@pytest.mark.parametrize("kind", KINDS)
def test_lightning_trains_on_it(graph: Graph, table: Tensor, kind: type[Rows]) -> None:
    def trained(features: Any) -> list[float]:
        torch.manual_seed(0)
        module, loader = Module(), loader_of(graph, features)
        quiet = {f"enable_{name}": False for name in ("checkpointing", "progress_bar", "model_summary")}
        Trainer(accelerator="cpu", devices=1, max_epochs=2, logger=False, **quiet).fit(module, loader)
        loader.release()
        return module.losses

    assert trained(kind(table)) == trained(table)


class Tenfold:
    """A store around another one, which passes on what it does not know."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def gather(self, ids: Tensor) -> Tensor:
        return 10 * self.inner.gather(ids)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


@pytest.mark.parametrize("kind", KINDS)
def test_a_wrapper_can_only_what_it_says(graph: Graph, table: Tensor, kind: type[Rows]) -> None:
    loader, plain = loader_of(graph, Tenfold(kind(table))), loader_of(graph, 10 * table)
    assert [batch.digest() for batch in loader] == [batch.digest() for batch in plain]


class NoMethod(Rows):
    can = Abilities(begun=True)


class OddCan(Rows):
    can = {"lazy": True}  # noqa: RUF012


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (NoMethod, r"NoMethod\.can says begun, and the store has no method begin; write it, or leave begun out"),
        (OddCan, r"OddCan\.can is a dict; it must be loader\.stores\.Abilities\(\.\.\.\), or left out"),
    ],
)
def test_what_it_says_must_be_so(graph: Graph, table: Tensor, kind: type[Rows], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        abilities_of(kind(table))
    with pytest.raises(TypeError, match=message):
        next(iter(loader_of(graph, kind(table))))


def test_stages_and_loaders_know_no_class_of_stores() -> None:
    """They ask what a store can do. A store that somebody adds is served as well as those of the package."""
    allowed = {"Abilities", "AbleStore", "Exchange", "FeatureStore", "TensorRows", "abilities_of", "as_store"}
    package = Path(loader.__file__).parent
    for path in sorted([*(package / "stages").glob("*.py"), *(package / "loaders").glob("*.py")]):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("loader.stores"):
                assert {name.name for name in node.names} <= allowed, path
