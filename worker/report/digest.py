"""The digest (notification): one message when the night's last job has ended.

Sent through Apprise to the addresses of a configuration file of the operator's; neither a job nor
a request can name one. A night gets one digest, whoever drained it; that it was sent, or could not
be, stands in the lane's audit.
"""

from __future__ import annotations

import logging
from pathlib import Path

from sqlalchemy import func, select

from engine.contract.errors import NightlaneError
from worker.database import Database
from worker.lane import decisions
from worker.lane.ledger import zone_of
from worker.lane.tables import lane_event
from worker.report.night import Night, night_at
from worker.report.standup import Report, build
from worker.settings import WorkerSettings

SENT, FAILED = "digest-sent", "digest-failed"
_MOST_REASONS = 500
"""Characters of what Apprise says about addresses that did not take a message."""
_LOG = logging.getLogger(__name__)


class NotifyError(NightlaneError):
    """A message that could not be sent."""


def notify_file(settings: WorkerSettings) -> Path:
    """Where the addresses stand."""
    return settings.notify_file or settings.data_dir / "notify.yml"


def send(settings: WorkerSettings, title: str, body: str) -> int:
    """Send one message to every address; returns how many there are.

    Raises NotifyError when there is no file, no address in it, or one of them did not take it.
    """
    import apprise  # noqa: PLC0415 - half a second that only a message pays

    path = notify_file(settings)
    if not path.is_file():
        raise NotifyError(
            f"{path} does not exist; write an Apprise configuration there, "
            "or set NIGHTLANE_NOTIFY_FILE"
        )
    # A configuration may not fetch another one: addresses come from this file alone.
    config = apprise.AppriseConfig(recursion=0, insecure_includes=False)
    config.add(str(path))
    messenger = apprise.Apprise()
    messenger.add(config)
    addresses = len(messenger)
    if addresses == 0:
        raise NotifyError(f"{path} holds no address that Apprise can read; correct it")
    with apprise.LogCapture(level=logging.WARNING, fmt="%(message)s") as said:  # type: ignore[no-untyped-call]
        taken = messenger.notify(title=title, body=body)
        reasons = "; ".join(dict.fromkeys(said.getvalue().split("\n"))).strip("; ")
    if not taken:
        why = reasons[:_MOST_REASONS] or "Apprise gives no reason"
        raise NotifyError(f"not every address of {path} took the message: {why}")
    return addresses


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
        ending = run.verdict or run.cause or run.state
        lines.append(f"job {run.job_id} {run.name}: {run.state}, {ending}")
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
