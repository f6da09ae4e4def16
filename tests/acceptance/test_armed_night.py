"""One armed night, lived through in a minute with real processes, and its morning.

Five jobs wait, a model lives on the lane, cron is played by starting `cockpit drain --scheduled`.
It meets a resident that hangs, a supervisor that is killed, memory that runs short, a window that
closes and a cap that is reached. In the morning every figure of the report is computed again from
the rows by plain SQL.
"""

from __future__ import annotations

import datetime
import http.server
import json
import signal
import sqlite3
import subprocess
import threading
import time
import zoneinfo
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from engine.contract import kinds, registry
from tests.acceptance.conftest import Cockpit
from tests.deadline import eventually
from tests.worker.resident import Resident
from tests.zones import zone_where_it_is
from worker.db.connection import open_database
from worker.queue.submit import enqueue
from worker.settings import WorkerSettings

pytestmark = pytest.mark.timeout(600)

NIGHTLY = '''
"""A run of a night: succeeds with a verdict, waits, or uses up the memory of its machine."""

import json
import os
import time
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from engine.contract.kind import Kind
from engine.contract.run_dir import ExitCode, complete_checkpoints, write_json


class Config(BaseModel):
    model_config = ConfigDict(extra="forbid")
    go: str | None = None  # ends when this file exists
    eats: str | None = None  # the file that says what the machine has left
    lift: float | None = None


def left(file, gb):
    text = f"MemTotal: {int(25e9 / 1024):>12} kB\\nMemAvailable: {int(gb * 1e9 / 1024):>12} kB\\n"
    handle = os.open(file, os.O_WRONLY)
    os.pwrite(handle, text.encode(), 0)
    os.close(handle)


def seen(trace, gb):
    """Two readings of it in a row, a second apart: the next step down is a step, not a fall."""
    lines = trace.read_text().splitlines() if trace.exists() else []
    return [round(json.loads(line)[1], 1) for line in lines].count(gb) >= 2


def stop(attempt):
    attempt.events.write("finished", status="aborted", result={"aborted": True})
    attempt.events.close()
    os._exit(ExitCode.ABORTED)


def run(attempt):
    config, events = attempt.config, attempt.events
    done = max((step for step, _ in complete_checkpoints(attempt.run)), default=0)
    events.write("started", resumed_from=done or None)
    events.write("progress", phase="training", step=done + 1, max_steps=2)
    folder = attempt.run.checkpoint(done + 1)
    folder.mkdir(parents=True)
    write_json(folder / "complete.json", {"step": done + 1, "files": {}})
    for gb in (8.5, 3.5, 1.6) if config.eats else ():
        left(config.eats, gb)
        while not seen(attempt.dir.root / "memory.jsonl", gb):
            time.sleep(0.01)
    while config.eats or (config.go and not Path(config.go).exists()):
        if attempt.should_abort():
            if config.eats:
                left(config.eats, 20)
            stop(attempt)
        time.sleep(0.01)
    result = {"kind": "nightly"}
    if config.lift is not None:
        ends = [config.lift - 0.013, config.lift + 0.013]
        result |= {"verdict": "gain", "lift": config.lift, "lift_ci95": ends, "report_n": 1000}
    return result


KIND = Kind(name="nightly", summary="A night's run.", config=Config, entry=f"{__name__}:run")
'''


class Hook:
    """Where the digest goes."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        hook = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                hook.messages.append(json.loads(self.rfile.read(length)))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Silence."""

        self.server = http.server.HTTPServer(("127.0.0.1", 0), Handler)


@pytest.fixture
def hook(cockpit: Cockpit, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hook]:
    """The one address in the configuration file."""
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    found = Hook()
    thread = threading.Thread(target=found.server.serve_forever, args=(0.02,))
    thread.start()
    cockpit.data_dir.mkdir()
    address = f"json://127.0.0.1:{found.server.server_port}/"
    (cockpit.data_dir / "notify.yml").write_text(f"urls:\n  - {address}\n")
    yield found
    found.server.shutdown()
    thread.join()
    found.server.server_close()


@pytest.fixture
def lives(tmp_path: Path) -> Iterator[Resident]:
    """The model that lives on the lane."""
    home = tmp_path / "resident"
    home.mkdir()
    found = Resident(home)
    found.start()
    yield found
    (home / "hang").unlink(missing_ok=True)
    found.do("stop")
    eventually(lambda: not found.up(), "the resident is gone", 20)


@pytest.fixture
def lane(
    cockpit: Cockpit, lives: Resident, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Cockpit]:
    """The cockpit on a lane that costs a cent a second, with tiny times everywhere."""
    folder = tmp_path / "kinds"
    folder.mkdir()
    (folder / "nightly.py").write_text(NIGHTLY)
    chosen = {
        "KINDS_PATH": folder,
        "PRICE_USD_H": 36,
        "METER_S": 0.1,
        "ESTIMATE_HOURS": 1e-4,
        "POLL_S": 0.02,
        "THROTTLE_S": 0,
        "HEARTBEAT_S": 0.2,
        "MEMINFO": lives.home / "meminfo",
        "RESIDENT_STOP_CMD": lives.command("stop"),
        "RESIDENT_START_CMD": lives.command("start"),
        "RESIDENT_CHECK_CMD": lives.command("check"),
        "RESIDENT_TIMEOUT_S": 10,
        "MEMORY_RETURN_S": 5,
    }
    for name, value in chosen.items():
        monkeypatch.setenv(f"NIGHTLANE_{name}", str(value))
    monkeypatch.setattr(kinds, "__path__", [*kinds.__path__, str(folder)])
    registry.kinds.cache_clear()
    yield cockpit
    registry.kinds.cache_clear()


