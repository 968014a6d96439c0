"""Writes the record anew, and says what changed: `python tests/record/renew.py`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # the package of this checkout, as pytest has it

from cases import RECORD, SPECIFICATION, recorded, specified
from cases_picks import PICKED, picked


def main() -> None:
    before = recorded() if RECORD.exists() else {}
    now = specified()
    for graph, width in PICKED:
        now |= picked(graph, width, SPECIFICATION)
    RECORD.write_text(json.dumps(now, indent=0, sort_keys=True) + "\n")
    changed = sum(before[name] != now[name] for name in before.keys() & now.keys())
    new, gone = len(now.keys() - before.keys()), len(before.keys() - now.keys())
    print(f"{len(now)} mini-batches: {changed} changed, {new} new, {gone} gone")


if __name__ == "__main__":
    main()
