"""A disk that is full or read-only: a loud error, nothing lost, nothing half-written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Run = Callable[[str], dict[str, Any]]


def test_enqueue_on_a_full_disk_writes_nothing_and_says_so(on_small_disk: Run) -> None:
    """One line with the remedy; with room again the same call works."""
    answer = on_small_disk("""
with open_database(settings) as db:
    first = enqueue(db, "tally", {}, actor="test")
    fill()
    said = None
    for _ in range(300):  # the journal may still have room for some
        said = refused(lambda: enqueue(db, "tally", {}, actor="test", force=True))
        if said:
            break
    answer["said"] = said
    with db.read() as conn:
        rows, audit, counted = (
            conn.exec_driver_sql(f"SELECT {what}").scalar_one()
            for what in (
                "count(*) FROM job",
                "count(*) FROM job_event",
                "n FROM state_count WHERE state = 'queued'",
            )
        )
    answer["whole"] = rows == audit == counted
    ballast.unlink()
    answer["later"] = enqueue(db, "tally", {}, actor="test", force=True) == rows + 1
    with db.read() as conn:
        answer["check"] = conn.exec_driver_sql("PRAGMA integrity_check").scalar_one()
""")

    assert "nightlane.db: database or disk is full; nothing of this step was" in answer["said"]
    assert "\n" not in answer["said"]
    assert answer["whole"]
    assert answer["later"]
    assert answer["check"] == "ok"


def test_threads_that_share_a_commit_are_told_the_truth_on_a_full_disk(on_small_disk: Run) -> None:
    """What was answered with an id is there, what was refused is not, whoever committed it."""
    answer = on_small_disk("""
from concurrent.futures import ThreadPoolExecutor

def send(seed):
    try:
        return enqueue(db, "tally", {"seed": seed}, actor="test")
    except DatabaseError as error:
        return str(error)

with open_database(settings) as db:
    send(-1)
    fill()
    with ThreadPoolExecutor(8) as pool:
        told = list(pool.map(send, range(400)))
    ballast.unlink()
    with db.read() as conn:
        rows = list(conn.exec_driver_sql("SELECT id FROM job WHERE id > 1 ORDER BY id").scalars())
        answer["check"] = conn.exec_driver_sql("PRAGMA integrity_check").scalar_one()
    answer["told"] = sorted(one for one in told if isinstance(one, int)) == rows
    answer["refused"] = sorted({one for one in told if isinstance(one, str)})
    answer["later"] = isinstance(send(1000), int)
""")

    assert answer["told"]
    assert [one.partition(": ")[2] for one in answer["refused"]] == [
        "database or disk is full; nothing of this step was written; "
        "make room on its disk and try again"
    ]
    assert answer["later"]
    assert answer["check"] == "ok"


def test_a_run_outlives_a_disk_that_is_full_for_a_while(on_small_disk: Run) -> None:
    """Heartbeats and results wait, the engine trains on, the job succeeds in its first attempt."""
    answer = on_small_disk("""
go = settings.lock_dir.parent / "go"

def trouble():
    with open_database(settings) as db:
        eventually(lambda: jobs.get_job(db, 1).result.get("step"), "the first step")
        fill()
        # The journal fills up too, until no heartbeat fits.
        eventually(lambda: warned.is_set(), "the drain's warning")
        ballast.unlink()
        go.touch()

import logging
warned = threading.Event()
class Listen(logging.Handler):
    def emit(self, record):
        warned.set()
logging.getLogger("worker").addHandler(Listen())

with open_database(settings) as db:
    enqueue(db, "tally", {"pace": str(go)}, actor="test")
other = threading.Thread(target=trouble)
other.start()
report = drain(settings)
other.join()
answer["ran"] = [(s.job_id, s.attempt, s.state) for s in report.ran]
with open_database(settings) as db:
    answer["metrics"] = jobs.metrics(db, 1)["pool/score"]
""")

    assert answer["ran"] == [[1, 1, "succeeded"]]
    assert answer["metrics"] == [[1, 0.1], [2, 0.2], [3, 0.3]]


def test_a_disk_that_turned_read_only_is_a_clear_error(on_small_disk: Run) -> None:
    """Reading goes on; a write says what to do; nothing is lost."""
    answer = on_small_disk("""
with open_database(settings) as db:
    first = enqueue(db, "tally", {}, actor="test")
remount("ro")
def send():
    with open_database(settings) as db:
        enqueue(db, "tally", {}, actor="test", force=True)
