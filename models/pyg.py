"""The models of torch_geometric on mini-batches: those of `torch_geometric.nn.models`, by name."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from loader.graph import Graph
from loader.machine.arguments import as_fraction, as_size
from loader.machine.optional import import_optional
from loader.machine.renamed_arguments import renamed_arguments
from loader.samples import Block, MiniBatch
from loader.samples.subgraph import subgraph_of

ARCHITECTURES = ("gcn", "gat", "gatv2", "gin", "pna")
_CLASSES = {"graphsage": "GraphSAGE", "gcn": "GCN", "gat": "GAT", "gatv2": "GAT", "gin": "GIN", "pna": "PNA"}
_PNA = {
    "aggregators": ["mean", "min", "max", "std"],
    "scalers": ["identity", "amplification", "attenuation"],
}
_EDGES = 2**26  # of which loops are counted at a time


@renamed_arguments({"hidden": "hidden_channels"})
class PyGNet(nn.Module):
    """One of torch_geometric's models, on sampled mini-batches and layer by layer.

    On a mini-batch it is the model's own `forward` on the sampled subgraph (`MiniBatch.to_pyg`), where each layer only
    computes what the next one reads (`trim_to_layer`). The weights (`net.state_dict()`) are those of the class.

    GCN's edges get the weights that they have in the whole graph, `1 / sqrt(d_u d_v)` with in-degrees that count a loop
    at each node, and those of a node's picks are scaled by its number of neighbors over the number of picks. So a layer
    on picked neighbors has the mean of the layer on all neighbors. PNA scales by the whole graph's mean degree and the
    degree in the mini-batch.

    Args:
        architecture: "gcn", "gat", "gatv2", "gin" or "pna".
        in_dim, hidden_channels, out_dim: widths of the features, of the hidden layers and of the output.
        num_layers: depth; the sampler needs as many hops.
        dropout: probability in [0, 1) that an element of a hidden layer is dropped in training.
        input_dropout: the same for the input features.
        norm: "none" or "layer" (`torch.nn.LayerNorm`), applied to the hidden layers.
        act: activation of the hidden layers, by torch_geometric's name for it.
        heads: of gat and gatv2, which divide `hidden_channels`; the last layer's are averaged. None: 1.
        attention_dropout: of gat and gatv2, likewise for the weights of the edges. None: as `dropout`.

    Raises:
        ImportError: torch_geometric is missing.
        ValueError: a value out of its range, or an option that this architecture does not have.
    """

    def __init__(
        self,
        architecture: str,
        in_dim: int,
        hidden_channels: int,
        out_dim: int,
        num_layers: int = 2,
        *,
        dropout: float = 0.5,
        input_dropout: float = 0.0,
        norm: str = "none",
        act: str = "relu",
        heads: int | None = None,
        attention_dropout: float | None = None,
    ) -> None:
        super().__init__()
        if architecture not in ARCHITECTURES:
            raise ValueError(f"architecture is {architecture!r}; it must be one of {', '.join(ARCHITECTURES)}")
        as_size("in_dim", in_dim)
        self.net = make_net(
            architecture,
            in_dim,
            hidden_channels,
            out_dim,
            num_layers,
            dropout=dropout,
            input_dropout=input_dropout,
            norm=norm,
            act=act,
            heads=heads,
            attention_dropout=attention_dropout,
        )
        self.architecture = architecture
        self.in_dim = in_dim
        self.num_layers = num_layers
        self.input_dropout = input_dropout
        self._degrees: tuple[Tensor, Tensor] | None = None  # of each node: neighbors, and 1 / sqrt(d)

    @property
    def needs_graph(self) -> bool:
        """Whether the weights of edges come from the whole graph."""
        return self.architecture == "gcn"

    def read_graph(self, graph: Graph, *, fit: bool) -> None:
        """Takes the degrees of the whole graph, which GCN needs before it is called, and PNA before it is trained.

        Args:
            graph: whose nodes the mini-batches name.
            fit: the model is about to be trained.
        """
        if self.needs_graph:
            neighbors = graph.indptr.cpu().diff()
            self._degrees = neighbors.float(), (neighbors - _loops(graph) + 1).float().rsqrt()
        if self.architecture == "pna" and fit and graph.num_edges:  # a mean degree of 0 would make 0 / 0 of each node
            degrees = torch.bincount(graph.indptr.cpu().diff())
            aggregation = import_optional("torch_geometric.nn.aggr", "model=pna", "datasets").DegreeScalerAggregation
            scaled = aggregation(_PNA["aggregators"][0], _PNA["scalers"], degrees).state_dict()
            for conv in self.net.convs:
                conv.aggr_module.load_state_dict(scaled)

    def forward(self, batch: MiniBatch, x: Tensor) -> Tensor:
        """`x [num_input, in_dim]` -> `[batch_size, out_dim]`.

        Raises:
            ValueError: the mini-batch has another number of hops than the model has layers, or its features another
                width than `in_dim`.
            RuntimeError: GCN does not know the graph, see `read_graph`.
        """
        if len(batch.blocks) != self.num_layers:
            raise ValueError(
                f"the mini-batch has {len(batch.blocks)} hops, the model {self.num_layers} layers; "
                "give the sampler as many fanouts as the model has layers"
            )
        if x.shape[-1] != self.in_dim:
            raise ValueError(f"x has {x.shape[-1]} features, the model's in_dim is {self.in_dim}; they must be equal")
        sampled, places, _ = subgraph_of(batch)
        x = nn.functional.dropout(x[places], self.input_dropout, self.training)
        edges, weights, counts = sampled.edge_index, None, list(sampled.num_edges)
        if self.needs_graph:
            groups, starts = [], [0]
            for number in sampled.num_nodes[:-1]:
                starts.append(starts[-1] + number)
            for hop, part in enumerate(edges.split(counts, dim=1)):
                groups.append(self._weighed(part, sampled.nodes, starts[hop], starts[hop + 1]))
            edges, weights = torch.cat([e for e, _ in groups], dim=1), torch.cat([w for _, w in groups]).to(x.dtype)
            counts = [e.shape[1] for e, _ in groups]
        options = {} if weights is None else {"edge_weight": weights}
        hops = {"num_sampled_nodes_per_hop": list(sampled.num_nodes), "num_sampled_edges_per_hop": counts}
        out: Tensor = self.net(x, edges, **options, **hops)
        return out[: batch.batch_size]

    def layer(self, i: int, x: Tensor, block: Block, nodes: Tensor) -> Tensor:
        """Layer `i` for nodes with all their neighbors, see `models.inference.blockwise_outputs`."""
        edges, options = block.edge_index, {}
        if self.needs_graph:
            edges, weights = self._weighed(edges, nodes, 0, block.num_dst)
            options["edge_weight"] = weights.to(x.dtype)
        net = self.net
        x = net.convs[i](x, edges, **options)[: block.num_dst]
        if i < self.num_layers - 1:
            x = net.norms[i](x)
            x = x if net.act is None else net.act(x)
        return x

    def _weighed(self, edges: Tensor, nodes: Tensor, first: int, last: int) -> tuple[Tensor, Tensor]:
        """GCN's edges into the nodes `first` to `last`, each with a loop, and their weights.

        Args:
            edges: `[2, E]`, local ids, of picked or of all neighbors.
            nodes: global id by local id.
        """
        if self._degrees is None:
            raise RuntimeError(
                "GCN needs the degrees of the whole graph; train with a GraphDataModule, or call "
                "read_graph(graph, fit=False)"
            )
        if self._degrees[0].device != nodes.device:
            self._degrees = self._degrees[0].to(nodes.device), self._degrees[1].to(nodes.device)
        neighbors, root = self._degrees
        source, target = edges
        # Not of the default type: bfloat16, of a trainer's bf16-true, counts up to 256.
        ones = torch.ones(target.numel(), dtype=torch.float32, device=edges.device)
        picks = ones.new_zeros(last - first).index_add_(0, target - first, ones)
        scale = neighbors[nodes[first:last]] / picks.clamp(min=1)
        apart = source != target
        source, target = source[apart], target[apart]
        weights = scale[target - first] * root[nodes[source]] * root[nodes[target]]
        own = torch.arange(first, last, device=edges.device)
        ends = torch.stack((torch.cat((source, own)), torch.cat((target, own))))
        return ends, torch.cat((weights, root[nodes[own]] ** 2))


def make_net(
    architecture: str,
    in_dim: int | tuple[int, int],
    hidden_channels: int,
    out_dim: int,
    num_layers: int,
    *,
    dropout: float,
    input_dropout: float,
    norm: str,
    act: str,
    heads: int | None,
    attention_dropout: float | None,
    **options: Any,
) -> Any:
    """The model of torch_geometric; arguments are those of `PyGNet`.

    Args:
        architecture: also "graphsage".
        in_dim: width of the features; (-1, -1) for what the first call has.
        options: of the class in torch_geometric, too.

    Raises:
        ImportError: torch_geometric is missing.
        ValueError: a value out of its range, or an option that this architecture does not have.
    """
    sizes = {"hidden_channels": hidden_channels, "out_dim": out_dim, "num_layers": num_layers}
    for name, size in sizes.items():
        as_size(name, size)
    attends = architecture.startswith("gat")
    for name, value in (("heads", heads), ("attention_dropout", attention_dropout)):
        if value is not None and not attends:
            raise ValueError(f"{name} is {value}, but {architecture} has no attention; leave it out")
    rates = {"dropout": dropout, "input_dropout": input_dropout, "attention_dropout": attention_dropout or 0.0}
    for name, p in rates.items():
        as_fraction(name, p)
    if norm not in ("none", "layer"):
        raise ValueError(
            f"norm is {norm!r}; it must be none or layer: batch norm would mix in the outermost nodes of a "
            "mini-batch, whose neighbors were not sampled"
        )
    heads = 1 if heads is None else as_size("heads", heads)
    if attends and num_layers > 1 and hidden_channels % heads:
        raise ValueError(
            f"hidden_channels is {hidden_channels}, heads {heads}; the heads share the width, so it must be a multiple"
        )
    models = import_optional("torch_geometric.nn.models", f"model={architecture}", "datasets")
    if architecture == "gcn":
        options |= {"normalize": False, "add_self_loops": False}  # the weights of the edges are ours, see there
    elif attends:
        options |= {"heads": heads, "v2": architecture == "gatv2"}
    elif architecture == "pna":
        options |= {**_PNA, "deg": torch.ones(2, dtype=torch.long)}  # until `read_graph`
    try:
        net: Any = getattr(models, _CLASSES[architecture])(
            in_dim,
            hidden_channels,
            num_layers,
            out_dim,
            dropout=dropout,
            act=act,
            norm=nn.LayerNorm(hidden_channels) if norm == "layer" else None,
            **options,
        )
    except ValueError as error:
        if "resolve" not in str(error):
            raise
        raise ValueError(f"act is {act!r}; it must be an activation of torch.nn, e.g. relu or elu") from error
    if attends and attention_dropout is not None:
        for conv in net.convs:
            conv.dropout = attention_dropout
    return net


def _loops(graph: Graph) -> Tensor:
    """`[num_nodes]` number of edges from each node to itself."""
    ends, found = graph.indptr.cpu(), torch.zeros(graph.num_nodes, dtype=torch.long)
    a = 0
    while a < graph.num_nodes:
        b = max(a + 1, int(torch.searchsorted(ends, int(ends[a]) + _EDGES, right=True)) - 1)
        sources = graph.indices[int(ends[a]) : int(ends[b])].cpu()
        targets = torch.arange(a, b).repeat_interleave(ends[a : b + 1].diff().long())
        found += torch.bincount(targets[sources == targets], minlength=graph.num_nodes)
        a = b
    return found
