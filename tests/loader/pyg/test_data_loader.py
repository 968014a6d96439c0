"""What users of torch_geometric's loaders override, write to and hand over, with our loaders in their place."""

import copy
import logging
import pickle

import lightning
import pytest
import torch
import torch_geometric.loader
from lightning.pytorch.callbacks import ModelCheckpoint
from marks import HAS_GPU
from torch.utils.data import DistributedSampler, WeightedRandomSampler
from torch_geometric.data import Data
from torch_geometric.loader import ImbalancedSampler, ZipLoader
from torch_geometric.nn import GraphSAGE
from torch_geometric.sampler import BaseSampler, NeighborSampler, SamplerOutput

from loader.pyg import LinkNeighborLoader, NeighborLoader, backend, data_loader
from loader.stores import HostFeatures

NUM_NODES, NUM_EDGES = 120, 700
SEEDS = torch.arange(0, NUM_NODES, 2)
GIVEN = {"num_neighbors": [4, 3], "batch_size": 16, "shuffle": True, "seed": 5}


@pytest.fixture
def data():
    generator = torch.Generator().manual_seed(2)
    return Data(
        x=torch.randn(NUM_NODES, 3, generator=generator),
        y=torch.randint(3, (NUM_NODES,), generator=generator),
        edge_index=torch.randint(NUM_NODES, (2, NUM_EDGES), generator=generator),
        edge_attr=torch.randn(NUM_EDGES, 2, generator=generator),
        name="a graph",
    )


def nodes_of(kind, data, **more):
    """A loader around nodes, or one around edges."""
    if issubclass(kind, NeighborLoader):
        return kind(data, input_nodes=SEEDS, **{**GIVEN, **more})
    return kind(data, edge_label_index=data.edge_index[:, :60], **{**GIVEN, "neg_sampling": "binary", **more})


def unchanged(out):
    return out


def assert_same(ours, theirs):
    assert set(ours.keys()) == set(theirs.keys())
    for name in ours.keys():  # noqa: SIM118 - a Data is no mapping
        a, b = ours[name], theirs[name]
        assert torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b, name


def all_same(ours, theirs):
    ours, theirs = list(ours), list(theirs)
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert_same(a, b)


def overriding(base, name):
    """A subclass that overrides a method, which counts its calls and asks its base."""

    def method(self, given):
        self.calls += 1
        return getattr(base, name)(self, given)

    return type(f"My{base.__name__}", (base,), {name: method, "calls": 0})


@pytest.mark.parametrize("base", [NeighborLoader, LinkNeighborLoader])
@pytest.mark.parametrize("name", ["filter_fn", "collate_fn"])
@pytest.mark.parametrize("per_worker", [True, False])
def test_overridden_methods_are_called(data, base, name, per_worker, caplog, monkeypatch):
    monkeypatch.setattr(data_loader, "_warned", set())
    with caplog.at_level(logging.WARNING, logger="loader"):
        made = nodes_of(overriding(base, name), data, filter_per_worker=per_worker)
        plain = [list(made) for _ in range(2)]
    assert made.calls == 2 * len(made)
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 1
    assert f"mini-batches go through {name}, one by one" in said[0]
    ours = nodes_of(base, data)
    for epoch in plain:
        all_same(epoch, ours)


@pytest.mark.parametrize("base", [NeighborLoader, LinkNeighborLoader])
@pytest.mark.parametrize("shape", ["directional", "bidirectional", "induced"])
def test_the_plain_path_gives_the_same(data, base, shape):
    mine = overriding(base, "filter_fn")
    all_same(nodes_of(mine, data, subgraph_type=shape), nodes_of(base, data, subgraph_type=shape))


def test_triplets_of_the_plain_path_are_the_same(data):
    mine = overriding(LinkNeighborLoader, "filter_fn")
    for amount in (1, 2):
        more = {"neg_sampling": {"mode": "triplet", "amount": amount}, "input_id": torch.arange(60) + 7}
        all_same(nodes_of(mine, data, **more), nodes_of(LinkNeighborLoader, data, **more))


