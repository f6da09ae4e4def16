"""The queue beside huey, procrastinate and DBOS, with a long history, and a drain that waits.

`make bench-queue`: one run side by side; every commit is synced to disk, ours goes through the
functions that enqueue, claim and settle in the product, the peers through `queues_peers.py` in an
environment of their own. (Not `queue.py`: that would hide Python's own module from its siblings.)
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from sqlalchemy import Connection, Insert, func, insert, literal, select, update

from engine.contract import kinds
from engine.contract.run_dir import RunDir
from tests.postgres import postgres_server
from worker.attempt.settlement import Verdict
from worker.attempt.writing import actor, write_verdict
from worker.db.connection import Database, open_database
from worker.db.tables import job, state_count
from worker.lane.lease import Lease, hold_lane
from worker.lane.process_id import ProcessIdentity
from worker.queue.deferral import Reason
from worker.queue.states import State
from worker.queue.submit import Claim, claim, enqueue, look
from worker.read import jobs as views
from worker.read.lane import lane_status
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


def main(argv: Sequence[str] | None = None) -> None:
    """Print the tables; with `--json FILE` write the same figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=5, help="of each queue, in turns")
    parser.add_argument("--jobs", type=int, default=600, help="in each round")
    parser.add_argument("--history", type=float, default=1.0, help="share of the long history")
    parser.add_argument("--claims", type=int, default=12_000, help="timed beside the history")
    parser.add_argument("--pickups", type=int, default=15, help="jobs sent to a waiting drain")
    parser.add_argument("--only", choices=["peers", "history", "pickup"])
    parser.add_argument("--json", type=Path, help="write the figures here too")
    parser.add_argument("--be-one-of", type=int, nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    os.environ["NIGHTLANE_KINDS_PATH"] = str(KINDS)  # for the processes below this one
    kinds.__path__.append(str(KINDS))
    if options.be_one_of:
        be_one_of(*options.be_one_of)
        return
    figures: dict[str, Any] = {}
    if options.only in {None, "peers"}:
        figures["peers"] = side_by_side(options.rounds, options.jobs)
    if options.only in {None, "history"}:
        figures["history"] = history(options.history, options.claims)
    if options.only in {None, "pickup"}:
        figures["pickup"] = pickup(options.pickups)
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


# --- side by side ---


def side_by_side(rounds: int, count: int) -> dict[str, Any]:
    """Jobs a second, in and out, of every queue in turns."""
    measured: dict[str, list[dict[str, float]]] = {}
    with postgres_server(durable=True) as server:
        contenders: dict[str, Callable[[], dict[str, float]]] = {
            "ours, SQLite": lambda: _ours(count),
            "ours, SQLite, 10 threads": lambda: _ours(count, threads=10),
            "ours, SQLite, 10 processes": lambda: _ours_in_processes(count, 10),
            "ours, PostgreSQL": lambda: _ours(count, server.new_database()),
            "huey, SQLite": lambda: _peer("huey", count),
            "procrastinate, PostgreSQL, 1": lambda: _procrastinate(server.new_database(), count, 1),
            "procrastinate, PostgreSQL, 10": lambda: _procrastinate(
                server.new_database(), count, 10
            ),
            "DBOS, SQLite": lambda: _peer("dbos", count // 10),
        }
        for _ in range(rounds):
            for name, run in contenders.items():
                measured.setdefault(name, []).append(run())
    return _print_rates(measured)


def _ours(count: int, url: str | None = None, threads: int = 1) -> dict[str, float]:
    """The product's own functions; no engine is started. Threads enqueue as those of the web
    server do. A lane runs one job at a time: ten at once are ten lanes, each in a thread.
    """
    with _place(url) as db, ExitStack() as held, ThreadPoolExecutor(threads) as pool:
        leases = [held.enter_context(hold_lane(db, lane)) for lane in _lanes(db, threads)]

        def put_in(numbers: Iterator[int]) -> None:
            for one in [pool.submit(_put_in, db, numbers) for _ in range(threads)]:
                one.result()

        def work() -> None:
            for one in [pool.submit(_work, db, lease) for lease in leases]:
                one.result()

        put_in(iter(range(WARM)))
        work()
        began = time.perf_counter()
        put_in(iter(range(WARM, WARM + count)))
        put = time.perf_counter()
        work()
        end = time.perf_counter()
        assert views.counts(db)[State.SUCCEEDED] == WARM + count
    return {"enqueue": count / (put - began), "finish": count / (end - put)}


def _lanes(db: Database, count: int) -> list[WorkerSettings]:
    return [db.settings.model_copy(update={"lane": f"bench{number}"}) for number in range(count)]


def _put_in(db: Database, numbers: Iterable[int]) -> None:
    for number in numbers:
        enqueue(db, "noop", {"number": number, "text": "text"}, actor="bench")


def _work(db: Database, lease: Lease) -> None:
    """What a drain does around each attempt: look, claim under the next fence, settle."""
    while look(db).claimable:
        number = _claim(db, lease)
        if number is not None:
            write_verdict(lease, number, 1, Verdict(State.SUCCEEDED, "the engine finished"))


def _claim(db: Database, lease: Lease) -> int | None:
    """None: another lane was faster."""

    def take(conn: Connection) -> Claim | None:
        taken = claim(conn, lane=lease.lane, fence=lease.fence + 1, actor=actor())
        if taken is not None:
            lease.advance(conn, taken.job_id)
        return taken

    taken = db.write(take)
    if taken is None:
        return None
    lease.fence = taken.fence
    return taken.job_id


def _ours_in_processes(count: int, processes: int) -> dict[str, float]:
    """The same, with a process of its own for each that enqueues and for each lane."""
    with _place() as db, ExitStack() as started:
        workers = []
        for lane in _lanes(db, processes):
            shares = [str(WARM // processes), str(count // processes)]
            command = [sys.executable, __file__, "--be-one-of", *shares]
            worker = subprocess.Popen(
                command,
                env=os.environ | _environment(lane),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            workers.append(started.enter_context(worker))
        *_, put, work = [_in_step(workers) for _ in _PARTS]
        assert views.counts(db)[State.SUCCEEDED] == WARM + count
    return {"enqueue": count / put, "finish": count / work}


def _in_step(workers: Sequence[subprocess.Popen[str]]) -> float:
    """Let each do its next part; returns how long the slowest took, in seconds."""
    began = time.perf_counter()
    for worker in workers:
        assert worker.stdin is not None
        print(file=worker.stdin, flush=True)
    for worker in workers:
        assert worker.stdout is not None
        if not worker.stdout.readline():
            sys.exit("one of ten processes failed")
    return time.perf_counter() - began


_PARTS = ("start", "put in the first", "work", "put in", "work")


def be_one_of(warm: int, count: int) -> None:
    """A process of `_ours_in_processes`: a part for each line that comes in."""
    settings = WorkerSettings()
    with open_database(settings) as db, hold_lane(db, settings) as lease:
        mine = itertools.count(os.getpid() * (warm + count))  # as no other process has them
        shares = iter((warm, count))
        for part in _PARTS:
            sys.stdin.readline()
            if part.startswith("put in"):
                _put_in(db, itertools.islice(mine, next(shares)))
            elif part == "work":
                _work(db, lease)
            print(part, flush=True)


def _peer(name: str, count: int, *more: str) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix=".bench-", dir=ROOT) as folder:
        return _run_peer(name, folder, str(count), *more)


def _procrastinate(url: str, count: int, concurrency: int) -> dict[str, float]:
    return _run_peer("procrastinate", url, str(count), str(concurrency))


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
    def median(name: str, what: str) -> float:
        return statistics.median(one[what] for one in measured[name])

    print("`ours is`: ours on SQLite, with ten threads beside a peer's ten, over this one.\n")
    print("| queue | enqueue/s | ours is | claim + finish/s | ours is |\n|---|---|---|---|---|")
    figures = {}
    for name, rounds in measured.items():
        cells = []
        for what in ("enqueue", "finish"):
            rates = [one[what] for one in rounds]
            ours = "ours, SQLite, 10 threads" if name.endswith(", 10") else "ours, SQLite"
            times = median(ours, what) / median(name, what)
            cells += [
                f"{median(name, what):,.0f} ({min(rates):,.0f} to {max(rates):,.0f})",
                f"{times:.2f} ×",
            ]
            figures[f"{name}: {what}"] = {"per_s": rates, "ours_times": round(times, 2)}
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
    return figures


# --- a long history ---


def history(share: float, claims: int) -> dict[str, Any]:
    """Claims of an empty table and of one with a million finished jobs: pairs, one right behind
    the other, so that both meet the same disk.
    """
    with _place() as empty, _place() as full, hold_both(empty, full) as (lease, other):
        _fill(full, round(FINISHED * share), round(FUTURE * share))
        times: dict[str, list[float]] = {"empty": [], "full": []}
        pairs = [("empty", empty, lease), ("full", full, other)]
        for number in range(claims):
            for db in (empty, full):
                enqueue(db, "noop", {"number": number}, actor="bench", force=True)
            taken = {}
            for name, db, held in pairs if number % 2 else pairs[::-1]:
                began = time.perf_counter()
                taken[name] = _claim(db, held)
                times[name].append(time.perf_counter() - began)
            for name, _, held in pairs:
                write_verdict(held, taken[name] or 0, 1, Verdict(State.SUCCEEDED, "done"))
        newest = views.list_jobs(full, limit=1)[0].id
        looks: dict[str, Callable[[], object]] = {
            "list, newest page": lambda: views.list_jobs(full),
            "list, a page in the middle": lambda: views.list_jobs(full, before=newest // 2),
            "list, what succeeded": lambda: views.list_jobs(full, state=State.SUCCEEDED),
            "list, what waits": lambda: views.list_jobs(full, state=State.QUEUED),
            "next in the queue": lambda: views.next_jobs(full),
            "counts": lambda: views.counts(full),
            "look": lambda: look(full),
        }
        for name, act in looks.items():
            times[name] = [_timed(act) for _ in range(200)]
    return _print_times(times)


@contextmanager
def hold_both(one: Database, two: Database) -> Iterator[tuple[Lease, Lease]]:
    """Two lanes: the machine-wide lock lets nobody hold the same one twice."""
    settings = two.settings.model_copy(update={"lane": "other"})
    with hold_lane(one, one.settings) as lease, hold_lane(two, settings) as other:
        yield lease, other


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
    print(f"\nclaim, full / empty: p99 {ratio:.2f} (bound 1.25), median {medians:.2f}")
    return figures


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
    figures = {}
    for name, seconds in (("commit → claim", claimed), ("commit → engine process", spawned)):
        # The first one meets a drain that holds the lane and is still starting.
        first_ms, *row_ms = (1000 * one for one in seconds)
        figures[name] = {"first_ms": round(first_ms, 1), "ms": [round(one, 1) for one in row_ms]}
        print(f"| {name} | {statistics.median(row_ms):.0f} | {max(row_ms):.0f} | 250 |")
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
    return views.get_job(db, job_id).state is State.SUCCEEDED


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
    main()
