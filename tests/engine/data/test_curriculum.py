"""The order in which training rows are drawn: shuffled, staged, listed, mixed by weight."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from engine.__main__ import main
from engine.contract.errors import RLLoopError
from engine.contract.events import Event
from engine.contract.run_dir import Abort, AbortReason, ExitCode, RunDir
from engine.contract.sources.mixture import DataConfig
from engine.data.curriculum import Curriculum, Mixture, curriculum_of
from engine.data.rows import Question

NewAttempt = Callable[..., RunDir]
Events = Callable[..., list[Event]]


def rows(count: int, source: str = "", **columns: Sequence[Any]) -> list[Question]:
    return [
        Question(
            f"{source}{i}",
            f"{source}{i}?",
            "7",
            source=source,
            columns={name: values[i] for name, values in columns.items()},
        )
        for i in range(count)
    ]


def ids(questions: Sequence[Question]) -> list[str]:
    return [question.id for question in questions]


def drawn(order: Curriculum | Mixture, steps: int, tasks: int, begin: int = 0) -> list[list[str]]:
    found, count = [], begin
    for step in range(steps):
        part = order.draw(count, tasks, draw=step)
        found.append(ids(part))
        count += len(part)
    return found


@pytest.mark.requirement("RL-04")
def test_without_a_curriculum_the_draws_are_those_of_every_version_before() -> None:
    """The shuffle of an epoch is named by seed + 1 and its number, to the bit."""
    order = list(range(10))
    random.Random("4:1").shuffle(order)

    found = curriculum_of(rows(10), DataConfig(), seed=3).draw(10, 10, draw=0)

    assert ids(found) == [str(place) for place in order]


def test_easy_to_hard_begins_every_epoch_with_the_easy_rows() -> None:
    """Rows that are equally hard are shuffled anew; "Level 5" is 5."""
    train = rows(6, level=[f"Level {level}" for level in (3, 1, 2, 1, 3, 2)])
    data = DataConfig(curriculum="easy_to_hard", difficulty_field="level")

    first, second, third = (drawn(curriculum_of(train, data, 0), 3, 2, e * 6) for e in range(3))

    for epoch in (first, second, third):
        assert list(map(set, epoch)) == [{"1", "3"}, {"2", "5"}, {"0", "4"}]
    assert len({str(epoch) for epoch in (first, second, third)}) > 1


@pytest.mark.parametrize(
    ("field", "easy", "order"),
    [
        ("pass_rate", None, ["2", "1", "0"]),
        ("pass_rate", "low", ["0", "1", "2"]),
        ("steps", None, ["0", "1", "2"]),
    ],
)
def test_a_high_pass_rate_is_an_easy_row(field: str, easy: Any, order: list[str]) -> None:
    """By the name of the field, unless the config says it."""
    train = rows(3, "", **{field: [0.1, 0.5, 0.9]})
    data = DataConfig(curriculum="easy_to_hard", difficulty_field=field, easy_values=easy)

    assert ids(curriculum_of(train, data, 0).draw(0, 3, draw=0)) == order


def test_bands_are_shuffled_inside_and_of_about_equally_many_rows() -> None:
    """Equal values are in one band: of 8 rows in two bands the first 4 are the easy ones."""
    train = rows(8, hard=[8, 7, 6, 5, 4, 3, 2, 1])
    data = DataConfig(curriculum="bands", difficulty_field="hard", difficulty_bands=2)

    first, second = drawn(curriculum_of(train, data, 1), 2, 4)

    assert sorted(first) == ["4", "5", "6", "7"]
    assert sorted(second) == ["0", "1", "2", "3"]
    assert first != ["7", "6", "5", "4"]


def test_by_form_begins_with_rows_whose_answers_can_be_read(tmp_path: Path) -> None:
    """Of the file that `cockpit passk` writes; a row that is not in it comes last."""
    path = tmp_path / "passk.jsonl"
    shares = {"0": 0.25, "1": 1.0, "2": 0.5}
    path.write_text("".join(json.dumps({"id": i, "parsed": s}) + "\n" for i, s in shares.items()))
    data = DataConfig(curriculum="by_form", curriculum_file=str(path))

    assert ids(curriculum_of(rows(4), data, 0).draw(0, 4, draw=0)) == ["1", "2", "0", "3"]


@pytest.mark.requirement("EX-08")
def test_a_file_is_drawn_in_its_order_and_an_id_as_often_as_it_stands_there(
    tmp_path: Path,
) -> None:
    """Rows that it does not name are not drawn; after its end it begins again."""
    path = tmp_path / "ids.txt"
    path.write_text("3\n1\n\n1\n0\n", "utf-8")
    data = DataConfig(curriculum="file", curriculum_file=str(path))

    assert drawn(curriculum_of(rows(5), data, 0), 3, 3) == [["3", "1", "1"], ["0"], ["3", "1", "1"]]


def test_a_row_that_a_step_draws_twice_has_other_samples_the_second_time(tmp_path: Path) -> None:
    """Else both groups hold the same completions, and the second teaches nothing."""
    path = tmp_path / "ids.txt"
    path.write_text("1\n" * 3, "utf-8")
    data = DataConfig(curriculum="file", curriculum_file=str(path))

    found = curriculum_of(rows(2), data, 0).draw(0, 3, draw=4)

    assert [(row.id, row.draw, row.again) for row in found] == [
        ("1", 4, 0),
        ("1", 4, 1),
        ("1", 4, 2),
    ]


# --- mixtures ---

MIXED = [*rows(50, "math"), *rows(30, "gsm8k"), *rows(5, "ifeval")]
WEIGHTS = {"math": 0.5, "gsm8k": 0.3, "ifeval": 0.2}


def of_sources(step: Sequence[str]) -> Counter[str]:
    return Counter(id_.rstrip("0123456789") for id_ in step)


@pytest.mark.requirement("EX-07")
def test_every_step_of_a_mixture_has_its_shares() -> None:
    """Of ten rows five, three and two in each step, however many rows a source has."""
    order = curriculum_of(MIXED, DataConfig(), 0, WEIGHTS)

    steps = drawn(order, 20, 10)

    assert all(of_sources(step) == {"math": 5, "gsm8k": 3, "ifeval": 2} for step in steps)


def test_steps_that_cannot_have_their_shares_have_them_together() -> None:
    """To within a row of each source at every moment."""
    order = curriculum_of(MIXED, DataConfig(), 0, {"math": 2, "gsm8k": 1, "ifeval": 0.3})
    assert isinstance(order, Mixture)

    for count in range(400):
        found = order.counts(count)
        assert sum(found.values()) == count
        for name, weight in (("math", 2), ("gsm8k", 1), ("ifeval", 0.3)):
            assert abs(found[name] - count * weight / 3.3) <= 1


def test_each_source_has_epochs_of_its_own() -> None:
    """Every row of a source once before any of it twice."""
    order = curriculum_of(MIXED, DataConfig(), 0, WEIGHTS)

    found = [id_ for step in drawn(order, 10, 10) for id_ in step]

    for source, count in (("math", 50), ("gsm8k", 30), ("ifeval", 5)):
        of = [id_ for id_ in found if id_.startswith(source)]
        assert len(set(of[:count])) == min(count, len(of))


def test_a_draw_of_a_mixture_does_not_depend_on_the_draws_before_it() -> None:
    """What a resumed run needs: in steps of ten, and of three from the thirtieth row on."""
    whole = [
        id_ for step in drawn(curriculum_of(MIXED, DataConfig(), 5, WEIGHTS), 6, 10) for id_ in step
    ]

    later = drawn(curriculum_of(MIXED, DataConfig(), 5, WEIGHTS), 10, 3, begin=30)

    assert [id_ for step in later for id_ in step] == whole[30:]


def test_one_source_after_the_other() -> None:
    """In the order of the mixture; then the first one again."""
    order = curriculum_of(MIXED, DataConfig(mix_order="one_after_the_other"), 0, WEIGHTS)

    found = [id_ for step in drawn(order, 9, 10) for id_ in step]

    assert [list(of_sources(part)) for part in (found[:50], found[50:80], found[80:85])] == [
        ["math"],
        ["gsm8k"],
        ["ifeval"],
    ]
    assert len(set(found)) == 85


def test_inside_a_mixture_each_source_goes_from_easy_to_hard() -> None:
    """By its own rows: what is hard of one source need not be hard of another."""
    train = [*rows(4, "a", level=[4, 3, 2, 1]), *rows(4, "b", level=[40, 30, 20, 10])]
    data = DataConfig(curriculum="easy_to_hard", difficulty_field="level")

    found = drawn(curriculum_of(train, data, 0, {"a": 1, "b": 1}), 4, 2)

    assert found == [["a3", "b3"], ["a2", "b2"], ["a1", "b1"], ["a0", "b0"]]


@pytest.mark.parametrize("weights", [{"math": 1}, WEIGHTS | {"mbpp": 1}])
def test_weights_and_rows_that_do_not_fit_are_refused(weights: dict[str, float]) -> None:
    """A source without a weight is never drawn, and nobody would see it."""
    with pytest.raises(RLLoopError, match=r"data\.mix"):
        curriculum_of(MIXED, DataConfig(), 0, weights)


# --- in a run ---


def sampled(run: RunDir, step: int) -> list[str]:
    """Ids of the rows that a step drew, in its order."""
    lines = (run.rollouts / f"train-{step:06d}.jsonl").read_text("utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    return [row["id"] for row in rows][::2]


@pytest.fixture
def by_file(recipe: dict[str, Any], tmp_path: Path) -> dict[str, Any]:
    """A run over the embedded task whose file names rows as another tool would, one three times."""
    path = tmp_path / "ids.txt"
    path.write_text("".join(f" {a:02d}+07 \n" * (3 if a == 2 else 1) for a in range(40)), "utf-8")
    return recipe | {
        "base": "embedded:qwen3-tiny",
        "data": {"source": "embedded:addition", "curriculum": "file", "curriculum_file": str(path)},
        "heldout_frac": 0.01,
        "group_k": 2,
        "tasks_per_step": 5,
        "max_steps": 3,
        "objective": {"zero_signal": "keep"},
        "guard": {"collapse": False},
    }


@pytest.mark.requirement("EX-08")
def test_a_run_draws_by_a_file_and_a_resumed_one_draws_the_same(
    by_file: dict[str, Any], new_attempt: NewAttempt, events: Events
) -> None:
    """The embedded model for three steps: in the file's order, a repeated id with new samples."""
    run = new_attempt(by_file)
    run.attempt(1).request_abort(Abort(reason=AbortReason.OPERATOR))
    assert main(["run", str(run.root)]) == ExitCode.ABORTED
    new_attempt(by_file)

    assert main(["run", str(run.root)]) == ExitCode.DONE

    split = json.loads(run.split.read_bytes())
    listed = [f"{a:02d}+07" for a in range(40) for _ in range(3 if a == 2 else 1)]
    left = [id_ for id_ in listed if id_ in split["train"]]
    assert [id_ for step in (1, 2, 3) for id_ in sampled(run, step)] == left[:15]
    lines = (run.rollouts / "train-000001.jsonl").read_text("utf-8").splitlines()
    samples = [(row["id"], row["sample"]) for row in map(json.loads, lines)]
    assert len(set(samples)) == len(samples)
    notes = [note["text"] for note in events(run, "note") if note["code"] == "CURRICULUM"]
    assert f"{len(left)} draws an epoch" in notes[0]


@pytest.mark.requirement("EX-08")
def test_a_run_whose_file_is_of_other_rows_ends_with_examples(
    by_file: dict[str, Any], new_attempt: NewAttempt, events: Events
) -> None:
    """Two of a hundred ids that nobody has are too many; the rows' own ids are shown beside."""
    path = Path(by_file["data"]["curriculum_file"])
    path.write_text("".join(f"{a:02d}+07\n" for a in range(98)) + "gsm8k_1\ngsm8k_2\n", "utf-8")
    run = new_attempt(by_file)

    assert main(["run", str(run.root)]) == ExitCode.CONFIG

    said = events(run, "note")[-1]["text"]
    assert "2 of 100 ids name no row of the data, e.g. 'gsm8k_1', 'gsm8k_2'" in said
    assert "'00+00'" in said
