"""Tables with keys and times, as graphs, and what is known to be right of their samples.

They lie beside the checkout, in `shared/data/relational`, or in the folder that the environment variable
`RELATIONAL_DATA` names: `golden.json` and, of each data set, `SET/graph.npz`. That has per table T `T/num` (rows),
`T/time` (int64) if its rows have times, and `T/column->TARGET` for each key (rows of the target, -1 if it is missing).
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hetero_oracle import Ints
from tree_oracle import TimedGraph

BESIDE = Path(__file__).resolve().parents[3] / "shared" / "data" / "relational"
FOLDER = Path(os.environ.get("RELATIONAL_DATA", BESIDE))
needs_data = pytest.mark.skipif(not (FOLDER / "golden.json").is_file(), reason=f"no golden.json in {FOLDER}")


def graph_of(name: str) -> TimedGraph:
    """The graph of a data set: each key is a relation to its target, `f2p_COLUMN`, and one back, `rev_f2p_COLUMN`."""
    with np.load(FOLDER / name / "graph.npz") as arrays:
        num_nodes, times, edges = {}, {}, {}
        for path in arrays.files:
            table, what = path.split("/")
            if what == "num":
                num_nodes[table] = int(arrays[path])
            elif what == "time":
                times[table] = arrays[path]
            else:
                column, target = what.split("->")
                row = np.flatnonzero(arrays[path] >= 0)
                to = arrays[path][row].astype(np.int64)
                edges[table, f"f2p_{column}", target] = row, to
                edges[target, f"rev_f2p_{column}", table] = to, row
    return TimedGraph(num_nodes, edges, node_times=times)


def golden() -> list[dict[str, Any]]:
    """Samples of trees with the rule "<=" by the times of nodes: seeds and times, and of each relation how many edges
    there are and, of those that depend on no draw, their digest.
    """
    return json.loads((FOLDER / "golden.json").read_text()) if (FOLDER / "golden.json").is_file() else []


def digest(tree: Ints, source: Ints, target: Ints) -> str:
    """Of the edges of a relation, in whatever order; ids within their types."""
    rows = np.stack([tree, source, target], 1).astype("<i8")
    return hashlib.sha256(rows[np.lexsort(rows.T[::-1])].tobytes()).hexdigest()[:16]
