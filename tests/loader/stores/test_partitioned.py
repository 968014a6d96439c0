"""Rows of which each host has a part: two "hosts" of two processes each, on this machine over gloo."""

from __future__ import annotations

import copy
import os
import pickle
import signal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from host_ranks import finish_ranks, start_ranks
from marks import needs_two_gpus
from torch import Tensor

from loader.graph import Graph
from loader.loaders.nodes import NodeLoader
from loader.machine.hosts import Hosts
from loader.machine.lost_processes import LostProcessError
from loader.samplers import HopwiseSampler
from loader.stores import HostFeatures, PartitionedFeatures, StoreContext, Traffic
from loader.stores.exchange import RowExchange

ROWS, WIDTH, HOSTS, LOCAL = 3000, 5, 2, 2
RANKS = HOSTS * LOCAL
FRACTION, TOGETHER = 0.1, 3
OTHERS = {  # options of all ranks but the last one, and of that
    "batches_per_exchange": (4, 5),
    "dtype": ("float16", "bfloat16"),
    "storage_dtype": ("float32", "int8"),  # rows of one dtype, but other numbers
}


def table() -> Tensor:
    return torch.randn(ROWS, WIDTH, generator=torch.Generator().manual_seed(1))


def some_graph() -> Graph:
    g = torch.Generator().manual_seed(2)
    ends = (torch.rand(2, 9000, generator=g) ** 2 * ROWS).long()  # rows of small numbers are hot
    return Graph.from_edges(ends[0], ends[1], ROWS)


def some_ids(rank: int, count: int = 700) -> Tensor:
    return torch.randint(ROWS, (count,), generator=torch.Generator().manual_seed(10 + rank))


