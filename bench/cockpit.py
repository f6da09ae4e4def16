"""The cockpit under load: a thousand runs, a million values, two hundred open pages.

`make bench-cockpit`: a real `cockpit serve` over a real SQLite file and a real Chromium. Prints
each figure beside its bound, and ends with 1 when one is missed (`--report-only`: with 0).
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import math
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import httpx
import psutil
from playwright.sync_api import BrowserContext, Page, sync_playwright
from sqlalchemy import insert, update

from app.web.live import RATE_HZ
from engine.contract.run_dir import RunDir
from tests.app.night import Night, night, queue
from tests.browser.conftest import ARGUMENTS
from tests.door import address, bearer_here
from tests.filled import filled
from worker.attempt.ingest import write_metrics
from worker.db.connection import Database, open_database
from worker.db.metrics import roll_up
from worker.db.tables import job, metric, state_count
from worker.memory.trace import LOG as MEMORY_LOG
from worker.memory.trace import MemoryPoint
from worker.queue.states import State
from worker.read.feed import last_change_id
from worker.settings import WorkerSettings

RUNS, POINTS, LONG = 1_000, 1_000_000, 100_000
NIGHT_S = 8 * 3600
"""So long memory was traced in the run that goes on, once a second."""
VIEWERS = 200
PAGE_MS, EVENT_MS, FIRST_LOAD_KB, MEMORY_MB, DRAWN_MS = 100.0, 1000.0, 70.0, 200.0, 400.0
BROKEN_MS = 30_000.0
"""What an answer that is an error counts as."""
STREAM_S, STREAM_SHARE = 5.0, 20.0
"""Seconds that the streams are watched alone, and how much of a core they may take."""
SERIES = ("pool/score", "pool/reward_mean", "train/kl", "train/entropy", "rollout/length_mean")
_WARM = 3
DRAWS = 20
LOOK_S, LEFT_ALONE_S = 0.5, 0.7
"""So long somebody looks at the board, and a page is left to draw."""


@dataclass(frozen=True)
class Figure:
    """One measured thing beside its bound."""

    name: str
    value: float
    bound: float
    unit: str
    n: int
    spread: str

    @property
    def held(self) -> bool:
        return self.value <= self.bound


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table; with `--json FILE` write the same figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=40, help="requests of each page")
    parser.add_argument("--events", type=int, default=40, help="timed from event to screen")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the runs and values")
    parser.add_argument("--viewers", type=int, default=VIEWERS)
    parser.add_argument("--json", type=Path, help="write the figures here too")
    parser.add_argument("--report-only", action="store_true", help="exit 0 whatever was missed")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        figures = measure(Path(folder), options)
    print(f"{'':56} {'p95':>9} {'bound':>9}        n  spread")
    for figure in figures:
        print(
            f"{figure.name:56} {figure.value:9.1f} {figure.bound:9.0f} {figure.unit:3} "
            f"{figure.n:5}  {figure.spread:42} {'held' if figure.held else 'MISSED'}"
        )
    if options.json:
        told = [asdict(figure) | {"held": figure.held} for figure in figures]
        load = os.getloadavg()
        options.json.write_text(json.dumps({"figures": told, "load": load}, indent=1))
    return 0 if options.report_only or all(figure.held for figure in figures) else 1


def measure(folder: Path, options: argparse.Namespace) -> list[Figure]:
    """Fill a directory, serve it, look at it from everywhere."""
    os.environ["NIGHTLANE_DATA_DIR"] = str(folder / "data")
    os.environ["NIGHTLANE_LOCK_DIR"] = str(folder / "locks")
    # Nobody supervises the running job between its steps; it must not turn stale.
    os.environ["NIGHTLANE_LEASE_S"] = "3600"
    settings = WorkerSettings()
    with open_database(settings) as db:
        with filled(db):
            pass
        long_run = crowd(db, options.scale)
        with night(db) as lane, serving() as (url, process):
            running = run_one(lane)
            viewers = Viewers(url, options.viewers - 1)  # the browser is the last one
            try:
                figures = [streaming(process, viewers, running)]
                figures += pages(url, process, running, long_run, options.rounds)
                behind = viewers.behind(db)
                figures += screens(url, running, options.events)
                figures += first_draws(url, long_run, f"{viewers.count} viewers")
                memory = process.memory_info().rss / 2**20
            finally:
                viewers.close()
            figures += first_draws(url, long_run, "alone")
            figures.append(Figure("viewers behind the last step", behind, 0, "", viewers.count, ""))
            figures += [Figure("server's memory", memory, MEMORY_MB, "MiB", 1, ""), first_load(url)]
            running.finish()
    return figures


# --- what stands in the directory ---


def crowd(db: Database, scale: float) -> int:
    """Runs with ten series of values each, and one of a hundred thousand steps; its id."""
    chance = random.Random(0)
    runs = max(2, int(RUNS * scale))
    steps = max(20, int((POINTS - LONG * len(SERIES)) * scale / runs / len(SERIES)))
    began = time.time() - 30 * 86_400
    print(f"{runs} runs of {steps} steps, one of {int(LONG * scale)}, {len(SERIES)} series each")
    ids = [queue(db, name=f"run {number}") for number in range(runs)]
    for place, job_id in enumerate(ids):
        mine = int(LONG * scale) if place == runs - 1 else steps
        at = began + place * 2000
        values(db, job_id, mine, at, chance)
        done(db, job_id, at, chance)
    with db.write_tx() as conn:
        conn.execute(
            update(state_count)
            .where(state_count.c.state == State.QUEUED)
            .values(n=state_count.c.n - runs)
        )
        conn.execute(
            update(state_count)
            .where(state_count.c.state == State.SUCCEEDED)
            .values(n=state_count.c.n + runs)
        )
    return ids[-1]


def values(db: Database, job_id: int, steps: int, at: float, chance: random.Random) -> None:
    """A noisy curve of each series, and twenty gates; in one transaction."""
    with db.write_tx() as conn:
        for place, series in enumerate(SERIES):
            level, rows = 0.35 + 0.3 * chance.random(), []
            for step in range(1, steps + 1):
                wave = level + 0.2 * math.sin(step / steps * 6 + place) + chance.gauss(0, 0.05)
                rows.append({"job_id": job_id, "series": series, "step": step, "attempt": 1,
                             "value": wave, "at": at + step * 0.1})  # fmt: skip
            conn.execute(insert(metric), rows)
        roll_up(conn, job_id, dict.fromkeys(SERIES, (1, steps)))
        gates = [
            {"type": "gate", "attempt": 1, "t": at + step * 0.1, "step": step, "split": "select",
             "score": 0.5 + 0.3 * step / steps, "n": 500,
             "ci95": [0.46 + 0.3 * step / steps, 0.54 + 0.3 * step / steps]}
            for step in range(0, steps + 1, max(1, steps // 20))
        ]  # fmt: skip
        write_metrics(conn, job_id, gates)


def done(db: Database, job_id: int, at: float, chance: random.Random) -> None:
    """It ended well; how, is of no interest here."""
    lift = chance.gauss(0.1, 0.05)
    result = {"heldout_before": 0.5, "heldout_after": 0.5 + lift, "lift": lift,
              "lift_ci95": [lift - 0.04, lift + 0.04], "verdict": "gain", "report_n": 500,
              "selected_step": 10, "steps": 100, "seconds": 1200.0, "peak_gb": 2.3}  # fmt: skip
    with db.write_tx() as conn:
        conn.execute(
            update(job)
            .where(job.c.id == job_id)
            .values(
                state=State.SUCCEEDED,
                started_at=at,
                finished_at=at + 1200,
                attempt=1,
                result=result,
            )
        )
    attempt = RunDir(db.settings.runs_dir / str(job_id)).attempt(1)
    attempt.root.mkdir(parents=True)
    attempt.log.write_text("a line of the log\n" * 2000)


def run_one(lane: Night) -> Any:
    """One run that goes on, whose steps the viewers see."""
    job_id = queue(lane.db, name="tonight")
    with lane.db.write_tx() as conn:
        conn.execute(update(job).where(job.c.id == job_id).values(priority=99))
    attempt = lane.start()
    night = memory_of(attempt)
    began = time.time() - NIGHT_S
    points = [
        MemoryPoint(began + second, 20.0 + second % 60 / 60, "training")
        for second in range(NIGHT_S)
    ]
    night.write_text("".join(json.dumps(point) + "\n" for point in points))
    attempt.gate(0, 0.5)
    attempt.step(1, 0.5)
    return attempt


def memory_of(running: Any) -> Path:
    """The memory log of its attempt."""
    log: Path = running.run.attempt(1).root / MEMORY_LOG
    return log


# --- the server and those who look at it ---


@contextlib.contextmanager
def serving() -> Iterator[tuple[str, psutil.Process]]:
    """`cockpit serve` as a process; its address."""
    command = [sys.executable, "-m", "app.cli", "serve", "--port", "0"]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert child.stdout is not None
        url = child.stdout.readline().split()[-1].rstrip("/")
        for _ in range(200):
            with contextlib.suppress(httpx.TransportError):
                if httpx.get(f"{url}/readyz", trust_env=False).is_success:
                    break
            time.sleep(0.1)
        yield url, psutil.Process(child.pid)
    finally:
        child.terminate()
        child.wait(20)


class Viewers:
    """Live streams, read by a process of their own, so that they cost us no time."""

    def __init__(self, url: str, count: int) -> None:
        source = Path(__file__).with_name("cockpit_viewers.py")
        command = [sys.executable, str(source), url, str(count)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        environment = os.environ | {"AUTHORIZATION": bearer_here()["authorization"]}
        self._child = subprocess.Popen(command, text=True, env=environment, **pipes)  # type: ignore[call-overload]
        self.count = count
        if self._child.stdout.readline().strip() != "open":
            raise SystemExit(f"{count} streams could not be opened")

    def behind(self, db: Database) -> int:
        """How many have not heard of the newest change, two bursts after it."""
        newest = last_change_id(db)
        time.sleep(2 / RATE_HZ)
        self._child.stdin.write(f"{newest}\n")
        self._child.stdin.flush()
        return self.count - int(self._child.stdout.readline())

    def worked_s(self) -> float:
        """CPU seconds of all of them so far."""
        return sum(psutil.Process(self._child.pid).cpu_times()[:2])

    def close(self) -> None:
        self._child.terminate()
        self._child.wait(20)


# --- what is measured ---


def streaming(server: psutil.Process, viewers: Viewers, running: Any) -> Figure:
    """What the streams alone take of one core while two steps a second come."""
    with going_on(running):
        begun = time.perf_counter()
        busy, read = sum(server.cpu_times()[:2]), viewers.worked_s()
        time.sleep(STREAM_S)
        busy, read = sum(server.cpu_times()[:2]) - busy, viewers.worked_s() - read
        lasted = time.perf_counter() - begun
    readers = f"the viewers themselves {read / lasted * 100:.1f} %"
    name = f"server's CPU for {viewers.count} streams"
    return Figure(name, busy / lasted * 100, STREAM_SHARE, "%", 1, readers)


def pages(
    url: str, server: psutil.Process, running: Any, long_run: int, rounds: int
) -> list[Figure]:
    """Every page, asked for again and again while a run goes on and all viewers hear of it."""
    run, tabs = f"/jobs/{running.job_id}", ("log", "memory", "config", "events", "repro")
    addresses = [
        "/", "/queue", "/report", f"/compare?a={long_run}&b={long_run - 1}", "/budget",
        f"/machine?job={running.job_id}", f"/machine/{running.job_id}/memory.json",
        "/audit", "/new", "/help", run, f"{run}?part=live", *(f"{run}?tab={tab}" for tab in tabs),
        f"{run}/samples", f"/jobs/{long_run}", f"/jobs/{long_run}?tab=log",
        f"/jobs/{long_run}/charts/learning.json", f"/jobs/{long_run}/charts/kl.json?axis=time",
        f"/jobs/{long_run}/charts/kl.json?from=40000&to=60000", f"/jobs/{long_run}/charts/learning",
        f"/api/v1/jobs/{long_run}/metrics?points=1000", "/api/v1/jobs?limit=50", "/strip",
    ]  # fmt: skip
    took: dict[str, list[float]] = {address: [] for address in addresses}
    worked = dict.fromkeys(addresses, 0.0)  # the server's seconds: what a busy machine leaves alone
    client = httpx.Client(base_url=url, headers=bearer_here(), trust_env=False, timeout=30)
    with going_on(running), client:
        for turn in range(rounds + _WARM):
            for address in addresses:
                begun, busy = time.perf_counter(), sum(server.cpu_times()[:2])
                answer = client.get(address)
                elapsed = (time.perf_counter() - begun) * 1000
                if turn >= _WARM:
                    took[address].append(elapsed if answer.is_success else BROKEN_MS)
                    worked[address] += sum(server.cpu_times()[:2]) - busy
    return [
        figure(_short(name), times, PAGE_MS, "ms", f", CPU {worked[name] / rounds * 1000:.0f}")
        for name, times in took.items()
    ]


def _short(address: str) -> str:
    return re.sub(r"/(jobs|machine)/\d+", r"/\1/N", re.sub(r"=\d{2,}", "=…", address))


@contextlib.contextmanager
def going_on(running: Any) -> Iterator[None]:
    """Two steps a second, as a quick run writes them."""
    enough = threading.Event()

    def write() -> None:
        while not enough.wait(0.5):
            running.step(next(STEPS), 0.5)
            with memory_of(running).open("a") as log:
                log.write(json.dumps(MemoryPoint(time.time(), 20.0, "training")) + "\n")

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield
    finally:
        enough.set()
        writer.join()


STEPS = itertools.count(2)


# The page says itself when its bar stood at a step: a driver that looks now and then looks late.
_WATCHED = """() => {
  window.drawnAt = {};
  const look = () => {
    const step = document.querySelector("progress")?.getAttribute("value");
    requestAnimationFrame(() => { window.drawnAt[step] ??= Date.now(); });
  };
  const changes = { attributes: true, childList: true, subtree: true };
  new MutationObserver(look).observe(document.body, changes);
}"""


def screens(url: str, running: Any, events: int) -> list[Figure]:
    """In Chromium: from an event's write to the page."""
    chance = random.Random(1)
    with chromium(url) as context:
        outside: list[str] = []
        context.on("request", lambda asked: outside.append(asked.url))
        page = context.new_page()
        page.goto(f"{url}/jobs/{running.job_id}")
        page.wait_for_selector("#connection[data-state=live]")
        page.evaluate(_WATCHED)
        shown = []
        for _ in range(events):
            time.sleep(chance.uniform(0.3, 1.5))
            step, begun = next(STEPS), time.time()
            running.step(step, 0.5)
            drawn = page.wait_for_function("step => window.drawnAt[step]", arg=step)
            shown.append(drawn.json_value() - begun * 1000)
    strangers = sum(not asked.startswith((url, "data:", "blob:")) for asked in outside)
    return [
        figure("event to screen", shown, EVENT_MS, "ms"),
        Figure("requests to other hosts", strangers, 0, "", len(outside), ""),
    ]


