"""The command: what it prints and writes, and what it refuses."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from loader.inspect import main


@pytest.fixture
def npz(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    ids = np.arange(100)
    path = tmp_path / "mine.npz"
    np.savez(
        path, edge_index=rng.integers(0, 100, (2, 700)), features=rng.random((100, 4)), labels=ids % 3,
        train=ids[:40], val=ids[40:50], test=ids[50:],
    )  # fmt: skip
    return path


def test_the_command_prints_a_card_and_writes_json(npz: Path, tmp_path: Path, capsys) -> None:
    out = tmp_path / "cards" / "card.json"  # the folder is made
    main(["--dataset", str(npz), "--fanouts", "4,2", "--batch-size", "8", "--batches", "4", "--num-threads", "1",
          "--json", str(out), "--data-dir", str(tmp_path)])  # fmt: skip
    shown = capsys.readouterr().out
    for words in ("mine", "Blocks", "Feature rows found in a cache", "in flight at most", "sampling a mini-batch"):
        assert words in shown
    card = json.loads(out.read_text())
    assert card["fanouts"] == [4, 2]
    main(["--dataset", str(npz), "--fanouts", "4", "--batches", "2", "--json", "-", "--data-dir", str(tmp_path)])
    assert json.loads(capsys.readouterr().out)["batch_size"] == 40  # all that the split has


def test_a_budget_holds_whole_mini_batches_of_evaluation(npz: Path, tmp_path: Path, capsys) -> None:
    def needed(*more: str) -> int:
        main(["--dataset", str(npz), "--fanouts", "4", "--batches", "2", "--memory", "1", "--json", "-", *more,
              "--data-dir", str(tmp_path)])  # fmt: skip
        return json.loads(capsys.readouterr().out)["plan"]["needed_bytes"]

    # The train split has 40 seeds, the test split 50.
    assert needed("--batch-size", "50") == needed("--batch-size", "40", "--eval-batch-size", "50")
    assert needed("--batch-size", "50") > needed("--batch-size", "40")


def test_the_command_takes_every_dataset_of_conf(tmp_path: Path, capsys) -> None:
    main(["--dataset", "synthetic", "num_nodes=500", "mean_degree=6", "--data-dir", str(tmp_path), "--batches", "2",
          "--fanouts", "3", "--json", "-"])  # fmt: skip
    assert json.loads(capsys.readouterr().out)["graph"]["num_nodes"] == 500


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--dataset", "nowhere"],
            r"error: there is no .*nowhere\.yaml; give a \.npz, .* or one of: aifb, amazon-computers",
        ),
        (["--dataset", "nowhere.npz"], r"error: .*there is no file"),
        (["--dataset", "npz"], r"error: npz needs path; add path="),
        (["--dataset", "synthetic", "num_nodes"], r"error: option 'num_nodes' is not key=value"),
        (["--dataset", "synthetic", "num_nodes=1"], r"error: .*num_nodes is 1"),
        (
            ["--dataset", "synthetic", "num_node=9"],
            r"error: num_node is no option of synthetic; .*did you mean num_nodes\?",
        ),
        (
            ["--dataset", "synthetic", "--json", "/dev/null/card"],
            "error: --json is /dev/null/card; its folder cannot be",
        ),
        (["--dataset", "nowhere", "--json", "/"], "error: --json is /, which is a folder; give the path of a file"),
        (
            ["--dataset", "nowhere", "--conf", "/nowhere"],
            "error: conf is /nowhere; there is no folder /nowhere/dataset",
        ),
        (["--dataset", "nowhere", "--batches", "1"], "error: batches is 1; it must be at least 2"),
        (["--dataset", "nowhere", "--eval-batch-size", "0"], "error: eval_batch_size is 0; it must be at least 1"),
        (["--dataset", "nowhere", "--seed", "-1"], "error: seed is -1"),
        (["--dataset", "nowhere", "--num-threads", "0"], "error: num_threads is 0"),
    ],
)
def test_bad_input_ends_in_one_line(tmp_path: Path, arguments, message) -> None:
    with pytest.raises(SystemExit, match=message) as ended:
        main([*arguments, "--data-dir", str(tmp_path)])
    assert "\n" not in str(ended.value.code)


def test_a_misspelt_option_is_named(capsys) -> None:
    with pytest.raises(SystemExit):
        main(["--dataset", "cora", "--batch_size", "9"])
    assert capsys.readouterr().err.startswith(
        "error: unrecognized arguments: --batch_size; did you mean --batch-size? `"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--path", "shop"], "there is no --path; an option of the dataset has no dashes: path=VALUE;"),
        (["--dataset", "relational", "--path=a", "--task=b"], "has no dashes: path=a;"),
        (["--dataset", "npz", "--split-seed", "3"], "there is no --split-seed; .* has no dashes: split_seed=VALUE;"),
        (["--datset", "cora"], r"unrecognized arguments: --datset; did you mean --dataset\?"),
        (["--dataset", "cora", "--device", "cuda"], "unrecognized arguments: --device; `"),
        (["dataset=cora"], "dataset=cora is as train.py takes it; here it is --dataset cora;"),
        (["--dataset", "npz", "dataset.path=a.npz"], "dataset.path=a.npz is as train.py takes it; here it is path=a"),
        (["--dataset", "cora", "sampler.fanouts=[5,5]"], r"here it is --fanouts \[5,5\];"),
        (["--dataset", "cora", "datamodule.batch_size=9"], "here it is --batch-size 9;"),
        ([], "the following arguments are required: --dataset;"),
    ],
)
def test_arguments_of_other_forms_are_named(arguments, message, capsys) -> None:
    with pytest.raises(SystemExit):
        main(arguments)
    (line,) = capsys.readouterr().err.splitlines()
    assert re.search(message, line)
    assert line.startswith("error: ")


def test_the_file_of_the_data_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "my.npz"
    path.write_bytes(b"data")
    with pytest.raises(SystemExit, match="the file of the dataset, which would be lost; give another one"):
        main(["--dataset", str(path), "--json", str(path)])
    assert path.read_bytes() == b"data"


def test_all_neighbors_are_no_other_option() -> None:
    with pytest.raises(SystemExit, match=r"there is no .*nowhere\.yaml"):  # after the fanouts were read
        main(["--dataset", "nowhere", "--fanouts", "-1,-1"])
    with pytest.raises(SystemExit, match=r"there is no .*nowhere\.yaml"):
        main(["--dataset", "nowhere", "--fanouts", "[15,10]"])  # as train.py has it


def test_figures_that_cannot_be_written_are_one_line(tmp_path: Path, monkeypatch) -> None:
    def full(*_) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr("loader.inspect.command.show", full)
    options = ["--fanouts", "2", "--batches", "2", "num_nodes=200", "num_features=2"]
    with pytest.raises(SystemExit, match=r"^error: No space left on device$"):
        main(["--dataset", "synthetic", *options, "--data-dir", str(tmp_path)])


def test_bad_fanouts_are_refused_by_the_parser(capsys) -> None:
    for text in ("0", "a", "3,3,3,3,3,3,3,3,3"):
        with pytest.raises(SystemExit):
            main(["--dataset", "synthetic", "--fanouts", text])
    said = capsys.readouterr().err
    assert said.count("\n") == 3  # one line each
    assert all(line.startswith("error: argument --fanouts: ") for line in said.splitlines())
    assert "fanout 0 is not possible" in said
    assert "fanout 'a' is not an integer; give 1 to 1024" in said


def test_a_bad_budget_is_refused_by_the_parser(capsys) -> None:
    with pytest.raises(SystemExit):
        main(["--dataset", "nowhere", "--memory", "-3"])
    assert "argument --memory: memory is -3.0; it must be 'auto', or a finite number" in capsys.readouterr().err
