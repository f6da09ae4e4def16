"""What checkpoints scored, in the order of one bench and never of several."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest
from sqlalchemy import update

from engine.contract.errors import ConfigError
from engine.contract.intervals import independent
from tests.worker.read.scored import job, put, score
from worker.db.connection import Database
from worker.db.tables import job as job_table
from worker.read.scores import leaderboard as read
from worker.read.scores.leaderboard import (
    Column,
    Conditions,
    Leaderboard,
    Wanted,
    every_score,
    leaderboard,
    scores_of_job,
)


def page(db: Database, **wanted: Any) -> Leaderboard:
    return leaderboard(db, Wanted(**wanted))


def column(found: Leaderboard, **what: Any) -> Column:
    """The one column that is like that."""
    [only] = [
        one
        for one in found.columns
        if all(getattr(one, name) == value for name, value in what.items())
    ]
    return only


def order(db: Database, **wanted: Any) -> list[tuple[int | None, int]]:
    """(run, step) of each line."""
    return [(line.run, line.step) for line in page(db, **wanted).lines]


@pytest.mark.requirement("UI-09")
def test_checkpoints_are_in_the_order_of_one_bench_whatever_they_score_on_others(
    db: Database,
) -> None:
    """A sum or a mean over both would put run 2 first in either; without a score on the bench that
    orders, a checkpoint has no place in its order.
    """
    for run, gsm8k, ifeval in ((1, 22, 3), (2, 20, 39), (3, 12, 38)):
        number = job(db)
        put(
            db,
            number,
            score("gsm8k", gsm8k, run=run),
            score("ifeval", ifeval, run=run),
        )
    put(db, job(db), score("ifeval", 40, run=4))
    both = page(db)

    assert [one.bench for one in both.columns] == ["gsm8k", "ifeval"]
    by_gsm8k = order(db, column=column(both, bench="gsm8k").measure)
    by_ifeval = order(db, column=column(both, bench="ifeval").measure)
    assert [run for run, _ in by_gsm8k] == [1, 2, 3]
    assert [run for run, _ in by_ifeval] == [4, 2, 3, 1]


@pytest.mark.requirement("UI-09")
def test_scores_on_other_rows_of_a_bench_are_another_column(db: Database) -> None:
    """A name says nothing about the rows: the two are not put in one order, and both say so."""
    number = job(db)
    put(db, number, score(solved=30, run=1), score(solved=35, run=2, bench_hash="a part of them"))
    found = page(db)

    first, second = found.columns
    assert (first.bench, second.bench) == ("gsm8k", "gsm8k")
    assert first.other_rows
    assert second.other_rows
    for one in found.columns:
        assert len(order(db, column=one.measure)) == 1


@pytest.mark.parametrize(
    "other",
    [
        {"shots": 4},
        {"filter": "flexible-extract"},
        {"metric": "math_verify"},
        {"k": 4},
        {"runner": "harness"},
    ],
)
def test_another_way_to_score_is_another_column_of_the_same_checkpoint(
    db: Database, other: dict[str, Any]
) -> None:
    """Side by side in one line, and not marked as of other rows."""
    put(db, job(db), score(), score(solved=30, **other))
    found = page(db)

    [line] = found.lines
    assert len(found.columns) == len(line.cells) == 2
    assert not any(one.other_rows for one in found.columns)


def test_of_several_scores_of_a_checkpoint_the_newest_is_shown(db: Database) -> None:
    """The older one takes no line of its own, however high it was."""
    first, second = job(db), job(db)
    put(db, first, score(solved=40))
    put(db, second, score(solved=10), score(solved=20, step=20))

    found = page(db)
    assert [(line.step, cell.job_id, cell.score) for line in found.lines
            for cell in line.cells.values()] == [(20, second, 0.5), (10, second, 0.25)]  # fmt: skip


def test_the_best_of_each_base_is_that_of_the_column_that_orders(db: Database) -> None:
    """By the other bench it would be another checkpoint."""
    for run, (base, gsm8k, ifeval) in enumerate(
        (("a", 30, 1), ("a", 20, 30), ("b", 10, 2), ("b", 5, 9)), 1
    ):
        told: dict[str, Any] = {"run": run, "base": base}
        put(db, job(db), score("gsm8k", gsm8k, **told), score("ifeval", ifeval, **told))
    both = page(db)

    by_gsm8k = {"column": column(both, bench="gsm8k").measure, "best": True}
    by_ifeval = {"column": column(both, bench="ifeval").measure, "best": True}
    assert order(db, **by_gsm8k) == [(1, 10), (3, 10)]
    assert order(db, **by_ifeval) == [(2, 10), (4, 10)]
    with pytest.raises(ValueError, match="leave one of them out"):
        Wanted(best=True, sort="newest")


def test_what_was_chosen_published_and_picked_is_marked(db: Database) -> None:
    """By the result of the run that trained it; the rows that picked say so themselves."""
    run, evaluation = job(db), job(db)
    with db.write_tx() as conn:
        result = {"selected_step": 20, "published_step": 0}
        conn.execute(update(job_table).where(job_table.c.id == run).values(result=result))
    put(
        db,
        evaluation,
        *(score(run=run, step=step, picked=step == 20) for step in (0, 10, 20)),
    )

    found = {line.step: line for line in page(db).lines}
    assert {step for step, line in found.items() if line.chosen} == {20}
    assert {step for step, line in found.items() if line.published} == {0}
    [cell] = found[20].cells.values()
    assert cell.picked


def test_a_change_is_against_step_0_of_the_same_run_on_the_same_rows(db: Database) -> None:
    """With the interval of two scores by themselves; on other rows, or without step 0, there is
    none.
    """
    put(db, job(db), score(solved=20, step=0), score(solved=28, step=10))
    put(db, job(db), score(solved=30, run=2, step=10))
    put(db, job(db), score("ifeval", 20, step=0, bench_hash="a"), score("ifeval", 20))
    found = {(line.run, line.step): line for line in page(db, bench=["gsm8k"]).lines}

    [moved] = [cell.change for cell in found[1, 10].cells.values()]
    assert moved is not None
    assert (moved.before, round(moved.lift, 6)) == (0.5, 0.2)
    assert (moved.low, moved.high) == pytest.approx(independent(20, 40, 28, 40))
    assert [cell.change for cell in found[1, 0].cells.values()] == [None]
    assert [cell.change for cell in found[2, 10].cells.values()] == [None]
    others = page(db, bench=["ifeval"], sort="newest").lines
    assert [cell.change for line in others for cell in line.cells.values()] == [None, None]


@pytest.mark.parametrize(
    ("wanted", "runs"),
    [
        ({"base": "b"}, {2}),
        ({"shots": 8}, {2}),
        ({"filter": "flexible-extract"}, {3}),
        ({"runner": "harness"}, {3}),
        ({"run": 1}, {1}),
        ({"tag": "mine"}, {1}),
        ({"tag": "theirs"}, {2}),
        ({"tag": "mine", "base": "b"}, set()),
    ],
)
def test_conditions_narrow_and_hold_together(
    db: Database, wanted: dict[str, Any], runs: set[int]
) -> None:
    """A tag is of the job that trained, or of the one that scored."""
    job(db, tags=["mine"])
    theirs, third = job(db, tags=["theirs"]), job(db)
    put(db, third, score(run=1))
    put(db, theirs, score(run=2, base="b", shots=8))
    put(db, third, score(run=3, filter="flexible-extract", runner="harness"))

    assert {run for run, _ in order(db, **wanted, sort="newest")} == runs
    assert {one.line.run for one in every_score(db, Conditions(**wanted))} == runs


@pytest.mark.parametrize(
    ("wanted", "told"),
    [
        ({"bench": ["gsm8"]}, "bench: is no bench that was ever scored .*gsm8.*gsm8k"),
        ({"column": "0" * 16}, "column: is no column with these conditions .*; use one of"),
        ({"after": "nonsense"}, "after: is not where a page ends"),
        ({"after": '[1, 2, 3, "x"]'}, "after: is not where a page ends"),
    ],
)
def test_what_there_is_none_of_is_refused_by_name(
    db: Database, wanted: dict[str, Any], told: str
) -> None:
    """With what there is instead."""
    put(db, job(db), score())
    with pytest.raises(ConfigError, match=told):
        page(db, **wanted)


def test_the_runs_own_rows_are_shown_where_there_is_nothing_else(db: Database) -> None:
    """Every run has some; beside named benches they are asked for."""
    put(db, job(db), score("own", runner="gate"))
    assert [one.bench for one in page(db).columns] == ["own"]

    put(db, job(db), score("gsm8k"))
    assert [one.bench for one in page(db).columns] == ["gsm8k"]
    assert page(db).benches == ["gsm8k", "own"]
    assert [one.bench for one in page(db, bench=["own"]).columns] == ["own"]


def test_pages_show_every_checkpoint_once_whatever_is_tied(db: Database) -> None:
    """In every order."""
    draw = random.Random(3)
    number = job(db)
    for step in range(23):
        share: dict[str, Any] = {
            "truncated": draw.choice((None, 0.0, 0.5)),
            "unparsed": draw.choice((0.1, 0.2)),
        }
        put(
            db,
            number if step % 3 else job(db),
            score(solved=draw.choice((10, 20)), step=step, **share),
        )

    for sort in ("score", "truncated", "unparsed", "newest"):
        seen: list[int] = []
        after: str | None = None
        for _ in itertools.count():
            found = page(db, sort=sort, limit=5, after=after)
            seen += [line.step for line in found.lines]
            after = found.next_after
            if after is None:
                break
        assert sorted(seen) == list(range(23)), sort
        whole = [line.step for line in page(db, sort=sort).lines]
        assert seen == whole, sort


def test_more_columns_than_a_page_has_are_counted_and_the_chosen_one_is_always_there(
    db: Database,
) -> None:
    """The newest ones stand there by themselves."""
    measures = []
    for shots in range(read.MOST_COLUMNS + 2):
        put(db, job(db), score(shots=shots))
        measures.append(column(page(db), shots=shots).measure)

    found = page(db)
    assert len(found.columns) == read.MOST_COLUMNS
    assert found.more_columns == 2
    assert column(page(db, column=measures[0]), shots=0).measure == measures[0]


def test_the_order_of_a_bench_comes_from_an_index(db: Database) -> None:
    """Nothing is sorted and the table is never read through."""
    put(db, job(db), score())
    wanted = Wanted()
    asked = read._by_column(wanted, "0" * 16, None).limit(51)
    with db.read() as conn:
        text = str(asked.compile(conn, compile_kwargs={"literal_binds": True}))
        plan = [row[-1] for row in conn.exec_driver_sql(f"EXPLAIN QUERY PLAN {text}")]

    assert any("USING INDEX ix_eval_score_measure" in step for step in plan), plan
    assert any("USING INDEX ix_eval_score_model" in step for step in plan), plan
    assert not any("SCAN" in step or "TEMP B-TREE" in step for step in plan), plan


def test_a_job_shows_what_its_checkpoints_scored_and_what_it_scored_itself(db: Database) -> None:
    """The baseline first, step by step; gates have a table of their own."""
    run, evaluation = job(db), job(db)
    put(db, run, score("own", run=run, step=0, runner="gate"))
    assert scores_of_job(db, run) is None

    steps = [score(run=run, step=step) for step in (20, 0, 10)]
    put(db, evaluation, *steps, score("ifeval", run=9, step=5))
    mine, its = scores_of_job(db, run), scores_of_job(db, evaluation)
    assert mine is not None
    assert its is not None
    assert [line.step for line in mine.lines] == [0, 10, 20]
    assert [one.bench for one in mine.columns] == ["gsm8k"]
    assert [(line.run, line.step) for line in its.lines] == [(run, 0), (run, 10), (run, 20), (9, 5)]
    assert [one.bench for one in its.columns] == ["gsm8k", "ifeval"]
