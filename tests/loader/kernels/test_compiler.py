"""Kernels when they are needed: from the cache, or by a compiler, once; and what is said if that cannot be."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

import pytest
import torch

from loader import _core
from loader.kernels import CompilationError, NoCompilerError, cache, check_kernels, compile_kernels, compiler, nvrtc
from loader.kernels.__main__ import main

HEADER = "items/cuda/order.cuh"
KERNELS = [(HEADER, "loader::items_at_kernel"), (HEADER, "loader::another_kernel")]


class FakeCompiler:
    """An NVRTC whose code is the names of what it compiled."""

    version = (13, 0)
    text = "13.0"

    def __init__(self, seconds: float = 0.0) -> None:
        self.compiled: list[str] = []
        self.programs: list[Sequence[str]] = []
        self.seconds = seconds
        self.options: list[Sequence[str]] = []
        self.headers: Mapping[str, str] = {}

    def compile(
        self, source: str, headers: Mapping[str, str], kernels: Sequence[str], options: Sequence[str]
    ) -> tuple[bytes, list[str]]:
        time.sleep(self.seconds)
        names = ", ".join(kernels)
        if "bad" in names:
            raise CompilationError(f"{names} does not compile")
        self.programs.append(kernels)
        self.compiled += kernels
        self.options.append(options)
        self.headers = headers
        return f"code of {names}".encode(), [name.replace("::", "_") for name in kernels]


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeCompiler:
    monkeypatch.setenv("LOADER_KERNEL_CACHE", str(tmp_path))
    fake = FakeCompiler()
    monkeypatch.setattr(compiler, "compiler", lambda: fake)
    return fake


def test_a_kernel_is_compiled_once_and_kept(tool: FakeCompiler) -> None:
    first = compile_kernels(KERNELS, 90)
    assert first == [(f"code of {name}".encode(), name.replace("::", "_")) for _, name in KERNELS]
    assert compile_kernels(KERNELS, 90) == first
    assert sorted(tool.compiled) == sorted(name for _, name in KERNELS)
    assert all("-arch=sm_90" in options for options in tool.options)


def test_only_headers_that_are_included_are_given(tool: FakeCompiler) -> None:
    compile_kernels(KERNELS[:1], 90)
    assert HEADER in tool.headers
    assert "items/permutation.h" in tool.headers
    assert "cstdint" in tool.headers  # a stand-in for the standard one
    assert "sampler/cuda/kernels.cuh" not in tool.headers


def test_architectures_and_sources_have_kernels_of_their_own(
    tool: FakeCompiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    compile_kernels(KERNELS[:1], 90)
    compile_kernels(KERNELS[:1], 80)
    monkeypatch.setattr(compiler, "_source_digest", lambda header: "other sources")
    compile_kernels(KERNELS[:1], 90)
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    compile_kernels(KERNELS[:1], 90)
    assert len(tool.compiled) == 4


def test_kernels_the_driver_refuses_are_compiled_anew(tool: FakeCompiler) -> None:
    compile_kernels(KERNELS, 90)
    compile_kernels(KERNELS[:1], 90, True)
    assert tool.compiled.count(KERNELS[0][1]) == 2
    assert len(tool.compiled) == 3


def test_a_damaged_file_is_compiled_anew(tool: FakeCompiler) -> None:
    expected = compile_kernels(KERNELS[:1], 90)
    ((path, _),) = cache.entries()
    path.write_bytes(b"nonsense")
    assert compile_kernels(KERNELS[:1], 90) == expected
    assert len(tool.compiled) == 2


def test_threads_that_need_one_kernel_compile_it_once(tool: FakeCompiler) -> None:
    tool.seconds = 0.2
    got: list[list[tuple[bytes, str]]] = []
    threads = [threading.Thread(target=lambda: got.append(compile_kernels(KERNELS, 90))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 6
    assert all(one == got[0] for one in got)
    assert len(tool.compiled) == 2


def test_a_failed_announcement_leaves_nothing_under_way(tool: FakeCompiler) -> None:
    def fail(_: int) -> None:
        raise RuntimeError("can't start new thread")

    wanted = [compiler.Wanted(*kernel, 90) for kernel in KERNELS]
    with pytest.raises(RuntimeError, match="can't start new thread"):
        compiler.make(wanted, on_compile=fail)
    assert not compiler._under_way
    assert all(made.compiled for made in compiler.make(wanted))


def test_an_interrupted_thread_is_replaced(tool: FakeCompiler, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = [compiler.Wanted(*kernel, 90) for kernel in KERNELS]
    began, waits, got = threading.Event(), threading.Event(), []

    class Interrupted(compiler.ThreadPoolExecutor):
        def map(self, *_: object, **__: object) -> NoReturn:  # type: ignore[override]
            began.set()
            assert waits.wait(30)
            time.sleep(0.05)  # until the other thread waits for the kernels, too
            raise KeyboardInterrupt

    def first() -> None:
        with pytest.raises(KeyboardInterrupt):
            compiler.make(wanted)

    def second() -> None:
        waits.set()
        got.extend(compiler.make(wanted))

    with monkeypatch.context() as patch:
        patch.setattr(compiler, "ThreadPoolExecutor", Interrupted)
        owner = threading.Thread(target=first)
        owner.start()
        assert began.wait(30)
    other = threading.Thread(target=second)
    other.start()
    for thread in (owner, other):
        thread.join(30)
        assert not thread.is_alive()
    assert [made.compiled for made in got] == [True, True]
    assert not compiler._under_way


def test_a_failed_kernel_keeps_the_others(tool: FakeCompiler) -> None:
    for _ in range(2):
        with pytest.raises(CompilationError, match="bad_kernel does not compile"):
            compile_kernels([KERNELS[0], (HEADER, "bad_kernel")], 90)
    assert tool.compiled == [KERNELS[0][1]]


class TestManyAtOnce:
    """Kernels are compiled one by one, or together if there are many per core: few if their sources are long."""

    def wanted(self, count: int) -> list[compiler.Wanted]:
        headers = [HEADER, "sampler/cuda/kernels.cuh"]
        return [compiler.Wanted(headers[i % 2], f"kernel_{i}", 90) for i in range(count)]

    @pytest.mark.parametrize(
        ("count", "workers", "most"),
        [(64, 16, 1), (64, 2, 2), (400, 2, 12), (900, 2, 16), (3, 1, 1), (31, 1, 1), (32, 1, 2)],
    )
    def test_programs_grow_with_work_per_core(self, tool: FakeCompiler, count: int, workers: int, most: int) -> None:
        wanted = self.wanted(count)
        made = compiler.make(wanted, workers=workers)
        assert max(map(len, tool.programs)) == most
        assert sorted(tool.compiled) == sorted(one.name for one in wanted)
        assert [one.entry.name for one in made] == [one.name for one in wanted]
        assert [one.entry.symbol for one in made] == [one.name for one in wanted]
        assert all(one.name.encode() in got.entry.code for one, got in zip(wanted, made, strict=True))
        assert not any(one.compiled for one in compiler.make(wanted))

    def test_programs_of_long_sources_are_small(self, tool: FakeCompiler) -> None:
        of = {one.name: one.header for one in self.wanted(400)}
        compiler.make(self.wanted(400), workers=1)
        assert {len(program) for program in tool.programs if of[program[0]] == HEADER} == {16, 8}
        assert {len(program) for program in tool.programs if of[program[0]] != HEADER} == {4}

    def test_programs_have_one_header_and_chip(self, tool: FakeCompiler) -> None:
        wanted = [*self.wanted(40), *(compiler.Wanted(HEADER, f"other_{i}", 80) for i in range(20))]
        of = {one.name: (one.header, one.architecture) for one in wanted}
        compiler.make(wanted, workers=1)
        assert all(len({of[name] for name in program}) == 1 for program in tool.programs)
        chips = ["80" in options[0] for options in tool.options]
        assert chips == [of[program[0]][1] == 80 for program in tool.programs]

    def test_a_failure_is_that_of_its_program(self, tool: FakeCompiler) -> None:
        wanted = self.wanted(40)
        wanted[6] = compiler.Wanted(HEADER, "bad_kernel", 90)
        with pytest.raises(CompilationError, match="bad_kernel"):
            compiler.make(wanted, workers=1)
        assert len(tool.compiled) == 38  # all but its program, which had two
        assert not compiler._under_way


def test_one_line_announces_a_long_compilation(
    tool: FakeCompiler, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(compiler, "_TELL_AFTER", 0.05)
    tool.seconds = 0.3
    compile_kernels(KERNELS, 90)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert "compiling 2 GPU kernels for sm_90" in lines[0]
    assert "compiled 2 GPU kernels in" in lines[1]
    compile_kernels(KERNELS, 90)
    assert capsys.readouterr().err == ""


class TestCannotCompile:
    def test_too_old_a_chip_is_named(self, tool: FakeCompiler) -> None:
        for ask in (lambda: compile_kernels(KERNELS, 70), lambda: check_kernels(70)):
            with pytest.raises(NoCompilerError, match=r"capability 7\.0; the kernels need 7\.5 or newer\. Use device"):
                ask()

    def test_too_old_a_driver_is_named(self, tool: FakeCompiler, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(_core, "cuda_driver_version", lambda: 12040)
        with pytest.raises(NoCompilerError, match=r"driver is for CUDA 12\.4, and NVRTC 13\.0 .* update the driver"):
            compile_kernels(KERNELS, 90)
        monkeypatch.setattr(_core, "cuda_driver_version", lambda: 13000)
        compile_kernels(KERNELS, 90)

    def test_a_missing_nvrtc_names_the_way_out(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("LOADER_KERNEL_CACHE", str(tmp_path))
        monkeypatch.setattr(nvrtc, "_candidates", lambda: iter(["libnvrtc-that-is-not.so"]))
        nvrtc._open.cache_clear()
        monkeypatch.delenv("LOADER_NVRTC", raising=False)
        with pytest.raises(NoCompilerError, match=r"no NVRTC was found.*pip install nvidia-cuda-nvrtc"):
            compile_kernels(KERNELS, 90)
        monkeypatch.setenv("LOADER_NVRTC", str(tmp_path / "none.so"))
        with pytest.raises(NoCompilerError, match=r"LOADER_NVRTC names .*none\.so, which cannot be used"):
            compile_kernels(KERNELS, 90)
        nvrtc._open.cache_clear()

    def test_a_library_other_than_nvrtc_is_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("LOADER_KERNEL_CACHE", str(tmp_path / "cache"))
        (tmp_path / "libnvrtc.so").write_bytes(b"\x7fELF, but no more")
        monkeypatch.setenv("LOADER_NVRTC", str(tmp_path / "libnvrtc.so"))
        with pytest.raises(NoCompilerError, match="cannot be used"):
            compile_kernels(KERNELS, 90)

    def test_a_missing_driver_is_named(self) -> None:
        if torch.cuda.is_available():
            pytest.skip("there is a driver")
        with pytest.raises(RuntimeError, match=r"no NVIDIA driver|cannot be used"):
            _core.cuda_driver_version()


class TestCommand:
    def test_list_shows_kernels_and_clear_removes_them(
        self, tool: FakeCompiler, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main([]) == 0
        assert "nothing" in capsys.readouterr().out
        compile_kernels(KERNELS, 90)
        ((path, _), _) = cache.entries()
        path.write_bytes(b"damaged")
        assert main(["list"]) == 0
        listed = capsys.readouterr().out
        assert f"damaged: {path.name}" in listed
        assert "1 for sm_90 by NVRTC 13.0; 1 damaged" in listed
        assert main(["clear"]) == 0
        assert list(cache.entries()) == []


def has_nvrtc() -> bool:
    try:
        nvrtc.compiler()
    except NoCompilerError:
        return False
    return True


needs_nvrtc = pytest.mark.skipif(not has_nvrtc(), reason="needs NVRTC (pip install nvidia-cuda-nvrtc)")


@needs_nvrtc
class TestWithNvrtc:
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("LOADER_KERNEL_CACHE", str(tmp_path))

    def test_kernels_compile_ahead_without_a_gpu(self, capsys: pytest.CaptureFixture[str]) -> None:
        chips = ["--arch", "75", "--arch", "90"]
        assert main(["compile", *chips, "--match", "items_at"]) == 0
        assert "2 kernels for sm_75, sm_90: 2 compiled" in capsys.readouterr().out
        assert main(["compile", *chips, "--match", "items_at"]) == 0
        assert "0 compiled" in capsys.readouterr().out
        for _, entry in cache.entries():
            assert entry is not None
            assert entry.code.startswith(b"\x7fELF")
            assert entry.symbol.encode() in entry.code

    def test_a_program_of_several_is_like_several(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        chosen = [one for one in compiler.all_kernels(75) if one.header == "features/cuda/gather_kernels.cuh"][:8]
        monkeypatch.setattr(compiler, "_PROGRAMS_PER_WORKER", 1)
        together = compiler.make(chosen, workers=1)
        monkeypatch.setenv("LOADER_KERNEL_CACHE", str(tmp_path / "apart"))
        apart = compiler.make(chosen, workers=8)
        assert [len({one.entry.code for one in made}) for made in (together, apart)] == [1, 8]  # programs
        assert [one.entry.symbol for one in together] == [one.entry.symbol for one in apart]
        for one in together:
            assert one.entry.symbol.encode() in one.entry.code

    def test_wrong_arguments_are_named(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["compile", "--arch", "70"]) == 2
        assert "--arch 70; NVRTC" in capsys.readouterr().err
        assert main(["compile", "--arch", "90", "--match", "no such kernel"]) == 2
        assert "no kernel has no such kernel in its name; leave out --match for all" in capsys.readouterr().err

    def test_a_kernel_with_an_error_shows_the_log(self) -> None:
        with pytest.raises(CompilationError, match="does not compile loader::no_kernel"):
            compile_kernels([(HEADER, "loader::no_kernel")], 90)


def test_a_command_without_a_chip_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["compile"])
    said = capsys.readouterr().err
    assert said.startswith("error: the following arguments are required: --arch; `python -m loader.kernels compile")
    assert said.count("\n") == 1


def test_a_list_that_nobody_reads_ends_quietly(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "loader.kernels"]
    environment = {**os.environ, "LOADER_KERNEL_CACHE": str(tmp_path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as listing:
        assert listing.stdout is not None
        listing.stdout.close()
        assert listing.stderr is not None
        assert listing.stderr.read() == b""
    assert listing.returncode == 1


def test_an_architecture_is_a_number() -> None:
    with pytest.raises(TypeError, match="architecture is 'sm_90'; it must be an integer"):
        check_kernels("sm_90")  # type: ignore[arg-type]


def test_names_of_kernels_are_distinct() -> None:
    kernels = _core.cuda_kernels()
    assert len(set(kernels)) == len(kernels) > 300
    assert {header for header, _ in kernels} <= _core.cuda_sources().keys()
