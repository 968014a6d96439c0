"""How a sampler's neighbors are picked, as an object of the C++ core."""

from __future__ import annotations

from loader import _core
from loader.graph import Graph
from loader.machine.pages import use_huge_pages
from loader.samplers.base import NeighborSampler
from loader.samplers.picks import weighed, weights_of


def core_picks(
    sampler: NeighborSampler, graph: Graph, num_threads: int
) -> tuple[Graph, _core.WeightTables | _core.WeightOrder | _core.Labor | _core.Race | None]:
    """The graph to sample, and the core's object that says how its neighbors are picked (None: uniformly)."""
    picks = sampler.picking
    if picks.labor:
        turns = _core.turns_key(sampler.seed)
        return graph, _core.Labor(picks.layer_dependency, picks.batch_dependency, turns)
    if picks.weights is None:
        return graph, None
    if not picks.weight_tables:
        return graph, _core.Race(weights_of(graph, type(sampler).__name__))
    found = weighed(graph, type(sampler).__name__)
    if picks.top_k:
        return found.part_of(graph), _core.WeightOrder(found.order(num_threads))
    cells, ends = found.tables(num_threads)
    if cells.device.type == "cpu":
        use_huge_pages(cells)
    return found.part_of(graph), _core.WeightTables(cells, ends)
