"""Datasets by their names, in a checkout and as they are installed."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from loader.datasets import named, open_dataset
from loader.datasets.named import conf_folder

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("name", ["graph.pt", "graph.mtx", "mine.txt"])
def test_files_of_others_are_told_apart(tmp_path: Path, name: str) -> None:
    (tmp_path / "mine.txt").touch()
    with pytest.raises(ValueError, match=rf"'{name}' is a file that is not read; make a .npz, .csv, .tsv or .parquet"):
        open_dataset(name, data_dir=tmp_path)


def test_a_checkout_has_its_own_folder():
    assert (conf_folder() / "dataset" / "digits.yaml").samefile(ROOT / "conf" / "dataset" / "digits.yaml")


def test_an_installed_loaders_folder_lies_beside_its_modules(tmp_path, monkeypatch):
    package = tmp_path / "site-packages" / "loader"
    monkeypatch.setattr(named, "_PACKAGE", package)
    with pytest.raises(FileNotFoundError, match=r"neither in .*loader/conf nor in .*site-packages/conf; install"):
        conf_folder()
    rule = re.search(r"install\(DIRECTORY (\S+) DESTINATION (\S+)\)", (ROOT / "CMakeLists.txt").read_text())
    assert rule is not None
    source, target = rule.groups()
    shutil.copytree(ROOT / source, tmp_path / "site-packages" / target / Path(source).name)
    assert conf_folder() == package / "conf"
    data = open_dataset("synthetic", ["num_nodes=300", "mean_degree=4"], data_dir=tmp_path)
    assert data.num_nodes == 300


def test_a_misspelt_name_is_answered_with_the_nearest():
    with pytest.raises(ValueError, match=r"; did you mean digits\?$"):
        open_dataset("digit")


def test_a_folder_is_no_dataset(tmp_path):
    with pytest.raises(ValueError, match=r"is a folder; name the \.npz file in it"):
        open_dataset(str(tmp_path))


def test_another_folder_may_be_named(tmp_path):
    (tmp_path / "dataset").mkdir()
    (tmp_path / "dataset" / "mine.yaml").write_text(
        "_target_: models.synthetic.SyntheticDataset\nname: mine\nnum_nodes: 200\n"
        "data_dir: ${data_dir}\nseed: ${seed}\n"
    )
    assert open_dataset("mine", data_dir=tmp_path, seed=3, conf=tmp_path).name == "mine"
    with pytest.raises(ValueError, match=r"there is no .*other\.yaml; give a \.npz, .* or one of: mine"):
        open_dataset("other", conf=tmp_path)


def test_an_unknown_option_is_named_with_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"num_neighbours is no option of digits; .*did you mean num_neighbors\?$"):
        open_dataset("digits", ["num_neighbours=3"])


def test_an_unknown_option_of_a_file_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"undirect is no option of a\.npz; .*did you mean undirected\?$"):
        open_dataset("a.npz", ["undirect=true"], data_dir=tmp_path)


def test_a_name_is_text() -> None:
    with pytest.raises(TypeError, match=r"name is 3; it must be that of a dataset, or of a \.npz file"):
        open_dataset(3)


def test_a_seed_is_an_integer() -> None:
    with pytest.raises(TypeError, match="seed is 'x'; it must be an integer"):
        open_dataset("digits", seed="x")


def test_a_folder_may_be_text(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"conf is .*; there is no folder .*/dataset, name another one or leave it out"
    ):
        open_dataset("digits", conf=str(tmp_path))


def test_options_are_a_list() -> None:
    with pytest.raises(
        ValueError, match=r"option '10' is not key=value, e.g. num_neighbors=8; a list has commas: 15,10"
    ):
        open_dataset("digits", ["10"])
    with pytest.raises(TypeError, match=r"options is 'num_neighbors=3'; it must be a list of texts, each key=value"):
        open_dataset("digits", "num_neighbors=3")


def test_options_that_are_needed_may_be_given(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    (tmp_path / "e.csv").write_text("a,b\n1,2\n2,3\n")
    assert open_dataset("edge_list", [f"edges={tmp_path / 'e.csv'}"], data_dir=tmp_path).num_nodes == 3
    with pytest.raises(ValueError, match=r"edge_list needs edges; add edges=\.\.\. to the command line"):
        open_dataset("edge_list", data_dir=tmp_path)
