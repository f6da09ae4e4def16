"""The lane: who may take it, from whom, and what the one before can still do."""

from __future__ import annotations

import fcntl
import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import update

from engine.contract.run_dir import RunDir
from tests.worker.holding import hold_lane
from worker.db.connection import Database
from worker.db.tables import job, lane
from worker.lane.lease import LaneHeldError, Lease, LeaseLostError
from worker.lane.machine_lock import LockDirectoryError
from worker.lane.process_id import ProcessIdentity
from worker.lane.strays import end_attempt
from worker.queue.submit import claim
from worker.read.lane import lane_status
from worker.settings import WorkerSettings


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process that could hold a lane."""
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as child:
        yield child
        child.kill()


def give_lane_to(db: Database, holder: str, silent_for_s: float) -> None:
    with hold_lane(db, db.settings):
        pass
    now = time.monotonic()
    with db.write_tx() as conn:
        conn.execute(
            update(lane).values(holder=holder, beat=now - silent_for_s, heartbeat_at=time.time())
        )


@pytest.mark.requirement("LN-03")
def test_the_fence_grows_with_every_holder(db: Database, settings: WorkerSettings) -> None:
    """It never comes back, so an old one is known for ever."""
    fences = []
    for _ in range(3):
        with hold_lane(db, settings) as lease:
            fences.append(lease.fence)

    assert fences == [1, 2, 3]


@pytest.mark.requirement("LN-03")
def test_a_living_holder_within_its_lease_is_left_alone(
    db: Database, settings: WorkerSettings, sleeper: subprocess.Popen[bytes]
) -> None:
    """Refused at once."""
    give_lane_to(db, str(ProcessIdentity.of(sleeper.pid)), silent_for_s=settings.lease_s - 5)

    with pytest.raises(LaneHeldError, match=rf"\(process {sleeper.pid}\)"), hold_lane(db, settings):
        pass

    assert sleeper.poll() is None


@pytest.mark.requirement("LN-03")
def test_a_silent_holder_is_killed_and_gone_before_the_lane_is_taken(
    db: Database, settings: WorkerSettings, sleeper: subprocess.Popen[bytes]
) -> None:
    """Alive behind the end of its lease, it would wake up later and interfere."""
    holder = ProcessIdentity.of(sleeper.pid)
    assert holder is not None
    give_lane_to(db, str(holder), silent_for_s=settings.lease_s + 1)

    with hold_lane(db, settings):
        assert not holder.alive()


@pytest.mark.requirement("LN-03")
@pytest.mark.parametrize("part", ["boot", "start"])
def test_a_dead_holders_number_protects_nobody_and_hits_nobody(
    db: Database, settings: WorkerSettings, sleeper: subprocess.Popen[bytes], part: str
) -> None:
    """Another boot or another start time: its lease is void, the process there now is not its."""
    boot, pid, start = str(ProcessIdentity.of(sleeper.pid)).split(":")
    other = f"other:{pid}:{start}" if part == "boot" else f"{boot}:{pid}:{int(start) - 1}"
    give_lane_to(db, other, silent_for_s=0)

    with hold_lane(db, settings):
        pass

    assert sleeper.poll() is None


@pytest.mark.requirement("LN-03")
def test_the_engine_group_of_a_dead_holder_is_gone_before_the_lane_is_taken(
    db: Database,
    settings: WorkerSettings,
    tally: Callable[..., int],
    sleeper: subprocess.Popen[bytes],
) -> None:
    """Two engines never share an accelerator."""
    tally()
    engine = ProcessIdentity.of(sleeper.pid)
    assert engine is not None
    give_lane_to(db, "other:1:1", silent_for_s=0)
    with db.write_tx() as conn:
        claim(conn, lane="cpu", fence=1, actor="the late drain")
        conn.execute(update(job).values(engine=str(engine)))

    with hold_lane(db, settings):
        assert not engine.alive()


@pytest.mark.requirement("LN-03")
def test_what_ends_the_attempts_of_a_dead_holder_is_the_callers_to_say(
    db: Database, settings: WorkerSettings, tally: Callable[..., int]
) -> None:
    """Engines need not be processes of this machine."""
    number = tally()
    give_lane_to(db, "other:1:1", silent_for_s=0)
    with db.write_tx() as conn:
        claim(conn, lane="cpu", fence=1, actor="the late drain")
    ended: list[tuple[RunDir, int, str | None]] = []

    with hold_lane(db, settings, end=lambda *attempt: ended.append(attempt)):
        pass

    assert ended == [(RunDir(settings.runs_dir / str(number)), 1, None)]


@pytest.mark.requirement("LN-03", "JB-04")
def test_a_takeover_voids_the_fence_of_lane_and_jobs_in_one_transaction(
    db: Database, settings: WorkerSettings, tally: Callable[..., int]
) -> None:
    """From its commit on, every write of the holder before fails."""
    number = tally()
    give_lane_to(db, "other:1:1", silent_for_s=0)
    late = Lease(db, "cpu", fence=1)
    with db.write_tx() as conn:
        claim(conn, lane="cpu", fence=1, actor="the late drain")

    with hold_lane(db, settings) as lease:
        with pytest.raises(LeaseLostError, match="fence 1 is no longer the newest"):
            late.keep()
        late.release()
        with db.read() as conn:
            fence = conn.exec_driver_sql(f"SELECT fence FROM job WHERE id={number}").scalar_one()  # noqa: S608 - an int of ours
        assert fence == lease.fence == 2
        assert lane_status(db, "cpu").pid == os.getpid()


@pytest.mark.requirement("LN-03")
def test_a_holder_that_claimed_once_more_before_it_was_killed_is_replaced_all_the_same(
    db: Database, settings: WorkerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its fence moved while it was judged; whoever killed it must not refuse itself the lane."""
    give_lane_to(db, "other:1:1", silent_for_s=0)

    def claimed_meanwhile(*_: object) -> None:
        with db.write_tx() as conn:
            conn.execute(update(lane).values(fence=lane.c.fence + 1))

    monkeypatch.setattr("worker.lane.lease._end_attempts", claimed_meanwhile)

    with hold_lane(db, settings) as lease:
        assert lease.fence == 3


