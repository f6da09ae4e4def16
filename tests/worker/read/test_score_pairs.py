"""Two scores held against each other: row by row where the rows are the same."""

from __future__ import annotations

from typing import Any

import pytest

from engine.contract.errors import ConfigError
from engine.contract.intervals import apart, compare, mcnemar, wilson
from engine.contract.run_dir import RunDir
from tests.app.rollouts import row, write
from tests.worker.read.scored import completions, job, put, score
from worker.db.connection import Database
from worker.read.scores.leaderboard import Wanted, leaderboard
from worker.read.scores.pairs import Pair, PairError, compare_pairs

BEFORE = [True] * 20 + [False] * 20
AFTER = [True] * 18 + [False] * 2 + [True] * 12 + [False] * 8
"""Twelve gained, two lost."""


def refs(db: Database) -> list[str]:
    """Of every score, by step of the checkpoint, then by job."""
    cells = [
        (line.step, cell.job_id, cell.ref)
        for line in leaderboard(db, Wanted(sort="newest")).lines
        for cell in line.cells.values()
    ]
    return [ref for _, _, ref in sorted(cells)]


def held(db: Database) -> Pair:
    """The two scores there are, the lower step first."""
    [one] = compare_pairs(db, ["~".join(refs(db))]).pairs
    return one


def two(db: Database, *, after: dict[str, Any] | None = None, **rows: Any) -> None:
    """Step 0 and step 10 of a run, scored by one job on the same 40 rows."""
    number = job(db)
    later = score(solved=sum(AFTER), step=10) | (after or {})
    put(db, number, score(solved=sum(BEFORE), step=0), later)
    completions(db, number, "gsm8k", 0, BEFORE)
    completions(db, number, later["split"], 10, AFTER, **rows)


@pytest.mark.requirement("UI-09")
def test_two_scores_of_the_same_rows_are_tested_row_by_row(db: Database) -> None:
    """By the functions behind a run's own lift."""
    two(db)
    one, known = held(db), compare(BEFORE, AFTER)

    assert (one.paired, one.why_not, one.n, one.different) == (True, None, 40, 40)
    assert (one.before_score, one.after_score, round(one.lift, 6)) == (0.5, 0.75, 0.25)
    assert (one.low, one.high) == known.ci95
    assert (one.gained, one.lost, one.p_value) == (12, 2, mcnemar(12, 2))
    assert one.word == "better"
    assert (one.before.said.checkpoint, one.after.said.checkpoint) == ("base", "step 10")


def test_rows_that_ask_the_same_count_as_one(db: Database) -> None:
    """Twenty questions asked twice each say less than forty."""
    number = job(db)
    put(db, number, score(solved=20, step=0), score(solved=30, step=10))
    for step, solved in ((0, BEFORE), (10, AFTER)):
        rows = [
            row(f"q{i}", success=ok, reward=float(ok)) | {"prompt": f"question {i // 2}"}
            for i, ok in enumerate(solved)
        ]
        write(RunDir(db.settings.runs_dir / str(number)), f"heldout-gsm8k-{step:06d}", rows)

    one = held(db)
    assert (one.n, one.different) == (40, 20)
    assert one.p_value is not None
    assert one.p_value > mcnemar(12, 2)


def test_success_is_what_the_scores_own_filter_read(db: Database) -> None:
    """The line's own `success` is the first filter's."""
    number = job(db)
    flexible: dict[str, Any] = {"filter": "flexible-extract"}
    put(db, number, score(solved=20, step=0, **flexible), score(solved=30, step=10, **flexible))
    for step, solved in ((0, BEFORE), (10, AFTER)):
        rows = [
            row(f"q{i}", success=False, reward=0.0)
            | {"judged": {"strict-match": {"success": False}, "flexible-extract": {"success": ok}}}
            for i, ok in enumerate(solved)
        ]
        write(RunDir(db.settings.runs_dir / str(number)), f"heldout-gsm8k-{step:06d}", rows)

    one = held(db)
    assert (one.paired, one.gained, one.lost) == (True, 12, 2)


@pytest.mark.parametrize(
    ("after", "rows", "why_not"),
    [
        (
            {"bench_hash": "others"},
            {"ids": [f"r{i}" for i in range(40)]},
            "no row of the two has the same id and asks the same",
        ),
        (
            {"bench_hash": "others"},
            {"ids": [f"q{i}" for i in range(1, 41)]},
            "2 of their rows are not the same or ask something else",
        ),
        ({"samples": 4}, {}, "rows with several completions each are not paired here"),
        ({"score": 0.8, "high": 0.9}, {}, "do not add up to its score"),
    ],
)
def test_scores_of_different_rows_are_not_paired_and_say_why(
    db: Database, after: dict[str, Any], rows: dict[str, Any], why_not: str
) -> None:
    """Then the interval is that of the two intervals, and there is no test."""
    two(db, after=after, **rows)
    one = held(db)

    assert not one.paired
    assert one.why_not is not None
    assert why_not in one.why_not
    assert (one.n, one.p_value, one.p_holm, one.word) == (0, None, None, "not paired")
    later = score(solved=30) | after
    known = apart(0.5, wilson(20, 40), later["score"], (later["low"], later["high"]))
    assert (one.low, one.high) == known


def test_the_same_rows_under_another_hash_are_paired_by_their_ids_and_prompts(
    db: Database,
) -> None:
    """Another job that asked the same rows in its own way."""
    two(db, after={"bench_hash": "hashed otherwise"})
    assert held(db).paired


def test_a_score_whose_completions_are_gone_is_not_paired(db: Database) -> None:
    """A prune leaves the score."""
    put(db, job(db), score(solved=20, step=0), score(solved=30, step=10))
    one = held(db)
    assert not one.paired
    assert one.why_not == "job 1 has no completions of gsm8k any more"


def test_p_is_corrected_for_all_pairs_that_are_looked_at(db: Database) -> None:
    """Holm; one that is not paired tests nothing, and one named twice is one."""
    two(db)
    number = job(db)
    put(db, number, score(solved=24, step=20))
    completions(db, number, "gsm8k", 20, [True] * 24 + [False] * 16)
    put(db, job(db), score(solved=30, step=30))
    base, ten, twenty, thirty = refs(db)

    asked = [f"{base}~{ten}", f"{base}~{twenty}", f"{base}~{thirty}", f"{base}~{ten}"]
    found = compare_pairs(db, asked)
    first, second, third = found.pairs
    assert found.tested == 2
    assert first.p_value is not None
    assert first.p_holm == 2 * first.p_value
    assert second.p_holm == second.p_value == mcnemar(4, 0)
    assert third.p_holm is None


def test_scores_of_different_things_are_never_subtracted(db: Database) -> None:
    """Neither of two benches nor of two filters, nor a score from itself."""
    put(db, job(db), score("gsm8k", step=0), score("ifeval", step=10))
    first, second = refs(db)
    with pytest.raises(PairError, match="measure different things: bench is gsm8k and ifeval"):
        compare_pairs(db, [f"{first}~{second}"])
    with pytest.raises(PairError, match="is named twice"):
        compare_pairs(db, [f"{first}~{first}"])
    with pytest.raises(ConfigError, match="pair: names no score"):
        compare_pairs(db, [f"{first}~9.{'0' * 16}"])
