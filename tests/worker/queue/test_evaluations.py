"""Checkpoints of a watched run become jobs that score them: each once, the baseline first."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from engine.contract.errors import ConfigError
from engine.contract.evaluate.watching import awaited
from engine.contract.run_dir import COMPLETE, RunDir, write_json
from tests.engine.conftest import base_folder, base_recipe, sevens_file
from tests.worker.queue.verbs import Hand, begin, by_hand
from worker.db.connection import Database
from worker.db.tables import eval_watch
from worker.drain import drain
from worker.queue import control, pruning
from worker.queue.evaluations import queue_evaluations, stop_watching, watch
from worker.queue.refusals import WrongStateError
from worker.queue.states import State
from worker.queue.submit import Claim, enqueue
from worker.read import jobs
from worker.settings import WorkerSettings

__all__ = ["base_folder", "base_recipe", "sevens_file"]

Bench = dict[str, Any]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    path = tmp_path / "asked.jsonl"
    rows = [{"id": f"q{i}", "prompt": f"{i:03d}=", "answer": "7"} for i in range(200, 220)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return {"name": "asked", "source": str(path), "verifier": "exact", "max_new_tokens": 1}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """What passes for a model's folder before it is loaded."""
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"weights")
    return folder


@pytest.fixture
def queue_run(db: Database, model: Path, sevens_file: Path) -> Callable[..., int]:
    """Queue a run; returns its number."""

    def queued(**settings: Any) -> int:
        raw = {"base": str(model), "tuning": "full", "data": {"source": str(sevens_file)}}
        return enqueue(db, "rl_run", raw | settings, actor="test", force=True)

    return queued


class Trained:
    """A run that the test claims, and whose checkpoints it writes."""

    def __init__(self, hand: Hand, model: Path) -> None:
        taken = hand.claim()
        assert taken is not None
        self.hand, self.claimed, self.model = hand, taken, model
        self.run: RunDir = begin(hand.db, taken)
        self.run.split.write_text("{}")

    def saves(self, *steps: int, weights: str = "", whole: bool = True) -> None:
        """Each a checkpoint of its own weights; one that is not `whole` is being written."""
        for step in steps:
            folder = self.run.checkpoint(step)
            shutil.copytree(self.model, folder / "model", dirs_exist_ok=True)
            files = {"model/model.safetensors": f"{step} {weights}"}
            if whole:
                write_json(folder / COMPLETE, {"step": step, "files": files})

    def ends(self, to: State = State.SUCCEEDED) -> None:
        self.hand.settle(self.claimed, to)


def evaluations(db: Database) -> list[jobs.JobView]:
    return [one for one in reversed(jobs.list_jobs(db)) if one.kind == "eval_rerun"]


def steps(job: jobs.JobView) -> list[int]:
    return [one["step"] for one in job.config["checkpoints"]]


def look(db: Database) -> list[list[int]]:
    """Somebody looks for work: the steps of each job that this makes."""
    return [steps(jobs.get_job(db, made)) for made in queue_evaluations(db, actor="test")]


def run_next(hand: Hand, to: State = State.SUCCEEDED) -> Claim:
    taken = hand.claim()
    assert taken is not None
    hand.settle(taken, to)
    return taken


@pytest.mark.requirement("EX-13")
@pytest.mark.timeout(240)
def test_every_checkpoint_of_a_run_is_scored_the_baseline_first(
    settings: WorkerSettings, db: Database, base_recipe: dict[str, Any], bench: Bench
) -> None:
    """As its config says, by the drain that trained it, with intervals; and none of them twice.
    Those that the run would have let go stay until then.
    """
    asked = {"save_every": 2, "keep_checkpoints": 1, "evaluate": {"benches": [bench]}}
    number = enqueue(db, "rl_run", base_recipe | asked, actor="test")

    ran = drain(settings).ran

    [evaluation] = evaluations(db)
    assert [one.job_id for one in ran] == [number, evaluation.id]
    assert evaluation.state is State.SUCCEEDED
    found = evaluation.result["scores"]
    assert [(one["checkpoint"], one["step"]) for one in found] == [
        (f"step {step}", step) for step in (0, 2, 4, 6)
    ]
    assert all(one["low"] <= one["score"] <= one["high"] for one in found)
    assert found[0]["score"] < found[-1]["score"]
    assert drain(settings).ran == []


def test_what_came_together_is_one_job_and_what_comes_later_the_next(
    db: Database, queue_run: Callable[..., int], bench: Bench, model: Path
) -> None:
    """A second lane has taken the baseline; while a job waits, checkpoints wait for the one
    behind it.
    """
    number = queue_run(evaluate={"benches": [bench]})
    with by_hand(db) as hand:
        trained = Trained(hand, model)
        assert look(db) == []
        trained.saves(0)
        assert look(db) == [[0]]
        trained.saves(1, 2)
        assert look(db) == []

        trained.ends()
        assert run_next(hand).config["base"] != ""
        trained.saves(3)
        assert look(db) == [[1, 2, 3]]
        run_next(hand)

    assert look(db) == []
    assert [steps(one) for one in evaluations(db)] == [[0], [1, 2, 3]]
    said = [row.why for row in jobs.audit(db, number)]
    assert "job 2 scores step 0" in said
    assert "job 3 scores step 1, 2, 3" in said


