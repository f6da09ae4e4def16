"""From `score` and `gate` events to rows of `eval_score`, whatever happens in between."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from sqlalchemy import select, update

from engine.contract.events import EventLog
from engine.contract.run_dir import RunDir
from tests.worker.queue.verbs import by_hand
from worker.attempt.ingest import VALUES_LEFT_OUT, fold
from worker.attempt.reindex import reindex
from worker.attempt.scores import ScoredJob, gate_score, measure_of, model_of, write_scores
from worker.db.connection import Database
from worker.db.tables import eval_score, job
from worker.queue.pruning import prune_one
from worker.queue.states import State
from worker.queue.submit import enqueue

SCORE: dict[str, Any] = {
    "checkpoint": "step 20",
    "base": "tiny",
    "run": 7,
    "step": 20,
    "bench": "gsm8k_cot",
    "split": "gsm8k_cot-8",
    "shots": 8,
    "filter": "strict-match",
    "n": 40,
    "score": 0.5,
    "low": 0.35,
    "high": 0.65,
    "bench_hash": "abc",
}
GATE: dict[str, Any] = {
    "type": "gate",
    "attempt": 1,
    "step": 10,
    "split": "select",
    "score": 0.25,
    "n": 60,
    "ci95": [0.16, 0.37],
    "temp": 0.2,
    "values": {"truncated": 0.1, "unparsed": 0.2, "format/boxed": 0.7, "pool": 1.0},
}
CONFIG: dict[str, Any] = {
    "base": "tiny",
    "seed": 3,
    "verifier": "exact",
    "max_new_tokens": 16,
    "prompting": {"skip_chat_template": False},
    "data": {"source": "rows.jsonl", "split_seed": 1, "curriculum": "none"},
    "heldout": [{"name": "far", "verifier": "math", "shots": 4, "max_new_tokens": 64}],
}


def scored(at: int, *, attempt: int = 1, **changes: Any) -> dict[str, Any]:
    return {"type": "score", "attempt": attempt, "step": at, "score": SCORE | changes}


def started(resumed_from: int | None) -> dict[str, Any]:
    return {"type": "started", "attempt": 2, "resumed_from": resumed_from}


def of(config: Mapping[str, Any], data_hash: str | None = "files") -> ScoredJob:
    return ScoredJob(4, "rl_run", config, data_hash)


@pytest.fixture
def number(db: Database) -> int:
    return enqueue(db, "tally", {}, actor="test", force=True)


def write(db: Database, number: int, *events: dict[str, Any]) -> None:
    with db.write_tx() as conn:
        write_scores(conn, number, events)


def stored(db: Database) -> list[tuple[int, float]]:
    """(step of the checkpoint, score), by step."""
    with db.read() as conn:
        rows = conn.execute(select(eval_score).order_by(eval_score.c.step)).all()
    return [(row.step, row.score) for row in rows]


def test_a_score_measured_again_replaces_the_one_before(db: Database, number: int) -> None:
    """One row for a checkpoint, bench, shots, filter, metric, k and runner."""
    write(db, number, scored(1), scored(2, score=0.6, high=0.7))
    write(db, number, scored(3, score=0.7, high=0.8))
    assert stored(db) == [(20, 0.7)]

    others = ({"filter": "flexible-extract"}, {"shots": 0}, {"k": 4}, {"metric": "math_verify"})
    write(db, number, *(scored(4, **one) for one in others))
    write(db, number, scored(5, runner="harness"), scored(6, step=30), scored(7, path="/a"))
    assert len(stored(db)) == 8


def test_a_resumed_job_takes_back_what_it_scored_after_its_step(db: Database, number: int) -> None:
    """Its own step counts, not the checkpoint's, and what came again stays."""
    write(db, number, scored(1, step=10), scored(2, step=20), scored(3, step=30))

    write(db, number, started(1), scored(2, step=20, score=0.6))
    assert stored(db) == [(10, 0.5), (20, 0.6)]

    write(db, number, scored(3, step=30), started(None))
    assert stored(db) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"score": None},
        {"low": "high"},
        {"n": -1},
        {"n": 2**31},
        {"bench": "a\0b"},
        {"bench": "b" * 301},
        {"score": 1e301},
    ],
)
def test_a_score_that_no_table_holds_is_left_out_and_counted(
    db: Database, number: int, wrong: dict[str, Any]
) -> None:
    """Whatever an engine writes, the queue goes on and says what it did not take."""
    write(db, number, scored(1, **wrong), scored(2))

    assert stored(db) == [(20, 0.5)]
    told = fold(fold({}, scored(1)), scored(1, **wrong))
    assert told == {VALUES_LEFT_OUT: {"n": 1, "first": "a score at step 1 is none"}}


