"""The queue beside huey, procrastinate and DBOS, with a long history, and a drain that waits.

`make bench-queue`: one run side by side; every commit is synced to disk. Ours goes the product's
own way, as `cockpit drain` calls it: enqueue, look, admit, claim, begin, settle. Left out is only
the engine's process. The peers run through `queues_peers.py` in an environment of their own.
(Not `queue.py`: that would hide Python's own module from its siblings.)
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from sqlalchemy import Insert, func, insert, literal, select, update

from engine.contract import kinds
from engine.contract.run_dir import RunDir
from tests.postgres import postgres_server
from tests.worker.holding import hold_lane
from worker.attempt.settlement import Verdict
from worker.attempt.writing import write_verdict
from worker.db.connection import Database, open_database
from worker.db.tables import job, state_count
from worker.drain import DrainReport, claim_next
from worker.lane.lease import Lease
from worker.lane.process_id import ProcessIdentity
from worker.queue.deferral import Reason
from worker.queue.states import State
from worker.queue.submit import Claim, enqueue, look
from worker.read import jobs
from worker.read.lane import lane_status
from worker.schedule.admission import Admission
from worker.settings import WorkerSettings

ROOT = Path(__file__).resolve().parent.parent
PEERS = ROOT / ".venv-peers" / "bin" / "python"
KINDS = ROOT / "bench" / "kinds"
FINISHED, FUTURE = 1_000_000, 100_000
_CHUNK = 100_000
WARM = 100
"""Jobs that go through each queue before its round: nobody's first statements, plans and growing
log are timed.
"""
OURS, PEER = "ours, SQLite", "procrastinate, PostgreSQL"
"""The one that ours must be as quick as from enqueue to settlement, with one worker each."""
P99_BOUND = 1.25
"""The p99 of a claim beside the long history may take so many times that of an empty table."""
PICKUP_BOUND_MS = 250
"""From the commit of a job to its claim, and to its engine's process, by a drain that waits."""


