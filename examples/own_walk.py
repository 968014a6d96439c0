"""A random walk of your own, written in Python and compiled: python examples/own_walk.py

Edges inside a cluster are heavier. The walks below follow weights, seldom go back, and avoid the last three nodes.
Then a node has the cluster that most nodes on its walks have.
"""

import torch
from torch import Tensor

import loader

SELDOM = loader.Next.chance(0.25)  # to go back to the node before


def next_node(walker, lists, draws):
    """In proportion to the weights of the edges, but seldom back, and to no node that memory holds."""
    if lists.degree(walker.at) == 0:
        return -1
    walker.memory[walker.step % 3] = walker.at + 1  # memory is 0 at first
    for _ in range(20):
        node = draws.by_weight(walker.at)
        if node == walker.previous:
            if draws.accept(SELDOM):
                return node
        elif walker.memory[0] != node + 1 and walker.memory[1] != node + 1 and walker.memory[2] != node + 1:
            return node
    return walker.start


def make_graph(num_nodes: int = 1200, clusters: int = 4) -> tuple[loader.Graph, Tensor]:
    """A graph with heavy edges inside clusters and light ones between them, and the cluster of each node."""
    generator = torch.Generator().manual_seed(0)
    cluster = torch.randint(clusters, (num_nodes,), generator=generator)
    src, dst = torch.randint(num_nodes, (2, 12 * num_nodes), generator=generator)
    src, dst = torch.cat((src, dst)), torch.cat((dst, src))
    graph = loader.Graph.from_edges(src, dst, num_nodes)
    ends = torch.arange(num_nodes).repeat_interleave(graph.indptr.diff())
    weights = torch.where(cluster[graph.indices.long()] == cluster[ends], 4.0, 0.2)
    return loader.Graph(graph.indptr, graph.indices, edge_weights=weights), cluster


def main() -> None:
    graph, cluster = make_graph()
    options = {"next": next_node, "weights": "edge_weights", "walks_per_node": 20}
    walks = loader.random_walk(graph, torch.arange(graph.num_nodes), 8, **options)
    same = loader.random_walk(graph, torch.arange(5), 8, **{**options, "next": loader.Next(next_node, compiled=False)})
    print("by the compiled function and by Python:", walks[:5].tolist()[0], same[:5].tolist()[0])
    # A node has the cluster that most nodes on its walks have.
    met = torch.zeros(graph.num_nodes, int(cluster.max()) + 1)
    others = walks[:, 1:].long()
    starts = walks[:, :1].long().expand_as(others)
    reached = others >= 0
    met.index_put_((starts[reached], cluster[others[reached]]), torch.ones(()), accumulate=True)
    print(f"accuracy {(met.argmax(1) == cluster).float().mean():.3f}")


if __name__ == "__main__":
    main()