@pytest.mark.requirement("LN-03")
def test_a_newcomer_that_took_the_lane_meanwhile_keeps_it(
    db: Database, settings: WorkerSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two drains judge the same dead holder; one gets the lane."""
    give_lane_to(db, "other:1:1", silent_for_s=0)

    def was_faster(*_: object) -> None:
        with db.write_tx() as conn:
            conn.execute(update(lane).values(fence=lane.c.fence + 1, holder="another:2:2"))

    monkeypatch.setattr("worker.lane.lease._end_attempts", was_faster)

    with pytest.raises(LaneHeldError, match="a drain that was faster"), hold_lane(db, settings):
        pass


@pytest.mark.requirement("LN-03")
def test_a_clock_that_jumps_expires_no_lease(
    db: Database, settings: WorkerSettings, sleeper: subprocess.Popen[bytes]
) -> None:
    """The lease runs on the boot's monotonic clock; wall time is only shown."""
    give_lane_to(db, str(ProcessIdentity.of(sleeper.pid)), silent_for_s=0)
    with db.write_tx() as conn:
        conn.execute(update(lane).values(heartbeat_at=time.time() - 86_400))

    with pytest.raises(LaneHeldError), hold_lane(db, settings):
        pass


@pytest.mark.requirement("LN-03")
def test_no_child_keeps_the_machine_wide_lock(db: Database, settings: WorkerSettings) -> None:
    """The lock is closed on exec: an engine that outlives its drain does not hold it."""
    with hold_lane(db, settings):
        child = subprocess.Popen(["sleep", "600"], close_fds=False)
    try:
        with (settings.lock_dir / "cpu.lock").open() as stream:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        child.kill()
        child.wait()


@pytest.mark.requirement("LN-03")
def test_a_lock_that_a_killed_holder_left_to_its_newborn_child_is_waited_for(
    db: Database, settings: WorkerSettings
) -> None:
    """Killed between the fork and the exec of a child, the holder leaves it the lock for a moment;
    the next drain is not refused for that.
    """
    with hold_lane(db, settings):
        pass
    code = (
        "import fcntl, time\n"
        "fcntl.flock(0, fcntl.LOCK_EX)\n"
        "print('held', flush=True)\n"
        "time.sleep(0.3)"
    )
    with (settings.lock_dir / "cpu.lock").open() as stream:
        newborn = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=stream,
            stdout=subprocess.PIPE,
        )
    assert newborn.stdout is not None
    assert newborn.stdout.readline() == b"held\n"

    with newborn, hold_lane(db, settings) as lease:
        assert lease.fence == 2


def test_the_lock_directory_is_open_to_every_user(db: Database, settings: WorkerSettings) -> None:
    """Another user's drain must be able to see that the lane is taken."""
    with hold_lane(db, settings):
        pass

    assert stat.S_IMODE(settings.lock_dir.stat().st_mode) == 0o1777
    assert stat.S_IMODE((settings.lock_dir / "cpu.lock").stat().st_mode) == 0o666


def test_a_lock_directory_that_cannot_be_made_is_a_clear_error(
    db: Database, settings: WorkerSettings, tmp_path: Path
) -> None:
    """With the setting that helps."""
    (tmp_path / "file").touch()
    wrong = settings.model_copy(update={"lock_dir": tmp_path / "file" / "locks"})

    refused = pytest.raises(LockDirectoryError, match="set NIGHTLANE_LOCK_DIR to a directory")
    with refused, hold_lane(db, wrong):
        pass

    assert not lane_status(db, "cpu").held


def test_a_group_is_killed_to_the_last_member_after_its_leader_died(tmp_path: Path) -> None:
    """What an engine started does not outlive it."""
    note = tmp_path / "pid"
    code = (
        "import subprocess, sys, pathlib\n"
        "child = subprocess.Popen(['sleep', '600'])\n"
        f"pathlib.Path({str(note)!r}).write_text(str(child.pid))"
    )
    leader = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    identity = ProcessIdentity.of(leader.pid)
    assert identity is not None
    leader.wait()
    member = ProcessIdentity.of(int(note.read_text()))
    assert member is not None
    assert member.alive()

    end_attempt(identity, tmp_path / "engine.log", patience_s=10)

    assert not member.alive()


def test_an_identity_survives_being_written_down() -> None:
    """Stored as text, read back as the same process."""
    this = ProcessIdentity.current()

    assert ProcessIdentity.parse(str(this)) == this
    assert this.alive()
