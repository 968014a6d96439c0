"""Every parameter and method of torch_geometric's loaders has a meaning here, or is refused."""

import inspect

import pytest
import torch
import torch.utils.data
import torch_geometric.loader
from torch_geometric.data import Data, HeteroData
from torch_geometric.sampler.base import NumNeighbors, SubgraphType

from loader.pyg import LinkNeighborLoader, NeighborLoader

EDGES = torch.tensor([[0, 1, 2, 3, 0], [1, 2, 3, 0, 2]])
BOTH = pytest.mark.parametrize("made", [NeighborLoader, LinkNeighborLoader])


def graph(**more):
    return Data(edge_index=EDGES, num_nodes=4, **more)


@BOTH
def test_parameters_of_theirs_have_their_places(made):
    theirs = inspect.signature(getattr(torch_geometric.loader, made.__name__).__init__).parameters
    ours = inspect.signature(made.__init__).parameters
    named = [name for name, p in theirs.items() if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert [name for name, p in ours.items() if p.kind is p.POSITIONAL_OR_KEYWORD] == named
    assert {name: ours[name].default for name in named} == {name: theirs[name].default for name in named}


# Options of torch's DataLoader and of torch_geometric's bases, with a value that is not the default; what is refused.
MEANT = {
    "batch_size": 2, "shuffle": True, "drop_last": True, "num_workers": 1, "prefetch_factor": 3, "pin_memory": True,
    "persistent_workers": True, "generator": torch.Generator(), "input_id": torch.arange(4), "worker_init_fn": print,
}  # fmt: skip
REFUSED = {
    "dataset": [1], "collate_fn": print, "timeout": 3, "multiprocessing_context": "spawn",
    "pin_memory_device": "cuda", "in_order": False, "custom_cls": HeteroData,
}  # fmt: skip
BY_POSITION = {"sampler": [1, 3], "batch_sampler": [[1], [2, 3]]}


def test_options_of_torchs_loader_are_read_or_refused():
    options = set(inspect.signature(torch.utils.data.DataLoader.__init__).parameters) - {"self"}
    for base in (torch_geometric.loader.NodeLoader, torch_geometric.loader.LinkLoader):
        named = {*NeighborLoader.__init__.__annotations__, *LinkNeighborLoader.__init__.__annotations__}
        others = set(inspect.signature(base.__init__).parameters) - {"self", "kwargs", "node_sampler", "link_sampler"}
        options |= (others - named) | {"input_id"}
    assert options == MEANT.keys() | REFUSED.keys() | BY_POSITION.keys()


@BOTH
@pytest.mark.parametrize("name", REFUSED)
def test_options_without_a_meaning_are_refused(made, name):
    with pytest.raises(TypeError, match=name):
        made(graph(), [2], **{name: REFUSED[name]})


@BOTH
@pytest.mark.parametrize("name", [*MEANT, *BY_POSITION])
def test_options_with_a_meaning_are_taken(made, name):
    more = {"input_nodes": torch.arange(4)} if made is NeighborLoader else {"edge_label_index": EDGES[:, :4]}
    count = sum(batch.input_id.numel() for batch in made(graph(), [2], **more, **{name: (MEANT | BY_POSITION)[name]}))
    assert count == {"sampler": 2, "batch_sampler": 3}.get(name, 4)


def test_no_other_methods_of_theirs_can_be_overridden():
    known = {"__init__", "__call__", "collate_fn", "filter_fn", "_get_iterator", "__repr__"}  # called here, too
    for base in (torch_geometric.loader.NodeLoader, torch_geometric.loader.LinkLoader):
        assert {name for name, value in vars(base).items() if inspect.isfunction(value)} == known
    for base in (torch_geometric.loader.NeighborLoader, torch_geometric.loader.LinkNeighborLoader):
        assert {name for name, value in vars(base).items() if inspect.isfunction(value)} == {"__init__"}
    mixins = [base for base in torch_geometric.loader.NodeLoader.__bases__ if base is not torch.utils.data.DataLoader]
    public = {name for base in mixins for name, value in vars(base).items() if inspect.isfunction(value)}
    public = {name for name in public if not name.startswith("_")}
    assert public == {"enable_cpu_affinity", "enable_multithreading", "enable_memory_log"}
    for name in public:
        assert getattr(NeighborLoader, name) is getattr(LinkNeighborLoader, name)  # which raises


@BOTH
def test_types_of_subgraphs_are_theirs(made):
    for kind in SubgraphType:
        ours = list(made(graph(), [2], subgraph_type=kind, seed=1))
        assert [b.edge_index.tolist() for b in ours] == [
            b.edge_index.tolist() for b in made(graph(), [2], subgraph_type=kind.value, seed=1)
        ]
    induced = made(graph(), [2], subgraph_type="induced", seed=1)
    for a, b in zip(made(graph(), [2], directed=False, seed=1), induced, strict=True):
        assert torch.equal(a.edge_index, b.edge_index)
    assert len(list(made(graph(), NumNeighbors([2, 1])))) > 0
