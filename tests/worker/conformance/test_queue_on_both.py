"""The queue's rules, on every database it can run on."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import select, update
from sqlmodel import SQLModel

from tests.worker.holding import hold_lane
from worker.attempt.rescue import rescue
from worker.attempt.runner.local import LocalRunner
from worker.attempt.settlement import Verdict
from worker.attempt.writing import write_verdict
from worker.db.connection import Database, DatabaseError, open_database, url_of
from worker.db.migrations import known_versions
from worker.db.tables import job, lane
from worker.drain import drain
from worker.lane.lease import LaneHeldError, Lease, LeaseLostError
from worker.lane.process_id import ProcessIdentity
from worker.queue.states import State, note
from worker.queue.submit import claim, enqueue
from worker.read import feed, jobs
from worker.read.lane import lane_status
from worker.settings import WorkerSettings

Tally = Callable[..., int]


def claim_one(db: Database, *, fence: int = 1) -> int | None:
    with db.write_tx() as conn:
        claimed = claim(conn, lane="cpu", fence=fence, actor="test")
    return None if claimed is None else claimed.job_id


def _is_comparable(_item: object, name: str | None, *_: object) -> bool:
    """On SQLite, Alembic cannot compare an index with a falling column."""
    return name != "ix_job_claim"


def test_the_migrations_build_what_the_models_declare(db: Database) -> None:
    """On each database; a column in one place only is an error."""
    with db.write_tx() as conn:
        opts = {"compare_type": True, "include_object": _is_comparable}
        context = MigrationContext.configure(conn, opts=opts)
        assert compare_metadata(context, SQLModel.metadata) == []


def test_every_move_is_counted_and_announced_in_the_statement_that_records_it(
    db: Database, settings: WorkerSettings, tally: Tally
) -> None:
    """By the database itself: of a job its own page and the board, of a lane who runs what."""

    def news() -> list[tuple[str, int | None]]:
        found = feed.changes_after(db, seen[-1])
        seen.append(feed.last_change_id(db))
        return [(row.topic, row.job_id) for row in found]

    seen = [feed.last_change_id(db)]
    number = tally()
    moved: list[tuple[str, int | None]] = [("job", number), ("board", number)]
    assert news() == moved
    assert jobs.counts(db)[State.QUEUED] == 1
    with db.write_tx() as conn:
        note(conn, number, State.QUEUED, actor="ada", why="moved to the front")
    assert news() == moved
    assert jobs.counts(db)[State.QUEUED] == 1  # a note moves nothing

    with hold_lane(db, settings) as lease:
        assert news() == [("lane", None)]
        with db.write_tx() as conn:
            taken = claim(conn, lane=lease.lane, fence=lease.fence + 1, actor="test")
            lease.advance(conn, number)
        assert taken is not None
        lease.fence += 1
        assert news() == [*moved, ("lane", number)]
        lease.keep()
        assert news() == []  # a heartbeat is no news
        write_verdict(lease, number, 1, Verdict(State.SUCCEEDED, "done"))
        assert news() == [*moved, ("lane", None)]
    assert news() == [("lane", None)]
    counts = jobs.counts(db)
    assert {state: n for state, n in counts.items() if n} == {State.SUCCEEDED: 1}


def test_opening_again_finds_the_newest_tables(db: Database, settings: WorkerSettings) -> None:
    """Nothing is migrated twice."""
    with open_database(settings) as again, again.read() as conn:
        version = conn.exec_driver_sql("SELECT version_num FROM alembic_version").scalar_one()

    assert version == known_versions()[-1]


def test_two_programs_that_share_no_directory_migrate_once(
    settings: WorkerSettings, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The writer lock of the database itself decides, not a file beside it."""
    url = url_of(settings).render_as_string(hide_password=False)
    code = (
        "import sys; from pathlib import Path; from worker.settings import WorkerSettings as S\n"
        "import worker.db.connection as d\n"
        "d.open_database(S(data_dir=Path(sys.argv[1]), database_url=sys.argv[2])).close()"
    )
    openers = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path_factory.mktemp("data")), url],
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]

    assert [opener.communicate(timeout=60)[1] for opener in openers] == [""] * 3