@pytest.mark.parametrize("base", [NeighborLoader, LinkNeighborLoader])
def test_an_output_can_be_transformed(data, base):
    def transform(out):
        assert isinstance(out, SamplerOutput)
        out.row, out.col = out.col, out.row
        return out

    for ours, turned in zip(
        nodes_of(base, data), nodes_of(base, data, transform_sampler_output=transform), strict=True
    ):
        assert torch.equal(turned.edge_index, ours.edge_index.flip(0))
        assert torch.equal(turned.x, ours.x)


def test_a_method_given_later_is_called(data):
    made = nodes_of(NeighborLoader, data)
    first = list(made)
    made.filter_fn = lambda out: ("mine", out.node)
    made.filter_per_worker = False
    assert [out[0] for out in made] == ["mine"] * len(made)
    del made.filter_fn
    made.set_epoch(0)
    all_same(made, first)


@pytest.mark.parametrize(("base", "name"), [(NeighborLoader, "input_data"), (LinkNeighborLoader, "neg_sampling")])
def test_what_was_read_cannot_be_replaced(data, base, name):
    made = nodes_of(base, data)
    for again in (made, copy.copy(made), pickle.loads(pickle.dumps(made))):
        next(iter(again))
        setattr(again, name, None)
        with pytest.raises(ValueError, match=f"{name} of this {base.__name__} was replaced"):
            next(iter(again))
    sampler = getattr(made, made._role)
    with pytest.raises(AttributeError, match=r"num_neighbors cannot be changed to \[5\]; make a new loader"):
        sampler.num_neighbors = [5]


class Mine(BaseSampler):
    def sample_from_edges(self, inputs, neg_sampling=None):
        raise NotImplementedError

    def sample_from_nodes(self, inputs):
        none = torch.empty(0, dtype=torch.int64)
        order = torch.randperm(inputs.node.numel())
        return SamplerOutput(inputs.node[order], none, none, none, metadata=(inputs.input_id[order], None))


def test_a_sampler_of_the_users_is_called(data):
    made = nodes_of(NeighborLoader, data, neighbor_sampler=Mine())
    state, before = torch.get_rng_state(), list(made)
    assert torch.equal(torch.get_rng_state(), state)  # nobody else's numbers are drawn
    assert sorted(torch.cat([batch.n_id for batch in before]).tolist()) == SEEDS.tolist()
    assert all(batch.num_edges == 0 for batch in before)
    made.set_epoch(0)
    all_same(made, before)


@pytest.mark.skipif(backend() != "loader", reason="pyg-lib or torch-sparse is installed")
def test_torch_geometrics_sampler_is_called(data):
    made = nodes_of(NeighborLoader, data, neighbor_sampler=NeighborSampler(data, [2]))
    for batch in made:
        assert len(batch.num_sampled_edges) == 1
        assert torch.equal(batch.n_id[batch.edge_index], data.edge_index[:, batch.e_id])


@pytest.mark.parametrize("hook", [{}, {"transform_sampler_output": unchanged}, {"sampler": "imbalanced"}])
def test_every_path_goes_on_where_it_was(data, hook):
    def made():
        more = dict(hook)
        if "sampler" in more:
            more |= {"sampler": ImbalancedSampler(data, input_nodes=SEEDS), "shuffle": False}
        return nodes_of(NeighborLoader, data, **more)

    whole = made()
    epochs = [list(whole) for _ in range(2)]
    for given in range(len(whole) + 1):
        first = made()
        first.set_epoch(1)
        running = iter(first)
        begun = [next(running) for _ in range(given)]
        for again in (made(), pickle.loads(pickle.dumps(made()))):
            again.load_state_dict(first.state_dict())
            all_same([*begun, *again], epochs[1])
        all_same([*begun, *copy.copy(first)], epochs[1])


@pytest.mark.parametrize("name", ["edge_index", "weight", "time"])
@pytest.mark.parametrize("hook", [{}, {"transform_sampler_output": unchanged}])
def test_a_state_of_another_graph_is_refused(data, name, hook):
    data.weight, data.time = torch.arange(NUM_EDGES).float(), torch.arange(NUM_EDGES)
    more = hook | {"edge_index": {}, "weight": {"weight_attr": "weight"}, "time": {"time_attr": "time"}}[name]
    more |= {"input_time": torch.full_like(SEEDS, 350)} if name == "time" else {}
    state = nodes_of(NeighborLoader, data, **more).state_dict()
    nodes_of(NeighborLoader, data.clone(), **more).load_state_dict(state)
    data[name] = data[name].flip(0)
    with pytest.raises(ValueError, match=r"cannot resume: (the graph's edge(s|_weights)|times) was"):
        nodes_of(NeighborLoader, data, **more).load_state_dict(state)


