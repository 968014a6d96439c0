"""The GPU sampler from end to end on the host: Python, bindings and kernels as they are, a stand-in for CUDA."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
import torch
from cuda_on_host import module_on_host
from fake_gpu_sampler import FakeGPU

from loader.graph import Graph, HeteroGraph, ListCache
from loader.graph.list_cache import hottest_lists
from loader.machine.gpu import counted_bytes
from loader.samplers import HopwiseSampler
from loader.samplers.base import Request
from loader.samplers.gpu import sizes as gpu_sizes
from loader.samplers.gpu.memory_needs import SamplerNeeds
from loader.samplers.gpu.pinned_reads import LINE_BYTES
from loader.samplers.gpu.sampler import CudaSampler, PaddedMiniBatch
from loader.samplers.gpu.sizes import NODE_SETS, SCHEDULES

pytestmark = [pytest.mark.compiles, pytest.mark.timeout(3600)]

HOW = [(s, v) for s in SCHEDULES for v in NODE_SETS]
schedules = pytest.mark.parametrize(("schedule", "node_set"), HOW)

by_line = pytest.mark.parametrize(
    ("schedule", "node_set"), [("cooperative", "bitmap"), ("hopwise", "bitmap"), ("hopwise", "hash")]
)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return module_on_host("engine_on_host", tmp_path_factory)


@pytest.fixture
def gpu(engine: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGPU]:
    yield FakeGPU(monkeypatch, engine)
    gc.collect()  # while a workspace that ends finds the patches


def graph_of(
    edge_dtype: torch.dtype = torch.int32, node_dtype: torch.dtype = torch.int32, num_edges: int = 1500
) -> Graph:
    g = torch.Generator().manual_seed(1)
    graph = Graph.from_edges(*torch.randint(300, (2, num_edges), generator=g), 300)
    graph.indptr, graph.indices = graph.indptr.to(edge_dtype), graph.indices.to(node_dtype)
    return graph


def requests(graph: Graph, sizes: list[int]) -> list[Request]:
    g = torch.Generator().manual_seed(len(sizes))
    orders = [torch.randperm(graph.num_nodes, generator=g).to(graph.indices.dtype) for _ in sizes]
    return [Request(order[:size], 3, i) for i, (order, size) in enumerate(zip(orders, sizes, strict=True))]


def digests(graph: Graph, group: list[Request], oracle: HopwiseSampler) -> list[str]:
    return [oracle.sample(graph, r.seeds, epoch=r.epoch, batch=r.batch).digest() for r in group]


@schedules
@pytest.mark.parametrize("options", [{}, {"edge_ids": True, "replace": True}])
@pytest.mark.parametrize("fanouts", [[4, 3], [2, 33], [-1, 2]])
def test_mini_batches_are_the_cpus(
    gpu: FakeGPU, fanouts: list[int], options: dict[str, bool], schedule: str, node_set: str
) -> None:
    graph = graph_of()
    sampler = CudaSampler(fanouts, seed=5, batches_per_launch=3, schedule=schedule, node_set=node_set, **options)
    session, oracle = sampler.open(graph), HopwiseSampler(fanouts, seed=5, **options)
    for sizes in ([0], [9], [1, 12, 3, 20], [8, 8]):  # room is found to be too little, and several share a launch
        group = requests(graph, sizes)
        assert [finish().digest() for finish in session.begin(group)] == digests(graph, group, oracle)
    sampler.close()


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("hetero", [False, True])
def test_draws_that_a_warp_shares_are_the_cpus(gpu: FakeGPU, hetero: bool, replace: bool) -> None:
    # Lists somewhat longer than the fanouts: most draws are taken, or give way to one that gave way.
    g = torch.Generator().manual_seed(2)
    degrees = torch.tensor([21, 22, 25, 31, 32, 33, 34, 35, 40, 64, 65, 66, 70, 90, 129, 200, 300])
    num_nodes = 340
    dst = torch.arange(len(degrees)).repeat_interleave(degrees)
    src = torch.cat([torch.randperm(num_nodes, generator=g)[:degree] for degree in degrees.tolist()])
    graph: Any = Graph.from_edges(src, dst, num_nodes)
    options: dict[str, Any] = {"replace": replace, "edge_ids": True}
    if hetero:
        edges = torch.stack([src, dst])
        graph = HeteroGraph.from_edges({("a", "to", "a"): edges, ("a", "back", "a"): edges}, {"a": num_nodes})
        options["expand"] = "new"
    seeds = torch.arange(len(degrees), dtype=torch.int32)
    for fanout in (21, 32, 33, 64, 65, 128):
        sampler = CudaSampler([fanout], seed=5, batches_per_launch=3, **options)
        session, oracle = sampler.open(graph), HopwiseSampler([fanout], seed=5, **options)
        group = [Request(seeds, 0, i) for i in range(3)]
        assert [finish().digest() for finish in session.begin(group)] == digests(graph, group, oracle)
        sampler.close()


@pytest.mark.parametrize("hops", [4, 5, 6, 7, 8])
@pytest.mark.parametrize("schedule", ["cooperative", "hopwise"])
def test_mini_batches_of_many_hops_are_the_cpus(gpu: FakeGPU, hops: int, schedule: str) -> None:
    graph, fanouts = graph_of(num_edges=500), [2] * hops  # few edges: each hop still finds new nodes
    sampler = CudaSampler(fanouts, seed=5, batches_per_launch=2, schedule=schedule, node_set="bitmap")
    session, oracle = sampler.open(graph), HopwiseSampler(fanouts, seed=5)
    group = requests(graph, [1, 3, 2, 1])
    expected = [oracle.sample(graph, r.seeds, epoch=r.epoch, batch=r.batch) for r in group]
    assert all(expected[0].blocks[i].num_src > expected[0].blocks[i].num_dst for i in range(hops))
    assert [finish().digest() for finish in session.begin(group)] == [batch.digest() for batch in expected]
    sampler.close()


@by_line
@pytest.mark.parametrize("staged", [20 * LINE_BYTES, 2**30], ids=["a few", "all"])
@pytest.mark.parametrize(
    ("reads", "fanouts"),
    [("aligned", [4, 3, 2]), ("sectors", [4, 3, 2]), ("sectors", [-1, 33])],
)
def test_mini_batches_by_the_line_are_the_cpus(
    gpu: FakeGPU,
    monkeypatch: pytest.MonkeyPatch,
    fanouts: list[int],
    reads: str,
    node_set: str,
    staged: int,
    schedule: str,
) -> None:
    monkeypatch.setattr(gpu_sizes, "_MOST_STAGED", staged)
    graph = graph_of()
    graph.indices = torch.cat([graph.indices[:3], graph.indices])[3:]  # that does not begin with a line
    sampler = CudaSampler(
        fanouts,
        seed=5,
        batches_per_launch=3,
        schedule=schedule,
        node_set=node_set,
        reads=reads,
        edge_ids=staged > 2**20,
    )
    session, oracle = sampler.open(graph), HopwiseSampler(fanouts, seed=5, edge_ids=staged > 2**20)
    for sizes in ([0], [1, 12, 3, 20], [8, 8]):
        group = requests(graph, sizes)
        assert [finish().digest() for finish in session.begin(group)] == digests(graph, group, oracle)
    session.close()


@by_line
def test_few_blocks_may_copy_the_lines(gpu: FakeGPU, schedule: str, node_set: str) -> None:
    graph = graph_of(num_edges=80_000)  # several warps find lines to copy
    sampler = CudaSampler(
        [4, 3, 2],
        batches_per_launch=2,
        schedule=schedule,
        node_set=node_set,
        reads="sectors",
        blocks_per_sm=1,
    )
    session, group = sampler.open(graph), requests(graph, [12, 30])
    expected = digests(graph, group, HopwiseSampler([4, 3, 2]))
    assert session._space is not None
    engine = session._space.engine
    assert engine.fetch_blocks == 24
    lines = []
    for engine.fetch_blocks in (0, 1, 24):
        session.lines = 0
        assert [finish().digest() for finish in session.begin(group)] == expected
        lines.append(session.lines)
    assert lines[0] == lines[1] == lines[2] > 200
    with pytest.raises(ValueError, match="fetch_blocks is -1; it must be at least 0"):
        engine.fetch_blocks = -1
    session.close()


@pytest.mark.parametrize("picks", [{}, {"weights": "edge_weights"}])
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
@pytest.mark.parametrize(("reads", "fanouts"), [("naive", [4, 3]), ("sectors", [4, 3]), ("sectors", [-1, 33])])
def test_mini_batches_of_cached_lists_are_the_cpus(
    gpu: FakeGPU, fanouts: list[int], reads: str, share: float, picks: dict[str, str]
) -> None:
    plain = graph_of()
    weights = torch.rand(plain.num_edges, generator=torch.Generator().manual_seed(2))
    weights[::5] = 0
    graph = Graph(plain.indptr, plain.indices, edge_weights=weights)
    graph.list_cache = ListCache(graph, hottest_lists(graph, share, None, "degree"), torch.device("cpu"))
    assert graph.list_cache.num_edges <= share * graph.num_edges
    sampler = CudaSampler(fanouts, seed=5, batches_per_launch=2, edge_ids=True, reads=reads, **picks)
    session, oracle = sampler.open(graph), HopwiseSampler(fanouts, seed=5, edge_ids=True, **picks)
    group = requests(graph, [12, 30, 5])
    for _ in range(2):
        session.lines = 0
        assert [finish().digest() for finish in session.begin(group)] == digests(graph, group, oracle)
        assert (session.lines > 0) == (reads == "sectors" and share < 1)
    session.close()


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("options", [{}, {"edge_ids": True, "replace": True}, {"node_set": "hash"}])
def test_a_workspace_takes_no_more_than_its_needs(gpu: FakeGPU, options: dict[str, Any], cached: bool) -> None:
    graph, size = graph_of(), 40
    if cached:
        graph.list_cache = ListCache(graph, hottest_lists(graph, 0.3, None, "degree"), torch.device("cpu"))
    sampler = CudaSampler([4, 3], seed=5, batches_per_launch=3, reads="sectors" if cached else "auto", **options)
    needs = SamplerNeeds.of(sampler, graph, [size])
    session = sampler.open(graph)
    for sizes in ([1], [size] * 5, [2, size], [size] * 4):
        for finish in session.begin(requests(graph, sizes)):
            batch = finish()
            assert batch.input_nodes.numel() <= needs.nodes
            space = session._space
            assert space is not None
            assert sum(counted_bytes(array.nbytes) for array in space._arrays.values()) <= needs.workspace
    session.close()


@pytest.mark.parametrize(("reads", "each"), [("aligned", 32), ("sectors", 8)])
@by_line
def test_a_line_is_copied_once_for_a_launch(gpu: FakeGPU, schedule: str, node_set: str, reads: str, each: int) -> None:
    graph = graph_of()
    base = graph.indices.data_ptr() % LINE_BYTES // 4
    oracle = HopwiseSampler([4, 3], edge_ids=True)
    session = CudaSampler([4, 3], schedule=schedule, node_set=node_set, reads=reads, batches_per_launch=2).open(graph)
    group = requests(graph, [9, 30])
    for finish in session.begin(group):  # from now on there is room for all
        finish()
    for part in (group, group[:1]):
        sampled = [oracle.sample(graph, r.seeds, epoch=r.epoch, batch=r.batch) for r in part]
        session.lines = 0
        for finish in session.begin(part):
            finish()
        read: set[int] = set()
        for hop in (1, 0):
            ids = torch.cat([batch.blocks[hop].edge_ids for batch in sampled])
            needed = set(((ids + base) // each).tolist()) - read
            if reads == "sectors":  # and those between two of a line
                needed |= {
                    between
                    for first in needed
                    for last in needed
                    if first // 4 == last // 4
                    for between in range(first, last)
                } - read
            read |= needed
        assert session.lines == len(read)


@pytest.mark.parametrize("dtypes", [(torch.int64, torch.int32), (torch.int64, torch.int64)])
@pytest.mark.parametrize("reads", ["naive", "sectors"])
def test_mini_batches_of_wide_types_are_the_cpus(
    gpu: FakeGPU, dtypes: tuple[torch.dtype, torch.dtype], reads: str
) -> None:
    graph = graph_of(*dtypes)
    session, oracle = CudaSampler([4, 3], batches_per_launch=2, reads=reads).open(graph), HopwiseSampler([4, 3])
    group = requests(graph, [9, 20, 50])
    assert [finish().digest() for finish in session.begin(group)] == digests(graph, group, oracle)


def test_any_number_of_mini_batches_may_be_begun(gpu: FakeGPU) -> None:
    graph = graph_of()
    session, oracle = CudaSampler([2], batches_per_launch=8).open(graph), HopwiseSampler([2])
    group = requests(graph, [5] * 150)
    late = session.begin(group[:1])[0]
    assert [finish().digest() for finish in session.begin(group)] == digests(graph, group, oracle)
    begun = session.begin(group)
    assert late().digest() == digests(graph, group[:1], oracle)[0]
    with pytest.raises(RuntimeError, match="finished already"):
        late()
    del begun
    gc.collect()
    assert session._space is not None
    assert session._space.engine.free_headers == 192  # three times 64


@schedules
def test_after_a_refused_launch_mini_batches_are_right(gpu: FakeGPU, engine: Any, schedule: str, node_set: str) -> None:
    graph = graph_of()
    session = CudaSampler([4, 3], schedule=schedule, node_set=node_set).open(graph)
    group = requests(graph, [30])
    expected = digests(graph, group, HopwiseSampler([4, 3]))
    for after in range(3):
        engine.refuse_launch(after)
        refused = after < 1 or schedule != "cooperative"
        if refused:
            with pytest.raises(RuntimeError, match="launching the sampler failed: refused"):
                session.begin(group)
        engine.refuse_launch(-1)
        assert [finish().digest() for finish in session.begin(group)] == expected


def test_more_mini_batches_than_multiprocessors_are_the_cpus(gpu: FakeGPU) -> None:
    graph = graph_of()
    session = CudaSampler([4, 3], schedule="cooperative", batches_per_launch=10).open(graph)
    group = requests(graph, list(range(10, 20)))
    expected = digests(graph, group, HopwiseSampler([4, 3]))
    assert [finish().digest() for finish in session.begin(group)] == expected
    assert session.launches == 5


@schedules
def test_padded_mini_batches_trim_to_the_cpus(gpu: FakeGPU, schedule: str, node_set: str) -> None:
    graph = graph_of()
    session = CudaSampler([4, 3], schedule=schedule, node_set=node_set, pad_to_capacity=True).open(graph)
    group = requests(graph, [30, 30, 10])
    for finish, expected in zip(session.begin(group), digests(graph, group, HopwiseSampler([4, 3])), strict=True):
        padded = finish()
        assert isinstance(padded, PaddedMiniBatch)
        assert padded.trim().digest() == expected
    session.begin([Request(torch.tensor([7, 7], dtype=torch.int32), 1, 2)])
    with pytest.raises(ValueError, match=r"node 7 more than once.*epoch 1, mini-batch 2"):
        session.check()


def test_bad_seeds_fail_only_their_mini_batch(gpu: FakeGPU) -> None:
    graph = graph_of()
    session = CudaSampler([4, 3], batches_per_launch=3).open(graph)
    good = requests(graph, [20])
    bad = [Request(torch.tensor(ids, dtype=torch.int32), 0, 0) for ids in ([1, 300], [3, 3])]
    out, twice, finish = session.begin([*bad, *good])
    with pytest.raises(ValueError, match="node 300; valid ids are 0 to 299"):
        out()
    with pytest.raises(ValueError, match="node 3 more than once"):
        twice()
    assert [finish().digest()] == digests(graph, good, HopwiseSampler([4, 3]))


@pytest.mark.parametrize("schedule", ["cooperative", "hopwise"])
def test_races_name_bad_weights_and_forget_them(gpu: FakeGPU, schedule: str) -> None:
    graph = graph_of()
    weights = graph.edge_weights = torch.rand(graph.num_edges, generator=torch.Generator().manual_seed(3))
    weights[::5] = 0
    race: dict[str, Any] = {"weights": "edge_weights", "weight_tables": False}
    session = CudaSampler([4, 3], schedule=schedule, batches_per_launch=3, **race).open(graph)
    group = requests(graph, [30, 40, 20])
    expected = digests(graph, group, HopwiseSampler([4, 3], **race))
    assert [finish().digest() for finish in session.begin(group)] == expected
    listed = graph.indptr[group[0].seeds.long() + 1]
    edge, held = int(listed[0]) - 1, float(weights[int(listed[0]) - 1])
    for bad in (-1.0, float("nan"), float("inf")):
        weights[edge] = bad
        with pytest.raises(ValueError, match=rf"edge_weights\[{edge}\] is .*; a weight must be finite"):
            session.begin(group[:1])[0]()
    weights[edge] = held
    assert [finish().digest() for finish in session.begin(group)] == expected


def test_lists_of_a_race_may_begin_with_zeros(gpu: FakeGPU) -> None:
    """Of the first 256 entries, which are raced together, fewer than are picked have a weight, and those arrive late:
    what is known of the next 256 must not hide who comes before them.
    """
    degree, chance = 512, torch.Generator().manual_seed(4)
    graph = Graph(torch.arange(degree + 1) * degree, torch.arange(degree).repeat(degree))
    weights = torch.rand(degree, degree, generator=chance).double() + 0.5
    weights[:, :256] = 0
    weights[:, 10:60:10] = 1e-6
    graph.edge_weights = weights.view(-1)
    race: dict[str, Any] = {"weights": "edge_weights", "weight_tables": False, "edge_ids": True}
    session, oracle = CudaSampler([6], **race).open(graph), HopwiseSampler([6], **race)
    group = requests(graph, [degree])
    assert [session.begin(group)[0]().digest()] == digests(graph, group, oracle)


@pytest.mark.parametrize("weights", ["uniform", "few", "skewed", "equal", "doubles"])
@pytest.mark.parametrize("fanouts", [[5, 10], [15, 3], [32, 20]])
def test_races_of_many_lists_are_the_cpus(gpu: FakeGPU, fanouts: list[int], weights: str) -> None:
    """Lists of all lengths that a warp races together: some have too few that arrive, or too many that may."""
    nodes, chance = 1200, torch.Generator().manual_seed(6)
    degree = torch.empty(nodes).log_normal_(3.5, 1.5, generator=chance).long().clamp(0, 2500)
    degree[:8] = torch.tensor([0, 1, 255, 256, 257, 512, 2048, 2049])
    indptr = torch.cat([torch.zeros(1, dtype=torch.long), degree.cumsum(0)])
    graph = Graph(indptr, torch.randint(nodes, (int(indptr[-1]),), generator=chance))
    uniform = torch.rand(graph.num_edges, generator=chance)
    graph.edge_weights = {
        "uniform": uniform,
        "few": torch.where(uniform < 0.03, uniform, 0),
        "skewed": uniform.pow(12) * 1e30,
        "equal": torch.ones(graph.num_edges),
        "doubles": uniform.double() * 1e300,
    }[weights]
    race: dict[str, Any] = {"weights": "edge_weights", "weight_tables": False, "edge_ids": True}
    session, oracle = CudaSampler(fanouts, **race).open(graph), HopwiseSampler(fanouts, **race)
    group = requests(graph, [nodes, 700])
    assert [finish().digest() for finish in session.begin(group)] == digests(graph, group, oracle)


class TestRefusals:
    """What the bindings look at before a kernel runs."""

    OPTIONS: ClassVar = {"fanouts": [4], "replace": False, "edge_ids": False, "pad": False, "device": 0}
    PLAN: ClassVar = {
        **{"num_seeds": 2, "slots": 1, "schedule": 1, "node_set": 0, "edges_at": 0},
        **{"frontier_capacity": [2, 4], "edge_capacity": [8], "indices_at": [32], "indptr_at": [0], "edge_ids_at": []},
    }

    def made(self, engine: Any) -> Any:
        graph = graph_of()
        return engine.CudaSampler_i32_i32(graph.indptr, graph.indices, **self.OPTIONS)

    def batch(self, **changed: Any) -> Any:
        """No seeds, and memory for what is planned."""
        arrays = {"seeds": torch.zeros(0, dtype=torch.int32), "memory": torch.zeros(40, dtype=torch.int32)}
        arrays |= {"sizes": None, **changed}
        return arrays["seeds"], (0, 0, 0), arrays["memory"], arrays["sizes"]

    def test_bad_arrays_of_the_graph_are_refused(self, engine: Any) -> None:
        graph = graph_of()
        with pytest.raises(TypeError, match=r"indptr has dtype torch.int64; it must be torch.int32"):
            engine.CudaSampler_i32_i32(graph.indptr.long(), graph.indices, **self.OPTIONS)
        with pytest.raises(ValueError, match="indices is not contiguous"):
            engine.CudaSampler_i32_i32(graph.indptr, graph.indices[::2], **self.OPTIONS)
        with pytest.raises(ValueError, match="indptr is empty"):
            engine.CudaSampler_i32_i32(graph.indptr[:0], graph.indices, **self.OPTIONS)

    @pytest.mark.parametrize(
        ("changed", "error", "message"),
        [
            ({"edge_capacity": [2**31]}, OverflowError, "a block of 2147483648 edges exceeds 32-bit edge ids"),
            ({"slots": 17}, ValueError, "slots is 17; it must be in 1 to 16"),
            ({"frontier_capacity": [4, 2]}, ValueError, "must not decrease"),
            ({"indices_at": [3]}, ValueError, "aligned to 16 bytes"),
            ({"indptr_at": [0, 0]}, ValueError, "each of 1 hops"),
            ({"indptr_at": [-1]}, ValueError, "an offset is -1 and a capacity 2; both must be at least 0"),
        ],
    )
    def test_bad_plans_are_refused(
        self, engine: Any, changed: dict[str, Any], error: type[Exception], message: str
    ) -> None:
        with pytest.raises(error, match=message):
            self.made(engine).plan(**{**self.PLAN, **changed})

    def test_bad_arrays_of_the_workspace_are_refused(self, engine: Any) -> None:
        made = self.made(engine)
        wanted = made.plan(**self.PLAN)
        arrays = {name: torch.zeros(length, dtype=getattr(torch, dtype)) for name, dtype, length, _ in wanted}
        with pytest.raises(RuntimeError, match="there is no plan, or not its arrays"):
            made.launch([self.batch()], 0, 0)
        with pytest.raises(ValueError, match="there is no array row_begin"):
            made.use({name: held for name, held in arrays.items() if name != "row_begin"})
        with pytest.raises(ValueError, match=r"bitmaps has \d+ elements; it must have \d+"):
            made.use({**arrays, "bitmaps": arrays["bitmaps"][1:]})
        made.use(arrays)
        with pytest.raises(RuntimeError, match="no header left"):
            made.launch([self.batch()], 0, 0)
        with pytest.raises(ValueError, match="there are 2 mini-batches; the plan is for 1 to 1"):
            made.launch([self.batch()] * 2, 0, 0)
        made.plan(**self.PLAN)
        with pytest.raises(RuntimeError, match="there is no plan, or not its arrays"):
            made.launch([self.batch()], 0, 0)

    @pytest.mark.parametrize(
        ("name", "wrong", "error", "message"),
        [
            ("seeds", torch.zeros(3, dtype=torch.int32), ValueError, "there are 3 seeds; the plan is for up to 2"),
            ("seeds", torch.zeros(2), TypeError, r"seeds has dtype torch.float32; it must be torch.int32"),
            ("seeds", torch.zeros(2, dtype=torch.int32, device="meta"), ValueError, "seeds lies on meta"),
            ("seeds", torch.zeros(4, dtype=torch.int32)[::2], ValueError, "seeds is not contiguous"),
            ("seeds", 4096, TypeError, "seeds is int; it must be a tensor"),
            ("memory", torch.zeros(39, dtype=torch.int32), ValueError, "memory has 156 bytes; the plan needs 160"),
            ("memory", torch.zeros(160, dtype=torch.uint8, device="meta"), ValueError, "memory lies on meta"),
            ("memory", torch.zeros(320, dtype=torch.uint8)[::2], ValueError, "memory is not contiguous"),
            ("sizes", torch.zeros(2, dtype=torch.int64), ValueError, "sizes has 2 elements; it must have 3"),
            ("sizes", torch.zeros(3), TypeError, r"sizes has dtype torch.float32; it must be torch.int64"),
            ("sizes", torch.zeros(3, dtype=torch.int64, device="meta"), ValueError, "sizes lies on meta"),
            ("sizes", torch.zeros(6, dtype=torch.int64)[::2], ValueError, "sizes is not contiguous"),
        ],
    )
    def test_bad_arrays_of_a_mini_batch_are_refused(
        self, engine: Any, name: str, wrong: Any, error: type[Exception], message: str
    ) -> None:
        made = self.made(engine)
        wanted = made.plan(**self.PLAN)
        made.use({name: torch.zeros(length, dtype=getattr(torch, dtype)) for name, dtype, length, _ in wanted})
        with pytest.raises(error, match=message):
            made.launch([self.batch(**{name: wrong})], 0, 0)
        with pytest.raises(RuntimeError, match="no header left"):  # what comes after these arrays
            made.launch([self.batch(sizes=torch.zeros(3, dtype=torch.int64))], 0, 0)


PICKS: dict[str, dict[str, Any]] = {
    "weighted": {"weights": "edge_weights"},
    "weighted, replaced": {"weights": "edge_weights", "replace": True},
    "heaviest": {"weights": "edge_weights", "top_k": True},
    "labor": {"labor": True},
    "labor, all hops, 3 mini-batches": {"labor": True, "layer_dependency": True, "batch_dependency": 3},
}


@pytest.mark.parametrize(
    ("kind", "schedule", "node_set"),
    [(k, s, v) for k in PICKS for s, v in HOW if "labor" not in k or v == "hash"],
)
@pytest.mark.parametrize("fanouts", [[4, 3], [2, 33], [-1, 2]])
@pytest.mark.parametrize("reads", ["naive", "sectors"])
def test_other_picks_are_the_cpus(
    gpu: FakeGPU, reads: str, fanouts: list[int], kind: str, schedule: str, node_set: str
) -> None:
    if reads == "sectors" and (schedule != "hopwise" or "labor" in kind):
        pytest.skip("these picks are not read by the line")
    plain = graph_of()
    weights = torch.rand(plain.num_edges, generator=torch.Generator().manual_seed(2)) ** 6
    weights[::5] = 0
    graph = Graph(plain.indptr, plain.indices, edge_weights=weights)
    sampler = CudaSampler(
        fanouts,
        seed=5,
        edge_ids=True,
        batches_per_launch=3,
        schedule=schedule,
        node_set=node_set,
        reads=reads,
        **PICKS[kind],
    )
    session, oracle = sampler.open(graph), HopwiseSampler(fanouts, seed=5, edge_ids=True, **PICKS[kind])
    for sizes in ([0], [9], [1, 12, 3, 20], [300, 8]):
        group = requests(graph, sizes)
        got = [finish().digest() for finish in session.begin(group)]
        assert got == digests(graph, group, oracle)
    session.close()
