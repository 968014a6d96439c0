"""The kernel of walks by users' functions as a program of the host: it gives the walks of the CPU."""

from __future__ import annotations

from pathlib import Path

import pytest
from cuda_on_host import OPTIONS
from sanitizers import ROOT, build, run, skip_unless_it_runs
from walk_functions import NEXTS, by_weight, importance

from loader import Next

pytestmark = [pytest.mark.compiles, pytest.mark.timeout(3600)]

HERE = Path(__file__).parent
SANITIZERS = "address,undefined"


def test_the_kernel_gives_the_walks_of_the_cpu(tmp_path: Path) -> None:
    skip_unless_it_runs(SANITIZERS, tmp_path)
    line = "const auto n = lists.degree(walker.at); return n ? lists.neighbor(walker.at, draws.uniform(n)) : -1;"
    steps = {function.__name__: Next(function) for function in (*NEXTS, by_weight, importance)}
    steps["plain"] = Next.cpp(line)
    structs, macro = [], []
    for name, step in steps.items():
        text = step.cplusplus.replace("struct Next {", f"struct {name}_next {{")
        structs.append("".join(part for part in text.splitlines(keepends=True) if not part.startswith("#include")))
        macro.append(f"F({', '.join([f'{name}_next', *map(str, step.values)])})")
    header = "\n".join(structs) + f"\n#define EACH_NEXT(F) {' '.join(macro)}\n"
    (tmp_path / "nexts.h").write_text(header)
    csrc = ROOT / "csrc"
    sources = [
        HERE / "walk_next_on_host.cpp",
        csrc / "walks" / "cpu" / "edge_filter.cpp",
        csrc / "sampler" / "cpu" / "philox_lanes.cpp",
    ]
    target = tmp_path / "on_host"
    options = [*OPTIONS, f"-I{tmp_path}", "-Wno-implicit-fallthrough", "-Wno-unused-parameter", "-Wno-unused-variable"]
    built = build(sources, SANITIZERS, target, options)
    assert built.returncode == 0, built.stderr
    done = run([str(target), "3"], timeout=3000)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("equal: ")
