"""How long a graph of a CSV file of edges takes, beside pyarrow's reading and encoding of its two columns, and how much
memory. The two take turns, each in a process of its own.

PYTHONPATH=. python benchmarks/tables.py --folder FOLDER
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from _common import ROOT, free_cores, resident_bytes, write_json

_PART = 1 << 20


def write_csv(path: Path, num_edges: int, num_nodes: int, prefix: str) -> None:
    """A file of edges between uniformly drawn nodes; ids have gaps and are in no order."""
    import pyarrow as pa
    from pyarrow import compute, csv

    rng = np.random.default_rng(0)
    with open(path, "wb") as file:
        file.write(b"source,target\n")
        for at in range(0, num_edges, _PART):
            drawn = rng.integers(0, num_nodes, (2, min(_PART, num_edges - at))) * 7 + 1
            columns = [pa.array(ids).cast(pa.string()) for ids in drawn]
            if prefix:
                columns = [compute.binary_join_element_wise(prefix, ids, "") for ids in columns]
            table = pa.table(columns, names=["source", "target"])
            csv.write_csv(table, file, csv.WriteOptions(include_header=False, quoting_style="none"))


def by_pyarrow(path: Path) -> dict[str, Any]:
    """Reads the file and encodes both columns."""
    from pyarrow import csv

    begin = time.perf_counter()
    table = csv.read_csv(path)
    encoded = [table.column(number).dictionary_encode() for number in range(2)]
    seconds = time.perf_counter() - begin
    return {"seconds": seconds, "peak_bytes": resident_bytes(peak=True), "edges": len(encoded[0])}


def by_us(path: Path) -> dict[str, Any]:
    """Converts the file, and opens the graph."""
    from loader.datasets import TableDataset

    options: dict[str, Any] = {"undirected": False, "self_loops": "keep", "parallel_edges": "keep"}
    begin = time.perf_counter()
    data = TableDataset(path, cache_dir=path.parent / "cache", rebuild=True, **options).load()
    seconds = time.perf_counter() - begin
    return {
        "seconds": seconds,
        "peak_bytes": resident_bytes(peak=True),
        "edges": data.graph.num_edges,
        "nodes": data.num_nodes,
        "digest": digest(data.graph),
    }


def by_hand(path: Path) -> dict[str, Any]:
    """The same graph without our reader: ids by pyarrow, then `Graph.from_edges`."""
    import pyarrow as pa
    import torch
    from pyarrow import csv

    from loader import Graph

    text = csv.ConvertOptions(column_types={"source": pa.string(), "target": pa.string()})
    table = csv.read_csv(path, convert_options=text)
    both = pa.chunked_array(table.column(0).chunks + table.column(1).chunks).dictionary_encode()
    codes = torch.from_numpy(np.concatenate([chunk.indices.to_numpy() for chunk in both.chunks]))
    nodes = len(both.chunk(0).dictionary)
    src, dst = codes.view(2, -1)
    del table, both
    return {"digest": digest(Graph.from_edges(src, dst, nodes)), "nodes": nodes}


def digest(graph: Any) -> str:
    import hashlib

    return hashlib.sha256(graph.indptr.numpy().tobytes() + graph.indices.numpy().tobytes()).hexdigest()[:16]


CANDIDATES = {"pyarrow": by_pyarrow, "TableDataset": by_us, "by hand": by_hand}


def in_a_process(candidate: str, path: Path) -> dict[str, Any]:
    command = [sys.executable, __file__, "--folder", str(path.parent), "--one", candidate, str(path)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measure(path: Path, rounds: int) -> dict[str, Any]:
    runs: dict[str, list[dict[str, Any]]] = {"pyarrow": [], "TableDataset": []}
    ratios = []
    for _ in range(rounds):
        for candidate, found in runs.items():
            found.append(in_a_process(candidate, path))
        ratios.append(runs["TableDataset"][-1]["seconds"] / runs["pyarrow"][-1]["seconds"])
        print({name: {k: v for k, v in found[-1].items() if k != "digest"} for name, found in runs.items()}, flush=True)
    result = {
        name: {
            "seconds": [round(run["seconds"], 2) for run in found],
            "peak_gib": round(max(run["peak_bytes"] for run in found) / 2**30, 2),
        }
        for name, found in runs.items()
    }
    equal = in_a_process("by hand", path)["digest"] == runs["TableDataset"][-1]["digest"]
    return {
        "edges": runs["TableDataset"][-1]["edges"],
        "nodes": runs["TableDataset"][-1]["nodes"],
        "file_bytes": path.stat().st_size,
        **result,
        "times_as_long": round(statistics.median(ratios), 2),
        "equal_to_the_graph_by_hand": equal,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="for the files: 4 GB for 50 M edges")
    parser.add_argument("--edges", type=int, default=50_000_000)
    parser.add_argument("--kinds", nargs="+", default=["text", "numbers"], choices=["text", "numbers"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, default=ROOT / "benchmarks" / "results" / "tables.json")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(CANDIDATES[args.one[0]](Path(args.one[1]))))
        return
    args.folder.mkdir(parents=True, exist_ok=True)
    before, rows = free_cores(), []
    for kind in args.kinds:
        path = args.folder / f"{kind}_{args.edges}.csv"
        if not path.exists():
            write_csv(path, args.edges, args.edges // 10, "user-" if kind == "text" else "")
        rows.append({"ids": kind, **measure(path, args.rounds)})
        print(json.dumps(rows[-1], indent=1))
    write_json(args.json, {"rows": rows, "free_cores": [round(before, 2), round(free_cores(), 2)]})


if __name__ == "__main__":
    main()