@contextlib.contextmanager
def chromium(url: str) -> Iterator[BrowserContext]:
    """A browser of its own, as wide as a laptop's screen, that is signed in."""
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path="/usr/bin/chromium", args=ARGUMENTS)
        context = browser.new_context(viewport={"width": 1280, "height": 900})
        with open_database(WorkerSettings()) as db:
            context.request.get(address(db, url))
        yield context
        browser.close()


def first_draws(url: str, long_run: int, setting: str) -> list[Figure]:
    """A long run's page in Chromium, until the frame with all charts in sight has been made.

    Counted from the beginning of the navigation: in the tab that shows the board, as somebody goes
    there who has looked at it, and in a new tab. Told beside it is when the first words stood on
    the screen (the browser's first contentful paint). Nobody asks a page anything while it draws.
    """
    address = f"{url}/jobs/{long_run}"
    ways: dict[str, list[Any]] = {"from the board": [], "in a new tab": []}
    with chromium(url) as context:
        board = context.new_page()
        for _ in range(DRAWS + _WARM):
            _look_at(board, url)
            board.goto(address, wait_until="commit")
            ways["from the board"].append(_moments(board))
        _look_at(board, url)  # the stream stands, as with any second tab
        for _ in range(DRAWS + _WARM):
            with context.expect_page() as opened:
                board.evaluate("address => { open(address, '_blank', 'noopener'); }", address)
            ways["in a new tab"].append(_moments(opened.value))
            opened.value.close()
    told = []
    for way, moments in ways.items():
        shown, words = zip(*moments[_WARM:], strict=True)
        more = f"; first words {statistics.median(words):.0f}, worst {max(words):.0f}"
        told.append(figure(f"100,000 points, {setting}: {way}", shown, DRAWN_MS, "ms", more))
    return told


