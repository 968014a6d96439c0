"""A run that names no store gets the fastest that there is room for."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from marks import needs_gpu

from loader.graph import Graph
from loader.stores import HostFeatures, StoreContext, auto_features, open_store
from loader.stores import auto as module

GPU = torch.device("cuda", 0)
ROWS = torch.rand(1000, 64)  # 256,000 bytes
MIB = 2**20
CONTEXT = StoreContext(Graph.from_edges(torch.tensor([0]), torch.tensor([1]), 1000))
OTHER = StoreContext(Graph.from_edges(torch.tensor([0]), torch.tensor([1]), 999))


@pytest.fixture
def on_gpu(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`on_gpu(free, host, **options)`: which store a machine of those bytes of memory gets, and what with."""

    def choose(free: int, host: int, device: Any = "cuda", **options: Any) -> tuple[str, dict[str, Any]]:
        made: list[tuple[str, dict[str, Any]]] = []

        def recorder(name: str) -> Any:
            return lambda tensor, *args, **kwargs: made.append((name, {"args": args, **kwargs}))

        for name in ("HostFeatures", "DeviceFeatures", "CachedFeatures", "PinnedFeatures", "MemmapFeatures"):
            monkeypatch.setattr(module, name, recorder(name))
        monkeypatch.setattr(module, "require_cuda", lambda wanted_by: None)
        monkeypatch.setattr(module, "cuda_device", lambda device: GPU)
        monkeypatch.setattr(module, "free_bytes", lambda device: free)
        monkeypatch.setattr(module, "usable_memory", lambda: host)
        auto_features(ROWS, device, **{"context": CONTEXT, **options})
        return made[0]

    return choose


def test_on_a_cpu_rows_stay_in_host_memory() -> None:
    store = auto_features(ROWS, "cpu", dtype=torch.float16, num_threads=2)
    assert isinstance(store, HostFeatures)
    assert (store.dtype, store.num_threads) == (torch.float16, 2)
    nodes = torch.tensor([3, 3, 999])
    assert torch.equal(store.gather(nodes), ROWS[nodes].half())
    store.close()


@pytest.mark.parametrize(
    ("free", "host", "options", "store"),
    [
        (MIB, MIB, {}, "DeviceFeatures"),
        (512_000, MIB, {}, "DeviceFeatures"),  # half of it, to the byte
        (511_999, MIB, {}, "CachedFeatures"),
        (511_999, MIB, {"gpu_share": 1}, "DeviceFeatures"),
        (300_000, MIB, {"storage_dtype": "float16"}, "DeviceFeatures"),
        (200_000, 512_000, {}, "CachedFeatures"),
        (200_000, 511_999, {}, "MemmapFeatures"),
        (MIB, 1000, {}, "DeviceFeatures"),
        (MIB, 1000, {"device": None}, "DeviceFeatures"),
        (2 * 4_256, MIB, {}, "CachedFeatures"),  # the places of all rows, and one row
        (2 * 4_255, MIB, {}, "PinnedFeatures"),
        (200_000, MIB, {"context": None}, "PinnedFeatures"),
        (200_000, MIB, {"context": OTHER}, "PinnedFeatures"),
        (200_000, 511_999, {"context": None}, "MemmapFeatures"),
    ],
)
def test_the_fastest_store_that_fits_is_chosen(
    on_gpu: Any, free: int, host: int, options: dict[str, Any], store: str
) -> None:
    name, given = on_gpu(free, host, **options)
    assert name == store
    assert given["args"][0] == GPU


def test_stores_are_given_their_options(on_gpu: Any) -> None:
    _, device = on_gpu(MIB, MIB, dtype="float16", storage_dtype="float16")
    assert device == {"args": (GPU,), "dtype": "float16", "storage_dtype": "float16", "lazy": None}
    _, cached = on_gpu(200_000, MIB, gpu_share=0.25)
    assert cached == {"args": (GPU,), "budget_gib": 50_000 / 2**30, "context": CONTEXT}
    _, pinned = on_gpu(200_000, MIB, dtype="float16", storage_dtype="float16", gpu_share=0.01)
    assert pinned == {"args": (GPU,), "dtype": "float16", "storage_dtype": "float16"}
    _, mapped = on_gpu(200_000, 1000, dtype="float16", num_threads=3)
    assert mapped == {"args": (GPU,), "dtype": "float16", "num_threads": 3}
    _, narrow = on_gpu(1000, 1000, storage_dtype="float16")
    assert narrow == {"args": (GPU,), "storage_dtype": "float16", "num_threads": None}


def test_a_share_that_is_no_number_is_refused() -> None:
    with pytest.raises(TypeError, match="gpu_share is 'x'; it must be a number"):
        auto_features(ROWS, "cpu", gpu_share="x")


@pytest.mark.parametrize("share", [0, -1, 1.01])
def test_a_share_out_of_range_is_refused(share: float) -> None:
    with pytest.raises(ValueError, match=r"gpu_share is .*; it must be in \(0, 1\]"):
        auto_features(ROWS, "cpu", gpu_share=share)


def test_processes_share_the_memory(on_gpu: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert on_gpu(200_000, 2 * 512_000)[0] == "CachedFeatures"
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    assert on_gpu(200_000, 2 * 512_000)[0] == "CachedFeatures"
    assert on_gpu(200_000, 2 * 512_000 - 1)[0] == "MemmapFeatures"
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1")
    assert on_gpu(200_000, 512_000)[0] == "CachedFeatures"


class TestOnGPU:
    pytestmark = needs_gpu

    def test_the_stores_return_the_rows(self, monkeypatch: pytest.MonkeyPatch) -> None:
        g = torch.Generator().manual_seed(0)
        graph = Graph.from_edges(*torch.randint(1000, (2, 5000), generator=g), 1000)
        context = StoreContext(graph)
        nodes = torch.randint(1000, (500,), generator=g)
        for free, host, name in (
            (None, None, "DeviceFeatures"), (200_000, None, "CachedFeatures"), (1000, None, "PinnedFeatures"),
            (1000, 1000, "MemmapFeatures"),
        ):  # fmt: skip
            with monkeypatch.context() as patch:
                if free is not None:
                    patch.setattr(module, "free_bytes", lambda device, free=free: free)
                if host is not None:
                    patch.setattr(module, "usable_memory", lambda host=host: host)
                store = open_store(auto_features, ROWS, context)
            assert type(store).__name__ == name
            assert torch.equal(store.gather(nodes.cuda()).cpu(), ROWS[nodes])
            store.close()
