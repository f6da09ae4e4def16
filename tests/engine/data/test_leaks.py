"""Training rows that benches ask too."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from engine.contract.errors import RLLoopError
from engine.contract.kinds.rl_run import RLRunConfig
from engine.data.leaks import settled, what_overlaps
from engine.data.rows import Question
from engine.data.split import Split, freeze

WORDS = [f"w{i}" for i in range(4000)]


def texts(n: int, seed: int) -> list[str]:
    """Of 40 words each, that share no 13-gram."""
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=40)) for _ in range(n)]


def rows(texts: list[str], prefix: str, source: str = "") -> list[Question]:
    return [Question(f"{prefix}{i}", text, "1", source=source) for i, text in enumerate(texts)]


def config(folder: Path, **more: Any) -> RLRunConfig:
    benches = [{"name": name, "source": str(folder / f"{name}.jsonl")} for name in ("mine", "cot")]
    raw = {"data": {"source": str(folder / "rows.jsonl")}, "heldout": benches, "heldout_frac": 0.2}
    return RLRunConfig.model_validate(raw | more)


OWN = texts(100, 1)
HALF = [" ".join(text.split()[:27]) for text in texts(1, 4)]
"""Has half of the grams of the same row whole."""


@pytest.fixture
def benches() -> dict[str, list[Question]]:
    mine = [*texts(30, 2), OWN[0].upper(), OWN[1] + " then?", *OWN[2:6]]
    return {
        "mine": rows(mine, "mine/", "mine"),
        "cot": rows([*texts(7, 3), *OWN[6:9], *texts(1, 4)], "cot/", "cot"),
    }


@pytest.mark.requirement("EX-22")
def test_rows_of_the_bench_that_decides_do_not_train_and_its_own_all_stay(
    tmp_path: Path, benches: dict[str, list[Question]]
) -> None:
    ran = config(tmp_path, decide="mine")

    split = settled(rows([*OWN, *HALF], "t"), benches, tmp_path / "split.json", ran)

    assert {f"t{i}" for i in range(6)}.isdisjoint(row.id for row in split.train)
    assert {*split.select, *split.report} == set(benches["mine"])
    removed = split.overlap["mine"]["removed"]
    assert removed == split.overlap["mine"]["leaks"] > 0
    assert len(split.train) + len(split.others["own"]) + removed == 101
    assert any(
        text.startswith(f"{removed} of {len(split.train) + removed} training rows are taken out")
        for _, text in what_overlaps(split, ran)
    )


@pytest.mark.requirement("EX-22")
def test_rows_of_another_bench_train_on_and_that_is_said_with_three_pairs(
    tmp_path: Path, benches: dict[str, list[Question]]
) -> None:
    ran = config(tmp_path, heldout_frac=0.01)

    split = settled(rows([*OWN[6:], *HALF], "t"), benches, tmp_path / "split.json", ran)

    assert len(split.train) == 94
    assert dict(split.overlap["mine"]) == {
        "leaks": 0,
        "reported": 0,
        "of": 36,
        "training": 94,
        "removed": 0,
        "shown": [],
    }
    cot = split.overlap["cot"]
    assert (cot["leaks"], cot["reported"], cot["of"], len(cot["shown"])) == (3, 1, 11, 3)
    [(leaks, said)] = what_overlaps(split, ran)
    assert leaks
    assert said.startswith(
        "you are training on a benchmark's test rows: 3 of the 11 rows of cot stand in the 94 "
        "training rows"
    )
    assert "; 1 of the 11 rows of cot share half of their words or more with training rows" in said
    assert said.count("and training row") == 3


@pytest.mark.requirement("EX-22")
def test_own_rows_that_decide_are_kept_apart_from_training_rows_that_say_the_same(
    tmp_path: Path,
) -> None:
    """Also where they are not the same question to the letter."""
    again = [text + " Think." for text in OWN[:50]]

    split = settled(
        rows([*OWN, *again], "t"), {}, tmp_path / "s.json", config(tmp_path, heldout=[])
    )

    held = {row.prompt.removesuffix(" Think.") for row in (*split.select, *split.report)}
    assert held.isdisjoint(row.prompt.removesuffix(" Think.") for row in split.train)
    assert split.overlap["own"]["removed"] > 0


def test_generated_rows_are_not_held_against_each_other(tmp_path: Path) -> None:
    """Word problems of one generator differ in their numbers."""
    ran = RLRunConfig.model_validate({"data": {"source": "embedded:addition-v1"}})
    again = [*OWN, *(text + " Think." for text in OWN)]

    split = settled(rows(again, "t"), {}, tmp_path / "s.json", ran)

    assert split.overlap == {}
    assert len(split.rows) == 200


def test_what_was_found_stays_with_the_split(
    tmp_path: Path, benches: dict[str, list[Question]]
) -> None:
    """A resumed run says the same, though the rows are gone."""
    ran, path = config(tmp_path, decide="mine"), tmp_path / "split.json"
    first = settled(rows(OWN, "t"), benches, path, ran)
    freeze(first, path)

    again = settled(rows(OWN, "t"), benches, path, ran)

    assert again == first
    freeze(again, path)


def test_a_bench_that_asks_all_that_would_train_is_refused(tmp_path: Path) -> None:
    asked = {"mine": rows(OWN, "mine/"), "cot": rows(texts(9, 3), "cot/")}

    with pytest.raises(RLLoopError, match="decide: asks all that the run would train on"):
        settled(rows(OWN, "t"), asked, tmp_path / "s.json", config(tmp_path, decide="mine"))


def test_a_split_of_an_older_version_is_not_looked_at_again(tmp_path: Path) -> None:
    """Its training rows stand, whatever a bench asks."""
    path, train = tmp_path / "split.json", rows(OWN, "t")
    freeze(Split(train[2:], train[:1], train[1:2], {"mine": rows(OWN, "m/")}), path)

    split = settled(train, {"mine": rows(OWN, "m/")}, path, config(tmp_path, decide="own"))

    assert (len(split.train), split.overlap) == (98, {})
