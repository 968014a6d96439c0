"""Induced subgraphs: all edges among given nodes, found on the CPU or on a GPU with the same bytes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from loader import _core
from loader.graph.checks import check_integers, signed
from loader.graph.csc import Graph, require_square
from loader.graph.foreign import require_graph
from loader.graph.hetero import HeteroGraph
from loader.graph.relations import EdgeType
from loader.machine.arguments import as_size, kind_of, shown
from loader.machine.cpus import as_threads, available_cpus
from loader.machine.gpu import current_stream_handle, made_current
from loader.machine.mapped import whole

_MOST = 2**63 - 1
# On a GPU an entry of the asked lists takes a bit, and a second search takes as long as the first one.
_ROOM_OF_MEAN, _LEAST_ROOM = 16, 2**16


class InducedEdges(NamedTuple):
    """The edges among given nodes, list after list in the order of the nodes, each in the order of its list.

    Attributes:
        sources: `[num_edges]` int64, places among the given nodes.
        targets: `[num_edges]` int64, places among the given nodes.
        places: `[num_edges]` int64, places of the edges in `graph.indices`.
    """

    sources: Tensor
    targets: Tensor
    places: Tensor


class _Question(NamedTuple):
    """What the core is asked, see csrc/induced/edges_between.h."""

    lists: tuple[Tensor, Tensor]
    num_ids: int
    nodes: Tensor
    sets: Tensor | None
    rows: Tensor | None
    of_rows: Tensor | None
    num_sets: int


def induced_edges(
    graph: Graph, nodes: Tensor, *, sets: Tensor | None = None, num_sets: int = 1, num_threads: int | None = None
) -> InducedEdges:
    """Finds all edges of a graph among given nodes, parallel edges and loops included.

    It runs on the GPU that the graph or `nodes` lies on, else on the CPU, and gives the same bytes everywhere. A GPU
    also reads a graph in pinned memory. The host waits for the GPU once.

    Args:
        graph: of one type.
        nodes: `[n]` integer ids, distinct within a set.
        sets: `[n]` int32, from 0 to `num_sets` - 1: the set of each node. There are only edges within a set, and a node
            may be in several. None: all nodes are in one set.
        num_sets: number of sets.
        num_threads: of the CPU; None: one for each processor.

    Returns:
        The edges, on the device where they were found.

    Raises:
        TypeError: `graph` is no `Graph`, or `nodes` or `sets` no tensor of integers.
        ValueError: a node is given twice in a set, or is none; a set is none of `num_sets`; the graph is bipartite, or
            lies elsewhere than `nodes`.
    """
    require_graph(graph, hetero=False)
    require_square(graph, "an induced subgraph")
    device, ids = _where(graph, nodes, "nodes")
    num_sets = as_size("num_sets", num_sets, least=0)
    if sets is not None:
        if not isinstance(sets, Tensor):
            raise TypeError(f"sets is {kind_of(sets)}; it must be a tensor of int32 (torch.as_tensor)")
        if sets.shape != nodes.shape or sets.dtype != torch.int32:
            raise ValueError(
                f"sets has shape {list(sets.shape)} and dtype {sets.dtype}; it must be int32 {list(nodes.shape)}"
            )
        sets = sets.to(device).contiguous()
    lists = (graph.indptr, graph.indices)
    question = _Question(lists, graph.num_src, ids, sets, None, None, num_sets)
    return _found(question, device, num_threads, nodes)


def induced_subgraph(graph: Any, nodes: Any, *, num_threads: int | None = None) -> Any:
    """The subgraph of given nodes with all edges among them; node `i` of it is `nodes[i]`.

    Lists keep their order. Weights, times and edge types of the edges are kept, as are times of the nodes. The edges
    keep their ids; if the graph has none, they get their places in its `indices` as ids.

        part = induced_subgraph(graph, torch.tensor([4, 0, 7]))

    Args:
        graph: a `Graph` or a `HeteroGraph`.
        nodes: `[n]` distinct integer ids; of a `HeteroGraph` node type -> such ids within the type. Of types that are
            left out there are no nodes.
        num_threads: see `induced_edges`.

    Returns:
        A `Graph`, or a `HeteroGraph` with all types and relations, on the device where the edges were found, see
        `induced_edges`. A `Graph` has no `node_types`.

    Raises:
        TypeError, ValueError: as `induced_edges`; `nodes` names an unknown type.
    """
    require_graph(graph)
    with whole(*(graph.lists if isinstance(graph, HeteroGraph) else graph)._arrays().values()):
        if isinstance(graph, HeteroGraph):
            return _hetero(graph, nodes, num_threads)
        found = induced_edges(graph, nodes, num_threads=num_threads)
        ids = nodes.to(found.places.device).long()
        return _lists(graph, found, ids.numel(), ids.numel(), ids)


def induced_edges_by_type(
    graph: HeteroGraph, nodes: Mapping[str, Tensor], *, num_threads: int | None = None
) -> dict[EdgeType, InducedEdges]:
    """Finds all edges among given nodes of a graph with types, by relation; see `induced_edges`.

    Args:
        graph: with types of nodes and edges.
        nodes: node type -> `[n]` distinct integer ids within the type. Of types that are left out there are no nodes.
        num_threads: of the CPU; None: one for each processor.

    Returns:
        Edge type -> its edges, ascending by target, each list in its order: places of sources and targets among the
        given nodes of their types, and places in `graph.lists.indices`. All relations are there.

    Raises:
        TypeError, ValueError: as `induced_edges`; `nodes` names an unknown type.
    """
    if not isinstance(graph, HeteroGraph):
        raise TypeError(f"graph is {kind_of(graph)}; it must be a HeteroGraph, or take induced_edges")
    found, sizes, *_ = _hetero_edges(graph, nodes, num_threads)
    begin, first_row, node, row = {}, {}, 0, 0
    for name, size in sizes.items():
        begin[name], first_row[name] = node, row
        node += size
        row += size * len(graph.relations_into[name])
    made = {}
    for number, key in enumerate(graph.edge_types):
        of_type = graph.relations_into[key[2]]
        rows = found.targets - first_row[key[2]]
        among = (rows >= 0) & (rows < sizes[key[2]] * len(of_type)) & (rows % len(of_type) == of_type.index(number))
        at = among.nonzero().view(-1)
        targets = torch.div(rows[at], len(of_type), rounding_mode="floor")
        made[key] = InducedEdges(found.sources[at] - begin[key[0]], targets, found.places[at])
    return made


def _hetero(graph: HeteroGraph, nodes: Any, num_threads: int | None) -> HeteroGraph:
    found, sizes, all_ids, num_rows = _hetero_edges(graph, nodes, num_threads)
    made = _lists(graph.lists, found, all_ids.numel(), num_rows, all_ids)
    return HeteroGraph(
        made,
        sizes,
        graph.edge_types,
        timed_types=graph.timed_types if made.node_times is not None else None,
        timed_relations=graph.timed_relations if made.edge_times is not None else None,
    )


def _hetero_edges(
    graph: HeteroGraph, nodes: Any, num_threads: int | None
) -> tuple[InducedEdges, dict[str, int], Tensor, int]:
    """The edges among nodes of several types, whose targets are lists: a node has one for each relation into its type.

    Returns:
        The edges; node type -> number of nodes; the nodes, type after type, in the one range of ids; number of lists.
    """
    if not isinstance(nodes, Mapping):
        raise TypeError(f"nodes is {kind_of(nodes)}; of a graph with types it must be a dict: node type -> ids")
    if unknown := [name for name in nodes if name not in graph.node_types]:
        raise ValueError(f"nodes names {shown(unknown[0])}; the graph has the node types {list(graph.node_types)}")
    given = {name: _where(graph.lists, ids, f"nodes[{name!r}]") for name, ids in nodes.items()}
    devices = {device for device, _ in given.values()}
    if len(devices) > 1:
        raise ValueError(f"nodes lie on {' and '.join(sorted(map(str, devices)))}; give all of them on one device")
    device = next(iter(devices), graph.device)
    ids, rows, sizes = [], [], {}
    for name, of in graph.node_types.items():
        own = given[name][1].long() if name in given else torch.empty(0, dtype=torch.int64, device=device)
        if own.numel():
            low, high = (int(x) for x in torch.aminmax(own))
            if low < 0 or high >= len(of):
                bad = low if low < 0 else high
                raise ValueError(f"nodes[{name!r}] holds {bad}; valid ids are 0 to {len(of) - 1}")
        slots = len(graph.relations_into[name])
        sizes[name] = own.numel()
        ids.append(own + of.start)
        of_type = own[:, None] * slots + torch.arange(slots, device=device)
        rows.append((of_type + graph.first_row[name]).flatten())
    all_ids, all_rows = torch.cat(ids), torch.cat(rows)
    lists = (graph.lists.indptr, graph.lists.indices)
    as_ids = all_ids.to(graph.lists.indices.dtype)
    question = _Question(lists, graph.num_nodes, as_ids, None, all_rows, None, 1)

    def said(v: int) -> str:
        name = next(name for name, of in graph.node_types.items() if v in of)
        return f"nodes[{name!r}] has node {v - graph.node_types[name].start} twice"

    return _found(question, device, num_threads, all_ids, said), sizes, all_ids, all_rows.numel()


def _lists(graph: Graph, found: InducedEdges, num_nodes: int, num_rows: int, nodes: Tensor) -> Graph:
    """The found edges as lists of `num_rows` rows, with what the graph knows of them."""
    device = found.places.device
    indptr = torch.zeros(num_rows + 1, dtype=torch.int64, device=device)
    torch.cumsum(torch.bincount(found.targets, minlength=num_rows), 0, out=indptr[1:])

    def taken(array: Tensor | None, at: Tensor = found.places) -> Tensor | None:
        return None if array is None else array[at.to(array.device)].to(device)

    return Graph(
        indptr,
        found.sources,
        num_src=num_nodes,
        edge_ids=found.places.to(graph.indptr.dtype) if graph.edge_ids is None else taken(graph.edge_ids),
        edge_weights=taken(graph.edge_weights),
        edge_times=taken(graph.edge_times),
        edge_types=taken(graph.edge_types),
        node_times=taken(graph.node_times, nodes),
        validate=False,
    )


def _where(graph: Graph, nodes: Any, name: str) -> tuple[torch.device, Tensor]:
    """The device that finds the edges, and `nodes` there, with the type of the graph's ids."""
    if not isinstance(nodes, Tensor):
        raise TypeError(f"{name} is {kind_of(nodes)}; it must be a tensor of node ids (torch.as_tensor)")
    check_integers(name, nodes)
    if nodes.dim() != 1:
        raise ValueError(f"{name} has shape {list(nodes.shape)}; it must be a vector of node ids")
    device = graph.indices.device if nodes.device.type == "cpu" else nodes.device
    for array in ("indptr", "indices"):
        of: Tensor = getattr(graph, array)
        if of.device != device and not (of.device.type == "cpu" and (of.is_pinned() or of.numel() == 0)):
            raise ValueError(
                f"{name} lies on {nodes.device}, the graph's {array} on {of.device}; use graph.to('{device}'), or "
                "graph.pin_memory() for a GPU"
            )
    ids, dtype = signed(name, nodes), graph.indices.dtype
    if dtype == torch.int32 and ids.dtype == torch.int64:
        ids = ids.clamp(-1, 2**31 - 1)  # what does not fit is no id either way
    return device, ids.to(device, dtype).contiguous()


