"""C++ compiled for the CPU at run time: kept on disk, made again where the file is not whole."""

from __future__ import annotations

import ctypes
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from marks import needs_compiler

from loader.kernels import CompilationError, NoCompilerError, cache, compiler, host
from loader.kernels.__main__ import main

VISIBLE = 'extern "C" __attribute__((visibility("default"))) int answer() '


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOADER_KERNEL_CACHE", str(tmp_path / "kept"))
    monkeypatch.setattr(host, "_open", {})  # as a process that has just begun
    return tmp_path / "kept"


def answer(text: str = "{ return 42; }") -> int:
    host._open.clear()
    header = f"next/{cache.key_of(text)}.h"
    address = host.function_of(header, VISIBLE + text, "", "answer", "the answer")
    return int(ctypes.CFUNCTYPE(ctypes.c_int)(address)())


@needs_compiler
def test_it_is_compiled_once(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert answer() == 42
    assert answer("{ return 43; }") == 43
    assert len(list(folder.iterdir())) == 2
    monkeypatch.setattr(host, "_compile", lambda *_: pytest.fail("it is compiled again"))
    assert (answer(), answer("{ return 43; }")) == (42, 43)
    assert main([]) == 0
    shown = capsys.readouterr().out
    assert "the answer" in shown
    assert "2 for cpu by" in shown


def test_a_cache_that_is_a_file_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("LOADER_KERNEL_CACHE", str(tmp_path / "file"))
    assert main([]) == 2
    assert capsys.readouterr().err == (
        f"gnn-loader: the cache {tmp_path / 'file'} is no folder; let LOADER_KERNEL_CACHE name one\n"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--arch", "9.0"],
            "argument --arch: it is '9.0'; it must be an integer, e.g. 90 for sm_90; `python -m loader.kernels compile",
        ),
        (["--arch", "90", "--workers", "0"], "argument --workers: workers is '0'; it must be an integer of at least 1"),
    ],
)
def test_a_bad_number_is_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["compile", *arguments])
    assert capsys.readouterr().err.startswith(f"error: {message}")


@needs_compiler
@pytest.mark.parametrize("damage", ["cut short", "changed", "empty", "another's"])
def test_a_damaged_file_is_made_again(folder: Path, damage: str) -> None:
    answer("{ return 41; }")
    (other,) = folder.iterdir()
    answer()
    (path,) = set(folder.iterdir()) - {other}
    whole = path.read_bytes()
    changed = bytearray(whole)
    changed[-100] ^= 1
    path.write_bytes(
        {"cut short": whole[:-9], "changed": changed, "empty": b"", "another's": other.read_bytes()}[damage]
    )
    assert answer() == 42
    assert cache.read(path.stem) is not None


@needs_compiler
def test_an_unwritable_folder_costs_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("LOADER_KERNEL_CACHE", str(tmp_path / "file" / "kept"))
    assert answer() == 42
    assert "cannot be kept" in capfd.readouterr().err


@needs_compiler
@pytest.mark.compiles  # two processes import torch
def test_two_processes_at_once_both_have_it(folder: Path) -> None:
    code = (
        "import ctypes; from loader.kernels import host\n"
        f"address = host.function_of('next/two.h', '''{VISIBLE}{{ return 7; }}''', '', 'answer', 'it')\n"
        "print(ctypes.CFUNCTYPE(ctypes.c_int)(address)())"
    )
    runs = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [run.communicate()[0] for run in runs] == ["7\n", "7\n"]
    assert len(list(folder.iterdir())) == 1


@needs_compiler
def test_what_does_not_compile_shows_the_compilers_words(folder: Path) -> None:
    with pytest.raises(CompilationError, match=r"(?s)does not compile the answer: .*nonsense"):
        answer("{ return nonsense; }")
    assert not folder.exists() or not list(folder.iterdir())