def owners(num_rows: int) -> Tensor:
    """The host of each row, written in another way than in the library."""
    block = max(1, -(-num_rows // (32 * HOSTS)))
    return torch.arange(HOSTS).repeat_interleave(block).repeat(-(-num_rows // (block * HOSTS)))[:num_rows]


def hot_rows(host: int, scores: Tensor) -> set[int]:
    others = [row for row, owner in enumerate(owners(ROWS).tolist()) if owner != host]
    degrees = scores.tolist()
    return set(sorted(others, key=lambda row: (-degrees[row], row))[: int(FRACTION * ROWS)])


def refusal(x: Tensor, options: dict[str, Any]) -> str:
    with pytest.raises(ValueError, match="it must be equal in all") as caught:
        PartitionedFeatures(x, **options).open_exchange()
    return str(caught.value)


def without(x: Tensor, kept: Tensor) -> Tensor:
    """The table as one host has it: rows that it does not keep are not there."""
    return torch.where(kept.view(-1, 1), x, torch.nan)


def make_loader(features: Any, rank: int, ranks: int, prefetch: int = 2, seeds: int = 100) -> NodeLoader:
    sampler = HopwiseSampler([4, 3], num_threads=1)
    return NodeLoader(
        some_graph(), features, torch.arange(ROWS) % 7, torch.arange(seeds), sampler, 8,
        shuffle=True, prefetch=prefetch, rank=rank, world_size=ranks,
    )  # fmt: skip


# One process of the run; it writes what it saw.
def one_rank(folder: str) -> None:
    torch.set_num_threads(1)
    rank, host = int(os.environ["RANK"]), int(os.environ["GROUP_RANK"])
    x, mine, graph, seen = table(), owners(ROWS) == host, some_graph(), {}
    dist.init_process_group("gloo")

    store = PartitionedFeatures(without(x, mine), num_threads=1)
    ids = some_ids(rank)
    seen["host"] = store.hosts
    seen["gathered"] = store.gather(ids)
    seen["without ids"] = store.gather(ids[: 100 * rank])  # some processes want more than others, the first nothing
    try:
        store.gather(torch.tensor([3, ROWS if rank == 1 else 4], dtype=torch.int32))
    except ValueError as error:
        seen["out of range"] = str(error)
    seen["after that"] = store.gather(ids.int())
    copied = pickle.loads(pickle.dumps(store))
    seen["copied"] = copied.gather(ids)

    labels = PartitionedFeatures(torch.arange(3), num_threads=1)
    seen["small"] = labels.gather(torch.tensor([2, 0, 0, 1]))
    uneven = PartitionedFeatures(torch.arange(3), num_threads=1, fraction=1.0, hotness=torch.arange(3.0))
    seen["uneven"] = uneven.num_cached, uneven.gather(torch.tensor([2, 0, 0, 1])).tolist()
    half = PartitionedFeatures(without(x, mine), num_threads=1, dtype="bfloat16")
    seen["half"] = half.gather(ids)
    assert half.traffic.received_bytes == 2 * WIDTH * half.traffic.received

    kept = mine.clone()
    kept[list(hot_rows(host, torch.bincount(graph.indices.long(), minlength=ROWS)))] = True
    cached = PartitionedFeatures(
        without(x, kept), num_threads=1, fraction=FRACTION, batches_per_exchange=TOGETHER, context=StoreContext(graph)
    )
    seen["cached rows"] = cached.num_cached
    crossing: list[list[int]] = []
    swap = RowExchange._swap

    def recorded(self: RowExchange, *arguments: Any) -> Tensor:
        before, scatter = [], self._across.scatter

        def look(data: Tensor, counts: list[int]) -> Any:
            before.extend(data.tolist())
            return scatter(data, counts)

        self._across.scatter = look  # type: ignore[method-assign]
        try:
            return swap(self, *arguments)
        finally:
            crossing.append(before)
            self._across.scatter = scatter  # type: ignore[method-assign]

    RowExchange._swap = recorded  # type: ignore[method-assign]
    loader = make_loader(cached, rank, RANKS)
    seen["epoch"] = [(batch.index, batch.digest(), batch.input_nodes) for batch in loader]
    seen["crossing"] = crossing
    seen["traffic"] = copy.copy(cached.traffic)
    RowExchange._swap = swap  # type: ignore[method-assign]

    seen["ended early"] = []
    other = make_loader(cached, rank, RANKS, seeds=40)
    for stop in (1, 3):
        for number, batch in enumerate(loader):
            seen["ended early"].append(batch.digest())
            if number == stop:  # a validation amid the epoch, also ended early
                seen["ended early"] += [found.digest() for found, _ in zip(other, range(1), strict=False)]
                break
    loader.prefetch, loader._pipeline = 0, None
    seen["in the consumer's thread"] = [batch.digest() for batch in loader]

    seen["other options"] = {name: refusal(x, {name: values[rank == 3]}) for name, values in OTHERS.items()}

    if rank == 3:
        torch.save(seen, f"{folder}/{rank}")
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        for _ in loader:
            pass
    except LostProcessError as error:
        seen["lost"] = str(error)
    try:
        cached.gather(ids)
    except LostProcessError as error:
        seen["lost again"] = str(error)
    torch.save(seen, f"{folder}/{rank}")
    os._exit(0)


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("ranks")
    program = f"import test_partitioned as t; t.one_rank({str(folder)!r})"
    ended = finish_ranks(start_ranks(["-c", program], HOSTS, LOCAL, Path(__file__).parent, TMPDIR=str(folder)), 300)
    assert [status for status, _, _ in ended] == [0, 0, 0, -signal.SIGKILL], "\n".join(said for _, _, said in ended)
    assert not list(folder.glob("gnn-loader-*"))  # where the processes of a host met
    return [torch.load(folder / str(rank), weights_only=False) for rank in range(RANKS)]


def test_processes_know_their_hosts(ranks: list[dict[str, Any]]) -> None:
    assert [seen["host"] for seen in ranks] == [Hosts(rank // LOCAL, HOSTS, rank % LOCAL, LOCAL) for rank in range(4)]


def test_rows_of_all_hosts_are_gathered(ranks: list[dict[str, Any]]) -> None:
    x = table()
    for rank, seen in enumerate(ranks):
        ids = some_ids(rank)
        assert torch.equal(seen["gathered"], x[ids])
        assert torch.equal(seen["without ids"], x[ids[: 100 * rank]])
        assert torch.equal(seen["after that"], x[ids])
        assert torch.equal(seen["copied"], x[ids])
        assert torch.equal(seen["half"], x[ids].bfloat16())
        assert seen["small"].tolist() == [2, 0, 0, 1]


def test_hosts_of_uneven_parts_cache_all_others(ranks: list[dict[str, Any]]) -> None:
    assert [seen["uneven"] for seen in ranks] == [(1, [2, 0, 0, 1])] * 2 + [(2, [2, 0, 0, 1])] * 2


def test_an_invalid_id_disturbs_nobody_else(ranks: list[dict[str, Any]]) -> None:
    assert [seen.get("out of range") for seen in ranks] == [
        None, f"ids[1] is {ROWS}; the table has {ROWS} rows, valid ids are 0 to {ROWS - 1}", None, None
    ]  # fmt: skip


def test_mini_batches_are_those_of_one_process(ranks: list[dict[str, Any]]) -> None:
    loader = make_loader(HostFeatures(table(), 1), 0, 1)
    epochs = [[batch.digest() for batch in loader] for _ in range(4)]
    short = make_loader(HostFeatures(table(), 1), 0, 1, seeds=40)
    validations = [[batch.digest() for batch in short] for _ in range(2)]
    for rank, seen in enumerate(ranks):
        turns = [epochs[0][(step * RANKS + rank) % 13] for step in range(4)]
        assert [digest for _, digest, _ in seen["epoch"]] == turns
        early = [epochs[1][rank], epochs[1][RANKS + rank], validations[0][rank]]
        early += [epochs[2][(step * RANKS + rank) % 13] for step in range(4)] + [validations[1][rank]]
        assert seen["ended early"] == early
        assert seen["in the consumer's thread"] == [epochs[3][(step * RANKS + rank) % 13] for step in range(4)]


def test_a_row_crosses_once_a_group(ranks: list[dict[str, Any]]) -> None:
    scores = torch.bincount(some_graph().indices.long(), minlength=ROWS)
    owner = owners(ROWS).tolist()
    groups = [range(1), range(1, 4)]  # steps: the first one is a group of its own
    for host in range(HOSTS):
        here = [ranks[host * LOCAL + local] for local in range(LOCAL)]
        hot = hot_rows(host, scores)
        for seen in here:
            assert seen["cached rows"] == len(hot)
            assert len(seen["crossing"]) == len(groups)
        for number, steps in enumerate(groups):
            wanted = {row for seen in here for step in steps for row in seen["epoch"][step][2].tolist()}
            wanted = {row for row in wanted if owner[row] != host} - hot
            crossed = [row for seen in here for row in seen["crossing"][number]]
            assert sorted(crossed) == sorted(wanted)  # none twice, none too many


def test_traffic_counts_what_crossed(ranks: list[dict[str, Any]]) -> None:
    for seen in ranks:
        traffic = seen["traffic"]
        assert traffic.exchanges == 2
        assert traffic.received == sum(map(len, seen["crossing"]))
        assert traffic.received_bytes == 4 * WIDTH * traffic.received
        assert traffic.id_bytes == 4 * traffic.received
        assert traffic.local + traffic.cached + traffic.far == sum(ids.numel() for _, _, ids in seen["epoch"])
        assert traffic.cached > 0 < traffic.far
    assert sum(s["traffic"].sent for s in ranks) == sum(s["traffic"].received for s in ranks)


def test_counts_begin_anew(ranks: list[dict[str, Any]]) -> None:
    traffic = ranks[0]["traffic"]
    traffic.reset()
    assert traffic == Traffic()


def test_other_options_are_refused_everywhere(ranks: list[dict[str, Any]]) -> None:
    for rank, seen in enumerate(ranks):
        for name, message in seen["other options"].items():
            assert message.startswith(f"{name} is ")
            assert f" in process {rank} and differs in others; it must be equal in all" in message


def test_a_killed_process_ends_the_others(ranks: list[dict[str, Any]]) -> None:
    for seen in ranks[:3]:
        assert seen["lost"].startswith("another process of this run ended or no longer answers (")
        assert seen["lost again"].startswith("another process of this run ended or no longer answers")


class TestOneHost:
    def test_all_rows_are_local(self) -> None:
        x, ids = table(), some_ids(0)
        store = PartitionedFeatures(x, fraction=0.5, dtype="float16", num_threads=1)
        assert (store.hosts, store.collective, store.together, store.num_cached) == (Hosts(0, 1, 0, 1), False, 1, 0)
        assert store.open_exchange() is None
        assert torch.equal(store.gather(ids), x[ids].half())
        assert not store.asynchronous
        store.check()
        store.close()
        store.close()
        with pytest.raises(RuntimeError, match="this PartitionedFeatures was closed"):
            store.gather(ids)

    def test_a_loader_takes_them_as_host_rows(self) -> None:
        store = PartitionedFeatures(table(), num_threads=1)
        loader = make_loader(store, 0, 1)
        assert not any(stage.collective for stage in loader.stages)
        whole = make_loader(HostFeatures(table(), 1), 0, 1)
        assert [batch.digest() for batch in loader] == [batch.digest() for batch in whole]

    def test_it_says_where_it_is(self) -> None:
        store = PartitionedFeatures(table(), num_threads=1, hosts=Hosts(1, 3, 0, 2))
        assert repr(store).endswith("device='cpu', host 1 of 3, num_cached=0)")


class TestPlaces:
    @pytest.mark.parametrize("num_rows", [0, 1, 2, 31, 64, 65, 127, 128, 129, 1000, 3000])
    @pytest.mark.parametrize("num_hosts", [2, 3])
    def test_each_row_has_one_host(self, num_rows: int, num_hosts: int) -> None:
        x = torch.empty(num_rows, 1)
        stores = [PartitionedFeatures(x, num_threads=1, hosts=Hosts(h, num_hosts, 0, 1)) for h in range(num_hosts)]
        found = stores[0].owners(torch.arange(num_rows))
        sizes = torch.bincount(found, minlength=num_hosts).tolist()
        assert [store._num_own() for store in stores] == sizes
        assert sum(sizes) == num_rows
        assert max(sizes) - min(sizes) <= -(-num_rows // (32 * num_hosts))  # a block

    def test_a_cache_is_no_larger_than_needed(self) -> None:
        store = PartitionedFeatures(
            torch.arange(10.0), num_threads=1, fraction=1.0, hotness=torch.arange(10), hosts=Hosts(0, 2, 0, 1)
        )
        assert store.num_cached == 5

    def test_a_budget_holds_table_and_rows(self) -> None:
        budget = (4 * ROWS + 100 * 4 * WIDTH) / 2**30
        hosts, scores = Hosts(0, 2, 0, 1), torch.arange(ROWS)
        store = PartitionedFeatures(table(), num_threads=1, budget_gib=budget, hotness=scores, hosts=hosts)
        assert store.num_cached == 100

    @pytest.mark.parametrize(("stored", "dtype"), [("float16", "float32"), ("float32", "float16")])
    def test_a_budget_counts_rows_as_cached(self, stored: str, dtype: str) -> None:
        budget = (4 * ROWS + 50 * getattr(torch, dtype).itemsize * WIDTH) / 2**30
        hosts, scores = Hosts(0, 2, 0, 1), torch.arange(ROWS)
        options: Any = {"budget_gib": budget, "hotness": scores, "hosts": hosts, "dtype": dtype}
        store = PartitionedFeatures(table().to(getattr(torch, stored)), num_threads=1, **options)
        assert store.num_cached == 50

    def test_rows_that_cross_are_counted_without_processes(self) -> None:
        scores = torch.arange(ROWS).flip(0)
        store = PartitionedFeatures(table(), num_threads=1, fraction=0.1, hotness=scores, hosts=Hosts(1, 2, 0, 1))
        ids = torch.cat((some_ids(0), some_ids(0)))
        far = set(ids.tolist()) - set((owners(ROWS) == 1).nonzero().view(-1).tolist()) - hot_rows(1, scores)
        assert store.crossing(ids).tolist() == sorted(far)


class TestRefusals:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"fraction": 1.5}, "fraction is 1.5; it must be in 0 to 1"),
            ({"fraction": 0.5, "budget_gib": 1.0}, "give exactly one"),
            ({"fraction": 0.5}, "hotness='degree' needs a graph"),
            ({"timeout": 0}, "timeout is 0; it must be greater than 0 and at most 86400 seconds"),
            ({"fraction": "x"}, "fraction is 'x'; it must be a number"),
            ({"budget_gib": "x"}, "budget_gib is 'x'; it must be a number"),
            ({"budget_gib": -1}, "budget_gib is -1; it must be at least 0 and finite"),
            ({"hosts": 2}, r"hosts is 2; it must be a loader\.machine\.hosts\.Hosts"),
            ({"batches_per_exchange": 0}, "batches_per_exchange is 0"),
            ({"storage_dtype": "int32"}, "storage_dtype is torch.int32 for rows of torch.float32"),
        ],
    )
    def test_invalid_options_are_refused(self, options: dict[str, Any], message: str) -> None:
        with pytest.raises((TypeError, ValueError), match=message):
            PartitionedFeatures(table(), **{"num_threads": 1, "hosts": Hosts(0, 2, 0, 1), **options})

    def test_a_closed_store_waits_for_no_process(self) -> None:
        store = PartitionedFeatures(table(), num_threads=1, hosts=Hosts(0, 2, 0, 1))
        store.close()
        for call in (store.open_exchange, partial(store.gather, some_ids(0))):
            with pytest.raises(RuntimeError, match="this PartitionedFeatures was closed"):
                call()

    def test_several_hosts_need_a_process_group(self) -> None:
        store = PartitionedFeatures(table(), num_threads=1, hosts=Hosts(0, 2, 0, 1))
        loader = make_loader(store, 0, 2)
        assert [stage.collective for stage in loader.stages] == [False, True]
        with pytest.raises(RuntimeError, match="which has no process group; call"):
            next(iter(loader))


# One of two processes, each on a host of its own with one GPU.
def one_gpu(folder: str) -> None:
    rank = int(os.environ["RANK"])
    device, x, ids = torch.device("cuda", rank), table(), some_ids(rank)
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    seen = {}
    for name, options in (("plain", {}), ("cached", {"fraction": FRACTION, "dtype": "bfloat16"})):
        store = PartitionedFeatures(x, device, num_threads=1, context=StoreContext(some_graph()), **options)
        seen[name] = store.gather(ids).cpu()
        assert torch.equal(store.gather(ids.to(device)).cpu(), seen[name])
        loader = make_loader(store, rank, 2)
        seen[f"{name} epoch"] = [batch.x.cpu() for batch in loader]
        for number, _ in enumerate(loader):
            if number == 2:
                break
        seen[f"{name} next epoch"] = [batch.x.cpu() for batch in loader]
        assert store.traffic.received > 0
    torch.save(seen, f"{folder}/{rank}")
    dist.destroy_process_group()


@pytest.mark.gpu
@needs_two_gpus
def test_rows_cross_between_two_gpus(tmp_path: Path) -> None:
    program = f"import test_partitioned as t; t.one_gpu({str(tmp_path)!r})"
    ended = finish_ranks(start_ranks(["-c", program], 2, 1, Path(__file__).parent), 300)
    assert [status for status, _, _ in ended] == [0, 0], "\n".join(said for _, _, said in ended)
    loader = make_loader(HostFeatures(table(), 1), 0, 1)
    epochs = [[batch.x for batch in loader] for _ in range(3)]
    for rank in range(2):
        seen = torch.load(tmp_path / str(rank))
        assert torch.equal(seen["plain"], table()[some_ids(rank)])
        assert torch.equal(seen["cached"], table()[some_ids(rank)].bfloat16())
        for epoch, name in ((0, "epoch"), (2, "next epoch")):
            for step, x in enumerate(seen[f"plain {name}"]):
                assert torch.equal(x, epochs[epoch][(2 * step + rank) % 13])
                assert torch.equal(seen[f"cached {name}"][step], x.bfloat16())