def _found(
    question: _Question, device: torch.device, num_threads: int | None, given: Tensor, twice: Any = None
) -> InducedEdges:
    """Asks the core, and raises ValueError for one of the `given` nodes that is none or is there twice."""
    if device.type == "cpu":
        threads = available_cpus() if num_threads is None else as_threads(num_threads)
        repeated, wrong, edges = _on_cpu(question, threads)
    else:
        if num_threads is not None:
            raise ValueError(f"num_threads is {num_threads}, but the edges are found on {device}; leave it out")
        with made_current(device):
            repeated, wrong, edges = _on_gpu(_core, question, device.index, current_stream_handle(device.index))
    if wrong is not None:
        v = int(given[wrong])
        if question.sets is not None and 0 <= v < question.num_ids:
            of = int(question.sets[wrong])
            raise ValueError(f"sets[{wrong}] is {of}; with num_sets {question.num_sets} it must be 0 to num_sets - 1")
        raise ValueError(f"nodes[{wrong}] is {v}; valid ids are 0 to {question.num_ids - 1}")
    if repeated is not None:
        of, v = divmod(repeated, question.num_ids)
        said = f"nodes has node {v} twice{'' if question.sets is None else f' in set {of}'}"
        raise ValueError(f"{said if twice is None else twice(v)}; give each node once: torch.unique")
    assert edges is not None
    return edges


