"""The split and the draw from it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from engine.contract.errors import RLLoopError
from engine.contract.sources.mixture import DataConfig
from engine.data.curriculum import Curriculum
from engine.data.rows import Question, load
from engine.data.split import Split, carve, freeze, thawed


def questions(n: int) -> list[Question]:
    return [Question(f"q{i}", f"{i}=", "7") for i in range(n)]


def full_width(text: str) -> str:
    """With the digits of East Asian type."""
    return text.translate({ord("0") + digit: 0xFF10 + digit for digit in range(10)})


@pytest.mark.requirement("RL-04")
@pytest.mark.parametrize(
    ("n", "frac", "select_frac", "sizes"),
    [
        (100, 0.2, 0.5, (80, 10, 10)),
        (10, 0.01, 0.5, (9, 1, 0)),  # at least one held-out row, and it selects
        (10, 0.3, 0.5, (7, 2, 1)),
        (10, 0.5, 0.9, (5, 4, 1)),
    ],
)
def test_heldout_is_the_rounded_share_parted_into_select_and_report(
    n: int, frac: float, select_frac: float, sizes: tuple[int, int, int]
) -> None:
    """max(1, round(n·frac)) rows are held out; every row is in exactly one part."""
    rows = questions(n)

    split = carve(rows, heldout_frac=frac, select_frac=select_frac, seed=1)

    assert (len(split.train), len(split.select), len(split.report)) == sizes
    everything = [*split.train, *split.select, *split.report]
    assert sorted(q.id for q in everything) == sorted(q.id for q in rows)


@pytest.mark.requirement("RL-04")
@pytest.mark.parametrize("seed", range(5))
def test_a_question_that_stands_twice_is_never_trained_on_and_asked_by_a_gate(seed: int) -> None:
    """Equal prompts stay in one part, whatever their ids and their white space."""
    rows = [Question(f"q{i}", f"what is {i % 12} ?", "7") for i in range(24)]
    rows += [Question(f"spaced {i}", f" what  is {i} ?\n", "7") for i in range(12)]

    split = carve(rows, heldout_frac=0.5, select_frac=0.5, seed=seed)

    parts = [
        {" ".join(q.prompt.split()) for q in part}
        for part in (split.train, split.select, split.report)
    ]
    assert sum(map(len, parts)) == len(set.union(*parts)) == 12
    assert sum(map(len, (split.train, split.select, split.report))) == 36


@pytest.mark.requirement("RL-04")
@pytest.mark.parametrize(
    "twin",
    [str.upper, lambda text: text.rstrip(" ?"), lambda text: text.replace("?", "？"), full_width],
    ids=["case", "mark", "full-width mark", "full-width digits"],
)
def test_a_question_that_is_written_in_another_way_is_the_same_question(
    twin: Callable[[str], str],
) -> None:
    """Of no pair does one train and the other stand in a gate."""
    first = [Question(f"a{i}", f"What is {i} plus {i % 7} ?", "7") for i in range(60)]
    twins = [Question(f"b{q.id[1:]}", twin(q.prompt), "7") for q in first]

    split = carve([*first, *twins], heldout_frac=0.2, select_frac=0.5, seed=0)

    parts = [{q.id[1:] for q in part} for part in (split.train, split.select, split.report)]
    assert sum(map(len, parts)) == len(set.union(*parts)) == 60


def test_prompts_of_nothing_but_marks_are_questions_of_their_own() -> None:
    """There is no word left to tell them by."""
    rows = [Question(str(i), "?" * (i + 1), "7") for i in range(20)]

    split = carve(rows, heldout_frac=0.2, select_frac=0.5, seed=0)

    assert (len(split.train), len(split.select), len(split.report)) == (16, 2, 2)


@pytest.mark.parametrize(
    ("source", "recorded"),
    [("embedded:addition", "265501cc5c208ec4"), ("embedded:word_problems", "be01781ee0f44f16")],
)
def test_a_corpus_without_twins_is_carved_as_it_ever_was(source: str, recorded: str) -> None:
    """Its runs of before are repeated to the bit."""
    rows = load(DataConfig(source=source)).questions

    split = carve(rows, heldout_frac=0.2, select_frac=0.5, seed=0)

    assert split.hash.startswith(recorded)


@pytest.mark.requirement("RL-15")
def test_a_frozen_split_is_thawed_and_not_carved_again(tmp_path: Path) -> None:
    """A run that began when other rows were taken for the same goes on with its own."""
    a, b, c = (
        Question(name, prompt, "7") for name, prompt in (("a", "x?"), ("b", "X"), ("c", "y"))
    )
    began = Split(train=[a], select=[b], report=[c])
    path = tmp_path / "split.json"
    assert thawed([a, b, c], path) is None
    freeze(began, path)

    assert thawed([c, b, a], path) == began


def test_a_row_that_is_gone_is_refused_by_the_frozen_split(tmp_path: Path) -> None:
    """So is one whose text is another now."""
    rows = questions(20)
    path = tmp_path / "split.json"
    freeze(carve(rows, heldout_frac=0.2, select_frac=0.5, seed=1), path)

    for now in (rows[1:], [replace(rows[0], prompt="other"), *rows[1:]]):
        found = thawed(now, path)
        assert found is not None
        with pytest.raises(RLLoopError, match="no longer those"):
            freeze(found, path)


def test_a_share_that_leaves_no_training_row_is_refused() -> None:
    """Nothing to train on is a mistake in the config, not a crash later."""
    with pytest.raises(RLLoopError, match="heldout_frac: holds out all 10 rows"):
        carve(questions(10), heldout_frac=0.99, select_frac=0.5, seed=1)


def test_the_same_seed_carves_the_same_and_another_seed_does_not() -> None:
    """The seed alone decides."""
    one, same, other = (
        carve(questions(50), heldout_frac=0.2, select_frac=0.5, seed=seed) for seed in (1, 1, 2)
    )

    assert one == same
    assert one.hash == same.hash
    assert one.hash != other.hash


def test_the_hash_covers_the_rows_text_and_not_their_ids_alone() -> None:
    """A corrected answer is another corpus."""
    rows = questions(20)
    changed = [*rows[:-1], Question("q19", "19=", "8")]

    one, other = (carve(r, heldout_frac=0.2, select_frac=0.5, seed=1) for r in (rows, changed))

    assert one.hash != other.hash


@pytest.mark.requirement("RL-04")
def test_a_frozen_split_accepts_itself_and_refuses_another(tmp_path: Path) -> None:
    """A resumed run proves that its rows are still those it was split with."""
    path = tmp_path / "split.json"
    split = carve(questions(20), heldout_frac=0.2, select_frac=0.5, seed=1)
    freeze(split, path)
    before = path.read_bytes()

    freeze(split, path)
    with pytest.raises(RLLoopError, match="no longer those"):
        freeze(carve(questions(20), heldout_frac=0.2, select_frac=0.5, seed=2), path)

    assert path.read_bytes() == before


def test_a_frozen_split_refuses_other_worked_answers_of_training_rows_alone(
    tmp_path: Path,
) -> None:
    """They are shown as examples and taught; nobody looks at those of held-out rows."""
    split = carve(questions(20), heldout_frac=0.2, select_frac=0.5, seed=1)
    freeze(split, tmp_path / "split.json")

    freeze(replace(split, select=worked(split.select)), tmp_path / "split.json")
    with pytest.raises(RLLoopError, match="no longer those"):
        freeze(replace(split, train=worked(split.train)), tmp_path / "split.json")


def test_a_split_that_was_frozen_without_its_worked_answers_is_still_accepted(
    tmp_path: Path,
) -> None:
    """A run that an older version began goes on."""
    path = tmp_path / "split.json"
    split = carve(questions(20), heldout_frac=0.2, select_frac=0.5, seed=1)
    freeze(split, path)
    document = json.loads(path.read_bytes())
    del document["solutions"]
    path.write_text(json.dumps(document))

    freeze(replace(split, train=worked(split.train)), path)


def worked(rows: Sequence[Question]) -> list[Question]:
    return [replace(row, solution="so 7") for row in rows]


@pytest.mark.requirement("EX-09")
def test_an_epoch_draws_every_row_once_and_ends_with_what_is_left() -> None:
    """Ten rows in steps of four are 4 + 4 + 2; the next epoch has another order."""
    curriculum = Curriculum(questions(10), seed=0)

    epochs = [
        [[q.id for q in curriculum.draw(e * 10 + s, 4, draw=0)] for s in (0, 4, 8)] for e in (0, 1)
    ]

    assert [[len(step) for step in epoch] for epoch in epochs] == [[4, 4, 2], [4, 4, 2]]
    first, second = ([q for step in epoch for q in step] for epoch in epochs)
    assert sorted(first) == sorted(second) == sorted(q.id for q in questions(10))
    assert first != second


def test_a_draw_of_fewer_rows_passes_none_over() -> None:
    """Steps that lacked 4, 1, 2 and 3 rows have had all ten, in the epoch's order."""
    curriculum = Curriculum(questions(10), seed=0)

    drawn = [
        curriculum.draw(before, count, draw=0) for before, count in ((0, 4), (4, 1), (5, 2), (7, 3))
    ]

    assert [q for rows in drawn for q in rows] == curriculum.draw(0, 10, draw=0)


def test_a_draw_does_not_depend_on_the_draws_before_it() -> None:
    """What a resumed run needs. Each row knows which draw it belongs to."""
    rows = questions(30)
    long = Curriculum(rows, seed=3)
    for drawn in range(0, 32, 4):
        long.draw(drawn, 4, draw=drawn // 4)

    found = long.draw(32, 4, draw=9)

    assert found == Curriculum(rows, seed=3).draw(32, 4, draw=9)
    assert {row.draw for row in found} == {9}
