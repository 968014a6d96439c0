"""Names that are spelt nearly alike."""

import pytest

from loader.machine.spelling import nearest, nearest_name


@pytest.mark.parametrize(
    ("word", "known", "found"),
    [
        ("gta", ["hgt", "gat"], "gat"),  # letters that changed places come before other letters
        ("GraphSage", ["graphsage", "gcn"], "graphsage"),
        ("fanuots", ["Fanouts", "seed"], "Fanouts"),
        ("weights", ["seed", "dropout"], None),
        ("x", [], None),
    ],
)
def test_the_nearest_name_is_found(word: str, known: list[str], found: str | None) -> None:
    assert nearest_name(word, known) == found
    assert nearest(word, known) == ("" if found is None else f"; did you mean {found}?")


def test_a_cutoff_asks_for_more_alike() -> None:
    assert nearest_name("feature", ["features"], cutoff=0.85) == "features"
    assert nearest_name("feat", ["features"], cutoff=0.85) is None


def test_another_text_stands_for_the_name() -> None:
    assert nearest("hiden", ["hidden"], {"hidden": "model.hidden"}) == "; did you mean model.hidden?"