def test_a_gate_is_the_score_of_the_runs_own_checkpoint() -> None:
    """The config says what the numbers are of; the rows that picked say that they did."""
    select_rows, report_rows = (
        gate_score(GATE | {"split": s}, of(CONFIG)) for s in ("select", "report")
    )
    far = gate_score(GATE | {"split": "far"}, of(CONFIG))
    assert select_rows is not None
    assert report_rows is not None
    assert far is not None

    assert select_rows.model_dump(
        include={"checkpoint", "base", "run", "step", "bench", "split"}
    ) == {
        "checkpoint": "step 10",
        "base": "tiny",
        "run": 4,
        "step": 10,
        "bench": "own",
        "split": "select",
    }
    assert (select_rows.filter, select_rows.shots, select_rows.max_new_tokens) == ("exact", 0, 16)
    assert (select_rows.low, select_rows.high, select_rows.runner) == (0.16, 0.37, "gate")
    assert (select_rows.truncated, select_rows.unparsed) == (0.1, 0.2)
    assert (select_rows.formats, select_rows.chat_template) == ({"format/boxed": 0.7}, True)
    assert (select_rows.picked, report_rows.picked, far.picked) == (True, False, False)
    assert (far.bench, far.filter, far.shots, far.max_new_tokens) == ("far", "math", 4, 64)


def test_the_select_rows_of_a_bench_that_decides_are_that_benchs() -> None:
    """Then they picked, and the run's own rows did not."""
    config = CONFIG | {"decide": "far"}
    picking, own = (gate_score(GATE | {"split": split}, of(config)) for split in ("select", "own"))
    assert picking is not None
    assert own is not None
    assert (picking.bench, picking.picked) == ("far", True)
    assert (own.bench, own.picked) == ("own", False)


def test_a_source_of_a_mixture_is_told_from_a_bench() -> None:
    """Its rows are among the own ones, and pick where those do."""
    mix = {"data": {"mix": [{"name": "sums", "verifier": "math"}]}}
    for decide, picked in (("own", True), ("far", False)):
        found = gate_score(GATE | {"split": "sums"}, of(CONFIG | mix | {"decide": decide}))
        assert found is not None
        assert (found.bench, found.filter, found.picked) == ("own/sums", "math", picked)


def test_gates_compare_only_where_rows_and_judge_are_the_same() -> None:
    """Another learning rate asks the same rows; another split, file, verifier or seed does not."""

    def measure(config: dict[str, Any], *, split: str = "select", files: str = "files") -> str:
        found = gate_score(GATE | {"split": split}, of(CONFIG | config, files))
        assert found is not None
        return measure_of(found, 4)

    same = measure({})
    assert measure({"lr": 0.1, "seed": 9}) == same
    data = CONFIG["data"]
    assert measure({"data": data | {"curriculum": "bands"}}) == same
    others = [
        measure({}, split="report"),
        measure({}, files="others"),
        measure({"verifier": "math"}),
        measure({"heldout_temp": 1.0}),
        measure({"data": data | {"split_seed": 2}}),
        measure({"data": data | {"split_seed": None}}),
    ]
    assert len({same, *others}) == 7


def test_scores_without_a_hash_of_their_rows_compare_inside_one_job_alone() -> None:
    """Nobody knows whether the rows of another job are the same."""
    score = gate_score(GATE, of({"base": "tiny"}))
    assert score is not None
    assert score.bench_hash is None
    assert measure_of(score, 4) != measure_of(score, 5)
    hashed = score.model_copy(update={"bench_hash": "abc"})
    assert measure_of(hashed, 4) == measure_of(hashed, 5)


def test_a_checkpoint_is_the_same_whoever_scored_it() -> None:
    """A step of a run, a format of it, else the path or hub id."""
    score = gate_score(GATE, of(CONFIG))
    assert score is not None
    elsewhere = score.model_copy(update={"path": "/runs/4/checkpoints/step-000010", "bench": "far"})
    assert model_of(elsewhere) == model_of(score)
    assert model_of(score.model_copy(update={"step": 20})) != model_of(score)
    quantized = score.model_copy(update={"format": "int8"})
    assert model_of(quantized) != model_of(score)
    assert model_of(quantized.model_copy(update={"step": 20})) != model_of(quantized)
    alone = score.model_copy(update={"run": None, "path": "/m"})
    assert model_of(alone) == model_of(alone.model_copy(update={"step": 5}))


def test_rebuilt_scores_are_those_of_the_files_and_a_prune_keeps_them(db: Database) -> None:
    """They are what is left to show of a run whose rollouts are gone."""
    number = enqueue(db, "tally", {}, actor="test", force=True)
    with by_hand(db) as hand:
        hand.run(State.SUCCEEDED)
    log = EventLog(RunDir(db.settings.runs_dir / str(number)).events, 1)
    log.write("started", resumed_from=None)
    log.write("gate", step=2, split="select", score=0.75, n=100, ci95=[0.66, 0.82])
    log.write("score", step=3, score=SCORE)
    log.close()
    with db.write_tx() as conn:
        conn.execute(update(job).values(attempt=1))

    for _ in range(2):
        reindex(db, number)
        assert stored(db) == [(2, 0.75), (20, 0.5)]
    prune_one(db, number, actor="test")
    assert stored(db) == [(2, 0.75), (20, 0.5)]