def test_a_new_database_gives_no_job_the_number_of_a_run_directory(
    settings: WorkerSettings,
) -> None:
    """The database was lost, the runs were not: their checkpoints are no other job's."""
    for name in ("3", "12", "notes", "9" * 30):
        (settings.runs_dir / name).mkdir(parents=True)

    with open_database(settings) as db:
        numbers = [enqueue(db, "tally", {"seed": seed}, actor="test") for seed in (1, 2)]

    assert numbers == [13, 14]


def test_a_job_goes_from_the_queue_through_an_engine_to_its_result(
    settings: WorkerSettings, db: Database, tally: Tally
) -> None:
    """Enqueue, claim, events, metrics, settlement, audit, counters: the whole way."""
    first, second = tally(), tally(at_end="crash")

    report = drain(settings)

    assert [(s.job_id, s.state) for s in report.ran] == [
        (first, State.SUCCEEDED),
        (second, State.FAILED),
    ]
    assert jobs.get_job(db, first).result["total"] == 3
    assert jobs.metrics(db, first)["pool/score"] == [(1, 0.1), (2, 0.2), (3, 0.3)]
    assert [row.to_state for row in jobs.audit(db, first)] == [
        State.QUEUED,
        State.RUNNING,
        State.SUCCEEDED,
    ]
    counted = Counter({state: n for state, n in jobs.counts(db).items() if n})
    assert counted == {State.SUCCEEDED: 1, State.FAILED: 1}
    assert not lane_status(db, "cpu").held


@pytest.mark.requirement("JB-04")
def test_claimers_at_the_same_time_get_each_job_once(db: Database, tally: Tally) -> None:
    """Four claimers, thirty jobs: no job twice, none left, first in first out for each."""
    numbers = [tally() for _ in range(30)]
    taken: dict[int, list[int]] = {n: [] for n in range(4)}
    start = threading.Barrier(4)

    def take_all(who: int) -> None:
        start.wait()
        while (number := claim_one(db)) is not None:
            taken[who].append(number)

    claimers = [threading.Thread(target=take_all, args=(who,)) for who in taken]
    for thread in claimers:
        thread.start()
    for thread in claimers:
        thread.join(60)

    assert sorted(number for mine in taken.values() for number in mine) == numbers
    assert all(mine == sorted(mine) for mine in taken.values())
    assert jobs.counts(db)[State.RUNNING] == 30


@pytest.mark.requirement("JB-04")
def test_a_stale_fence_changes_nothing(
    db: Database, settings: WorkerSettings, tally: Tally
) -> None:
    """Heartbeat, claim and settlement of a holder that was replaced all change 0 rows."""
    number = tally()
    with hold_lane(db, settings) as first:
        claim_one(db, fence=first.fence)
        stale = Lease(db, "cpu", first.fence)
    with hold_lane(db, settings) as second:
        assert second.fence == stale.fence + 1
        before = jobs.get_job(db, number)

        with pytest.raises(LeaseLostError):
            stale.keep()
        with pytest.raises(LeaseLostError):
            write_verdict(stale, number, 1, Verdict(State.SUCCEEDED, "late"))

        assert jobs.get_job(db, number) == before
        assert len(jobs.audit(db, number)) == 2


@pytest.mark.requirement("JB-08")
def test_an_orphan_of_another_boot_is_settled_at_once(
    db: Database, settings: WorkerSettings, tally: Tally
) -> None:
    """After a reboot nobody can be alive: no lease is waited for, the job goes back to the queue.

    The engine's number belongs to somebody else now, here to this very process.
    """
    number = tally()
    this = ProcessIdentity.current()
    other_boot = f"an-earlier-boot:{this.pid}:{this.start}"
    with hold_lane(db, settings) as lease:
        claim_one(db, fence=lease.fence)
    with db.write_tx() as conn:
        conn.execute(update(lane).values(holder=other_boot, beat=1e12))
        conn.execute(update(job).values(engine=other_boot))

    with hold_lane(db, settings) as lease:
        settled = rescue(lease, LocalRunner(settings))

    assert [(s.job_id, s.state) for s in settled] == [(number, State.QUEUED)]
    assert "its supervisor or the machine died" in jobs.audit(db, number)[-1].why


