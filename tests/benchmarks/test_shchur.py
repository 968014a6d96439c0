"""The table beside Shchur et al. 2018."""

from __future__ import annotations

import pytest
import shchur


def split(seed: int) -> dict[str, object]:
    return {"dataset": {"name": "amazon-photo", "num_train": 20, "num_val": 30, "split_seed": seed}}


def test_a_row_stands_beside_the_published_figure(job) -> None:
    (row,) = shchur.summarise([job("FusedSampler", seed, 0.9 + seed / 100, **split(seed)) for seed in (1, 0)])
    assert row["seeds"] == [0, 1]
    assert row["test"] == pytest.approx([90, 91])
    assert (row["mean"], row["std"]) == pytest.approx((90.5, 0.707), abs=1e-3)
    assert (row["published_mean"], row["published_std"]) == (91.4, 1.3)


def test_another_protocol_is_refused(job) -> None:
    with pytest.raises(ValueError, match="the protocol is 20, 30, the seed"):
        shchur.summarise([job("FusedSampler", 1, 0.9, **split(0))])
    with pytest.raises(ValueError, match="graph is not of the paper"):
        shchur.summarise([job("FusedSampler", 1, 0.9)])
    with pytest.raises(ValueError, match="seed 1 is there twice"):
        shchur.summarise([job("FusedSampler", 1, 0.9, **split(1)) for _ in range(2)])


def test_models_have_rows_of_their_own(job) -> None:
    cora = {"dataset": {**split(1)["dataset"], "name": "cora", "largest_component": True}}
    jobs = [job("FullSampler", 1, 0.5, **cora, model__architecture=model) for model in ("gin", "gat", "gcn")]
    rows = shchur.summarise(jobs)
    assert [row["model"] for row in rows] == ["gcn", "gat", "gin"]
    assert [row["published_mean"] for row in rows] == [81.5, 81.8, None]
    with pytest.raises(ValueError, match="gcn on cora: seed 1 is there twice"):
        shchur.summarise([jobs[2], *jobs])


def test_other_models_and_parts_of_graphs_are_refused(job) -> None:
    with pytest.raises(ValueError, match="NodeEmbedder on amazon-photo is not of the paper"):
        shchur.summarise(
            [job("FullSampler", 1, 0.5, **split(1), model___target_="models.training.embedder.NodeEmbedder")]
        )
    whole = {"dataset": {**split(1)["dataset"], "largest_component": False}}
    with pytest.raises(ValueError, match="largest_component is false; the protocol is true"):
        shchur.summarise([job("FullSampler", 1, 0.5, **whole)])