# A key that is given twice, the place of what is no node or in no set, edges.
Answer = tuple[int | None, int | None, InducedEdges | None]


def _on_cpu(question: _Question, num_threads: int) -> Answer:
    with whole(*question.lists):
        made = _core.InducedEdges(*question, num_threads)
    if made.wrong >= 0 or made.repeated >= 0:
        return made.repeated if made.repeated >= 0 else None, made.wrong if made.wrong >= 0 else None, None
    out = torch.empty((3, made.num_edges), dtype=torch.int64)
    made.write(*out)
    return None, None, InducedEdges(*out)


def _on_gpu(core: Any, question: _Question, index: int, stream: int, room: int | None = None) -> Answer:
    """The same by kernels (csrc/induced/cuda/induced.h), whose launches `core` has.

    Args:
        room: for entries of the asked lists; if they have more, all is done again. None: for many times their mean.
    """
    (indptr, indices), nodes = question.lists, question.nodes
    num_nodes = nodes.numel()
    num_rows = num_nodes if question.rows is None else question.rows.numel()
    words = partial(torch.empty, dtype=torch.int64, device=nodes.device)
    if max(num_nodes, num_rows) == 0:
        return None, None, InducedEdges(*words((3, 0)))
    all_entries = indices.numel()
    if room is None:
        room = min(all_entries, _ROOM_OF_MEAN * num_rows * all_entries // max(indptr.numel() - 1, 1) + _LEAST_ROOM)
    while True:
        memory = words(core.induced_words(num_nodes, num_rows, room))
        made = core.CudaInducedEdges(*question, memory, room, index, stream)
        repeated, wrong, entries, num_edges = memory[: core.induced_report_words].tolist()
        if repeated or wrong:
            return _MOST - repeated if repeated else None, _MOST - wrong if wrong else None, None
        if entries <= room:
            break
        room = entries
    out = words((3, num_edges))
    if num_edges:
        made.write(out, entries, num_edges)
    return None, None, InducedEdges(*out)
