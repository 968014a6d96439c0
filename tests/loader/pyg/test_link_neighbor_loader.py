"""torch_geometric's loader of links with our pipeline under it."""

import pytest
import torch
from marks import HAS_GPU
from torch_geometric.data import Data
from torch_geometric.loader import LinkNeighborLoader as TheirLoader
from torch_geometric.sampler import NegativeSampling

import loader.pyg
from loader.pyg import LinkNeighborLoader

NUM_NODES, NUM_EDGES = 100, 600
WEIGHTED = NegativeSampling("binary", 1, torch.ones(NUM_NODES))


@pytest.fixture
def data():
    generator = torch.Generator().manual_seed(0)
    return Data(
        x=torch.arange(NUM_NODES).float().view(-1, 1),
        edge_index=torch.randint(NUM_NODES, (2, NUM_EDGES), generator=generator),
        edge_attr=torch.arange(NUM_EDGES),
    )


def assert_consistent(batch, data):
    assert torch.equal(batch.x.view(-1).long(), batch.n_id)
    assert torch.equal(batch.edge_attr, batch.e_id)
    assert torch.equal(batch.n_id[batch.edge_index], data.edge_index[:, batch.e_id])


@pytest.mark.parametrize("sampling", [None, "binary", "triplet"])
@pytest.mark.parametrize("amount", [1, 3])
def test_batches_have_the_attributes_of_torch_geometrics(data, sampling, amount):
    given = None if sampling is None else {"mode": sampling, "amount": amount}
    options = {"num_neighbors": [-1, -1], "batch_size": 8, "neg_sampling": given}
    ours = next(iter(LinkNeighborLoader(data, **options)))
    assert_consistent(ours, data)
    positives = (
        ours.edge_label_index[:, :8] if sampling != "triplet" else torch.stack([ours.src_index, ours.dst_pos_index])
    )
    assert torch.equal(ours.n_id[positives], data.edge_index[:, :8])
    assert ours.input_id.tolist() == list(range(8))
    if loader.pyg.backend() == "loader":
        theirs = next(iter(TheirLoader(data, **options)))
        assert set(ours.keys()) == set(theirs.keys())
        for key in ours.keys():  # noqa: SIM118 - a Data is no mapping
            if isinstance(theirs[key], torch.Tensor):
                assert ours[key].dtype == theirs[key].dtype, key
        for key in ("edge_label_index", "edge_label", "src_index", "dst_pos_index", "dst_neg_index"):
            assert (key in ours) == (key in theirs)
            if key in ours:
                assert ours[key].shape == theirs[key].shape
        if sampling is None:
            assert torch.equal(ours.n_id, theirs.n_id)
            assert torch.equal(ours.edge_label_index, theirs.edge_label_index)


@pytest.mark.parametrize(("first", "want"), [(0, [1, 2, 3, 0, 0, 0]), (1, [1, 2, 3, 0, 0, 0])])
def test_labels_leave_zero_for_negatives(data, first, want):
    made = LinkNeighborLoader(
        data, [2], data.edge_index[:, :3], torch.tensor([0, 1, 2]) + first, batch_size=3, neg_sampling_ratio=1.0
    )
    assert next(iter(made)).edge_label.tolist() == want


def test_without_negatives_labels_are_unchanged(data):
    labels = torch.rand(NUM_EDGES, 2)
    for batch in LinkNeighborLoader(data, [2], None, labels, batch_size=100, shuffle=True, seed=1):
        assert torch.equal(batch.edge_label, labels[batch.input_id])
        assert torch.equal(batch.n_id[batch.edge_label_index], data.edge_index[:, batch.input_id])


@pytest.mark.parametrize("sampling", [None, "binary", "triplet"])
def test_times_of_all_links_are_left_out(data, sampling):
    data.edge_label_time = torch.arange(3)
    batch = next(iter(LinkNeighborLoader(data, [2], data.edge_index[:, :3], batch_size=2, neg_sampling=sampling)))
    assert "edge_label_time" not in batch


def test_every_link_comes_once_per_occurrence(data):
    links = torch.tensor([[3, 3, 9, 4], [5, 5, 9, 3]])
    batches = list(LinkNeighborLoader(data, [2], links, batch_size=3, shuffle=True))
    assert sorted(i for b in batches for i in b.input_id.tolist()) == [0, 1, 2, 3]
    for batch in batches:
        assert torch.equal(batch.n_id[batch.edge_label_index], links[:, batch.input_id])


@pytest.mark.parametrize("exclude", ["none", "self", "reverse"])
def test_excluded_edges_are_not_sampled(data, exclude):
    data.edge_index = torch.cat([data.edge_index, data.edge_index.flip(0)], 1)
    data.edge_attr = torch.arange(2 * NUM_EDGES)
    met = {"forth": 0, "back": 0}
    for batch in LinkNeighborLoader(data, [-1, 3], batch_size=50, exclude=exclude):
        assert_consistent(batch, data)
        seen = set(map(tuple, batch.n_id[batch.edge_index].t().tolist()))
        asked = set(map(tuple, batch.n_id[batch.edge_label_index].t().tolist()))
        met["forth"] += len(seen & asked)
        met["back"] += len(seen & {(v, u) for u, v in asked})
    assert (met["forth"] > 0) == (exclude == "none")
    assert (met["back"] > 0) == (exclude != "reverse")