answer["said"] = refused(send)
answer["drain"] = refused(lambda: drain(settings))
remount("rw")
answer["ran"] = [(s.job_id, s.state) for s in drain(settings).ran]
""")

    for said in (answer["said"], answer["drain"]):
        assert "make the file and its directory writable for this user, and try again" in said
        assert "\n" not in said
    assert answer["ran"] == [[1, "succeeded"]]


@pytest.mark.parametrize("patience", ["0", "600"])
def test_a_drain_whose_database_stays_away_ends_its_engine_and_says_why(
    on_small_disk: Run, monkeypatch: pytest.MonkeyPatch, patience: str
) -> None:
    """When the patience is over, or on a stop request: one error, and a job to resume."""
    monkeypatch.setenv("NIGHTLANE_DATABASE_PATIENCE_S", patience)
    monkeypatch.setenv("NIGHTLANE_ABORT_GRACE_S", "0.5")  # there is no room for the sentinel
    answer = on_small_disk("""
import signal
go, said = settings.lock_dir.parent / "go", settings.lock_dir.parent / "said"
with open_database(settings) as db:
    enqueue(db, "tally", {"pace": str(go)}, actor="test")

doomed = os.fork()
if not doomed:
    said.write_text(str(refused(lambda: drain(settings))))
    os._exit(0)
with open_database(settings) as db:
    eventually(lambda: jobs.get_job(db, 1).result.get("step"), "the first step")
fill()
if settings.database_patience_s:
    os.kill(doomed, signal.SIGTERM)
os.waitpid(doomed, 0)

answer["said"] = said.read_text()
ballast.unlink()
go.touch()
report = drain(settings)
answer["rescued"] = [(s.job_id, s.state) for s in report.rescued]
answer["ran"] = [(s.job_id, s.attempt, s.state) for s in report.ran]
""")

    assert "database or disk is full" in answer["said"]
    assert answer["rescued"] == [[1, "queued"]]
    assert answer["ran"] == [[1, 2, "succeeded"]]


def test_a_run_whose_disk_is_full_waits_for_room_and_starts_no_engine_before(
    on_small_disk: Run,
) -> None:
    """The run directories have a disk of their own: the database can tell what became of it."""
    answer = on_small_disk("""
from worker.attempt.supervisor import RunDirectoryError

elsewhere = settings.lock_dir.parent
apart = {"data_dir": elsewhere / "data2", "work_dir": disk / "runs"}
settings = settings.model_copy(update=apart)
go = elsewhere / "go"

def trouble():
    with open_database(settings) as db:
        eventually(lambda: jobs.get_job(db, 1).result.get("step"), "the first step")
    fill()
    go.touch()

with open_database(settings) as db:
    enqueue(db, "tally", {"pace": str(go)}, actor="test")
other = threading.Thread(target=trouble)
other.start()
drain(settings)
other.join()
with open_database(settings) as db:
    found = jobs.get_job(db, 1)
    answer["waits"] = [found.state, found.waits_for.reason, found.waits_for.detail]
    answer["why"] = jobs.audit(db, 1)[-1].why
    with db.write_tx() as conn:
        conn.exec_driver_sql("UPDATE job SET next_eligible_at = 0")
    answer["again"] = ""
    try:
        drain(settings)
    except RunDirectoryError as error:
        answer["again"] = str(error)
    ballast.unlink()
    with db.write_tx() as conn:
        conn.exec_driver_sql("UPDATE job SET next_eligible_at = 0")
answer["ran"] = [(s.attempt, s.state) for s in drain(settings).ran]
""")

    assert answer["waits"][:2] == ["queued", "DISK_FULL"]
    assert "MB free at" in answer["waits"][2]
    assert answer["why"].startswith("the engine crashed (exit 1) on a full disk: 0.0 MB free")
    assert "No space left on device; make room" in answer["again"]
    assert answer["ran"] == [[3, "succeeded"]]


def test_a_run_on_the_databases_own_full_disk_waits_for_room_too(on_small_disk: Run) -> None:
    """What the engine died of is looked at as it dies: the verdict is written with room again."""
    answer = on_small_disk("""
from worker.attempt.runner import local

go = settings.lock_dir.parent / "go"
seen, look = threading.Event(), local.full_disk

def looking(place):
    found = look(place)
    if found:
        seen.set()
    return found

def trouble():
    with open_database(settings) as db:
        eventually(lambda: jobs.get_job(db, 1).result.get("step"), "the first step")
    fill()
    go.touch()
    seen.wait(20)
    ballast.unlink()

