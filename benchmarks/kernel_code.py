"""Compares the machine code of GPU kernels, as two checkouts compile it. It needs NVRTC, and no GPU.

python benchmarks/kernel_code.py BEFORE AFTER --match lined_kernel --match "pick_kernel<10"

The core of both checkouts has to be built. Each kernel is compiled by itself, and kept in the cache of
`python -m loader.kernels`, so what did not change is compiled once. A kernel is known by its name in C++; a type that
has another name in the second checkout is told by `--renamed OLD=NEW`.

The lines say of each kernel: bytes of code, registers, bytes of stack, and instructions that load or store in local
memory, where registers are spilled. "parameters" stands for code that differs only in where it reads its parameters, as
after a field was added to them.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

# What runs in each checkout: the code of the kernels whose names hold one of the texts.
_COMPILE = """
import base64, json, sys
from loader.kernels.compiler import all_kernels, make
architecture, types, *texts = sys.argv[1:]
for one in all_kernels(int(architecture)):
    if (types == "int32" and "int64_t" in one.name) or not any(text in one.name for text in texts):
        continue
    entry = make([one], workers=1)[0].entry
    print(json.dumps([one.name, base64.b64encode(entry.code).decode()]), flush=True)
"""

_WORD = 16  # bytes of an instruction
_LOCAL = (0x983, 0x387)  # its lowest 12 bits: loads from local memory, and stores there
_WITH_VALUE, _REGISTERS, _FRAME_SIZE = 0x04, 0x2F, 0x11  # records of .nv.info, and what they tell of a function
_FORM, _CONSTANT = 9, (3, 5)  # three bits of an instruction from here on, and what they are if it reads a constant
_PLACE, _BANK = 38, 54  # then its bits from here on: where in a bank of constants, and which bank; the first has the
_PLACES, _BANKS = (1 << 16) - 1, (1 << 5) - 1  # parameters
_NUMBER, _NUMBERS = 32, (1 << 32) - 1  # else these are perhaps a number


@dataclass(frozen=True)
class Code:
    """The machine code of one kernel.

    Attributes:
        text: its instructions, and those of the functions that it calls.
        registers: of a thread.
        stack: bytes of a thread.
        local: instructions that load from local memory or store there.
    """

    text: bytes
    registers: int
    stack: int
    local: int

    @classmethod
    def of(cls, cubin: bytes) -> Code:
        """The code of the only kernel in a cubin."""
        sections = list(_sections(cubin))
        text = b"".join(content for name, content in sections if name.startswith(".text."))
        records = [record for name, content in sections if name == ".nv.info" for record in _records(content)]
        local = sum(
            (int.from_bytes(text[at : at + 2], "little") & 0xFFF) in _LOCAL for at in range(0, len(text), _WORD)
        )
        most = {kind: max(value for other, value in records if other == kind) for kind in (_REGISTERS, _FRAME_SIZE)}
        return cls(text, most[_REGISTERS], most[_FRAME_SIZE], local)

    def moved_to(self, other: Code) -> bool:
        """Whether they differ only in where they read parameters: as reads of constants say, or a sum of a number."""
        reads, numbers = set[int](), set[int]()
        if len(self.text) != len(other.text):
            return False
        for at in range(0, len(self.text), _WORD):
            a, b = (int.from_bytes(text[at : at + _WORD], "little") for text in (self.text, other.text))
            if a == b:
                continue
            is_read = (a >> _FORM & 0b111) in _CONSTANT and not a >> _BANK & _BANKS
            first, mask, found = (_PLACE, _PLACES, reads) if is_read else (_NUMBER, _NUMBERS, numbers)
            if (a ^ b) & ~(mask << first):
                return False
            found.add((b >> first & mask) - (a >> first & mask))
        return numbers <= reads

    def __str__(self) -> str:
        return f"{len(self.text):>7,} B {self.registers:>4} regs {self.stack:>5} B stack {self.local:>4} local"


def _sections(cubin: bytes) -> Iterator[tuple[str, bytes]]:
    """Name and content of the sections of an ELF file of 64 bits."""
    (table,), (size, count, names) = struct.unpack_from("<Q", cubin, 40), struct.unpack_from("<3H", cubin, 58)
    headers = [struct.unpack_from("<2I4Q2I", cubin, table + i * size) for i in range(count)]
    text = cubin[headers[names][4] :]
    for name, kind, _, _, at, length, _, _ in headers:
        has_content = kind != 8
        yield text[name : text.index(b"\0", name)].decode(), cubin[at : at + length] if has_content else b""


def _records(section: bytes) -> Iterator[tuple[int, int]]:
    """What .nv.info tells of the functions: kind and value of each record that has one of a function."""
    at = 0
    while at < len(section):
        form, kind, size = struct.unpack_from("<2BH", section, at)
        at += 4
        if form == _WITH_VALUE:
            if size == 8:
                yield kind, struct.unpack_from("<2I", section, at)[1]
            at += size


def compiled(checkout: Path, options: argparse.Namespace) -> subprocess.Popen[str]:
    """Begins to compile the kernels of a checkout."""
    command = [sys.executable, "-c", _COMPILE, str(options.arch), options.index_types, *options.match]
    environment = {**os.environ, "PYTHONPATH": "", "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.Popen(command, cwd=checkout, env=environment, stdout=subprocess.PIPE, text=True)


def code_of(process: subprocess.Popen[str], checkout: Path) -> dict[str, Code]:
    """The code of the kernels by name, once they are compiled."""
    output, _ = process.communicate()
    if process.returncode:
        raise SystemExit(f"the kernels of {checkout} cannot be compiled; is its core built?")
    lines = (json.loads(line) for line in output.splitlines())
    return {name: Code.of(base64.b64decode(cubin)) for name, cubin in lines}


def compare(before: dict[str, Code], after: dict[str, Code], renamed: Sequence[str]) -> tuple[list[str], Counter[str]]:
    """Lines about the kernels that differ, and how many there are of each kind."""

    def new_name(name: str) -> str:
        for pair in renamed:
            old_text, new_text = pair.split("=", 1)
            name = name.replace(old_text, new_text)
        return name

    old = {new_name(name): code for name, code in before.items()}
    lines, kinds = [], Counter[str]()
    for name in [*old, *(name for name in after if name not in old)]:
        a, b = old.get(name), after.get(name)
        if a is None or b is None:
            kind = "only before" if b is None else "only after"
        elif a == b:
            kind = "identical"
        else:
            kind = "parameters" if a.moved_to(b) else "different"
        kinds[kind] += 1
        if kind != "identical":
            lines.append(f"{kind:<11}  {a or '-'}  ->  {b or '-'}  {name}")
    return lines, kinds


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("before", type=Path, help="root of a checkout")
    parser.add_argument("after", type=Path, help="root of another one")
    parser.add_argument("--match", action="append", required=True, help="compare kernels with this text in their name")
    parser.add_argument("--arch", type=int, default=90, help="compute capability without the dot")
    parser.add_argument("--index-types", default="int32", choices=["all", "int32"], help="of graphs with these types")
    parser.add_argument("--renamed", action="append", default=[], metavar="OLD=NEW", help="text of names, in AFTER")
    options = parser.parse_args(arguments)
    checkouts = [options.before, options.after]
    processes = [compiled(checkout, options) for checkout in checkouts]
    before, after = (code_of(*one) for one in zip(processes, checkouts, strict=True))
    if not before and not after:
        parser.error(f"no kernel has {' or '.join(options.match)} in its name")
    lines, kinds = compare(before, after, options.renamed)
    print("\n".join([*lines, ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())]))
    return int(kinds.total() > kinds["identical"])


if __name__ == "__main__":
    sys.exit(main())
