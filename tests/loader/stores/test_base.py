"""How a store is made of a factory, and what conf/features describes."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from loader.graph import Graph
from loader.stores import FeatureStore, HostFeatures, MemmapFeatures, StoreContext, open_store, options_of

CONF = Path(__file__).resolve().parents[3] / "conf" / "features"
FILES = sorted(path.stem for path in CONF.glob("*.yaml"))


class Curious(HostFeatures):
    def __init__(self, tensor: Tensor, *, context: StoreContext | None = None) -> None:
        super().__init__(tensor, 1)
        self.context = context


@pytest.fixture
def context() -> StoreContext:
    return StoreContext(Graph(torch.tensor([0, 0, 0]), torch.tensor([], dtype=torch.int64)))


def test_only_factories_that_ask_get_the_context(context: StoreContext) -> None:
    table = torch.zeros(2, 3)
    for make in (HostFeatures, partial(HostFeatures, num_threads=1), lambda tensor: HostFeatures(tensor, 1)):
        assert isinstance(open_store(make, table, context), HostFeatures)
    for make in (Curious, partial(Curious), lambda tensor, context=None: Curious(tensor, context=context)):
        assert open_store(make, table, context).context is context
        assert open_store(make, table).context is None


def test_the_options_of_a_factory_are_named() -> None:
    assert options_of(HostFeatures) == ["num_threads", "dtype", "storage_dtype"]
    assert options_of(Curious) == ["context"]
    assert options_of(lambda tensor: HostFeatures(tensor)) == []
    with pytest.raises(TypeError, match="colour is no option of this store; all know dtype, storage_dtype"):
        HostFeatures(torch.zeros(2), colour="red")


def test_a_context_given_before_stays(context: StoreContext) -> None:
    other = StoreContext(context.graph, list)
    assert open_store(partial(Curious, context=other), torch.zeros(2, 3), context).context is other


def test_stores_on_the_cpu_have_the_protocol() -> None:
    for store in (HostFeatures(torch.zeros(2)), MemmapFeatures(torch.zeros(2))):
        assert isinstance(store, FeatureStore)
        assert store.device.type == "cpu"
        assert not store.asynchronous
        store.check()
        store.close()


@pytest.mark.parametrize("name", FILES)
def test_each_file_shows_every_option_of_its_store(name: str) -> None:
    hydra = pytest.importorskip("hydra.utils")
    from omegaconf import OmegaConf

    config = OmegaConf.create({"device": "cpu", "features": OmegaConf.load(CONF / f"{name}.yaml")}).features
    make = hydra.instantiate(config)
    assert make.func.__name__.lower().replace("_", "") == f"{name}features"
    options = set(options_of(make.func)) - {"context"}
    if name == "memmap":
        options -= {"shape", "offset"}  # of a raw file; here is a tensor
    if name == "partitioned":
        options -= {"hosts"}  # those of the run
    assert set(config) - {"_target_", "_partial_"} == options


@pytest.mark.parametrize("name", ["auto", "host", "memmap", "partitioned"])
def test_the_files_work_on_the_cpu(name: str, context: StoreContext) -> None:
    hydra = pytest.importorskip("hydra.utils")
    from omegaconf import OmegaConf

    config = OmegaConf.create({"device": "cpu", "features": OmegaConf.load(CONF / f"{name}.yaml")})
    overrides: dict[str, Any] = {"features": {"dtype": "float16", "num_threads": 2}}
    make = hydra.instantiate(OmegaConf.merge(config, overrides).features)
    store = open_store(make, torch.ones(2, 3), context)
    assert torch.equal(store.gather(torch.tensor([1])), torch.ones(1, 3, dtype=torch.float16))
    store.close()


def test_a_factory_has_to_return_a_store() -> None:
    with pytest.raises(TypeError, match="features returned None; it must return a store of the rows"):
        open_store(lambda tensor: None, torch.zeros(2, 3))  # type: ignore[arg-type,return-value]