def main(argv: Sequence[str] | None = None) -> int:
    """Print the tables; with `--json FILE` write the same figures. 1 when a bound was missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=5, help="of each queue, in turns")
    parser.add_argument("--jobs", type=int, default=600, help="in each round")
    parser.add_argument("--history", type=float, default=1.0, help="share of the long history")
    parser.add_argument("--claims", type=int, default=12_000, help="timed beside the history")
    parser.add_argument("--pickups", type=int, default=15, help="jobs sent to a waiting drain")
    parser.add_argument("--only", choices=["peers", "history", "pickup"])
    parser.add_argument("--json", type=Path, help="write the figures here too")
    options = parser.parse_args(argv)
    os.environ["NIGHTLANE_KINDS_PATH"] = str(KINDS)  # for the processes below this one
    kinds.__path__.append(str(KINDS))
    figures: dict[str, Any] = {}
    if options.only in {None, "peers"}:
        figures["peers"] = side_by_side(options.rounds, options.jobs)
    if options.only in {None, "history"}:
        figures["history"] = history(options.history, options.claims)
    if options.only in {None, "pickup"}:
        figures["pickup"] = pickup(options.pickups)
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")
    return 0 if all(one["held"] for one in figures.values()) else 1


# --- side by side ---


def side_by_side(rounds: int, count: int) -> dict[str, Any]:
    """Jobs a second, in and out, of every queue in turns; one worker each."""
    measured: dict[str, list[dict[str, float]]] = {}
    with postgres_server(durable=True) as server:
        contenders: dict[str, Callable[[], dict[str, float]]] = {
            OURS: lambda: _ours(count),
            PEER: lambda: _run_peer("procrastinate", server.new_database(), str(count)),
            "ours, PostgreSQL": lambda: _ours(count, server.new_database()),
            "huey, SQLite": lambda: _peer("huey", count),
            "DBOS, SQLite": lambda: _peer("dbos", count // 10),
        }
        for _ in range(rounds):
            for name, run in contenders.items():
                measured.setdefault(name, []).append(run())
    return _print_rates(measured)


def _ours(count: int, url: str | None = None) -> dict[str, float]:
    with _place(url) as db, _lane(db) as lane:
        _put_in(db, range(WARM))
        _work(lane)
        began = time.perf_counter()
        _put_in(db, range(WARM, WARM + count))
        put = time.perf_counter()
        _work(lane)
        end = time.perf_counter()
        assert jobs.counts(db)[State.SUCCEEDED] == WARM + count
    return {"enqueue": count / (put - began), "finish": count / (end - put)}


class Lane(NamedTuple):
    """What a drain holds while it works."""

    lease: Lease
    admission: Admission

    def claim(self) -> Claim | None:
        """The next job, as a drain takes it: look, admit, claim, begin."""
        return claim_next(self.lease.db, self.lease, DrainReport(), self.admission, time.time)

    def settle(self, taken: Claim) -> None:
        """Its engine has ended well."""
        verdict = Verdict(State.SUCCEEDED, "the engine finished")
        write_verdict(self.lease, taken.job_id, taken.attempt, verdict)


@contextmanager
def _lane(db: Database) -> Iterator[Lane]:
    with hold_lane(db, db.settings) as lease, Admission(lease, scheduled=False) as admission:
        yield Lane(lease, admission)


def _put_in(db: Database, numbers: Iterable[int]) -> None:
    for number in numbers:
        enqueue(db, "noop", {"number": number, "text": "text"}, actor="bench")


def _work(lane: Lane) -> None:
    while (taken := lane.claim()) is not None:
        lane.settle(taken)


def _peer(name: str, count: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=ROOT) as folder:
        return _run_peer(name, folder, str(count))


def _run_peer(*arguments: str) -> dict[str, float]:
    script = ROOT / "bench" / "queues_peers.py"
    done = subprocess.run(
        [str(PEERS), str(script), str(WARM), *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{arguments[0]} failed:\n{done.stderr}")
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def _print_rates(measured: dict[str, list[dict[str, float]]]) -> dict[str, Any]:
    """Ours over each of the others, by pairs: both of a round met the same disk."""
    print("`ours is`: ours on SQLite over this one, the median of the rounds.\n")
    print("| queue | enqueue/s | ours is | claim + finish/s | ours is | both, ours is |")
    print("|---|---|---|---|---|---|")
    figures: dict[str, Any] = {}
    for name, rounds in measured.items():
        cells = []
        for what in ("enqueue", "finish", "both"):
            rates = [_rate(one, what) for one in rounds]
            ours = [_rate(one, what) for one in measured[OURS]]
            times = statistics.median(a / b for a, b in zip(ours, rates, strict=True))
            cells.append(
                f"{statistics.median(rates):,.0f} ({min(rates):,.0f} to {max(rates):,.0f})"
            )
            cells.append(f"{times:.2f} ×")
            figures[f"{name}: {what}"] = {"per_s": rates, "ours_times": round(times, 2)}
        del cells[-2]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
    times = figures[f"{PEER}: both"]["ours_times"]
    print(f"\nfrom enqueue to settlement ours is {times:.2f} × {PEER} (bound 1)")
    return figures | {"held": times >= 1}


def _rate(one: dict[str, float], what: str) -> float:
    """Jobs a second; `both`: of one that is put in and then finished."""
    return 1 / (1 / one["enqueue"] + 1 / one["finish"]) if what == "both" else one[what]


# --- a long history ---


def history(share: float, claims: int) -> dict[str, Any]:
    """Claims of an empty table and of one with a million finished jobs: pairs, one right behind
    the other, so that both meet the same disk.
    """
    with _place() as empty, _place() as full, _lane(empty) as lane, _lane(full) as other:
        _fill(full, round(FINISHED * share), round(FUTURE * share))
        times: dict[str, list[float]] = {"empty": [], "full": []}
        pairs = [("empty", lane), ("full", other)]
        for number in range(claims):
            for db in (empty, full):
                enqueue(db, "noop", {"number": number}, actor="bench", force=True)
            taken = []
            for name, held in pairs if number % 2 else pairs[::-1]:
                began = time.perf_counter()
                claimed = held.claim()
                times[name].append(time.perf_counter() - began)
                assert claimed is not None
                taken.append((held, claimed))
            for held, claimed in taken:
                held.settle(claimed)
        newest = jobs.list_jobs(full, limit=1)[0].id
        looks: dict[str, Callable[[], object]] = {
            "list, newest page": lambda: jobs.list_jobs(full),
            "list, a page in the middle": lambda: jobs.list_jobs(full, before=newest // 2),
            "list, what succeeded": lambda: jobs.list_jobs(full, state=State.SUCCEEDED),
            "list, what waits": lambda: jobs.list_jobs(full, state=State.QUEUED),
            "next in the queue": lambda: jobs.next_jobs(full),
            "counts": lambda: jobs.counts(full),
            "look": lambda: look(full),
        }
        for name, act in looks.items():
            times[name] = [_timed(act) for _ in range(200)]
    return _print_times(times)


def _fill(db: Database, finished: int, future: int) -> None:
    """Rows as the product writes them, many at once."""
    enqueue(db, "noop", {"number": -1}, actor="bench")
    now = time.time()
    done = {
        "state": State.SUCCEEDED.value,
        "started_at": now,
        "finished_at": now,
        "attempt": 1,
        "result": {"status": "done", "step": 40, "pool_score": 0.8, "last_heldout": 0.75},
    }
    later = {
        "not_before": now + 9e6,
        "defer_reason": Reason.NOT_BEFORE.value,
        "next_eligible_at": now + 9e6,
    }
    with db.write_tx() as conn:
        conn.execute(update(job).values(done))
    for values, count in ((done, finished), (later | {"state": State.QUEUED.value}, future)):
        for start in range(0, count, _CHUNK):
            with db.write_tx() as conn:
                conn.execute(_copies(start, min(_CHUNK, count - start), values))
    with db.write_tx() as conn:
        for state, n in ((State.SUCCEEDED, finished + 1), (State.QUEUED, future)):
            conn.execute(update(state_count).where(state_count.c.state == state).values(n=n))


def _copies(start: int, count: int, values: dict[str, Any]) -> Insert:
    """`count` copies of the first job, each with a rank and a fingerprint of its own."""
    numbers = select(literal(start).label("n")).cte("numbers", recursive=True)
    following = select(numbers.c.n + 1).where(numbers.c.n + 1 < start + count)
    numbers = numbers.union_all(following)
    n = numbers.c.n
    differs: dict[str, Any] = {"rank": n, "config_hash": func.printf("%064x", n)}
    given = {name: literal(value, job.c[name].type) for name, value in values.items()} | differs
    names = [column.name for column in job.c if column.name != "id"]
    rows = select(*(given.get(name, job.c[name]) for name in names))
    rows = rows.select_from(numbers.join(job, job.c.id == 1))
    return insert(job).from_select(names, rows)


def _timed(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def _print_times(times: dict[str, list[float]]) -> dict[str, Any]:
    print("\n| with a long history | median, ms | p99, ms |\n|---|---|---|")
    figures: dict[str, Any] = {}
    for name, seconds in times.items():
        label = f"claim, {name} table" if name in {"empty", "full"} else name
        figures[label] = {"median_ms": _ms(seconds, 50), "p99_ms": _ms(seconds, 99)}
        print(f"| {label} | {_ms(seconds, 50):.2f} | {_ms(seconds, 99):.2f} |", flush=True)
    ratio = _ms(times["full"], 99) / _ms(times["empty"], 99)
    medians = _ms(times["full"], 50) / _ms(times["empty"], 50)
    figures["claim_p99_ratio"], figures["claim_median_ratio"] = ratio, medians
    print(f"\nclaim, full / empty: p99 {ratio:.2f} (bound {P99_BOUND}), median {medians:.2f}")
    return figures | {"held": ratio <= P99_BOUND}


def _ms(seconds: Sequence[float], percent: int) -> float:
    return 1000 * statistics.quantiles(seconds, n=100, method="inclusive")[percent - 1]


# --- a drain that waits ---


def pickup(count: int) -> dict[str, Any]:
    """From the commit of a job to its claim, and to its engine's process, by `cockpit drain`."""
    claimed, spawned = [], []
    with _place() as db:
        drain = subprocess.Popen(
            [sys.executable, "-m", "app.cli", "drain", "--wait"],
            cwd=ROOT,
            env=os.environ | _environment(db.settings),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            _until(lambda: lane_status(db, db.settings.lane).held)
            for number in range(count):
                job_id = enqueue(db, "noop", {"number": number}, actor="bench")
                committed, committed_boot = time.time(), time.clock_gettime(time.CLOCK_BOOTTIME)
                engine = _until(partial(_engine, db, job_id))
                with db.read() as conn:
                    row = conn.execute(job.select().where(job.c.id == job_id)).one()
                claimed.append(row.attempt_started_at - committed)
                spawned.append(engine.start / os.sysconf("SC_CLK_TCK") - committed_boot)
                _until(partial(_succeeded, db, job_id))
        finally:
            drain.terminate()
            drain.wait()
    print("\n| a waiting drain | median, ms | slowest, ms | bound |\n|---|---|---|---|")
    figures: dict[str, Any] = {"held": True}
    for name, seconds in (("commit → claim", claimed), ("commit → engine process", spawned)):
        # The first one meets a drain that holds the lane and is still starting.
        first_ms, *row_ms = (1000 * one for one in seconds)
        figures[name] = {"first_ms": round(first_ms, 1), "ms": [round(one, 1) for one in row_ms]}
        figures["held"] = figures["held"] and max(row_ms) <= PICKUP_BOUND_MS
        bound = PICKUP_BOUND_MS
        print(f"| {name} | {statistics.median(row_ms):.0f} | {max(row_ms):.0f} | {bound} |")
        print(f"| {name}, the lane was just taken | {first_ms:.0f} | | |")
    return figures


def _engine(db: Database, job_id: int) -> ProcessIdentity | None:
    """The engine's process, as soon as it is recorded; it may have ended since."""
    with db.read() as conn:
        row = conn.execute(job.select().where(job.c.id == job_id)).one()
    if row.engine:
        return ProcessIdentity.parse(row.engine)
    assert row.state != State.FAILED, RunDir(db.settings.runs_dir / str(job_id)).attempt(1).log
    return None


def _succeeded(db: Database, job_id: int) -> bool:
    return jobs.get_job(db, job_id).state is State.SUCCEEDED


def _until(look_: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        found = look_()
        if found:
            return found
        time.sleep(0.002)
    sys.exit("the waiting drain did not answer within 60 s")


# --- places ---


def _environment(settings: WorkerSettings) -> dict[str, str]:
    return {
        "NIGHTLANE_DATA_DIR": str(settings.data_dir),
        "NIGHTLANE_LOCK_DIR": str(settings.lock_dir),
        "NIGHTLANE_LANE": settings.lane,
    }


@contextmanager
def _place(url: str | None = None) -> Iterator[Database]:
    """A database of its own, on the disk of the checkout: /tmp may be memory."""
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=ROOT) as folder:
        root = Path(folder)
        settings = WorkerSettings(
            data_dir=root / "data", lock_dir=root / "locks", lane="bench", database_url=url
        )
        with open_database(settings) as db:
            yield db


if __name__ == "__main__":
    sys.exit(main())