def test_nothing_is_scored_before_the_baseline(
    db: Database, queue_run: Callable[..., int], bench: Bench, model: Path
) -> None:
    """What others are compared with is still being written."""
    queue_run(evaluate={"benches": [bench]})
    with by_hand(db) as hand:
        trained = Trained(hand, model)
        trained.saves(0, whole=False)
        trained.saves(1)
        assert look(db) == []

        trained.saves(0)

        assert look(db) == [[0, 1]]


def test_a_torn_checkpoint_is_never_scored(
    db: Database, queue_run: Callable[..., int], bench: Bench, model: Path
) -> None:
    """Its writer died, and nobody went on from it."""
    queue_run(evaluate={"benches": [bench]})
    with by_hand(db) as hand:
        trained = Trained(hand, model)
        trained.saves(0, 1)
        trained.saves(2, whole=False)
        trained.ends(State.FAILED)

    assert look(db) == [[0, 1]]


_KILLED = """
import os, signal
from worker.db.connection import open_database
from worker.queue import evaluations, watches
from worker.settings import WorkerSettings

def dies(*_):
    os.kill(os.getpid(), signal.SIGKILL)

watches.take = dies
with open_database(WorkerSettings()) as db:
    evaluations.queue_evaluations(db, actor="dies")
"""


@pytest.mark.requirement("EX-13")
def test_a_kill_between_checkpoint_and_job_neither_loses_nor_doubles_one(
    db: Database, queue_run: Callable[..., int], bench: Bench, model: Path
) -> None:
    """Killed with the job's row written and not committed; the next look makes it, once."""
    queue_run(evaluate={"benches": [bench]})
    with by_hand(db) as hand:
        trained = Trained(hand, model)
        trained.saves(0, 1)
        trained.ends()

    child = subprocess.run([sys.executable, "-c", _KILLED], env=os.environ, check=False)

    assert child.returncode == -signal.SIGKILL
    assert evaluations(db) == []
    assert look(db) == [[0, 1]]
    assert look(db) == []


def test_a_step_that_the_run_reached_again_is_scored_again(
    db: Database, queue_run: Callable[..., int], bench: Bench, model: Path
) -> None:
    """It went back behind it: these are other weights."""
    queue_run(evaluate={"benches": [bench]})
    with by_hand(db) as hand:
        trained = Trained(hand, model)
        trained.saves(0, 1)
        look(db)
        trained.saves(1, weights="other")
        trained.ends()
        run_next(hand)

        assert look(db) == [[1]]


def test_with_every_the_last_and_the_published_checkpoint_are_scored_too(
    db: Database, queue_run: Callable[..., int], bench: Bench, model: Path
) -> None:
    """Once the run is over; before, only those of its rhythm."""
    queue_run(evaluate={"benches": [bench], "every": 4})
    with by_hand(db) as hand:
        trained = Trained(hand, model)
        trained.saves(0, 2, 4, 5)
        assert look(db) == [[0, 4]]
        trained.ends()
        run_next(hand)

        assert look(db) == [[5]]


def test_checkpoints_that_wait_to_be_scored_are_kept_and_said_to_the_engine(
    db: Database, queue_run: Callable[..., int], bench: Bench, model: Path
) -> None:
    """Until the job that scores them is over; a prune leaves them alone as long."""
    number = queue_run(evaluate={"benches": [bench], "every": 2})
    with by_hand(db) as hand:
        trained = Trained(hand, model)
        trained.saves(0, 1, 2)
        assert look(db) == [[0, 2]]
        assert awaited(trained.run, {0, 1, 2, 4}) == {0, 2, 4}
        trained.saves(4)
        trained.ends()
        run_next(hand)
        with pytest.raises(WrongStateError, match="wait to be scored"):
            pruning.prune_one(db, number, actor="test")

        assert look(db) == [[4]]

        assert awaited(trained.run, {0, 1, 2, 4}) == {4}
        run_next(hand)
    look(db)
    assert awaited(trained.run, {0, 1, 2, 4}) == set()
    pruning.prune_one(db, number, actor="test")


def test_a_run_that_is_over_is_scored_when_somebody_asks_for_it(
    db: Database, queue_run: Callable[..., int], bench: Bench, model: Path
) -> None:
    """And again, on the same benches, only what is new: it was tried again and went on."""
    number = queue_run()
    with by_hand(db) as hand:
        trained = Trained(hand, model)
        trained.saves(0, 1)
        trained.ends(State.FAILED)
        watch(db, number, {"benches": [bench]}, actor="test")
        assert look(db) == [[0, 1]]
        assert jobs.get_job(db, 2).priority == -100
        look(db)
        control.retry(db, number, actor="test")
        again = Trained(hand, model)
        again.saves(2)
        again.ends()
        run_next(hand)
        watch(db, number, {"benches": [bench]}, actor="test")

        assert look(db) == [[2]]


