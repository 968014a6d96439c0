"""Edges of tables of pandas, as `Graph.from_edges` takes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from loader.machine.arguments import kind_of, shown


def pandas_edges(edges: Any, nodes: Any, columns: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of `Graph.from_edges` for tables of pandas; `columns` are the options of `Graph.from_pandas`."""
    for name, table in (("edges", edges), ("nodes", nodes)):
        if not hasattr(table, "iloc") or not hasattr(table, "columns"):
            if name == "nodes" and table is None:
                continue
            raise TypeError(f"{name} is {kind_of(table)}; it must be a pandas.DataFrame")
    import pandas

    if nodes is None and columns["id"] is not None:
        raise ValueError(f"id is {shown(columns['id'])}, a column of nodes, but there are no nodes; give their table")
    ends = [
        _column(edges, "edges", option, columns[option], place) for place, option in enumerate(("source", "target"))
    ]
    if ends[0].name == ends[1].name:
        raise ValueError(
            f"source and target are the column {ends[0].name!r}, so every edge would be a loop; name both (source=, "
            "target=)"
        )
    for option, end in zip(("source", "target"), ends, strict=True):
        _check_exact("edges", option, end)
    _check_truths(*ends)
    ends = [_indexable(end) for end in ends]
    if nodes is None:
        codes, ids = pandas.factorize(pandas.concat(_comparable(*ends), ignore_index=True))
        src, dst = codes[: len(edges)], codes[len(edges) :]
        count = len(ids)
    else:
        given = _column(nodes, "nodes", "id", columns["id"], 0)
        _check_exact("nodes", "id", given)
        _check_truths(given, *ends)
        given = _indexable(given)
        index, count = pandas.Index(given), len(nodes)
        if not index.is_unique:
            row = int(index.duplicated().argmax())
            raise ValueError(f"nodes has the id {shown(index[row])} twice, again in row {row}; each node has one row")
        pairs = [_comparable(given, end) for end in ends]
        src, dst = (pandas.Index(known).get_indexer(end) for known, end in pairs)
        for end, found in zip(ends, (src, dst), strict=True):
            if (found < 0).any():
                row = int((found < 0).argmax())
                raise ValueError(
                    f"edges names {shown(end.iloc[row])} in column {end.name!r} of row {row}, which is no id of nodes "
                    f"(ids are {index.dtype}, this column is {end.dtype}), like {int((found < 0).sum()) - 1} more of "
                    "this column; add rows to nodes, or leave these edges out"
                )
    arrays: dict[str, Any] = {}
    if columns["weight"] is not None:
        weights = _column(edges, "edges", "weight", columns["weight"], 0)
        if weights.dtype.kind not in "iuf":
            raise ValueError(f"weight: column {weights.name!r} has dtype {weights.dtype}; it must be numbers")
        _check_whole(weights)
        arrays["edge_weights"] = torch.from_numpy(weights.to_numpy(dtype="float64", copy=True))
    if columns["time"] is not None:
        arrays["edge_times"] = torch.from_numpy(_times(_column(edges, "edges", "time", columns["time"], 0)))
    source, target = (torch.from_numpy(end.copy()) for end in (src, dst))
    return {"src": source, "dst": target, "num_nodes": count, **arrays}


def _check_exact(name: str, option: str, ids: Any) -> None:
    """Raises ValueError if ids are floats so large that several whole numbers have become one."""
    if getattr(ids.dtype, "kind", "O") != "f":
        return
    bits = {2: 11, 4: 24}.get(ids.dtype.itemsize, 53)
    if (large := ids.abs() >= 2**bits).any():
        row = int(large.to_numpy().argmax())
        raise ValueError(
            f"{name} has {float(ids.iloc[row])} in column {ids.name!r} ({option}) of row {row}; numbers of type "
            f"{ids.dtype} from 2**{bits} on stand for several whole ones: read the column as integers (dtype='Int64') "
            "or as texts"
        )


def _check_truths(*columns: Any) -> None:
    """Raises ValueError if some ids are truth values and others are none: True would be the node of 1."""
    columns = tuple(ids for ids in columns if len(ids))
    shares = [_share_of_truths(ids) for ids in columns]
    if any(shares) and min(shares) < 1:
        some = columns[next(place for place, share in enumerate(shares) if share)].name
        other = columns[next(place for place, share in enumerate(shares) if share < 1)].name
        where = "also other ids" if some == other else f"column {other!r} other ids"
        raise ValueError(
            f"column {some!r} has truth values as ids, and {where}, among which True would be 1; convert it: "
            "astype('int64'), or astype(str) of all columns of ids"
        )


