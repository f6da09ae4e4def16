"""The crontab lines (scheduler integration): written, found again, and taken out.

One at the policy's interval, and one at the opening of its window where cron can say that. A line
carries all that a drain needs to find its place, because cron knows no environment: the
data directory, the lane, and every `NIGHTLANE_` and `FK_RL_` variable of whoever installed it. What
the policy says (cap, window) stands in the database, so no edit of the line can lose it. Lines of
others are never touched. Uses the `crontab` program; knows no policy but its interval.
"""

from __future__ import annotations

import datetime
import heapq
import os
import re
import shlex
import shutil
import subprocess
import sys
import zoneinfo
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from cronsim import CronSim

from engine.contract.errors import ConfigError, ConfigProblem, NightlaneError
from worker.clock.window import DAYS, Window, zone_named
from worker.settings import WorkerSettings

_PREFIXES = ("NIGHTLANE_", "FK_RL_")
_SECRET = ("PASSWORD", "TOKEN", "SECRET")
_LIMIT_S = 20
_HOUR, _DAY = 60, 1440


class CrontabError(NightlaneError):
    """The crontab could not be read or written; nothing was changed."""


def line_for(
    settings: WorkerSettings,
    interval_min: float,
    opening: str | None = None,
    environment: Mapping[str, str] = os.environ,
) -> str:
    """The line that starts a scheduled drain at the interval, marked as this lane's; with the
    fields of an `opening` a second one, which starts it when the window opens.

    Raises ConfigError for an interval that a crontab cannot say.
    """
    log = settings.data_dir / "logs" / "cron.log"
    command = [
        "env",
        *_variables(settings, environment),
        sys.executable,
        "-m",
        "app.cli",
        "drain",
        "--scheduled",
    ]
    program = " ".join(shlex.quote(part) for part in command)
    where = shlex.quote(str(Path(__file__).parents[2]))
    text = _escaped(f"cd {where} && {program} >> {shlex.quote(str(log))} 2>&1")
    times = [expression(interval_min), *([opening] if opening else [])]
    return "\n".join(f"{fields} {text} {mark(settings)}" for fields in times)


def mark(settings: WorkerSettings) -> str:
    """The end of our line, by which it is found again."""
    return _escaped(f"# nightlane {settings.lane} {settings.data_dir}")


def _escaped(text: str) -> str:
    """A bare % ends a command in a crontab."""
    return text.replace("%", r"\%")


def expression(interval_min: float) -> str:
    """Five cron fields for an interval. Raises ConfigError.

    >>> expression(30), expression(120)
    ('*/30 * * * *', '0 */2 * * *')
    """
    minutes = round(interval_min)
    if minutes == interval_min and minutes >= 1:
        if minutes < _HOUR and _HOUR % minutes == 0:
            return f"*/{minutes} * * * *"
        if minutes % _HOUR == 0 and _DAY % minutes == 0:
            return f"0 */{minutes // _HOUR} * * *" if minutes < _DAY else "0 0 * * *"
    problem = "cannot be said in a crontab"
    remedy = "use 1, 2, 3, 4, 5, 6, 10, 12, 15, 20, 30 or 60 minutes, or whole hours that divide 24"
    raise ConfigError([ConfigProblem("interval_min", interval_min, problem, remedy)])


def opening(hours: Window, zone: zoneinfo.ZoneInfo) -> str | None:
    """Five cron fields for the moments at which a window opens; None where it needs none, or cron,
    which goes by the machine's clock, cannot say them.

    >>> opening(Window.parse("01:10-01:50", "mon,tue"), zone_named(None))
    '10 1 * * 1,2'
    """
    if hours.always or hours.begins.second or zone.key != zone_named(None).key:
        return None
    every = len(hours.days) == len(DAYS)
    days = "*" if every else ",".join(str((day + 1) % 7) for day in sorted(hours.days))
    return f"{hours.begins.minute} {hours.begins.hour} * * {days}"


def runs(line: str, begin: float) -> Iterator[float]:
    """Unix seconds at which cron starts the lines, from a moment on."""
    local = datetime.datetime.fromtimestamp(begin).astimezone()
    times = [CronSim(" ".join(one.split(None, 5)[:5]), local) for one in line.splitlines()]
    return (moment.timestamp() for moment in heapq.merge(*times))