def test_benches_without_a_verifier_are_judged_and_asked_as_the_run_was(
    db: Database, queue_run: Callable[..., int], bench: Bench, model: Path
) -> None:
    """Its prompts, its limit and its verifier."""
    del bench["verifier"], bench["max_new_tokens"]
    settings = {"verifier": "gsm8k_flexible", "max_new_tokens": 24}
    queue_run(
        **settings, prompting={"question_format": "Q: {prompt}"}, evaluate={"benches": [bench]}
    )
    with by_hand(db) as hand:
        trained = Trained(hand, model)
        trained.saves(0)
        look(db)

    config = evaluations(db)[0].config
    assert config["benches"][0]["verifier"] == "gsm8k_flexible"
    assert config["prompting"]["question_format"] == "Q: {prompt}"
    assert config["max_new_tokens"] == 24


def test_benches_that_cannot_be_asked_are_refused_before_anything_is_queued(
    db: Database, queue_run: Callable[..., int], bench: Bench, tally: Callable[..., int]
) -> None:
    """At enqueue of the run, and when a run is to be watched; a kind that answers none is named."""
    number = queue_run()
    gone = bench | {"source": "/nowhere/rows.jsonl"}
    with pytest.raises(ConfigError, match=r"evaluate\.benches\.0\.source"):
        queue_run(evaluate={"benches": [gone]})
    with pytest.raises(ConfigError, match=r"benches\.0\.source"):
        watch(db, number, {"benches": [gone]}, actor="test")
    with pytest.raises(ConfigError, match="gsm8k_cot"):
        watch(db, number, {"benches": ["gsm8k_cto"]}, actor="test")
    with pytest.raises(ConfigError, match="answer no bench"):
        watch(db, tally(), {"benches": [bench]}, actor="test")
    assert evaluations(db) == []


def test_a_bench_that_went_away_is_said_on_the_run_and_the_queue_goes_on(
    db: Database, queue_run: Callable[..., int], bench: Bench, model: Path
) -> None:
    """Once; somebody puts the file back and asks again."""
    number = queue_run(evaluate={"benches": [bench]})
    rows = Path(bench["source"])
    kept = rows.read_bytes()
    with by_hand(db) as hand:
        Trained(hand, model).saves(0)
        rows.unlink()
        assert look(db) == []
        assert look(db) == []
        said = [row.why for row in jobs.audit(db, number) if "scored no more" in row.why]
        assert len(said) == 1
        assert rows.name in said[0]

        rows.write_bytes(kept)
        watch(db, number, {"benches": [bench]}, actor="test")

        assert look(db) == [[0]]


def test_a_watch_that_is_stopped_makes_no_more_jobs_and_lets_checkpoints_go(
    db: Database, queue_run: Callable[..., int], bench: Bench, model: Path
) -> None:
    """The job that waits stays."""
    number = queue_run(evaluate={"benches": [bench]})
    with by_hand(db) as hand:
        trained = Trained(hand, model)
        trained.saves(0)
        look(db)
        stop_watching(db, number, actor="ada")
        trained.saves(1)
        trained.ends()
        run_next(hand)

    assert look(db) == []
    watch(db, number, {"benches": [bench], "every": 2}, actor="test")
    assert awaited(trained.run, {0, 1, 2}) == {2}
    stop_watching(db, number, actor="ada")
    assert awaited(trained.run, {0, 1, 2}) == set()
    assert look(db) == []
    assert [steps(one) for one in evaluations(db)] == [[0]]


def test_whatever_a_watch_holds_the_queue_goes_on(
    db: Database, queue_run: Callable[..., int], bench: Bench, model: Path
) -> None:
    """Rows that nobody can use are said on the run; the other runs have their jobs."""
    broken = queue_run(evaluate={"benches": [bench]})
    queue_run(evaluate={"benches": [bench]}, seed=1)
    with by_hand(db) as hand:
        for _ in range(2):
            trained = Trained(hand, model)
            trained.saves(0)
            trained.ends()
    with db.write_tx() as conn:
        conn.execute(update(eval_watch).where(eval_watch.c.job_id == broken).values(evaluate={}))

    assert look(db) == [[0]]
    assert look(db) == []
    assert any("KeyError" in row.why for row in jobs.audit(db, broken))


def test_a_checkpoint_that_cannot_answer_is_said_on_the_run_and_not_tried_for_ever(
    db: Database, queue_run: Callable[..., int], bench: Bench, model: Path
) -> None:
    """It is whole, and its folder holds no weights."""
    number = queue_run(evaluate={"benches": [bench]})
    with by_hand(db) as hand:
        trained = Trained(hand, model)
        trained.saves(0)
        (trained.run.checkpoint(0) / "model" / "model.safetensors").unlink()

    assert look(db) == []
    assert look(db) == []
    said = [row.why for row in jobs.audit(db, number) if "scored no more" in row.why]
    assert len(said) == 1
    assert "step-000000" in said[0]
