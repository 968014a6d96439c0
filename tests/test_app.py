"""The command `gnn-loader`, in a folder that is laid out as a wheel is, and from a checkout."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from train_runs import FAST, ROOT
from train_runs import run as checkout

from gnn_loader_app.__main__ import main
from loader import __version__, _core
from loader.machine.command_line import called

USAGE = "usage: gnn-loader train|inspect|results ARGUMENTS; `gnn-loader train --help` lists those of train\n"
TOOLS = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
CMAKE, NINJA = (shutil.which(tool, path=TOOLS) for tool in ("cmake", "ninja"))


def configure(build: Path, *definitions: str) -> subprocess.CompletedProcess[str]:
    """What CMake says of this checkout."""
    pybind11 = pytest.importorskip("pybind11")
    if CMAKE is None or NINJA is None or not (shutil.which("c++") or os.environ.get("CXX")):
        pytest.skip("needs cmake, ninja and a C++ compiler")
    given = [
        f"-DCMAKE_MAKE_PROGRAM={NINJA}",
        f"-DPython_EXECUTABLE={sys.executable}",
        f"-Dpybind11_DIR={pybind11.get_cmake_dir()}",
        *definitions,
    ]
    command = [CMAKE, "-G", "Ninja", "-S", str(ROOT), "-B", str(build), *given]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site-packages with the loader and what the rules of CMake put into `gnn_loader_app`; no core is compiled."""
    build, site = tmp_path_factory.mktemp("build"), tmp_path_factory.mktemp("site")
    done = configure(build, "-DSKBUILD_STATE=wheel")
    assert done.returncode == 0, done.stderr
    subprocess.run(
        [str(CMAKE), "--install", str(build), "--component", "app", "--prefix", str(site)],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    for file in (ROOT / "gnn_loader_app").glob("*.py"):
        shutil.copy(file, site / "gnn_loader_app")
    shutil.copytree(ROOT / "loader", site / "loader", ignore=shutil.ignore_patterns("__pycache__"))
    # An editable install of the checkout has the core elsewhere, and its packages come before those here.
    shutil.copy(_core.__file__, site / "loader")
    (site / "sitecustomize.py").write_text(
        "import sys\n"
        "sys.meta_path[:] = [one for one in sys.meta_path if not type(one).__name__.startswith('ScikitBuild')]\n"
        f"sys.path[:] = [one for one in sys.path if one != {str(ROOT)!r}]\n"
    )
    # A package of others that is called as ours.
    (site / "models.py").write_text("raise ImportError('these are other models')")
    return site


def app(site: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """`gnn-loader arguments`, started in `folder`."""
    return subprocess.run(
        [sys.executable, "-c", "from gnn_loader_app.__main__ import main; main()", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(site), "PYTHONSAFEPATH": "1"},
    )


def files(folder: Path) -> set[str]:
    found = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
    return {str(path) for path in found if "__pycache__" not in path.parts}


def test_a_wheel_has_all_models_and_options(site: Path) -> None:
    for name in ("models", "conf"):
        assert files(site / "gnn_loader_app" / name) == files(ROOT / name)
    assert (site / "gnn_loader_app" / "train.py").read_bytes() == (ROOT / "train.py").read_bytes()


def test_the_wheels_packages_and_command_are_declared() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert 'wheel.packages = ["loader", "gnn_loader_app"]' in text
    assert '\n[project.scripts]\ngnn-loader = "gnn_loader_app.__main__:main"\n' in text
    assert f'\nversion = "{__version__}"\n' in text


@pytest.mark.parametrize("system", ["Darwin", "Windows"])
def test_other_systems_are_refused_in_one_line(system: str, tmp_path: Path) -> None:
    done = configure(tmp_path, f"-DCMAKE_SYSTEM_NAME={system}")
    assert done.returncode != 0
    assert f"  gnn-loader serves Linux only, not {system}; use a container or WSL\n" in done.stderr
    assert done.stderr.count("CMake Error") == 1


def test_an_installed_run_serves_a_checkout(site: Path, tmp_path: Path) -> None:
    done = app(site, tmp_path, "train", *FAST, "hydra.run.dir=runs/a", "trainer.devices=2")  # two processes
    assert done.returncode == 0, done.stderr
    assert "outputs: " in done.stdout
    assert {path.name for path in tmp_path.iterdir()} == {"data", "runs"}  # all goes to the folder of that moment
    assert "    gnn-loader train mode=predict ckpt_path=" in (tmp_path / "runs" / "a" / "README.txt").read_text()

    predict = ("mode=predict", "ckpt_path=runs/a/checkpoints/best.ckpt")
    pytest.importorskip("pyarrow")
    for done in (app(site, tmp_path, "train", *predict), checkout(tmp_path, *predict, "hydra.run.dir=runs/b")):
        assert done.returncode == 0, done.stderr
    (ours,) = (tmp_path / "outputs" / "train").rglob("predictions.parquet")
    assert ours.read_bytes() == (tmp_path / "runs" / "b" / "predictions.parquet").read_bytes()

    table = app(site, tmp_path, "results", "runs/a")
    assert "1 jobs in runs/a" in table.stdout, table.stderr


def test_a_program_imports_models_after_the_app(site: Path, tmp_path: Path) -> None:
    (site / "models.py").rename(site / "others.py")
    try:
        code = "import gnn_loader_app, models.sage; print(models.__file__)"
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": str(site)},
            check=False,
        )
    finally:
        (site / "others.py").rename(site / "models.py")
    assert done.stdout == f"{site}/gnn_loader_app/models/__init__.py\n", done.stderr


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("train", "datset=cora"), "error: there is no option datset; did you mean dataset?\n"),
        (("train", "--resume"), "error: there is no option --resume; ckpt_path=<folder of the run>/checkpoints/"),
        (("train", "hydra.sweeper.colour=1"), "`gnn-loader train --help` lists all\n"),
        (("inspect", "--datset", "a"), "`gnn-loader inspect --help` lists all arguments\n"),
        (("results", "there"), "error: there is no result.json below there; give the folder of a sweep or of a run"),
        ((), USAGE),
        (("trian",), f"error: there is no command trian; {USAGE}"),
    ],
)
def test_mistakes_are_answered_in_one_line(arguments: tuple[str, ...], line: str, tmp_path: Path) -> None:
    done = app(ROOT, tmp_path, *arguments)
    assert done.returncode in (1, 2)
    assert line in done.stderr
    assert done.stderr.count("\n") == 1
    assert not any(tmp_path.iterdir())