def test_strict_negatives_are_no_edges(data):
    known = set(map(tuple, data.edge_index.t().tolist()))
    for batch in LinkNeighborLoader(data, [2], batch_size=100, neg_sampling="binary", strict=True):
        drawn = batch.n_id[batch.edge_label_index[:, batch.edge_label == 0]].t().tolist()
        assert drawn
        assert not known & set(map(tuple, drawn))


@pytest.mark.parametrize("mode", ["binary", "triplet"])
def test_weighted_negatives_have_weights(data, mode):
    odd = torch.arange(NUM_NODES) % 2
    sampling = NegativeSampling(mode, 2, odd.float(), 1 - odd)
    for batch in LinkNeighborLoader(data, [2], batch_size=100, neg_sampling=sampling):
        if mode == "triplet":
            assert bool((batch.n_id[batch.dst_neg_index] % 2 == 0).all())
        else:
            drawn = batch.n_id[batch.edge_label_index[:, batch.edge_label == 0]] % 2
            assert drawn.shape[1] == 200
            assert drawn.tolist() == [[1] * 200, [0] * 200]


def test_only_the_seed_decides_an_epoch(data):
    def epoch(**more):
        made = LinkNeighborLoader(
            data, [3, 2], batch_size=64, shuffle=True, seed=4, neg_sampling="triplet", exclude="self", **more
        )
        return [(b.n_id.tolist(), b.e_id.tolist(), b.dst_neg_index.tolist()) for b in made]

    first = epoch()
    for changes in ({"num_workers": 1}, {"prefetch": 0}):
        assert epoch(**changes) == first


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (
            {"neg_sampling": WEIGHTED, "strict": True},
            ValueError,
            "strict is True, and source_weights is given; strict negatives are uniform: leave one out",
        ),
        (
            {"neg_sampling": NegativeSampling("binary", 1, torch.ones(3))},
            ValueError,
            "source_weights has 3 entries, for 100 nodes; give one each",
        ),
        ({"strict": True}, ValueError, "strict is of use with negatives only"),
        ({"strict": "no"}, TypeError, "strict is 'no'; it must be True or False"),
        ({"neg_sampling": "many"}, ValueError, "neg_sampling is 'many'; it must be a NegativeSampling, 'binary'"),
        ({"neg_sampling": {}}, ValueError, "neg_sampling is {}; it must be a NegativeSampling, 'binary'"),
        ({"neg_sampling_ratio": "x"}, TypeError, "neg_sampling_ratio is 'x'; it must be a number"),
        (
            {"neg_sampling": "triplet", "neg_sampling_ratio": 2.0},
            ValueError,
            "neg_sampling is 'triplet' and neg_sampling_ratio is 2.0; give one of them",
        ),
        ({"neg_sampling_ratio": -1}, ValueError, "neg_sampling_ratio is -1; it must be at least 0"),
        ({"edge_label": "x"}, TypeError, "edge_label is 'x'; it must be a tensor or a list"),
        ({"exclude": "all"}, ValueError, "one of none, self, reverse"),
        ({"edge_label": torch.zeros(3)}, ValueError, r"edge_label has shape \[3\], there are 600 links"),
        (
            {"edge_label": torch.tensor([0, 255] * 300, dtype=torch.uint8), "neg_sampling": "binary"},
            ValueError,
            "edge_label has dtype torch.uint8 and its greatest value, 255, but labels that begin at 0 are raised",
        ),
        ({"edge_label": torch.zeros(600), "neg_sampling": "triplet"}, ValueError, "triplets have no labels"),
        ({"edge_label_index": torch.zeros(3, 2)}, ValueError, r"shape \[3, 2\]; it must be a tensor \[2, n\]"),
        ({"edge_label_index": torch.tensor([[1], [100]])}, ValueError, "holds node 100; valid ids are 0 to 99"),
        ({"edge_label_index": torch.tensor([[1], [-1]])}, ValueError, "edge_label_index holds node -1"),
        ({"edge_label_index": torch.rand(2, 3)}, TypeError, "edge_label_index has dtype torch.float32; it must be an"),
        ({"edge_label_index": [[1], [2]]}, ValueError, "type list; it must be a tensor"),
    ],
)
def test_bad_arguments_are_refused(data, given, error, message):
    with pytest.raises(error, match=message):
        LinkNeighborLoader(data, [2], **given)


@pytest.mark.gpu
@pytest.mark.skipif(not HAS_GPU, reason="needs an NVIDIA GPU")
def test_batches_on_a_gpu_are_the_same(data):
    base = {"num_neighbors": [4, 2], "batch_size": 64, "shuffle": True, "seed": 5, "neg_sampling": "binary"}
    pairs = zip(LinkNeighborLoader(data, **base), LinkNeighborLoader(data, device="cuda", **base), strict=True)
    for ours, on_gpu in pairs:
        assert on_gpu.x.is_cuda
        for key in ("n_id", "e_id", "edge_index", "x", "edge_label_index", "edge_label", "input_id"):
            assert torch.equal(ours[key], on_gpu[key].cpu())
