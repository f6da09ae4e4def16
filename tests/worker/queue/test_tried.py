"""What has a finished result is not run again by mistake."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from engine.contract.registry import get_kind, validate
from tests.worker.queue.verbs import by_hand
from worker.db.connection import Database
from worker.db.tables import job
from worker.queue import tried
from worker.queue.refusals import AlreadyQueuedError, AlreadyTriedError
from worker.queue.states import State
from worker.queue.submit import enqueue
from worker.queue.tried import canonical_hash, fingerprint
from worker.read import jobs

pytestmark = pytest.mark.requirement("JB-12")


def put(db: Database, *, force: bool = False, name: str | None = None, **config: Any) -> int:
    return enqueue(db, "tally", config, actor="test", name=name, force=force)


def finish(db: Database, to: State = State.SUCCEEDED) -> None:
    with by_hand(db) as hand:
        hand.run(to)


def test_the_same_experiment_is_refused_with_its_result(db: Database) -> None:
    """Another name, tag or priority makes no other experiment; the verdict is told."""
    number = put(db, steps=2)
    finish(db)
    with db.write_tx() as conn:
        conn.execute(update(job).values(result={"verdict": "gain"}))

    with pytest.raises(AlreadyTriedError) as refusal:
        put(db, steps=2, name="other")

    assert (refusal.value.job_id, refusal.value.verdict) == (number, "gain")
    assert "its verdict: gain" in str(refusal.value)
    assert f"cockpit show {number}" in str(refusal.value)
    assert len(jobs.list_jobs(db)) == 1


def test_a_default_that_is_written_out_is_the_same_setting(db: Database) -> None:
    """The resolved config counts, not how it was typed."""
    put(db)
    finish(db)

    with pytest.raises(AlreadyTriedError):
        put(db, steps=3)


def test_force_runs_it_again(db: Database) -> None:
    """A person may want to know how much chance there is in a result."""
    put(db)
    finish(db)

    assert put(db, force=True) == 2


@pytest.mark.parametrize("end", [State.FAILED, State.CANCELLED, State.ABORTED])
def test_a_job_without_a_result_was_not_tried(db: Database, end: State) -> None:
    """It is free to be queued anew."""
    put(db)
    finish(db, end)

    assert put(db) == 2


def test_one_that_waits_or_runs_is_refused_by_its_name(db: Database) -> None:
    """Nobody trains the same twice by mistake; another seed is another experiment."""
    number = put(db)
    with pytest.raises(AlreadyQueuedError, match=f"waits in the queue already: job {number} has"):
        put(db, name="other", steps=3)
    assert put(db, seed=1) == 2
    with by_hand(db) as hand:
        taken = hand.claim()
        assert taken is not None
        with pytest.raises(AlreadyQueuedError, match=f"this runs already: job {number}") as refused:
            put(db)
        hand.settle(taken, State.FAILED)

    assert dict(refused.value.facts) == {"job_id": number, "state": "running"}
    assert put(db) == 3
    assert put(db, force=True) == 4


def test_the_result_is_named_before_a_job_that_waits(db: Database) -> None:
    """It is what the new one would be run for."""
    number = put(db)
    finish(db)
    put(db, force=True)

    with pytest.raises(AlreadyTriedError) as refused:
        put(db)

    assert (refused.value.code, refused.value.job_id) == ("already_tried", number)


def test_an_idempotency_key_answers_before_that(db: Database) -> None:
    """The same request again is not a second one."""
    first = enqueue(db, "tally", {}, actor="test", key="k-1")

    assert enqueue(db, "tally", {}, actor="test", key="k-1") == first
    with pytest.raises(AlreadyQueuedError):
        enqueue(db, "tally", {}, actor="test", key="k-2")


def test_other_settings_and_other_data_are_another_experiment(db: Database, tmp_path: Path) -> None:
    """The data counts by what it holds, not by its name or age."""
    source = tmp_path / "rows.jsonl"
    source.write_text("one")
    put(db, reads=str(source))
    finish(db)

    assert put(db, reads=str(source), seed=1) == 2
    source.write_text("two")
    assert put(db, reads=str(source)) == 3
    source.write_text("one")
    os.utime(source, (1, 1))
    with pytest.raises(AlreadyTriedError):
        put(db, reads=str(source))


def test_a_large_file_counts_by_size_time_and_both_ends(
    db: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An enqueue never reads gigabytes."""
    monkeypatch.setattr(tried, "WHOLE_BYTES", 3)
    monkeypatch.setattr(tried, "_END_BYTES", 1)
    source = tmp_path / "rows.jsonl"
    kind, config = get_kind("tally"), validate("tally", {"reads": str(source)})

    def seen(text: str, mtime: int = 1) -> str:
        source.write_text(text)
        os.utime(source, (mtime, mtime))
        return fingerprint(kind, config).data

    whole = seen("abcd")
    assert seen("aXcd") == whole  # the price: same size, time and ends
    assert len({whole, seen("Xbcd"), seen("abcX"), seen("abcde"), seen("abcd", mtime=2)}) == 5


def test_settings_that_cannot_change_the_result_do_not_count() -> None:
    """How many checkpoints are kept, or how many threads it had."""
    plain = {"base": "embedded:qwen3-tiny", "warmup": {}}
    kind = get_kind("rl_run")

    def config_hash(**changed: Any) -> str:
        return fingerprint(kind, validate("rl_run", plain | changed)).config

    same = {config_hash(), config_hash(keep_checkpoints=9, save_every=2, threads=1)}
    assert len(same) == 1
    assert config_hash(seed=1) not in same


@pytest.mark.usefixtures("settings")
def test_what_earlier_versions_wrote_stays_comparable() -> None:
    """A hash that changed would let every finished job run again."""
    given = ["rl_run", {"b": 1, "a": [None, 1.5, "é"], "c": {"z": True}}]
    without_files = fingerprint(get_kind("tally"), validate("tally", {})).data

    assert canonical_hash(given) == (
        "993d6c5696a74b31a8f8d559b330b5fcd8cad3c18c3cf98d47a7032555cd1275"
    )
    assert without_files == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