def test_a_second_holder_is_refused_while_the_first_one_lives(
    db: Database, settings: WorkerSettings
) -> None:
    """The lease stands in the database, whichever it is."""
    with hold_lane(db, settings), pytest.raises(LaneHeldError), hold_lane(db, settings):
        pass


def test_a_failed_write_leaves_nothing(db: Database) -> None:
    """All or nothing, schema changes included."""

    def half_way() -> None:
        with db.write_tx() as conn:
            conn.exec_driver_sql("INSERT INTO change (topic) VALUES ('job')")
            conn.exec_driver_sql("CREATE TABLE extra (id INTEGER)")
            raise RuntimeError("half way")

    with pytest.raises(RuntimeError, match="half way"):
        half_way()

    assert feed.last_change_id(db) == 0
    with db.read() as conn:
        assert "extra" not in sa.inspect(conn).get_table_names()


def test_what_a_crashing_engine_said_can_be_kept_whatever_it_was(
    db: Database, settings: WorkerSettings, tally: Tally
) -> None:
    """PostgreSQL's texts hold no NUL; the job is settled all the same."""
    number = tally()
    with hold_lane(db, settings) as lease:
        claim_one(db, fence=lease.fence)

        write_verdict(
            lease, number, 1, Verdict(State.FAILED, "crash", "CRASH", "said: \0 \U0001f300")
        )

    error = jobs.get_job(db, number).error
    assert error is not None
    assert error.startswith("said: ")
    assert error.endswith(" \U0001f300")


def test_everything_read_in_one_transaction_is_of_one_moment(db: Database, tally: Tally) -> None:
    """A page never shows a counter and a list that disagree."""
    with db.read() as conn:
        before = conn.execute(select(sa.func.count()).select_from(job)).scalar_one()
        tally()
        after = conn.execute(select(sa.func.count()).select_from(job)).scalar_one()

    assert (before, after) == (0, 0)


def test_a_reading_transaction_cannot_write_on_postgresql(db: Database) -> None:
    """A write that forgot its transaction's kind would be no single writer's."""
    if db.dialect == "sqlite":
        return  # SQLite cannot forbid it for one transaction; a deferred writer just waits
    with pytest.raises(DatabaseError, match="read-only transaction"), db.read() as conn:
        conn.exec_driver_sql("INSERT INTO change (topic) VALUES ('job')")


def test_a_second_writer_waits_and_then_says_who_to_look_for(db: Database) -> None:
    """One line with the remedy, retryable; what the first writer does is not touched."""
    with db.write_tx() as conn:
        conn.exec_driver_sql("INSERT INTO change (topic) VALUES ('job')")
        refused = pytest.raises(DatabaseError, match="end that, and try again")
        with refused as error, db.write_tx(patience_s=0.05):
            pass

    assert error.value.retryable
    assert "\n" not in str(error.value)
    assert feed.last_change_id(db) == 1


def test_the_change_feed_has_no_gap_that_closes_later(db: Database, tally: Tally) -> None:
    """Writers commit in the order of their change ids, or a live page would miss a row."""
    seen: list[int] = []
    done = threading.Event()

    def follow() -> None:
        while not done.is_set():
            seen.extend(row.id for row in feed.changes_after(db, seen[-1] if seen else 0))

    follower = threading.Thread(target=follow)
    writers = [threading.Thread(target=lambda: [tally() for _ in range(15)]) for _ in range(3)]
    for thread in (follower, *writers):
        thread.start()
    for thread in writers:
        thread.join(60)
    done.set()
    follower.join(60)
    seen.extend(row.id for row in feed.changes_after(db, seen[-1] if seen else 0))

    assert seen == [row.id for row in feed.changes_after(db, 0)]
