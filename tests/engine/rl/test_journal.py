"""The rollout journal: what was sampled once need not be sampled again."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from engine.contract.jsonl import write_rows
from engine.data.rows import Question
from engine.rewards.adapter import Reason, Verdict
from engine.rl.journal import Journal, record
from engine.sampling.base import Rollout

TASKS = [Question("a", "1=", "7"), Question("b", "2=", "7")]


def rollout(task: str, sample: int, version: int = 2) -> Rollout:
    return Rollout(task, sample, (1, 2), (3,), (-0.1234567890123456,), "7", False, version, 0.25)


VERDICT = Verdict(1.0, "7", Reason.CORRECT)


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    """Two completions of each task, step 3, by the weights of step 2."""
    journal = Journal(tmp_path / "rollouts")
    rows = [record(rollout(task.id, i), VERDICT) for task in TASKS for i in range(2)]
    write_rows(journal.path(3), rows)
    return journal


@pytest.mark.requirement("RL-15")
def test_what_was_recorded_is_recalled_to_the_bit(journal: Journal) -> None:
    """Ids, log-probabilities, text and verdict, in the order of the tasks asked for."""
    found = journal.recall(3, TASKS[::-1], k=2, version=2)

    assert found is not None
    assert found.groups == [[rollout("b", 0), rollout("b", 1)], [rollout("a", 0), rollout("a", 1)]]
    assert found.verdicts == [[VERDICT, VERDICT]] * 2


@pytest.mark.requirement("EX-15")
def test_what_was_drawn_ahead_is_recalled_by_weights_that_are_not_too_old(journal: Journal) -> None:
    """With the server that answered; what is set aside is recalled no more."""
    groups = [[replace(rollout("a", i), server="http://one/v1") for i in range(2)]]
    journal.write_ahead(4, groups)

    assert journal.recall_ahead(4, TASKS[:1], k=2, version=3, oldest=2) == groups
    assert journal.recall_ahead(4, TASKS[:1], k=2, version=4, oldest=3) is None
    assert journal.recall_ahead(4, TASKS, k=2, version=3, oldest=2) is None
    journal.set_aside_after(3)
    assert journal.recall_ahead(4, TASKS[:1], k=2, version=3, oldest=2) is None
    assert [path.name for path in journal.folder.glob("refused-*")] == [
        "refused-ahead-000004.jsonl"
    ]


def test_what_the_verifier_alone_gave_is_recalled_beside_what_was_paid(journal: Journal) -> None:
    """Else the pool of a resumed run would be scored by another measure."""
    lenient = Verdict(0.8, "7", Reason.LENIENT, verified=0.0)
    write_rows(journal.path(3), [record(rollout("a", i), lenient) for i in range(2)])

    found = journal.recall(3, TASKS[:1], k=2, version=2)

    assert found is not None
    assert found.verdicts == [[lenient, lenient]]


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\x85", "\x0b", "\x1c", "\r"])
def test_a_text_may_hold_any_character_that_ends_a_line_elsewhere(
    separator: str, journal: Journal
) -> None:
    """They stand unescaped in JSON, and one completion with one would lose the whole step."""
    odd = [replace(rollout("a", i), text=f"7{separator}8") for i in range(2)]
    write_rows(journal.path(3), [record(one, VERDICT) for one in odd])

    found = journal.recall(3, TASKS[:1], k=2, version=2)

    assert found is not None
    assert found.groups == [odd]


@pytest.mark.parametrize(
    ("step", "tasks", "k", "version"),
    [
        (4, TASKS, 2, 2),  # no such step
        (3, TASKS, 3, 2),  # not so many completions
        (3, TASKS, 2, 1),  # by other weights
        (3, [*TASKS, Question("c", "3=", "7")], 2, 2),  # not this prompt
    ],
)
def test_what_was_not_sampled_like_that_is_sampled_anew(
    step: int, tasks: list[Question], k: int, version: int, journal: Journal
) -> None:
    """All or nothing: half a step's rollouts are none."""
    assert journal.recall(step, tasks, k, version) is None


@pytest.mark.requirement("RL-15")
@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[:-10],
        lambda text: text[: len(text) // 2],
        lambda text: text.replace('"reward"', '"rewart"', 1),
        lambda text: text.replace('"correct"', '"perfect"', 1),
        lambda text: "[]\n" + text,
        lambda _: "",
        lambda _: "\0" * 100,
    ],
)
def test_a_damaged_journal_is_passed_over(damage: Callable[[str], str], journal: Journal) -> None:
    """A power cut may leave any of these; the step is sampled again."""
    path = journal.path(3)
    path.write_text(damage(path.read_text("utf-8")))

    assert journal.recall(3, TASKS, k=2, version=2) is None


def test_later_steps_can_be_forgotten(journal: Journal) -> None:
    """After a roll-back their weights are gone; held-out files stay."""
    for step in (4, 10):
        write_rows(journal.path(step), [])
    write_rows(journal.folder / "heldout-select-000010.jsonl", [])

    journal.forget_after(3)

    assert sorted(path.name for path in journal.folder.iterdir()) == [
        "heldout-select-000010.jsonl",
        "train-000003.jsonl",
    ]


def test_every_line_is_one_json_object(journal: Journal) -> None:
    """For people and other programs."""
    rows = [json.loads(line) for line in journal.path(3).read_text("utf-8").splitlines()]

    assert [(row["id"], row["sample"], row["version"]) for row in rows] == [
        ("a", 0, 2),
        ("a", 1, 2),
        ("b", 0, 2),
        ("b", 1, 2),
    ]
    assert {row["reason"] for row in rows} == {"correct"}
