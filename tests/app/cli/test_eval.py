"""`cockpit eval`: what it queues, what it refuses before, and how a watched run is followed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from engine.contract.run_dir import COMPLETE, RunDir
from tests.app.conftest import Said
from tests.app.watched import model, rows, run, scored
from tests.worker.queue.verbs import by_hand
from worker.db.connection import Database
from worker.queue.states import State
from worker.read import jobs
from worker.settings import WorkerSettings

__all__ = ["model", "rows", "run"]

Cockpit = Callable[..., Said]


def resolved(said: Said) -> dict[str, Any]:
    assert said.code == 0, said.err
    return dict(json.loads(said.out)["config"])


def steps(config: dict[str, Any]) -> list[int]:
    return [one["step"] for one in config["checkpoints"]]


def test_a_jobs_number_is_its_published_checkpoint_or_steps_of_it(
    cockpit: Cockpit, run: RunDir, rows: Path
) -> None:
    """`7`, `7@4`, `7@all`, and steps said beside it; the baseline first."""
    ask = ("--bench", str(rows), "--dry-run", "--json")

    assert steps(resolved(cockpit("eval", "1", *ask))) == [2]
    assert steps(resolved(cockpit("eval", "1@0", "1@4", *ask))) == [0, 4]
    assert steps(resolved(cockpit("eval", "1@all", *ask))) == [0, 2, 4]
    assert steps(resolved(cockpit("eval", "score", "1", "--checkpoints", "all", *ask))) == [0, 2, 4]
    assert steps(resolved(cockpit("eval", "1", "--checkpoints", "0,4", *ask))) == [0, 4]
    mixed = resolved(cockpit("eval", "1@all", str(run.root.parent.parent.parent / "model"), *ask))
    assert [one["label"] for one in mixed["checkpoints"]] == [
        "run 1 step 0",
        "run 1 step 2",
        "run 1 step 4",
        "model",
    ]


def test_what_is_not_said_is_as_the_run_of_the_checkpoint_asked(
    cockpit: Cockpit, run: RunDir, rows: Path
) -> None:
    """Prompts, limit and verifier of a data file; a task brings its own verifier."""
    ask = ("--bench", str(rows), "--bench", "gsm8k_cot", "--source", str(rows))
    config = resolved(cockpit("eval", "1", *ask, "--dry-run", "--json"))

    own, task = config["benches"]
    assert config["prompting"]["question_format"] == "Q: {prompt}\nA:"
    assert config["max_new_tokens"] == 24
    assert (own["source"], own["verifier"]) == (str(rows), "gsm8k_flexible")
    assert (task["task"], task["verifier"], task["source"]) == ("gsm8k_cot", None, str(rows))


def test_options_are_said_of_every_bench(cockpit: Cockpit, run: RunDir, rows: Path) -> None:
    """But of a run's frozen rows, which are asked as that run did."""
    ask = ("--bench", "gsm8k_cot", "--source", str(rows), "--bench", "run:1", "--also", "math")
    how = ("--shots", "0,4", "--limit", "9", "--by", "level", "--max-new-tokens", "7")
    config = resolved(cockpit("eval", "1", *ask, *how, "--dry-run", "--json"))

    task, frozen = config["benches"]
    assert (task["shots"], task["limit"], task["by"]) == ([0, 4], 9, ["level"])
    assert (task["max_new_tokens"], task["also"]) == (7, ["math"])
    assert (frozen["run"], frozen["limit"], frozen["also"]) == (str(run.root), None, ["math"])


def test_a_config_file_is_taken_as_it_is_and_numbers_in_it_stand_for_jobs(
    cockpit: Cockpit, run: RunDir, rows: Path, tmp_path: Path
) -> None:
    """`base: 1` and `run:1`, as through every other door."""
    file = tmp_path / "mine.yaml"
    text = (
        f"base: 1\ncheckpoints: [0, 4]\nbenches: ['run:1', {{source: {rows}, verifier: exact}}]\n"
    )
    file.write_text(text)

    config = resolved(cockpit("eval", str(file), "--dry-run", "--json"))

    assert steps(config) == [0, 4]
    assert config["benches"][0]["run"] == str(run.root)
    queued = cockpit("enqueue", "eval_rerun", str(file), "--json")
    assert queued.code == 0, queued.err
    assert json.loads(queued.out)["job_id"] == 2


def test_what_cannot_be_scored_is_refused_by_name(
    cockpit: Cockpit, run: RunDir, rows: Path, db: Database
) -> None:
    """A torn checkpoint, a step that is none, an unknown task, too many sources, no bench."""
    (run.checkpoint(4) / COMPLETE).unlink()
    ask = ("--bench", str(rows))

    assert "step-000004 is torn" in cockpit("eval", "1@4", *ask).err
    assert "has no step 3" in cockpit("eval", "1", "--checkpoints", "0,3", *ask).err
    unknown = cockpit("eval", "1", "--bench", "gsm8k_cto", "--source", str(rows))
    assert "gsm8k_cot" in unknown.err
    assert "--bench is missing" in cockpit("eval", "1").err.replace(": ", " ")
    two = cockpit("eval", "1", "--bench", "gsm8k_cot", "--source", str(rows), "--source", "b.jsonl")
    assert "is given 2 times, and 1 benches take one" in two.err
    unjudged = cockpit("eval", str(run.root.parent.parent.parent / "model"), *ask)
    assert "names nobody who judges" in unjudged.err
    assert [one.kind for one in jobs.list_jobs(db)] == ["rl_run"]


def test_a_watched_run_is_followed_until_its_checkpoints_are_scored(
    cockpit: Cockpit, run: RunDir, rows: Path, db: Database, settings: WorkerSettings
) -> None:
    """Each score with its interval, and with the difference to the baseline; then nothing is left
    to wait for.
    """
    begun = cockpit("eval", "watch", "1", "--bench", str(rows), "--every", "4", "--detach")
    assert begun.code == 0, begun.err
    assert steps(jobs.get_job(db, 2).config) == [0, 2, 4]
    scored(db, 2, 0, 0.5)
    scored(db, 2, 4, 0.7)
    with by_hand(db) as hand:
        hand.run(State.SUCCEEDED)

    said = cockpit("eval", "watch", "1", "--bench", str(rows), "--every", "4")

    assert said.code == 0, said.err
    assert said.out.splitlines() == [
        "step 0 on rows, exact: 50.0 % (45.0 to 55.0), n 120",
        "step 4 on rows, exact: 70.0 % (65.0 to 75.0), n 120; +20.0 points (+12.9 to +27.1) "
        "against step 0, not paired",
    ]
    assert len(jobs.list_jobs(db)) == 2


def test_a_run_that_nobody_watches_is_told_how_to(cockpit: Cockpit, run: RunDir) -> None:
    """Nothing is begun by asking."""
    said = cockpit("eval", "watch", "1")

    assert said.code == 2
    assert "is not watched (got 1); name benches with --bench" in said.err
