"""What a run's pages tell a person to type works when it is pasted."""

from __future__ import annotations

import html
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from app.text.exits import Exit
from engine.contract.run_dir import RunDir
from tests.app.night import CONFIG, night, queue
from worker.attempt.settlement import Verdict
from worker.db.connection import Database
from worker.queue import control
from worker.queue.states import State
from worker.queue.submit import enqueue

Cockpit = Callable[..., Any]
TABS = ("charts", "log", "memory", "config", "events", "repro")
ERROR_LINK = "jump=error"


def _succeeded(db: Database) -> int:
    number = queue(db)
    with night(db) as lane:
        lane.start().finish(verdict="gain")
    return number


def _ended(db: Database, verdict: Verdict, log: str = "") -> int:
    number = queue(db)
    with night(db) as lane:
        attempt = lane.start()
        attempt.run.attempt(1).log.write_text(log)
        attempt.settle(verdict)
    return number


def _failed(db: Database) -> int:
    return _ended(db, Verdict(State.FAILED, "it crashed", "CRASH", "it crashed; see engine.log"))


def _declined(db: Database) -> int:
    error = "job 1 has no row to learn from; mend that, then: cockpit retry 1"
    return _ended(db, Verdict(State.FAILED, "the engine declined", "NO_SIGNAL", error))


def _aborted(db: Database) -> int:
    return _ended(db, Verdict(State.ABORTED, "stopped", "OPERATOR", "an operator stopped it"))


def _cancelled(db: Database) -> int:
    number = queue(db)
    control.cancel(db, number, actor="test")
    return number


MAKERS = {
    "queued": queue,
    "succeeded": _succeeded,
    "crashed": _failed,
    "declined": _declined,
    "aborted": _aborted,
    "cancelled": _cancelled,
}


def commands(client: TestClient, number: int) -> list[str]:
    """Each once, from every tab and the page of samples."""
    pages = [client.get(f"/jobs/{number}?tab={tab}").text for tab in TABS]
    pages.append(client.get(f"/jobs/{number}/samples").text)
    marked = [
        code for text in pages for code in re.findall(r"<code[^>]*>(.*?)</code>", text, re.DOTALL)
    ]
    plain = [re.sub(r"<[^>]+>", " ", text) for text in pages]
    said = [
        tail for text in plain for tail in re.findall(r": (cockpit [a-z]+(?: [0-9-]\S*)*)", text)
    ]
    found = [line.strip() for code in (*marked, *said) for line in html.unescape(code).splitlines()]
    return list(dict.fromkeys(one for one in found if re.match(r"cockpit |.* -m engine ", one)))


@pytest.mark.parametrize("state", MAKERS)
def test_every_command_that_a_run_page_prints_works(
    client: TestClient, cockpit: Cockpit, db: Database, state: str, tmp_path: Path
) -> None:
    """Whatever became of the job; a drain is not started here, a run by hand is prepared only."""
    number = MAKERS[state](db)

    found = commands(client, number)

    assert found or state == "queued"
    for line in found:
        if " -m engine " in line:
            source = shlex.split(line.split("&&")[1])[1]
            assert Path(source).is_file(), line
            continue
        _, *arguments = shlex.split(line)
        if arguments == ["drain"]:
            continue
        assert cockpit(*arguments).code == Exit.OK, line
        if arguments[:1] == ["retry"] and "--fresh" not in arguments:
            control.cancel(db, number, actor="test")  # over again, as the page has it


def test_a_run_by_hand_needs_no_program_on_the_path(client: TestClient, db: Database) -> None:
    """The interpreter that has the engine is named whole."""
    [line] = [one for one in commands(client, _succeeded(db)) if " -m engine " in one]

    interpreter = shlex.split(line.split("&&")[2])[0]

    assert Path(interpreter).is_absolute()
    assert Path(interpreter).exists()


@pytest.mark.parametrize(
    ("log", "offered"),
    [
        ("step 1\nValueError: no such file\n", True),
        ("Traceback (most recent call last):\n", True),
        ("the policy solves nothing; choose easier rows\n", False),
        ("", False),
    ],
)
def test_the_first_error_is_offered_where_there_is_one(
    client: TestClient, db: Database, log: str, offered: bool
) -> None:
    """Beside the cause, and on the tab of the log."""
    verdict = Verdict(State.FAILED, "the engine declined", "NO_SIGNAL", "nothing to rank")
    number = _ended(db, verdict, log)

    overview, tab = (client.get(f"/jobs/{number}{tab}").text for tab in ("", "?tab=log"))

    assert (ERROR_LINK in overview, ERROR_LINK in tab) == (offered, offered)
    if offered:
        assert 'id="hit"' in client.get(f"/jobs/{number}?tab=log&jump=error").text


def test_a_log_that_was_removed_has_no_first_error(client: TestClient, db: Database) -> None:
    """A pruned run; and one that never began."""
    pruned = _ended(db, Verdict(State.FAILED, "it crashed", "CRASH", "it crashed"), "Error\n")
    RunDir(db.settings.runs_dir / str(pruned)).attempt(1).log.unlink()
    waiting = enqueue(db, "rl_run", CONFIG | {"seed": 5}, actor="test")

    for number in (pruned, waiting):
        assert ERROR_LINK not in client.get(f"/jobs/{number}").text
