"""Datasets by name: the files of `conf/dataset/`, which are part of the installed package."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from loader.datasets.base import CachedDataset, keywords_of
from loader.datasets.hetero_npz import HeteroNpzDataset, has_types
from loader.datasets.locations import given_file
from loader.datasets.npz import NpzDataset
from loader.datasets.table import TableDataset
from loader.datasets.table_columns import table_kind
from loader.machine.arguments import as_seed, shown
from loader.machine.optional import import_optional
from loader.machine.spelling import nearest

_PACKAGE = Path(__file__).resolve().parents[1]


def _keys(config: Any) -> list[str]:
    return [str(key) for key in config if not str(key).startswith("_")]


def conf_folder() -> Path:
    """The folder whose `dataset/` has a file for each dataset: that of the installed package, else the checkout's.

    Raises:
        FileNotFoundError: there is neither.
    """
    places = (_PACKAGE / "conf", _PACKAGE.parent / "conf")
    for place in places:
        if (place / "dataset").is_dir():
            return place
    raise FileNotFoundError(
        f"the descriptions of datasets are neither in {places[0]} nor in {places[1]}; install the loader again, or "
        "name the folder that has dataset/NAME.yaml (--conf)"
    )


def option_names(conf: Path | None = None) -> set[str]:
    """The options that datasets of `conf/dataset/` have, of whatever name."""
    OmegaConf = import_optional("omegaconf", "a dataset by its name", "datasets").OmegaConf
    files = ((conf_folder() if conf is None else conf) / "dataset").glob("*.yaml")
    found = [OmegaConf.load(file) for file in files]
    return {key for one in found for key in _keys(one.get("dataset", one))}


def open_dataset(
    name: str,
    options: Sequence[str] = (),
    *,
    data_dir: str | Path = "data",
    cache_dir: str | Path | None = None,
    seed: int = 0,
    conf: Path | None = None,
) -> Any:
    """The dataset of `conf/dataset/NAME.yaml`, or of a .npz file, or of a table of edges: a `NodeDataset`, or a
    `HeteroDataset` if it has several types.

    Args:
        name: name of the file without `.yaml`, or path of a .npz, .csv, .tsv or .parquet file.
        options: `key=value` in place of values of the file, e.g. `split_seed=3`.
        data_dir, cache_dir: see `Dataset`.
        seed: value of `${seed}` in the file.
        conf: the folder; None takes `conf_folder()`.

    Raises:
        TypeError: `name` is no text.
        ValueError: there is no such configuration, or an option is not `key=value`.
        DatasetError: the dataset cannot be read.
    """
    OmegaConf = import_optional("omegaconf", "a dataset by its name", "datasets").OmegaConf

    if not isinstance(name, str):
        raise TypeError(f"name is {shown(name)}; it must be that of a dataset, or of a .npz file")
    as_seed(seed)
    conf = None if conf is None else Path(conf)
    if conf is not None and not (conf / "dataset").is_dir():
        raise ValueError(f"conf is {conf}; there is no folder {conf / 'dataset'}, name another one or leave it out")
    if isinstance(options, str):
        raise TypeError(f"options is {shown(options)}; it must be a list of texts, each key=value")
    for option in options:
        if "=" not in option:
            raise ValueError(f"option '{option}' is not key=value, e.g. num_neighbors=8; a list has commas: 15,10")
    if name.endswith(".npz") or table_kind(Path(name)):
        kind: type[CachedDataset[Any]] = TableDataset
        if name.endswith(".npz"):
            kind = HeteroNpzDataset if has_types(given_file(name, Path(data_dir))) else NpzDataset
        given = OmegaConf.to_container(OmegaConf.from_dotlist(list(options)))
        assert isinstance(given, dict)
        known = sorted(keywords_of(kind) - {"data_dir", "cache_dir"})
        for key in given.keys() - set(known):
            raise ValueError(f"{key} is no option of {name}; it has {', '.join(known)}{nearest(str(key), known)}")
        return kind(name, data_dir=data_dir, cache_dir=cache_dir, **{str(k): v for k, v in given.items()}).load()
    folder = (conf_folder() if conf is None else conf) / "dataset"
    file = folder / f"{name}.yaml"
    if not file.is_file():
        known = sorted(path.stem for path in folder.glob("*.yaml"))
        if Path(name).is_file() or Path(name).suffix[1:].isalpha():
            raise ValueError(
                f"{shown(name)} is a file that is not read; make a .npz, .csv, .tsv or .parquet file of it, "
                "docs/tutorials/own_tables.md shows how"
            )
        if Path(name).is_dir():
            raise ValueError(f"{shown(name)} is a folder; name the .npz file in it, or one of: {', '.join(known)}")
        raise ValueError(
            f"there is no {file}; give a .npz, .csv, .tsv or .parquet file, or one of: {', '.join(known) or 'none'} "
            "(--conf names the folder)"
            f"{nearest(name, known)}"
        )
    chosen = OmegaConf.load(file)
    chosen = chosen.get("dataset", chosen)  # beside options of other groups: a small dataset's batch size
    for option in options:
        key = option.partition("=")[0]
        if key.split(".")[0] not in _keys(chosen):  # OmegaConf's `in` leaves out those that have to be given
            raise ValueError(
                f"{key} is no option of {name}; it has {', '.join(_keys(chosen))}{nearest(key, _keys(chosen))}"
            )
    instantiate = import_optional("hydra.utils", "a dataset by its name", "datasets").instantiate
    config = OmegaConf.create({"data_dir": data_dir, "cache_dir": cache_dir, "seed": seed})
    config["dataset"] = OmegaConf.merge(chosen, OmegaConf.from_dotlist(list(options)))
    if missing := OmegaConf.missing_keys(config):
        key = min(missing).removeprefix("dataset.")
        raise ValueError(f"{name} needs {key}; add {key}=... to the command line")
    try:
        dataset = instantiate(config.dataset)
    except Exception as error:  # of Hydra's, around what the class raised
        raise error.__cause__ or error from None
    return dataset.load()