def next_run(line: str, now: float) -> float:
    """Unix seconds at which cron starts one of the lines next."""
    return next(runs(line, now))


def installed(settings: WorkerSettings) -> bool:
    """Whether a line of ours stands in the crontab. Raises CrontabError."""
    table = _read()
    return _without_ours(table, settings) != table


def install(settings: WorkerSettings, line: str) -> None:
    """Put the line into the crontab, in the place of an earlier one. Raises CrontabError."""
    before = _read()
    # The last line of others may lack its end; cron wants one behind every line.
    whole = before if not before or before.endswith("\n") else f"{before}\n"
    _write(f"{_without_ours(whole, settings)}{line}\n")
    (settings.data_dir / "logs").mkdir(parents=True, exist_ok=True)


def remove(settings: WorkerSettings) -> bool:
    """Take our line out; whether there was one. Raises CrontabError."""
    before = _read()
    kept = _without_ours(before, settings)
    if kept == before:
        return False
    _write(kept)
    return True


def _variables(settings: WorkerSettings, environment: Mapping[str, str]) -> Sequence[str]:
    """What cron's drain must be told. Raises ConfigError for what must not stand in a crontab."""
    told = {
        name: value
        for name, value in environment.items()
        if name.startswith(_PREFIXES) and name != "NIGHTLANE_ATTEMPT"
    }
    told |= {
        "NIGHTLANE_DATA_DIR": str(settings.data_dir),
        "NIGHTLANE_LANE": settings.lane,
        "NIGHTLANE_LOCK_DIR": str(settings.lock_dir),
    }
    if "PATH" in environment:
        told["PATH"] = environment["PATH"]
    for name, value in told.items():
        if "\n" in value or any(word in name for word in _SECRET) or _has_password(value):
            problem = "must not stand in a crontab"
            remedy = (
                "let cron start a script of yours that sets it and runs: cockpit drain --scheduled"
            )
            raise ConfigError([ConfigProblem(name, None, problem, remedy)])
    return [f"{name}={value}" for name, value in sorted(told.items())]


def _has_password(value: str) -> bool:
    """Whether a URL in it names a user with a password."""
    _, found, rest = value.partition("://")
    return bool(found) and ":" in rest.partition("@")[0] and "@" in rest


def _without_ours(table: str, settings: WorkerSettings) -> str:
    """Cron ends a line at \\n alone; every other character is part of somebody's line."""
    ours = mark(settings)
    lines = re.findall(r"[^\n]*\n|[^\n]+", table)
    return "".join(line for line in lines if not line.removesuffix("\n").endswith(ours))


def _read() -> str:
    done = _crontab("-l")
    # A user without a crontab is told so with status 1.
    if done.returncode != 0 and "no crontab for" not in done.stderr:
        raise CrontabError(f"the crontab cannot be read: {_said(done)}; {_remedy()}")
    return done.stdout if done.returncode == 0 else ""


def _write(table: str) -> None:
    done = _crontab("-", text=table)
    if done.returncode != 0:
        raise CrontabError(f"the crontab cannot be written: {_said(done)}; {_remedy()}")


def _crontab(argument: str, text: str = "") -> subprocess.CompletedProcess[str]:
    """Runs the program. A crontab is bytes: what is no UTF-8 in it must come back as it was, and
    Python's text mode would also turn every \\r\\n into \\n.
    """
    program = shutil.which("crontab")
    if program is None:
        raise CrontabError(f"there is no crontab program on this machine; {_remedy()}")
    try:
        done = subprocess.run(
            [program, argument],
            input=text.encode(errors="surrogateescape"),
            capture_output=True,
            timeout=_LIMIT_S,
            check=False,
            env=os.environ | {"LC_ALL": "C"},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CrontabError(f"the crontab cannot be used: {error}; {_remedy()}") from error
    said = done.stderr.decode(errors="replace")
    table = done.stdout.decode(errors="surrogateescape")
    return subprocess.CompletedProcess(done.args, done.returncode, table, said)


def _said(done: subprocess.CompletedProcess[str]) -> str:
    return " ".join(done.stderr.split()) or f"status {done.returncode}"


def _remedy() -> str:
    return "leave --install-cron out and keep `cockpit serve` running, or put the line in yourself"
