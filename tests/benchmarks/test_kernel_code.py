"""The machine code of kernels is compared as it is: small programs, and the kernels of this checkout."""

from __future__ import annotations

from pathlib import Path

import kernel_code
import pytest
from kernel_code import Code, compare

from loader.kernels.nvrtc import NoCompilerError, compiler

ROOT = Path(__file__).parents[2]
ADD = "__global__ void f(int* out, int more) { out[threadIdx.x] += more; }"


def code(source: str) -> Code:
    try:
        tool = compiler()
    except NoCompilerError as error:
        pytest.skip(str(error))
    cubin, _ = tool.compile(source, {}, ["f"], ["-arch=sm_90"])
    return Code.of(cubin)


def compared(before: str, after: str) -> str:
    _, kinds = compare({"f": code(before)}, {"f": code(after)}, [])
    (kind,) = kinds
    return kind


def test_names_do_not_count_and_instructions_do() -> None:
    assert compared(ADD, ADD.replace("more", "other")) == "identical"
    assert compared(ADD, ADD.replace("+=", "-=")) == "different"


def test_a_parameter_more_moves_the_others() -> None:
    assert compared(ADD, ADD.replace("int* out", "int* none, int* out")) == "parameters"


def test_what_a_kernel_takes_is_told() -> None:
    plain = code(ADD)
    assert len(plain.text) > 100
    assert 2 <= plain.registers < 64
    assert plain.stack == plain.local == 0
    turned = code(
        "__global__ void f(int* out, int n) { int x[40]; for (int i = 0; i < 40; ++i) x[i] = out[i];"
        " for (int i = 0; i < n; ++i) out[i] = x[out[i + 40]]; }"
    )
    assert turned.stack >= 160
    assert turned.local >= 11  # words are stored four at a time
    assert "160 B stack" in str(turned)


def test_kernels_are_known_by_name() -> None:
    one, other = Code(b"one", 1, 0, 0), Code(b"other", 1, 0, 0)
    lines, kinds = compare({"f<Old>": one, "g": one, "h": one}, {"f<New>": one, "g": other, "k": one}, ["Old=New"])
    assert kinds == {"identical": 1, "different": 1, "only before": 1, "only after": 1}
    assert [line.split()[-1] for line in lines] == ["g", "h", "k"]


def test_a_checkout_equals_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code(ADD)
    monkeypatch.setenv("LOADER_KERNEL_CACHE", str(tmp_path))
    assert kernel_code.main([str(ROOT), str(ROOT), "--match", "items_at_kernel"]) == 0
    assert capsys.readouterr().out == "1 identical\n"


def test_a_text_that_no_kernel_has_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        kernel_code.main([str(ROOT), str(ROOT), "--match", "no_kernel_has_this"])
    assert "no kernel has no_kernel_has_this in its name" in capsys.readouterr().err