def test_ranks_share_a_plain_epoch(data):
    more = {"transform_sampler_output": unchanged, "world_size": 2}
    parts = [list(nodes_of(NeighborLoader, data, rank=rank, **more)) for rank in range(2)]
    whole = list(nodes_of(NeighborLoader, data))
    all_same([parts[i % 2][i // 2] for i in range(len(whole))], whole)
    assert isinstance(nodes_of(NeighborLoader, data, rank=0, **more).sampler, DistributedSampler)


@pytest.mark.parametrize("base", [NeighborLoader, LinkNeighborLoader])
def test_a_loader_can_be_called(data, base):
    made = nodes_of(base, data)
    torch.manual_seed(1)
    first = made([3, 5])
    torch.manual_seed(1)
    assert_same(made(torch.tensor([3, 5])), first)
    assert not torch.equal(made([3, 5]).e_id, first.e_id)
    assert first.input_id.tolist() == [3, 5]
    assert torch.equal(first.x, data.x[first.n_id])


@pytest.mark.parametrize("workers", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_loaders_can_be_zipped(data, workers):
    loaders = [NeighborLoader(data, [3], input_nodes=nodes, seed=1) for nodes in (SEEDS, SEEDS[:20])]
    zipped = ZipLoader(loaders, batch_size=8, num_workers=workers)
    assert len(zipped) == 3
    for first, second in zipped:
        assert torch.equal(first.input_id, second.input_id)
        assert torch.equal(second.x, data.x[second.n_id])


def test_it_is_a_loader_of_torchs_and_theirs(data):
    made = NeighborLoader(data, [-1], batch_size=16)
    assert isinstance(made, torch.utils.data.DataLoader)
    assert isinstance(made, torch_geometric.loader.NeighborLoader)
    assert isinstance(nodes_of(LinkNeighborLoader, data), torch_geometric.loader.LinkNeighborLoader)
    assert made.batch_size == 16
    assert NeighborLoader(data, [2], num_workers=2).num_workers == 2
    model = GraphSAGE(3, 8, 2, 4).eval()
    with torch.no_grad():
        assert torch.allclose(model.inference(made), model(data.x, data.edge_index), atol=1e-5)
    for name in ("enable_cpu_affinity", "enable_multithreading", "enable_memory_log"):
        with pytest.raises(NotImplementedError, match="has no worker processes"):
            getattr(made, name)()


class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(()))

    def predict_step(self, batch, number):
        return batch

    def training_step(self, batch, number):
        self.seen = [*getattr(self, "seen", []), batch.input_id.tolist()]
        return (self.weight * batch.x).sum()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


@pytest.mark.filterwarnings("ignore:.*does not have many workers")
def test_lightning_trains_and_predicts(data, tmp_path):
    options = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "max_epochs": 1}
    trainer = lightning.Trainer(accelerator="cpu", default_root_dir=tmp_path, enable_model_summary=False, **options)
    made = NeighborLoader(data, [3], input_nodes=SEEDS, batch_size=16, seed=1)
    predicted = trainer.predict(Model(), made)
    all_same(predicted, NeighborLoader(data, [3], input_nodes=SEEDS, batch_size=16, seed=1))
    model = Model()
    trainer.fit(model, nodes_of(NeighborLoader, data))
    assert model.seen == [batch.input_id.tolist() for batch in nodes_of(NeighborLoader, data)]


@pytest.mark.filterwarnings("ignore:.*does not have many workers", "ignore:Checkpoint directory")
@pytest.mark.parametrize("step", [2, 4, 6])
def test_a_users_sampler_goes_on_under_lightning(data, tmp_path, step):
    def fit(ckpt_path):
        saving = ModelCheckpoint(tmp_path, "{step}", every_n_train_steps=1, save_top_k=-1)
        options = {"callbacks": [saving], "enable_progress_bar": False, "enable_model_summary": False, "max_epochs": 3}
        trainer = lightning.Trainer(accelerator="cpu", logger=False, default_root_dir=tmp_path, **options)
        model, sampler = Model(), WeightedRandomSampler(torch.arange(1.0, 61), 60)
        trainer.fit(model, nodes_of(NeighborLoader, data, shuffle=None, sampler=sampler), ckpt_path=ckpt_path)
        return model.seen

    whole = fit(None)
    assert whole[:4] != whole[4:8]
    assert fit(tmp_path / f"step={step}.ckpt") == whole[step:]
    assert fit(tmp_path / f"step={step + 1}.ckpt") == whole[step + 1 :]  # which the resumed run wrote


@pytest.mark.filterwarnings("ignore:.*does not have many workers")
def test_writes_amid_accumulated_steps_repeat_nothing(data, tmp_path):
    class Writing(Model):
        def training_step(self, batch, number):
            if number in (1, 3):  # gradients of mini-batch 0, and of 3, are in no weights yet
                data.x = data.x + 1
            return super().training_step(batch, number)

    options = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "max_epochs": 1}
    trainer = lightning.Trainer(
        accelerator="cpu",
        default_root_dir=tmp_path,
        enable_model_summary=False,
        accumulate_grad_batches=3,
        **options,
    )
    model = Writing()
    trainer.fit(model, nodes_of(NeighborLoader, data))
    assert model.seen == [batch.input_id.tolist() for batch in nodes_of(NeighborLoader, data)]


@pytest.mark.parametrize("base", [NeighborLoader, LinkNeighborLoader])
def test_two_iterators_after_a_break_are_two_epochs(data, base):
    made, alone = nodes_of(base, data), nodes_of(base, data)
    epochs = [list(alone) for _ in range(3)]
    next(iter(made))
    outer, inner = iter(made), iter(made)
    pairs = [(next(outer), next(inner)) for _ in range(2)]
    all_same([*(a for a, _ in pairs), *outer], epochs[1])
    all_same([*(b for _, b in pairs), *inner], epochs[2])


def test_a_hook_after_a_state_is_refused(data):
    made = nodes_of(NeighborLoader, data)
    next(iter(made))
    state = made.state_dict()
    made.load_state_dict(state)
    made.filter_fn = unchanged
    with pytest.raises(ValueError, match=r"went through the pipeline when .* and go through filter_fn now"):
        next(iter(made))


@pytest.mark.parametrize("base", [NeighborLoader, LinkNeighborLoader])
def test_two_iterators_are_two_epochs(data, base):
    made, alone = nodes_of(base, data), nodes_of(base, data)
    epochs = [list(alone) for _ in range(3)]
    outer, inner = iter(made), iter(made)
    pairs = [(next(outer), next(inner)) for _ in range(2)]
    all_same([*(a for a, _ in pairs), *outer], epochs[0])
    state = made.state_dict()  # of the newest
    all_same([*(b for _, b in pairs), *inner], epochs[1])
    all_same(made, epochs[2])
    made.load_state_dict(state)
    all_same(made, epochs[1][2:])


@pytest.mark.parametrize("hook", [None, unchanged])
def test_an_iterator_beside_another_begins_as_told(data, hook):
    """As after a run that failed in its validation, whose trainer is still there."""
    loader, told, state = (nodes_of(NeighborLoader, data, transform_sampler_output=hook) for _ in range(3))
    running = iter(loader)
    next(running)
    loader.batch_sampler.sampler.set_epoch(3)  # as Lightning does
    loader.loader.finished = lambda: 0
    told.set_epoch(3)
    again = iter(loader)
    assert_same(next(again), next(iter(told)))
    assert loader.state_dict()["next"] == 0  # the consumer is not done with it
    state.load_state_dict({**loader.state_dict(), "next": 2})
    loader.load_state_dict(state.state_dict())
    all_same(loader, state)


@pytest.mark.parametrize("features", [None, HostFeatures])
def test_writes_amid_an_epoch_are_seen(data, features):
    made = NeighborLoader(data, [3], batch_size=8, seed=2, features=features, prefetch=2)
    numbers = [batch.n_id for batch in NeighborLoader(data, [3], batch_size=8, seed=2)]
    for number, batch in enumerate(made):
        assert torch.equal(batch.n_id, numbers[number])
        assert torch.equal(batch.y, data.y[batch.n_id])
        if number == 3:
            data.x += 1
        if number > 5 or (features is not None and number > 3):
            assert torch.equal(batch.x, data.x[batch.n_id])
        if number == 8:
            data.y = data.y + 5  # another tensor, which the next mini-batch has
    assert number == len(numbers) - 1


def test_writes_reach_the_plain_path(data):
    made = NeighborLoader(data, [3], batch_size=8, transform_sampler_output=unchanged)
    for batch in made:
        assert torch.equal(batch.x, data.x[batch.n_id])
        data.x = data.x + 1


def test_no_items_are_no_mini_batches(data):
    for made in (
        NeighborLoader(data, [3], input_nodes=torch.zeros(NUM_NODES, dtype=torch.bool), batch_size=4, shuffle=True),
        NeighborLoader(data, [3], input_nodes=[]),
        LinkNeighborLoader(data, [3], edge_label_index=torch.empty(2, 0, dtype=torch.int64), neg_sampling="binary"),
    ):
        assert len(made) == len(made.dataset) == 0
        assert list(made) == []
        made.set_epoch(3)
        made.load_state_dict(made.state_dict())
        with pytest.raises(ValueError, match="has no items, so it has no pipeline"):
            made.loader  # noqa: B018
        assert "items=0" in repr(made)


def test_features_of_a_plain_path_are_refused(data):
    with pytest.raises(ValueError, match="features is given, which transform_sampler_output does not read"):
        NeighborLoader(data, [3], features=HostFeatures, transform_sampler_output=unchanged)
    made = NeighborLoader(data, [3], features=HostFeatures)
    made.transform_sampler_output = unchanged
    with pytest.raises(ValueError, match="features is given, which transform_sampler_output does not read"):
        next(iter(made))


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_GPU, reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("base", [NeighborLoader, LinkNeighborLoader])
@pytest.mark.parametrize("shape", ["directional", "bidirectional"])
def test_a_gpus_plain_path_gives_the_same(data, base, shape):
    on_cpu = [batch.to("cuda") for batch in nodes_of(base, data, subgraph_type=shape)]
    all_same(nodes_of(base, data, subgraph_type=shape, device="cuda"), on_cpu)
    all_same(nodes_of(overriding(base, "filter_fn"), data, subgraph_type=shape, device="cuda"), on_cpu)


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_GPU, reason="needs an NVIDIA GPU")
@pytest.mark.parametrize("place", ["cpu", "cuda"])
def test_writes_amid_an_epoch_reach_a_gpu(data, place):
    data.x = data.x.to(place)
    made = NeighborLoader(data, [3], batch_size=8, seed=2, device="cuda")
    for number, batch in enumerate(made):
        assert torch.equal(batch.x, data.x.cuda()[batch.n_id])
        if number == 3:
            data.x += 1
        if number == 6:
            data.x = data.x * 2
    assert number == 14