def test_help_names_the_command_and_the_options(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    done = app(ROOT, tmp_path, "train", "--config-dir", "mine", "--help")
    assert "\n  gnn-loader train dataset=digits trainer.max_epochs=5\n" in done.stdout, done.stderr
    assert f"\nThe files of {ROOT / 'conf'}, one for each choice below, say" in done.stdout
    assert "train.py" not in done.stdout
    assert "\ngnn-loader inspect --dataset mygraph.npz" in app(ROOT, tmp_path, "inspect", "--help").stdout
    in_checkout = checkout(tmp_path, "--help").stdout
    assert "\n  python train.py dataset=digits trainer.max_epochs=5\n" in in_checkout


@pytest.mark.parametrize(
    ("command", "lacks", "extra"),
    [
        ("train", "hydra", "train"),
        ("train", "lightning", "train"),
        ("results folder", "hydra", "train"),
        ("results folder", "matplotlib", "train"),
        ("inspect --dataset digits", "omegaconf", "datasets"),
    ],
)
def test_missing_packages_are_named_with_their_extra(command: str, lacks: str, extra: str, tmp_path: Path) -> None:
    code = f"import sys; sys.modules[{lacks!r}] = None; from gnn_loader_app.__main__ import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, *command.split()],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert done.returncode == 1
    assert re.fullmatch(rf"error: .* needs the package {lacks}; pip install 'gnn-loader\[{extra}\]'\n", done.stderr)


def test_version_and_usage_are_asked_for(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for argument, said in (("--version", f"gnn-loader {__version__}\n"), ("--help", USAGE), ("-h", USAGE)):
        monkeypatch.setattr(sys, "argv", ["gnn-loader", argument])
        main()
        assert capsys.readouterr().out == said


def test_messages_name_the_command_that_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GNN_LOADER_COMMAND", raising=False)
    programs = ("train", "inspect", "results")
    assert [called(one) for one in programs] == [
        "python train.py",
        "python -m loader.inspect",
        "python -m models.results",
    ]
    monkeypatch.setenv("GNN_LOADER_COMMAND", "gnn-loader train")
    assert [called(one) for one in programs] == [f"gnn-loader {one}" for one in programs]
