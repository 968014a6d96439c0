"""What the pages of measurements are made of: columns, tables, sections, pages. They say what to show, not how."""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

Result = dict[str, Any]


class Column(NamedTuple):
    """A column of a table, as in "faster by | dgl.ms / ours.ms | {:.1f}x" or, by its path only, in "graph".

    Attributes:
        head: its heading, with the unit.
        of: the value in a row: a path, "path / path" or "number * path"; with " ?" at its end, rows may lack it.
        form: how it is shown, as in `str.format`; "": as `cell` does.
    """

    head: str
    of: str
    form: str = ""

    def value(self, row: Result) -> Any:
        of = self.of.removesuffix(" ?")
        try:
            if " / " in of:
                over, under = of.split(" / ")
                return pick(row, over) / pick(row, under)
            if " * " in of:
                factor, path = of.split(" * ")
                return float(factor) * pick(row, path)
            return pick(row, of)
        except (KeyError, TypeError):
            if of == self.of:
                raise
            return None

    def show(self, row: Result) -> str:
        value = self.value(row)
        return cell(value) if value is None or not self.form else self.form.format(value)


class Table:
    """A table.

    Args:
        columns: divided by semicolons.
        rows: a path in the result, or a function of it: what has a row each.
    """

    def __init__(self, columns: str, rows: str | Callable[[Result], Iterable[Result]] = "rows") -> None:
        parts = [[part.strip() for part in column.split("|")] for column in columns.split(";")]
        self.columns = [Column(*(part if len(part) > 1 else part * 2)) for part in parts]
        self.rows = rows

    def show(self, result: Result) -> list[str]:
        rows = self.rows(result) if callable(self.rows) else pick(result, self.rows)
        return markdown([c.head for c in self.columns], [[c.show(row) for c in self.columns] for row in rows])


class Section(NamedTuple):
    """What one file of results says.

    Attributes:
        file: its name, without .json.
        title: of the section.
        template: Markdown. "{path}" is a value of the file. A block "```table ROWS" holds the columns of a `Table`,
            "```lines NAME" calls a function, and "```like FILE" has what the section of another file has.
    """

    file: str
    title: str
    template: str

    def show(self, result: Result, functions: Mapping[str, Any], sections: Mapping[str, Section]) -> list[str]:
        head = [f"## {self.title}", "", *_origin(self.file, result), ""]
        text, *blocks = _BLOCK.split(self.template)
        lines = [*head, *_filled(text, result)]
        for kind, name, columns, after in zip(*[iter(blocks)] * 4, strict=True):
            if kind == "table":
                lines += Table(columns, functions.get(name, name)).show(result)
            elif kind == "lines":
                lines += functions[name](result)
            else:
                lines += sections[name]._replace(file=self.file).show(result, functions, sections)[len(head) :]
            lines += _filled(after, result)
        return lines


class Page(NamedTuple):
    """A page of measurements, from a template in benchmarks/pages/.

    Attributes:
        name: of its file, without .md.
        title: of the page.
        intro: what its words mean.
        sections: in order.
    """

    name: str
    title: str
    intro: str
    sections: Sequence[Section]


def read_page(path: Path) -> Page:
    """Reads a template: a title, an introduction, and sections whose headings are "## FILE: TITLE"."""
    intro, *sections = re.split(r"^## (\w+): (.*)$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    title, _, intro = intro.removeprefix("# ").partition("\n")
    return Page(path.stem, title, intro.strip(), list(map(Section, *(sections[i::3] for i in range(3)))))


_BLOCK = re.compile(r"^```(table|lines|like) ([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def _filled(text: str, result: Result) -> list[str]:
    return [*_Words().vformat(text.strip(), (), result).splitlines(), ""] if text.strip() else []


_UNITS = {"MiB": 2**-20, "GB": 1e-9, "ms": 1e3}  # of bytes and seconds, as forms in a text


class _Words(string.Formatter):
    def format_field(self, value: Any, form: str) -> str:
        if form in _UNITS:
            return f"{cell(value * _UNITS[form])} {form}"
        return format(value, form) if form else cell(value)


def pick(row: Result, path: str) -> Any:
    """A value of a row by its path, such as "dgl.ms"."""
    for key in path.split("."):
        row = row[key]
    return row


def span(values: Sequence[float]) -> str:
    return f"{min(values):.2f} to {max(values):.2f}"


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table, and an empty line after it."""
    return [
        "| " + " | ".join(head) + " |",
        "|" + "---|" * len(head),
        *("| " + " | ".join(row) + " |" for row in rows),
        "",
    ]


def cell(value: Any) -> str:
    """A value as a table shows it: four significant digits, short lists in full."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.4g}"
    if isinstance(value, (list, tuple)):
        return ", ".join(cell(v) for v in value)
    return str(value).replace("|", "\\|").replace("\n", " ")


def _origin(name: str, result: Result) -> list[str]:
    """File, date, hardware, versions, command and notes."""
    hardware = result.get("hardware")
    units = {"cores": "{} cores", "memory_gib": "{} GiB"}
    parts = (
        [units.get(key, "{}").format(value) for key, value in hardware.items()]
        if isinstance(hardware, dict)
        else [str(hardware or "unknown")]
    )
    if (gpu := result.get("gpu")) and gpu not in parts:
        parts.append(str(gpu))
    versions = result.get("versions") or {"torch": result.get("torch", "unknown")}
    said = ", ".join(f"{package} {version}" for package, version in versions.items() if version != "absent")
    lines = [
        f"`benchmarks/results/{name}.json`, {str(result.get('date', 'undated'))[:10]}. {', '.join(parts)}; {said}."
    ]
    if command := result.get("command"):
        lines += ["", f"    {command}"]
    for note in ("since", "note"):
        if result.get(note):
            lines += ["", str(result[note])]
    return lines


def everything(result: Result) -> list[str]:
    """A file that no page knows: its single values, and a table for each list of rows."""
    known = ("date", "command", "hardware", "system", "versions", "benchmark", "since", "note")
    rest = {key: value for key, value in result.items() if key not in known}
    tables = {k: v for k, v in rest.items() if isinstance(v, list) and v and all(isinstance(x, dict) for x in v)}
    single = _flat({key: value for key, value in rest.items() if key not in tables})
    lines = [", ".join(f"{key}: {cell(value)}" for key, value in single.items()) + ".", ""] if single else []
    for name, rows in tables.items():
        flat = [_flat(row) for row in rows]
        keys = list(dict.fromkeys(key for row in flat for key in row))
        shown = [[cell(row.get(key)) for key in keys] for row in flat]
        lines += [f"### {name.replace('_', ' ')}", "", *markdown(keys, shown)]
    return lines


def _flat(row: Result, path: str = "") -> Result:
    """`{"a": {"b": 1}}` as `{"a b": 1}`; without long lists."""
    flat: Result = {}
    for key, value in row.items():
        name = f"{path} {key}".strip()
        if isinstance(value, dict):
            flat.update(_flat(value, name))
        elif not isinstance(value, list) or (len(value) <= 4 and not any(isinstance(v, (dict, list)) for v in value)):
            flat[name] = value
    return flat