def _look_at(page: Page, address: str) -> None:
    page.goto(address)
    page.wait_for_selector("#connection[data-state=live]")
    time.sleep(LOOK_S)


def _moments(page: Page) -> Any:
    time.sleep(LEFT_ALONE_S)
    page.wait_for_function("performance.getEntriesByName('charts-shown').length")
    return page.evaluate(_SINCE_BEGUN)


_SINCE_BEGUN = """["charts-shown", "first-contentful-paint"].map(
  (name) => performance.getEntriesByName(name)[0].startTime
)"""


def first_load(url: str) -> Figure:
    """Everything that the board asks for with an empty cache, in bytes on the wire."""
    with httpx.Client(base_url=url, headers=bearer_here(), trust_env=False) as client:
        board = client.get("/")
        files = set(re.findall(r'"(/static/[^"]+)"', board.text))
        sizes = [board.num_bytes_downloaded]
        sizes += [client.get(name).num_bytes_downloaded for name in sorted(files)]
    return Figure("first load", sum(sizes) / 1024, FIRST_LOAD_KB, "KiB", len(sizes), "")


def figure(name: str, times: Sequence[float], bound: float, unit: str, more: str = "") -> Figure:
    """The 95th percentile, with the median and the worst beside it."""
    ordered = sorted(times)
    p95 = ordered[min(len(ordered) - 1, math.ceil(len(ordered) * 0.95) - 1)]
    spread = f"median {statistics.median(ordered):.1f}, worst {ordered[-1]:.1f}{more}"
    return Figure(name, p95, bound, unit, len(ordered), spread)


if __name__ == "__main__":
    sys.exit(main())
