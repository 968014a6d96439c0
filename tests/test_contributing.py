"""Every command of CONTRIBUTING.md is run by CI, or by the tests below."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROW = re.compile(r"^\| ([^|]+) \| `(.+)` \|$", re.MULTILINE)

# Rows whose command CI does not take from the table, and why it need not.
OTHERWISE = {
    "run the tests": "CI runs the README's test line, which ends with it",
    "run the tests of one file": "part of all tests",
    "run the tests that need a GPU": "part of all tests, each skipped without a GPU",
    "compare the machine code of GPU kernels with another checkout's": "tests/benchmarks/test_kernel_code.py runs it",
    "try a wheel with several releases of torch": "CI runs the script with one release",
    "make a release": "below; its parts are .ci/run and the build that .ci/wheels does",
    "run every check": "this is CI",
}


def rows() -> dict[str, str]:
    return dict(ROW.findall((ROOT / "CONTRIBUTING.md").read_text()))


def test_ci_runs_every_command() -> None:
    steps = (ROOT / ".ci" / "run").read_text().replace("\\`", "`")
    run = set(re.findall(r'contributing "([^"]+)"', steps))
    assert len(run) >= 5
    assert run | set(OTHERWISE) == set(rows())
    assert not run & set(OTHERWISE)
    assert ".ci/wheels" in steps


def test_slow_tests_are_found_by_their_files() -> None:
    """For this command tests/conftest.py reads in the text of a file whether it has slow tests; no helper marks any."""
    (command,) = [command for name, command in rows().items() if name.startswith("run the slow tests")]
    assert ' -m "compiles or slow" ' in command
    for helper in (ROOT / "tests" / "support").glob("*.py"):
        assert not re.search(r"mark\.(compiles|slow)", helper.read_text(encoding="utf-8")), helper


def test_commands_of_files_name_existing_files() -> None:
    for command in rows().values():
        for path in re.findall(r"(?:tests/\S+\.py|\.ci/\w+)", command):
            assert (ROOT / path).exists(), command


@pytest.mark.skipif(not (shutil.which("git") and shutil.which("bash")), reason="needs git and bash")
class TestReleases:
    """Each ends before anything is built."""

    @pytest.fixture
    def checkout(self, tmp_path: Path) -> Path:
        (tmp_path / ".ci").mkdir()
        shutil.copy(ROOT / ".ci" / "release", tmp_path / ".ci")
        (tmp_path / ".ci" / "run").write_text("#!/bin/sh\necho everything is run; exit 1\n")
        (tmp_path / ".ci" / "run").chmod(0o755)
        (tmp_path / "loader").mkdir()
        (tmp_path / "loader" / "__init__.py").write_text('__version__ = "1.2.3"\n')
        (tmp_path / "pyproject.toml").write_text('version = "1.2.3"\n')
        (tmp_path / "CHANGELOG.md").write_text("## [1.2.3]\n")
        git(tmp_path, "init", "--quiet")
        commit(tmp_path)
        return tmp_path

    def release(self, checkout: Path, *arguments: str) -> str:
        command = [str(checkout / ".ci" / "release"), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode != 0
        return done.stdout + done.stderr

    def test_everything_is_checked_first(self, checkout: Path) -> None:
        assert self.release(checkout, "1.2.3") == "everything is run\n"

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ((), "give the version, e.g. .ci/release 1.2.3"),
            (("1.2",), "the version is '1.2'; it must be three numbers"),
            (("1.2.4",), "pyproject.toml has another version; set it to 1.2.4"),
        ],
    )
    def test_wrong_versions_are_refused(self, checkout: Path, arguments: tuple[str, ...], message: str) -> None:
        assert message in self.release(checkout, *arguments)

    @pytest.mark.parametrize(
        ("file", "text", "message"),
        [
            ("loader/__init__.py", '__version__ = "1.2.2"\n', "loader/__init__.py has another version"),
            ("CHANGELOG.md", "## [Unreleased]\n", "CHANGELOG.md has no section [1.2.3]"),
        ],
    )
    def test_files_without_the_version_are_refused(self, checkout: Path, file: str, text: str, message: str) -> None:
        (checkout / file).write_text(text)
        assert "the checkout has changes; commit them first" in self.release(checkout, "1.2.3")
        commit(checkout)
        assert message in self.release(checkout, "1.2.3")

    def test_a_version_is_released_once(self, checkout: Path) -> None:
        git(checkout, "tag", "v1.2.3")
        assert "the tag v1.2.3 exists; take the next version" in self.release(checkout, "1.2.3")


def git(folder: Path, *arguments: str) -> None:
    who = "-c", "user.name=somebody", "-c", "user.email=somebody@example.org"
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True)


def commit(folder: Path) -> None:
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "-m", "all of it")