def test_a_batch_whose_hook_failed_is_left(data):
    class Failing(NeighborLoader):
        fails = True

        def collate_fn(self, index):
            if self.fails and self.seen == 2:
                raise KeyboardInterrupt
            self.seen += 1
            return super().collate_fn(index)

    whole = [batch.input_id for batch in NeighborLoader(data, input_nodes=SEEDS, **GIVEN)]
    made = Failing(data, input_nodes=SEEDS, **GIVEN)
    made.seen = 0
    given = []
    with pytest.raises(KeyboardInterrupt):
        given.extend(batch.input_id for batch in made)
    state = made.state_dict()
    resumed = Failing(data, input_nodes=SEEDS, **GIVEN)
    resumed.fails, resumed.seen = False, 0
    resumed.load_state_dict(state)
    rest = [batch.input_id for batch in resumed]
    assert len(rest) == len(whole) - 2
    assert all(map(torch.equal, rest, whole[2:]))


@pytest.mark.parametrize("base", [NeighborLoader, LinkNeighborLoader])
@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_a_batch_whose_transform_failed_is_left(data, base, error):
    def failing(batch):
        given.append(batch)
        if len(given) == 3:
            raise error
        return batch

    whole = list(nodes_of(base, data))
    given = []
    made = nodes_of(base, data, transform=failing)
    with pytest.raises(error):
        list(made)
    resumed = nodes_of(base, data, transform=unchanged)
    resumed.load_state_dict(made.state_dict())
    all_same(resumed, whole[2:])