local.full_disk = looking
with open_database(settings) as db:
    enqueue(db, "tally", {"pace": str(go)}, actor="test")
other = threading.Thread(target=trouble)
other.start()
drain(settings)
other.join()
with open_database(settings) as db:
    found = jobs.get_job(db, 1)
    answer["waits"] = [found.state, found.waits_for and found.waits_for.reason]
    answer["why"] = jobs.audit(db, 1)[-1].why
""")

    assert answer["waits"] == ["queued", "DISK_FULL"]
    assert answer["why"].startswith("the engine crashed (exit 1) on a full disk: 0.0 MB free")


def test_what_frees_space_works_on_a_full_disk(on_small_disk: Run) -> None:
    """The remedy that every error names: the command opens, prunes and says how much went."""
    answer = on_small_disk("""
import shutil
with open_database(settings) as db:
    number = enqueue(db, "tally", {}, actor="test")
drain(settings)
run = settings.runs_dir / str(number)
(run / "rollouts").mkdir(exist_ok=True)
ballast = run / "rollouts" / "1.jsonl"
with open_database(settings) as db:
    fill()
    for _ in range(300):  # the journal too
        if refused(lambda: enqueue(db, "tally", {}, actor="test", force=True)):
            break
fill()
def prune(*options):
    command = [sys.executable, "-m", "app.cli", "prune", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return [done.returncode, done.stdout + done.stderr]
answer["dry"] = prune("--older-than", "0d", "--dry-run")[0]
answer["pruned"] = prune("--older-than", "0d")
answer["left"] = ballast.exists()
with open_database(settings) as db:
    answer["enqueued"] = enqueue(db, "tally", {}, actor="test", force=True) > number
    answer["pruned_at"] = jobs.get_job(db, number).pruned_at is not None
    with db.read() as conn:
        answer["check"] = conn.exec_driver_sql("PRAGMA integrity_check").scalar_one()
answer["reserve"] = (settings.data_dir / ".reserve").exists()
""")

    assert answer["pruned"][0] == 0, answer["pruned"][1]
    assert "job 1: " in answer["pruned"][1]
    assert not answer["left"]
    assert answer["enqueued"]
    assert answer["pruned_at"]
    assert answer["check"] == "ok"
    assert answer["reserve"], "with room again it is made again"


def test_a_cancel_on_a_full_disk_is_remembered_and_obeyed(on_small_disk: Run) -> None:
    """The database takes it with the reserve's room; there is none for the sentinel's words."""
    answer = on_small_disk("""
from worker.queue.control import cancel
go = settings.lock_dir.parent / "go"

def trouble():
    with open_database(settings) as db:
        eventually(lambda: jobs.get_job(db, 1).result.get("step"), "the first step")
        fill()
        for _ in range(300):
            if refused(lambda: enqueue(db, "tally", {}, actor="test", force=True)):
                break
        fill()
        answer["asked"] = cancel(db, 1, actor="test")

with open_database(settings) as db:
    enqueue(db, "tally", {"pace": str(go)}, actor="test")
other = threading.Thread(target=trouble)
other.start()
report = drain(settings, until=lambda: "asked" in answer)
other.join()
answer["ran"] = [(s.job_id, s.state) for s in report.ran[:1]]
""")

    assert answer["asked"] == "asked"
    assert answer["ran"] == [[1, "cancelled"]]


def test_a_cancel_of_a_run_whose_own_disk_is_full_is_obeyed(on_small_disk: Run) -> None:
    """The database is elsewhere; the request comes by it, and the engine hears an empty file."""
    answer = on_small_disk("""
from worker.queue.control import cancel
elsewhere = settings.lock_dir.parent
apart = {"data_dir": elsewhere / "data2", "work_dir": disk / "runs"}
settings = settings.model_copy(update=apart)
go = elsewhere / "go"

def trouble():
    with open_database(settings) as db:
        eventually(lambda: jobs.get_job(db, 1).result.get("step"), "the first step")
        fill()
        answer["asked"] = cancel(db, 1, actor="test")

with open_database(settings) as db:
    enqueue(db, "tally", {"pace": str(go)}, actor="test")
other = threading.Thread(target=trouble)
other.start()
report = drain(settings)
other.join()
answer["ran"] = [(s.job_id, s.state) for s in report.ran]
""")

    assert answer["asked"] == "asked"
    assert answer["ran"] == [[1, "cancelled"]]
