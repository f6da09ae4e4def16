"""Old runs give their space back and keep their numbers."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from sqlalchemy import insert, update

from engine.contract.run_dir import RunDir
from tests.worker.queue.verbs import by_hand
from worker.db.connection import Database
from worker.db.tables import job, metric
from worker.queue import control, pruning
from worker.queue.lookup import JobNotFoundError
from worker.queue.pruning import PruneError, prune_older, prune_one
from worker.queue.refusals import WrongStateError
from worker.queue.states import State
from worker.queue.submit import enqueue
from worker.read import jobs
from worker.read.audit import AuditFilter, audit_page

DAY = 86_400.0


def over(
    db: Database,
    *,
    days_ago: float = 40,
    reads: str | None = None,
    state: State = State.SUCCEEDED,
    steps: Sequence[int] = (10, 20, 30),
) -> int:
    """A run that is over, with checkpoints (20 published), rollouts, log, metrics and a result."""
    number = enqueue(db, "tally", {"reads": reads}, actor="test", force=True)
    with by_hand(db) as hand:
        assert hand.run(state) == number
    run = RunDir(db.settings.runs_dir / str(number))
    for step in steps:
        folder = run.checkpoint(step)
        folder.mkdir(parents=True)
        (folder / "model.bin").write_bytes(b"x" * 1000)
    run.selected.symlink_to(Path("checkpoints/step-000020"))
    run.rollouts.mkdir()
    (run.rollouts / "000001.jsonl").write_bytes(b"y" * 500)
    run.attempt(1).root.mkdir(parents=True)
    for kept in (run.attempt(1).log, run.events, run.report):
        kept.write_text("kept")
    rows = [("pool/score", 1), ("train/loss", 1), ("heldout/select", 1)]
    with db.write_tx() as conn:
        conn.execute(
            insert(metric),
            [
                {"job_id": number, "series": series, "step": step, "attempt": 1, "value": 0.5}
                for series, step in rows
            ],
        )
        ended = time.time() - days_ago * DAY
        mine = update(job).where(job.c.id == number)
        conn.execute(mine.values(finished_at=ended, result={"verdict": "gain"}))
    return number


def names(db: Database, number: int) -> set[str]:
    return {path.name for path in (db.settings.runs_dir / str(number)).iterdir()}


def test_a_prune_takes_what_is_heavy_and_leaves_what_the_report_is_made_of(db: Database) -> None:
    """Row, result, audit, log, events, report, held-out values and the selected checkpoint stay."""
    number = over(db)

    report = prune_older(db, 30 * DAY, actor="test")

    assert [(one.job_id, one.bytes, one.files) for one in report.pruned] == [(number, 2500, 3)]
    run = RunDir(db.settings.runs_dir / str(number))
    assert [path.name for path in run.checkpoints.iterdir()] == ["step-000020"]
    assert (run.selected / "model.bin").exists()
    assert names(db, number) == {
        "attempts",
        "checkpoints",
        "events.jsonl",
        "report.json",
        "selected",
    }
    row = jobs.get_job(db, number)
    assert (row.state, row.result) == (State.SUCCEEDED, {"verdict": "gain"})
    assert row.pruned_at is not None
    assert jobs.metrics(db, number) == {"heldout/select": [(1, 0.5)]}
    assert len(jobs.audit(db, number)) == 4
    assert prune_older(db, 30 * DAY, actor="test").pruned == []


def test_a_prune_stands_in_the_audit_with_who_asked_what_went_and_what_stays(db: Database) -> None:
    """Beside the row that calls the job pruned; a dry run has done nothing to account for."""
    number = over(db)
    before = jobs.audit(db, number)
    prune_one(db, number, actor="cli:asker", dry_run=True)
    assert jobs.audit(db, number) == before
    assert pruning.pruned_by(db, number) is None

    prune_one(db, number, actor="cli:asker")

    entry = jobs.audit(db, number)[-1]
    assert (entry.actor, entry.to_state) == ("cli:asker", State.SUCCEEDED)
    assert entry.why == (
        "pruned: 3 files, 0.0 MB thrown away, and the metrics but the held-out ones; "
        "kept: checkpoint step-000020, held-out values, logs, events and report"
    )
    assert audit_page(db, AuditFilter(text="pruned")).entries[0].what == "changed"
    assert pruning.pruned_by(db, number) == "cli:asker"


def test_a_dry_run_says_the_same_and_removes_nothing(db: Database) -> None:
    """What it counts is what a prune would free."""
    number = over(db)
    before = names(db, number)

    found = prune_older(db, 30 * DAY, actor="test", dry_run=True)

    assert found == prune_older(db, 30 * DAY, actor="test", dry_run=True)
    assert (found.pruned[0].bytes, names(db, number)) == (2500, before)
    assert jobs.get_job(db, number).pruned_at is None


def test_only_runs_that_are_over_for_long_enough_are_pruned(db: Database) -> None:
    """Neither young nor queued nor running ones, also when asked for by number."""
    young = over(db, days_ago=29)
    running, queued = (enqueue(db, "tally", {}, actor="test", force=True) for _ in range(2))
    with by_hand(db) as hand:
        hand.claim()

        assert prune_older(db, 30 * DAY, actor="test").pruned == []
        for number, state in ((running, "running"), (queued, "queued")):
            with pytest.raises(WrongStateError, match=f"is {state}; only a job that is over"):
                prune_one(db, number, actor="test")
    assert prune_one(db, young, actor="test").files == 3
    with pytest.raises(JobNotFoundError):
        prune_one(db, 99, actor="test")


def test_the_selected_checkpoint_goes_when_it_is_asked_for(db: Database) -> None:
    """And its link with it."""
    number = over(db)

    prune_one(db, number, actor="test", selected_too=True)

    assert list((db.settings.runs_dir / str(number) / "checkpoints").iterdir()) == []
    assert "selected" not in names(db, number)


def standing(db: Database, number: int) -> list[str]:
    run = RunDir(db.settings.runs_dir / str(number))
    return sorted(path.name for path in run.checkpoints.iterdir())


@pytest.mark.parametrize("said_by", ["result", "run card"])
def test_what_heldout_picked_stays_beside_what_is_published(db: Database, said_by: str) -> None:
    """Without a proven gain the base is published; the picked one is still the best there is."""
    number = over(db)
    run = RunDir(db.settings.runs_dir / str(number))
    if said_by == "result":
        with db.write_tx() as conn:
            mine = update(job).where(job.c.id == number)
            conn.execute(mine.values(result={"selected_step": 30}))
    else:
        trials = [{"name": "heldout-020", "step": 20}, {"name": "heldout-030", "step": 30}]
        run.lineage.write_text(json.dumps({"current_best": "heldout-030", "trials": trials}))

    prune_one(db, number, actor="test")

    assert standing(db, number) == ["step-000020", "step-000030"]
    assert "kept: checkpoints step-000020, step-000030, held-out" in jobs.audit(db, number)[-1].why


@pytest.mark.parametrize("state", [State.SUCCEEDED, State.FAILED])
def test_step_0_stays_as_long_as_a_retry_would_need_it(db: Database, state: State) -> None:
    """The report of a run that goes on compares with it; what has succeeded does not go on."""
    number = over(db, state=state, steps=(0, 10, 20))

    prune_one(db, number, actor="test")

    kept = ["step-000000"] if state is State.FAILED else []
    assert standing(db, number) == [*kept, "step-000020"]


def test_a_run_whose_checkpoint_nobody_picked_keeps_none(db: Database) -> None:
    """Step 0 alone is nothing to go on from."""
    number = over(db, state=State.FAILED, steps=(0, 10))
    (db.settings.runs_dir / str(number) / "selected").unlink()

    prune_one(db, number, actor="test")

    assert standing(db, number) == []


@pytest.mark.parametrize("selected_too", [False, True])
def test_a_warmed_up_model_stays_as_long_as_a_checkpoint_that_belongs_to_it(
    db: Database, selected_too: bool
) -> None:
    """An adapter alone is no model."""
    number = over(db)
    base = db.settings.runs_dir / str(number) / "base"
    base.mkdir()
    (base / "model.safetensors").write_bytes(b"z" * 3000)

    prune_one(db, number, actor="test", selected_too=selected_too)

    assert base.exists() is not selected_too


def test_a_run_that_another_job_is_going_to_read_is_left_alone(db: Database) -> None:
    """Until that one is over; number 1 is not taken for number 10."""
    number = over(db)
    root = db.settings.runs_dir / str(number)
    enqueue(db, "tally", {"reads": f"{root}0/model.bin"}, actor="test")
    assert prune_older(db, 30 * DAY, actor="test", dry_run=True).spared == []

    reader = enqueue(db, "tally", {"reads": f"{root}/selected/model.bin"}, actor="test")

    assert [(one.job_id, one.why) for one in prune_older(db, 30 * DAY, actor="test").spared] == [
        (number, f"job {reader} reads from it")
    ]
    with pytest.raises(WrongStateError, match=f"read by job {reader}; let that one end first"):
        prune_one(db, number, actor="test")
    control.cancel(db, reader, actor="test")
    assert prune_older(db, 30 * DAY, actor="test").pruned


@pytest.mark.parametrize("linked", ["the data directory", "what the job reads"])
def test_a_run_that_is_read_by_another_name_is_left_alone(
    db: Database, tmp_path: Path, linked: str
) -> None:
    """A link on either side leads to the same files."""
    number = over(db)
    runs, link = db.settings.runs_dir, tmp_path / "link"
    link.symlink_to(runs)
    named = link
    if linked == "the data directory":
        named = runs
        db.settings = db.settings.model_copy(update={"work_dir": link})
    reader = enqueue(db, "tally", {"reads": f"{named}/{number}/selected/x"}, actor="test")

    spared = prune_older(db, 30 * DAY, actor="test", dry_run=True).spared

    assert [(one.job_id, one.why) for one in spared] == [(number, f"job {reader} reads from it")]


def test_a_prune_that_cannot_move_a_file_changes_nothing(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row does not call pruned what is still there."""
    number = over(db)

    def full(path: Path, target: Path) -> Path:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "rename", full)
    with pytest.raises(PruneError, match=f"job {number} cannot be pruned: .*: Permission denied"):
        prune_one(db, number, actor="test")

    assert jobs.get_job(db, number).pruned_at is None
    assert pruning.pruned_by(db, number) is None
    assert "train/loss" in jobs.metrics(db, number)


def test_what_an_interrupted_prune_left_aside_goes_with_the_next_one(db: Database) -> None:
    """Space that nobody can see is given back."""
    aside = db.settings.runs_dir / str(over(db, days_ago=1)) / pruning._ASIDE
    aside.mkdir()
    (aside / "1-0").write_bytes(b"z")

    prune_older(db, 30 * DAY, actor="test", dry_run=True)
    assert aside.exists()
    prune_older(db, 30 * DAY, actor="test")

    assert not aside.exists()


def test_a_pruned_run_that_is_tried_again_starts_from_the_beginning(db: Database) -> None:
    """It is no pruned run any more."""
    number = enqueue(db, "tally", {}, actor="test")
    with by_hand(db) as hand:
        hand.run(State.FAILED)
    prune_one(db, number, actor="test")

    control.retry(db, number, actor="test")

    assert jobs.get_job(db, number).pruned_at is None
