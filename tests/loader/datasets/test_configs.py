"""Every file of conf/dataset describes a dataset, under the file's name."""

from __future__ import annotations

import inspect
import itertools
from pathlib import Path

import numpy as np
import pytest
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from loader.datasets.base import CachedDataset
from models.synthetic import LargeSyntheticDataset, SyntheticDataset
from models.synthetic.hetero import SHAPES

CONF = Path(__file__).resolve().parents[3] / "conf" / "dataset"
TABLES = ("relational", "rel-f1")
ENTITIES = ("aifb", "mutag")
BOTH_WAYS = ("dblp", "imdb", "synthetic-mag", "synthetic-igb")  # have both directions of every edge
FILES = sorted(CONF.glob("*.yaml"))


def options_of(name: str) -> DictConfig:
    chosen = OmegaConf.load(CONF / f"{name}.yaml")
    assert isinstance(chosen, DictConfig)
    return chosen.get("dataset", chosen)  # one with options of other groups names its own


def describe(name: str, tmp_path: Path) -> CachedDataset:
    config = OmegaConf.create({"data_dir": str(tmp_path), "cache_dir": None, "dataset": options_of(name)})
    if name in ("npz", "hetero_npz"):
        config.dataset.path = f"{name}.npz"
    if name == "relational":
        config.dataset.update(path=name, task="some")
    if name == "edge_list":
        config.dataset.edges = "edge_list.csv"
    dataset = instantiate(config.dataset)
    assert isinstance(dataset, CachedDataset)
    return dataset


@pytest.mark.parametrize("name", [path.stem for path in FILES])
def test_each_file_makes_a_dataset_of_its_name(name, tmp_path):
    dataset = describe(name, tmp_path)
    assert dataset.name == name
    assert dataset.cache_dir == tmp_path / "cache"


@pytest.mark.parametrize("name", [path.stem for path in FILES])
def test_each_file_shows_every_option(name, tmp_path):
    shown = set(options_of(name))
    options: set[str] = set()
    for kind in type(describe(name, tmp_path)).__mro__:
        if issubclass(kind, CachedDataset):
            options |= set(inspect.signature(kind.__init__).parameters)
    # Of the options of all base classes: only Shchur's datasets advertise the restriction to a component; dblp, imdb,
    # entities and tables have both directions of every edge, and the features of tables are finite.
    if name in (*TABLES, *ENTITIES):  # entities have no features
        options -= {"check_features", "undirected"}
    assert options - shown - {"self", "options", "unknown"} <= {"name", "largest_component", "undirected"}
    assert "undirected" in shown or "undirected" not in options or name in (*BOTH_WAYS, *ENTITIES)


def test_all_datasets_of_the_plan_are_there():
    shapes = ("arxiv", "flickr", "igb", "mag", "papers100M", "physics", "products", "reddit", "yelp")
    planned = (
        "digits npz edge_list synthetic reddit flickr yelp coauthor-physics coauthor-cs amazon-computers amazon-photo"
    )
    ogb = "cora citeseer ogbn-arxiv ogbn-products ogbn-papers100M"
    walked, typed = "blogcatalog ppi wikipedia", "dblp imdb aifb mutag ogbn-mag hetero_npz"
    names = {
        *TABLES,
        *planned.split(),
        *ogb.split(),
        *walked.split(),
        *typed.split(),
        *(f"synthetic-{s}" for s in shapes),
    }
    assert {path.stem for path in FILES} == names


@pytest.mark.parametrize(
    ("name", "num_nodes", "num_edges", "num_features", "num_classes", "max_degree"),
    [
        ("synthetic-reddit", 232_965, 114_615_892, 602, 41, 21_657),
        ("synthetic-flickr", 89_250, 899_756, 500, 7, 5_425),
        ("synthetic-yelp", 716_847, 2 * 6_977_410, 300, 100, 4_886),
        ("synthetic-arxiv", 169_343, 2_315_598, 128, 40, 13_161),
        ("synthetic-products", 2_449_029, 2 * 61_859_140, 100, 47, 17_481),
        ("synthetic-physics", 34_493, 495_924, 8_415, 5, 382),
    ],
)
def test_shapes_are_the_published_ones(tmp_path, name, num_nodes, num_edges, num_features, num_classes, max_degree):
    dataset = describe(name, tmp_path)
    assert isinstance(dataset, SyntheticDataset)
    plan = dataset.plan
    assert (plan.num_nodes, 2 * plan.num_pairs, plan.max_degree) == (num_nodes, num_edges, max_degree)
    assert (dataset.num_features, plan.sizes.size) == (num_features, num_classes)
    assert dataset.multilabel == (name == "synthetic-yelp")


def test_the_papers_shape_is_the_published_one(tmp_path):
    dataset = describe("synthetic-papers100M", tmp_path)
    assert isinstance(dataset, LargeSyntheticDataset)
    n = dataset.plan.num_nodes
    assert (n, dataset.num_edges) == (111_059_956, 1_615_685_872)
    assert (dataset.num_features, dataset.plan.sizes.size) == (128, 172)
    ends = [0, *(round(end * n) for end in itertools.accumulate(dataset.split))]
    assert np.diff(ends).tolist() == [1_207_179, 125_265, 214_338]


def test_hetero_shapes_are_the_published_ones(tmp_path):
    mag, igb = (describe(f"synthetic-{shape}", tmp_path) for shape in ("mag", "igb"))
    papers = sum(SHAPES["mag"].nodes.values()), SHAPES["mag"].nodes["paper"]
    assert papers == (1_939_743, 736_389)
    assert sum(drawn.edges for drawn in SHAPES["mag"].relations.values()) == 21_111_007
    assert (mag.num_classes, mag.widths) == (349, (64, 128))
    ends = [0, *(round(end * papers[1]) for end in itertools.accumulate(mag.split))]
    assert np.diff(ends).tolist() == [629_571, 64_879, 41_939]
    assert (igb.num_classes, igb.widths, igb.split[0]) == (19, (1024, 1024), 0.6)
    assert (mag.shape, igb.shape) == ("mag", "igb")


@pytest.mark.parametrize("name", ["synthetic-flickr", "synthetic-arxiv"])
def test_shapes_are_drawn_as_described(tmp_path, name):
    dataset = describe(name, tmp_path)
    dataset.num_features = 2  # what is drawn beside the edges is small then
    data = dataset.load()
    assert data.graph.num_edges == 2 * dataset.plan.num_pairs
    assert int(data.graph.in_degrees().max()) == dataset.plan.max_degree