class Night:
    """What the test does to it, in the order of the night."""

    def __init__(self, lane: Cockpit, zone: str) -> None:
        self.lane = lane
        self.zone = zone

    def do(self, *arguments: str) -> str:
        done = self.lane(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def arm(self, **terms: str) -> None:
        wanted = {"interval-min": "0.05", "cap-usd": "100", "zone": self.zone} | terms
        self.do("autonomy", "on", *(part for k, v in wanted.items() for part in (f"--{k}", v)))

    def job(self, number: int) -> dict[str, Any]:
        return dict(json.loads(self.do("show", str(number), "--json")))

    def enqueue(self, **config: Any) -> int:
        with open_database(WorkerSettings()) as db:
            return enqueue(db, "nightly", config, actor="test")

    def put_off(self) -> set[str]:
        """Why the waiting jobs were put off."""
        return {row[0] for row in self.rows("SELECT defer_reason FROM job WHERE state = 'queued'")}

    def tick(self) -> subprocess.Popen[str]:
        """A scheduled drain, once everything that was put off for a while is due again."""
        due = "SELECT 1 FROM job WHERE state = 'queued' AND next_eligible_at > ?"
        eventually(lambda: not self.rows(due, time.time()), "the queue is due")
        return self.lane.start("drain", "--scheduled")

    def states(self) -> dict[int, str]:
        return dict(self.rows("SELECT id, state FROM job"))

    def rows(self, sql: str, *values: float) -> list[Any]:
        """A look without a process."""
        with sqlite3.connect(self.lane.data_dir / "nightlane.db") as conn:
            return conn.execute(sql, values).fetchall()

    def runs(self, number: int, attempt: int) -> bool:
        """Whether an attempt has shown its first step."""
        [row] = self.rows(f"SELECT attempt, result FROM job WHERE id = {number}")  # noqa: S608
        return bool(row[0] == attempt and json.loads(row[1]).get("step"))


@pytest.mark.requirement("LN-01", "LN-04", "LN-05", "LN-06", "LN-09", "LN-11", "JB-09")
def test_an_armed_night_and_its_morning(  # noqa: PLR0915 - a night is one story
    lane: Cockpit, lives: Resident, hook: Hook, tmp_path: Path
) -> None:
    """Whatever goes wrong in it: nothing is lost, the model is back, every figure has its rows."""
    night = Night(lane, zone_where_it_is(20))
    go = tmp_path / "go"
    night.arm()
    better = night.enqueue(lift=0.021)
    killed = night.enqueue(go=str(go), lift=0.004)
    hungry = night.enqueue(eats=str(lives.home / "meminfo"))
    late = night.enqueue(go=str(tmp_path / "late"))
    dear = night.enqueue(go=str(tmp_path / "never"))

    # The resident hangs: everybody waits, and it is up again.
    (lives.home / "hang").touch()
    lane_env_drain(lane, RESIDENT_TIMEOUT="0.5")
    assert night.put_off() == {"RESIDENT_STUCK"}
    assert lives.up()
    (lives.home / "hang").unlink()

    # The supervisor is killed in the second job; the next tick goes on with it.
    doomed = night.tick()
    eventually(lambda: night.runs(killed, 1), "the second job runs")
    doomed.send_signal(signal.SIGKILL)
    doomed.communicate()
    assert not lives.up()
    go.touch()

    # Memory runs short in the third; the window closes while the fourth runs.
    drain = lane.start("drain", "--scheduled")
    eventually(lambda: night.runs(late, 1) or drain.poll() is not None, "the fourth job runs")
    assert drain.poll() is None, drain.communicate()
    night.arm(window=window_that_closes_in(6, night.zone))
    _, said = drain.communicate(timeout=120)
    assert drain.returncode == 0, said
    assert night.job(late)["waits_for"]["reason"] == "OUTSIDE_WINDOW"
    assert lives.up()
    assert len(hook.messages) == 1

    # More hours are allowed, then money is spent elsewhere while the fifth runs: the cap is met.
    (tmp_path / "late").touch()
    night.arm()
    drain = lane.start("drain", "--scheduled")
    eventually(lambda: night.runs(dear, 1) or drain.poll() is not None, "the fifth job runs")
    assert drain.poll() is None, drain.communicate()
    night.do("budget", "add", "99.99", "--note", "an API")
    _, said = drain.communicate(timeout=120)
    assert drain.returncode == 0, said
    assert night.job(dear)["waits_for"]["reason"] == "OVER_DAILY_CAP"

    # Off undoes all of it.
    night.do("autonomy", "off")
    assert lives.up()

    assert night.states() == {
        better: "succeeded",
        killed: "succeeded",
        hungry: "aborted",
        late: "succeeded",
        dear: "queued",
    }
    tomorrow = datetime.datetime.now(zoneinfo.ZoneInfo(night.zone)) + datetime.timedelta(days=1)
    report = json.loads(night.do("report", "--date", str(tomorrow.date()), "--json"))
    check_figures(report, lane.data_dir)
    assert report["ran"] == 5
    assert report["failed"] == 1
    assert report["oom_deferred"] == 2
    assert report["peak_gb"] == pytest.approx(25 - 1.6, abs=0.01)
    assert set(report["deferred"]) == {"RESIDENT_STUCK", "OVER_DAILY_CAP"}
    assert report["deferred"]["RESIDENT_STUCK"] == [better, killed, hungry, late, dear]
    assert report["sentence"] == (
        f"RAN 5 · 1 FAILED · +2.1 ± 1.3 held-out, best of 2 · peak 23.4 GB · 2 OOM-deferred · "
        f"${report['spent_usd']:.2f} of $100"
    )
    stops = [entry["rule"] for entry in report["decisions"] if entry["what"] == "stop"]
    assert stops == ["window", "budget"]
    assert len(hook.messages) == 1
    assert "RAN 4" in hook.messages[0]["title"]


def lane_env_drain(lane: Cockpit, **environment: str) -> None:
    """A tick with a shorter patience for the resident."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NIGHTLANE_RESIDENT_TIMEOUT_S", environment["RESIDENT_TIMEOUT"])
        done = lane("drain", "--scheduled")
    assert done.returncode == 0, done.stderr


def window_that_closes_in(seconds: int, zone: str) -> str:
    """A window around now, as a person would write it."""
    now = datetime.datetime.now(zoneinfo.ZoneInfo(zone))
    end = now + datetime.timedelta(seconds=seconds)
    return f"18:00-{end:%H:%M:%S}"


def check_figures(report: dict[str, Any], data_dir: Path) -> None:
    """Every figure again, from the rows and the event files, by other means."""
    with sqlite3.connect(data_dir / "nightlane.db") as conn:
        conn.row_factory = sqlite3.Row

        def rows(sql: str, *values: Any) -> list[sqlite3.Row]:
            return conn.execute(sql, values).fetchall()

        attempts = rows("SELECT * FROM attempt ORDER BY job_id, n")
        charged = {
            (row["job_id"], row["attempt"]): row
            for row in rows(
                "SELECT job_id, attempt, SUM(seconds) AS seconds, SUM(usd) AS usd FROM ledger "
                "WHERE entry IN ('meter', 'settle') GROUP BY job_id, attempt"
            )
        }
        reserved = rows("SELECT job_id, attempt FROM ledger WHERE entry = 'reserve'")
        [external] = rows("SELECT SUM(usd) AS usd FROM ledger WHERE entry = 'external'")
        events = rows("SELECT * FROM lane_event ORDER BY at, id")
        audit = rows("SELECT * FROM job_event WHERE to_state = 'running'")
        [owed] = rows("SELECT owed FROM resident")
    close: Callable[[float], Any] = lambda value: pytest.approx(value, abs=1e-6)  # noqa: E731

    # The ledger, the attempts, the audit and the engine's own files agree.
    assert set(charged) == {(row["job_id"], row["n"]) for row in attempts}
    assert len(reserved) == len(attempts) == len(audit)
    for row in attempts:
        assert charged[row["job_id"], row["n"]]["seconds"] == close(row["seconds"])
        assert charged[row["job_id"], row["n"]]["usd"] == close(row["seconds"] * 0.01)
        lines = (data_dir / f"runs/{row['job_id']}/events.jsonl").read_text().splitlines()
        assert any(json.loads(line)["attempt"] == row["n"] for line in lines)
    # The report says what they say.
    told = {(run["job_id"], entry["n"]) for run in report["runs"] for entry in run["attempts"]}
    assert told == {(row["job_id"], row["n"]) for row in attempts}
    assert report["lane_hours"] == close(sum(row["seconds"] for row in attempts) / 3600)
    assert report["external_usd"] == external["usd"] == 99.99
    spent = sum(row["usd"] for row in charged.values()) + external["usd"]
    assert report["spent_usd"] == close(spent)
    assert sum(day["spent_usd"] for day in report["days"]) == close(spent)
    assert report["oom_deferred"] == sum(row["cause"] == "MEMORY" for row in attempts)
    assert [row["cause"] for row in attempts].count("LOST") == 1
    assert [entry["id"] for entry in report["decisions"]] == [row["id"] for row in events]
    put_off = {(row["rule"], row["job_id"]) for row in events if row["what"] == "defer"}
    assert {(r, j) for r, jobs in report["deferred"].items() for j in jobs} == put_off
    stopped = [row["what"] for row in events if row["what"] == "resident-stopped"]
    restored = [row["what"] for row in events if row["what"] == "resident-restored"]
    assert len(restored) == len(stopped) + 1  # once after the stop that hung
    assert owed["owed"] == 0
