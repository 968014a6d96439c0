"""The heterogeneous dataset of the Open Graph Benchmark (Hu et al. 2020, arXiv:2005.00687), through the ogb package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from loader.datasets.hetero_edges import HeteroEdges, HeteroEdgesDataset
from loader.datasets.library_reader import ReaderFiles
from loader.datasets.node_dataset import SPLITS
from loader.datasets.ogb import ogb_reader
from loader.datasets.splits import ids_of
from loader.datasets.unread_parts import tell_unread

_RELATIONS = (
    "author___affiliated_with___institution",
    "author___writes___paper",
    "paper___cites___paper",
    "paper___has_topic___field_of_study",
)
_FILES = (
    "RELEASE_v2.txt",
    *(f"raw/{name}.csv.gz" for name in ("triplet-type-list", "num-node-dict", "nodetype-has-label")),
    "raw/node-feat/paper/node-feat.csv.gz",
    "raw/node-label/paper/node-label.csv.gz",
    *(f"raw/relations/{name}/{what}.csv.gz" for name in _RELATIONS for what in ("edge", "num-edge-list")),
    "split/time/nodetype-has-split.csv.gz",
    *(f"split/time/paper/{part}.csv.gz" for part in ("train", "valid", "test")),
)
_SPLITS = dict(zip(SPLITS, ("train", "valid", "test"), strict=True))


class HeteroOGBDataset(ReaderFiles, HeteroEdgesDataset):
    """ogbn-mag with its official split, at `data_dir/ogbn_mag`: papers with features and labels, authors, institutions
    and fields of study without.

    Types and relations are sorted by name, as ogb has them. The years of the papers are not read.

    ogb asks on the terminal before it downloads more than a gigabyte. It gets only the csv files, not pickled files
    beside them, see `OGBDataset`.

    Args:
        name: "ogbn-mag".
        undirected: add the reverse of every edge, see `HeteroEdgesDataset`. Without it, nothing leads to an author.
        options: see `HeteroEdgesDataset`.
    """

    folder = "ogbn_mag"
    files = _FILES
    origin = "http://snap.stanford.edu/ogb/data/nodeproppred/mag.zip"

    def __init__(self, name: str = "ogbn-mag", *, undirected: bool = True, **options: Any) -> None:
        if name != "ogbn-mag":
            raise ValueError(f"name is {name!r}; it must be 'ogbn-mag': OGBDataset reads the others of OGB")
        super().__init__(name, undirected=undirected, **options)

    def open_reader(self, root: Path) -> Any:
        home = root / self.folder
        if home.exists():  # otherwise ogb downloads it, and brings the folder along
            (home / "processed").mkdir(exist_ok=True)
        return ogb_reader()(self.name, root=str(root))

    def extract(self, reader: Any) -> HeteroEdges:
        graph, labels = reader[0]
        split = reader.get_idx_split()
        given = [name for name, value in graph.items() if value]
        tell_unread(self.name, "the graph of ogb", given, ("edge_index_dict", "node_feat_dict", "num_nodes_dict"))
        (target,) = labels
        num_nodes = {name: int(size) for name, size in graph["num_nodes_dict"].items()}
        return HeteroEdges(
            edges=graph["edge_index_dict"],
            num_nodes=num_nodes,
            target=target,
            labels=labels[target].reshape(-1),
            features=graph["node_feat_dict"],
            num_classes=reader.num_classes,
            splits={
                ours: ids_of(np.asarray(split[theirs][target]), num_nodes[target], f"{self.name}: split {theirs}")
                for ours, theirs in _SPLITS.items()
            },
        )
