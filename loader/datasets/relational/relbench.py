"""Databases and tasks of the package relbench as a folder of tables with a schema."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from loader.datasets.errors import DatasetError
from loader.datasets.node_dataset import SPLITS
from loader.datasets.relational.schema import read_schema
from loader.machine.optional import import_optional

_KINDS = {
    "binary_classification": "binary",
    "multiclass_classification": "multiclass",
    "regression": "regression",
}


def write_relbench(folder: str | Path, database: Any, tasks: Mapping[str, Any]) -> Path:
    """Writes a database of RelBench, and tasks on it, as a folder that `RelationalDataset` reads.

    Each table becomes a Parquet file, each split of a task one more, and `schema.yaml` names keys, times and tasks::

        dataset = relbench.datasets.get_dataset("rel-hm")
        task = relbench.tasks.get_task("rel-hm", "user-churn")
        write_relbench("data/rel-hm", dataset.get_db(), {"user-churn": task})

    (https://relbench.stanford.edu). Then `python train.py dataset=relational dataset.path=data/rel-hm
    dataset.task=user-churn model=rsage` trains.

    Args:
        folder: a new one. It is there only once it is whole.
        database: a `relbench.base.Database`, or an object with its `table_dict`.
        tasks: name -> `relbench.base.EntityTask`, whose labels are yes or no, classes or numbers.

    Returns:
        The path of the schema.

    Raises:
        DatasetError: a task is of another kind, or the tables are not as `RelationalDataset` takes them.
        FileExistsError: the folder is there.
        ImportError: pyarrow or PyYAML is missing.
    """
    yaml = import_optional("yaml", "a schema", "relational")
    import_optional("pyarrow.parquet", "tables", "relational")
    folder = Path(folder)
    if folder.exists():
        raise FileExistsError(f"{folder} is there already; name a new folder, or remove it")
    schema: dict[str, Any] = {"tables": {}, "tasks": {}}
    frames: dict[str, Any] = {}
    for name, table in database.table_dict.items():
        frames[f"{name}.parquet"] = table.df
        optional = {"key": table.pkey_col, "foreign": dict(table.fkey_col_to_pkey_table)}
        given = {k: v for k, v in optional.items() if v}
        schema["tables"][name] = {"file": f"{name}.parquet", **given, "time": table.time_col or None}
    splits: dict[str, dict[str, Any]] = {}
    for name, task in tasks.items():
        kind = getattr(task.task_type, "value", task.task_type)
        if kind not in _KINDS:
            raise DatasetError(f"task {name} is of kind {kind}; RelationalDataset takes {', '.join(_KINDS)}")
        files = {split: f"tasks/{name}-{split}.parquet" for split in SPLITS}
        for split, file in files.items():
            frames[file] = task.get_table(split, mask_input_cols=False).df
        of = {"table": task.entity_table, "entity": task.entity_col, "time": task.time_col, "label": task.target_col}
        schema["tasks"][name] = {"files": files, **of, "kind": _KINDS[kind]}
        bounds = {"val": task.dataset.val_timestamp, "test": task.dataset.test_timestamp}
        splits[name] = {split: bound.to_pydatetime() for split, bound in bounds.items()}
    if len({tuple(split.values()) for split in splits.values()}) > 1:
        raise DatasetError(f"tasks {', '.join(tasks)} are of datasets whose splits differ; write each to a folder")
    if splits:
        schema["split"] = next(iter(splits.values()))
    draft = folder.with_name(f"{folder.name}.{os.getpid()}.part")
    (draft / "tasks").mkdir(parents=True)
    try:
        for file, frame in frames.items():
            frame.to_parquet(draft / file, index=False)
        (draft / "schema.yaml").write_text(yaml.safe_dump(schema, sort_keys=False))
        read_schema(draft / "schema.yaml")
        draft.rename(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return folder / "schema.yaml"
