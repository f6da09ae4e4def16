"""The digest (notification): one message when the night's last job has ended.

Sent through Apprise to the addresses of a configuration file of the operator's; neither a job nor
a request can name one. A night gets one digest, whoever drained it; that it was sent, or could not
be, stands in the lane's audit.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path

from sqlalchemy import func, select

from engine.contract.errors import NightlaneError
from worker.clock.night import Night, night_at
from worker.db import decisions
from worker.db.connection import Database
from worker.db.tables import lane_event
from worker.db.zone import zone_of
from worker.report import messenger
from worker.report.messenger import Outcome
from worker.report.standup import Report, build
from worker.settings import WorkerSettings

SENT, FAILED = "digest-sent", "digest-failed"
_MOST_REASONS = 500
"""Characters of what Apprise says about addresses that did not take a message."""
DEADLINE_S = 60.0
"""Seconds that all addresses together have for their answers."""
_LOG = logging.getLogger(__name__)


class NotifyError(NightlaneError):
    """A message that could not be sent."""


def notify_file(settings: WorkerSettings) -> Path:
    """Where the addresses stand."""
    return settings.notify_file or settings.data_dir / "notify.yml"


def send(settings: WorkerSettings, title: str, body: str) -> int:
    """Send one message to every address; returns how many there are.

    Raises NotifyError when there is no file, no address in it, or one of them did not take it in
    time.
    """
    path = notify_file(settings)
    if not path.is_file():
        raise NotifyError(
            f"{path} does not exist; write an Apprise configuration there, "
            "or set NIGHTLANE_NOTIFY_FILE"
        )
    outcome = _delivered(path, title, body)
    if outcome["addresses"] == 0:
        raise NotifyError(f"{path} holds no address that Apprise can read; correct it")
    if not outcome["taken"]:
        why = outcome["said"][:_MOST_REASONS] or "Apprise gives no reason"
        raise NotifyError(f"not every address of {path} took the message: {why}")
    return outcome["addresses"]


def _delivered(path: Path, title: str, body: str) -> Outcome:
    message = json.dumps({"file": str(path), "title": title, "body": body})
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", messenger.__name__],
            input=message.encode(),
            capture_output=True,
            timeout=DEADLINE_S,
            check=True,
        )
    except subprocess.TimeoutExpired:
        raise NotifyError(
            f"an address of {path} gave no whole answer within {DEADLINE_S:g} s"
        ) from None
    except OSError as error:
        raise NotifyError(f"no process to send the message with: {error.strerror}") from error
    except subprocess.CalledProcessError as error:
        words = (error.stderr.decode(errors="replace").strip().splitlines() or [""])[-1]
        raise NotifyError(f"{path}: Apprise fell over: {words[:_MOST_REASONS]}") from error
    outcome: Outcome = json.loads(done.stdout)
    return outcome


def send_once(db: Database, now: float) -> bool:
    """The digest of the night that `now` lies in, if anything ran in it and none was sent yet.

    Whether it was sent. A failure is written down and told to nobody else: no drain ends for it.
    """
    if not notify_file(db.settings).is_file():
        return False
    with db.read() as conn:
        night = night_at(now, zone_of(conn, db.settings.lane))
    if _done(db, night):
        return False
    report = build(db, night, now)
    if not report.runs:
        return False
    try:
        count = send(db.settings, f"Nightlane {report.day}: {report.sentence}", body_of(report))
    except NotifyError as error:
        _LOG.warning("%s", error)
        _note(db, FAILED, str(error), {}, now)
        return False
    _note(db, SENT, report.sentence, {"addresses": count, "day": report.day.isoformat()}, now)
    return True


def body_of(report: Report) -> str:
    """The message: the sentence, a line a job, and what to do."""
    lines = [report.sentence, ""]
    for run in report.runs:
        demo = " (demo)" if run.demo else ""
        ending = ", ".join(filter(None, (run.cause, run.verdict, run.reason))) or run.state
        then = f"; requant: {run.requant}" if run.requant else ""
        lines.append(f"job {run.job_id} {run.name}: {run.state}, {ending}{then}{demo}")
    lines += ["", *(f"- {proposal.text}" for proposal in report.proposals)]
    return "\n".join(lines).strip()


def _done(db: Database, night: Night) -> bool:
    statement = select(func.count()).where(
        lane_event.c.lane == db.settings.lane,
        lane_event.c.at >= night.begin,
        lane_event.c.at < night.end,
        lane_event.c.what == SENT,
    )
    with db.read() as conn:
        return bool(conn.execute(statement).scalar_one())


def _note(db: Database, what: str, detail: str, numbers: dict[str, object], now: float) -> None:
    with db.write_tx() as conn:
        decisions.record_once(
            conn, db.settings.lane, what, detail, actor="digest", numbers=numbers, at=now
        )
