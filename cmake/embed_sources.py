"""Writes the headers that kernels are compiled from, as strings, into a C++ file: kernels are compiled at run time.

python embed_sources.py CSRC OUT
"""

from __future__ import annotations

import sys
from pathlib import Path

DELIMITER = "LOADER_SOURCE"


def names(csrc: Path) -> dict[str, Path]:
    """The headers by the name that they are included by: all below csrc, and the stand-ins for standard headers."""
    found = {path.relative_to(csrc).as_posix(): path for path in csrc.rglob("*") if path.suffix in (".h", ".cuh")}
    hosts_own = "bindings/", "gpu/all_kernels.h", "gpu/driver.h", "gpu/kernel.h", "gpu/sources.h", "gpu/kernel_names.h"
    found = {name: path for name, path in found.items() if not name.startswith(hosts_own) and "/cpu/" not in name}
    return found | {path.name: path for path in (csrc / "gpu" / "rtc").iterdir()}


def main(csrc: Path, out: Path) -> None:
    entries = []
    for name, path in sorted(names(csrc).items()):
        text = path.read_text()
        assert f"){DELIMITER}" not in text, path
        entries.append(f'    {{"{name}", R"{DELIMITER}({text}){DELIMITER}"}},\n')
    body = "".join(entries)
    written = (
        '// Written by cmake/embed_sources.py.\n#include "gpu/sources.h"\n\nnamespace loader::gpu {\n\n'
        f"const Source kSources[] = {{\n{body}    {{nullptr, nullptr}},\n}};\n\n}}  // namespace loader::gpu\n"
    )
    if not out.exists() or out.read_text() != written:
        out.write_text(written)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