def test_no_compiler_names_the_way_out(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(NoCompilerError, match=r"install one .* compiled=False"):
        answer("{ return 44; }")


def test_a_source_keeps_its_name() -> None:
    compiler.add_source("next/same.h", "int x;")
    compiler.add_source("next/same.h", "int x;")
    with pytest.raises(ValueError, match=r"another source named next/same.h"):
        compiler.add_source("next/same.h", "int y;")


@needs_compiler
def test_another_compiler_compiles_again(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = shutil.which("c++")
    for value in (1, 2, 1):
        monkeypatch.setenv("CXX", f"{tool} -DVALUE={value}")
        assert answer("{ return VALUE; }") == value
    assert len(list(folder.iterdir())) == 2
    wrapper = tmp_path / "other"
    for version in "34":  # at one path
        wrapper.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo {version} || exec {tool} -DVALUE={version} "$@"\n')
        wrapper.chmod(0o755)
        monkeypatch.setenv("CXX", str(wrapper))
        host._identity.cache_clear()  # as a process that has just begun
        assert answer("{ return VALUE; }") == int(version)


@needs_compiler
def test_for_this_machine_another_compiles_again(monkeypatch: pytest.MonkeyPatch) -> None:
    tool = shutil.which("c++")
    assert tool is not None
    host._identity.cache_clear()
    plain = [host._identity((tool,)), host._identity((tool, "-march=native"))]
    monkeypatch.setattr(host, "_cpu_features", lambda: {"flags: others"})
    host._identity.cache_clear()
    again = [host._identity((tool,)), host._identity((tool, "-march=native"))]
    host._identity.cache_clear()
    assert [before == after for before, after in zip(plain, again, strict=True)] == [True, False]


@needs_compiler
@pytest.mark.parametrize("limit", [0, 3000, 10_000])
def test_a_limit_of_files_is_one_line(folder: Path, limit: int) -> None:
    unlimited = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, unlimited[1]))
    try:
        with pytest.raises(CompilationError) as raised:
            answer()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, unlimited)
    assert raised.match(r"the answer .*cannot be (compiled|loaded): .*`ulimit -f unlimited`.* compiled=False")
    assert len(str(raised.value).splitlines()) == 1
    assert answer() == 42


def test_a_full_disk_is_one_line(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = tmp_path / "c++"
    tool.write_text("#!/bin/sh\nprintf 'fatal error:\\nwriting: No space left on device\\n' >&2; exit 1\n")
    tool.chmod(0o755)
    monkeypatch.setenv("CXX", str(tool))
    with pytest.raises(CompilationError, match=r"status 1: fatal error: writing: No space left on device; free some"):
        answer("{ return 45; }")
    monkeypatch.setattr(tempfile, "mkdtemp", lambda *_, **__: os.mkdir("/dev/full/folder"))
    with pytest.raises(CompilationError, match=r"the answer cannot be compiled: .*/dev/full.*; free some space"):
        answer("{ return 45; }")


@needs_compiler
@pytest.mark.parametrize("planted", ["mode 0666", "a FIFO", "another user's"])
def test_a_planted_library_is_not_run(
    folder: Path, planted: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if planted == "another user's" and os.geteuid() != 0:
        pytest.skip("needs root, to make a file of another user")
    answer()
    (path,) = folder.iterdir()
    cache.write({path.stem: host._compile(["c++"], {}, VISIBLE + "{ return 666; }", "answer", "another")})
    assert answer() == 666  # of this user's own, under this name
    monkeypatch.setattr(cache, "_warned", set())
    make = {
        "mode 0666": lambda: path.chmod(0o666),
        "a FIFO": lambda: (path.unlink(), os.mkfifo(path)),
        "another user's": lambda: os.chown(path, 1000, 1000),
    }
    make[planted]()
    assert answer() == 42
    said = capsys.readouterr().err
    assert planted == "a FIFO" or f"{path} is not trusted" in said


@needs_compiler
def test_nothing_is_compiled_where_others_write(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(shared))
    for mode, sound in ((0o777, False), (0o1777, True)):
        shared.chmod(mode)
        if sound:
            assert answer("{ return 46; }") == 46
        else:
            with pytest.raises(CompilationError, match=rf"{shared} is not trusted: .*let TMPDIR name another folder"):
                answer("{ return 46; }")