def _share_of_truths(ids: Any) -> float:
    from pandas.api.types import infer_dtype, is_bool_dtype

    if is_bool_dtype(ids.dtype):
        return 1
    if getattr(ids.dtype, "kind", "O") != "O" or infer_dtype(ids) == "string":
        return 0
    return sum(isinstance(value, (bool, np.bool_)) for value in ids) / len(ids)


def _check_whole(weights: Any) -> None:
    """Raises ValueError if weights are integers that no float64 is."""
    if weights.dtype.kind == "f":
        return
    weights = weights.reset_index(drop=True)
    large = weights[(weights > 2**53) | (weights < -(2**53))]
    for row, weight in large.items():
        if int(float(weight)) != weight:
            raise ValueError(
                f"weight: column {weights.name!r} has {weight} in row {row}, an integer beyond 2**53, which no float64 "
                "is; divide the weights, or give floats"
            )


def _comparable(first: Any, second: Any) -> tuple[Any, Any]:
    """Two columns of ids as types in which only equal values are one: int64 and float64 have no such common type, and
    pandas finds texts among the dates and periods that they can be read as, and numbers among intervals around them.
    """
    kinds = {getattr(ids.dtype, "kind", "O") for ids in (first, second)}
    if first.dtype == second.dtype or kinds in ({"i"}, {"u"}, {"f"}, {"M"}):
        return first, second
    if not kinds <= set("iuf"):
        return first.astype(object), second.astype(object)
    first, second = _as_int64(first), _as_int64(second)
    if first.dtype.kind == second.dtype.kind:
        return first, second
    return first.astype(object), second.astype(object)


def _indexable(ids: Any) -> Any:
    """Ids as a type of which pandas makes an index: it has none of float16."""
    return ids.astype("float32") if ids.dtype == "float16" else ids


def _as_int64(ids: Any) -> Any:
    """Ids that are whole numbers within int64 as that; others as they are."""
    kind = ids.dtype.kind
    fits = kind == "i" or bool((ids < 2**63).all() if kind == "u" else (ids % 1 == 0).all())
    return ids.astype("int64") if fits else ids


def _times(values: Any) -> Any:
    """Integers, or the seconds of dates, as int64."""
    if values.dtype.kind == "M" or hasattr(values.dtype, "tz"):
        zone = getattr(getattr(values.dtype, "pyarrow_dtype", values.dtype), "tz", None)
        dates = (values if zone is None else values.dt.tz_convert(None)).to_numpy()
        if dates.dtype == object:  # the days of Arrow
            dates = dates.astype("datetime64[D]")
        seconds = dates.astype("datetime64[s]")  # of the unit that the column has: in ns the years end in 2262
        if (seconds != dates).any():
            raise ValueError(
                f"time: column {values.name!r} has fractions of a second; give whole numbers in their place"
            )
        return seconds.astype("int64")
    if values.dtype.kind not in "iu":
        raise ValueError(
            f"time: column {values.name!r} has dtype {values.dtype}; it must be integers or dates: "
            "pandas.to_datetime(column)"
        )
    if values.dtype.kind == "u" and len(values) and int(values.max()) >= 2**63:
        raise ValueError(f"time: column {values.name!r} holds {int(values.max())}; times end at {2**63 - 1}")
    return values.to_numpy(dtype="int64", copy=True)


def _column(table: Any, name: str, option: str, given: Any, place: int) -> Any:
    """A column without missing values."""
    known = list(table.columns)
    if given is None:
        if place >= len(known):
            raise ValueError(
                f"{name} has {len(known)} columns; {option} is by default column {place + 1}: name one ({option}=)"
            )
        given = known[place]
    # True is in a list that has 1, and is no column of pandas then
    if given not in known or (isinstance(given, bool) and not any(name is given for name in known)):
        raise ValueError(f"{option} is {shown(given)}; {name} has the columns {', '.join(map(str, known))}")
    values = table[given]
    if getattr(values, "ndim", 1) != 1:
        raise ValueError(f"{name} has several columns {shown(given)} ({option}); give each a name of its own")
    missing = values.isna()
    if not missing.any() and hasattr(values.dtype, "pyarrow_dtype") and values.dtype.kind in "iuf":
        values = values.astype(values.dtype.numpy_dtype)  # Arrow compares only some numbers, and NaN is none missing
        missing = values.isna()
    if missing.any():
        raise ValueError(
            f"{name} has no value in column {given!r} ({option}) of row {int(missing.to_numpy().argmax())}, like "
            f"{int(missing.sum()) - 1} more; fill them in, or leave these rows out: {name}.dropna(subset=[{given!r}])"
        )
    return values
