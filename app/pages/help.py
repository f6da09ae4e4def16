"""The help page: keys, words, states, exit codes, commands, and where the data lies.

What the code knows by a type is read from that type; this file adds a sentence where it has none.
"""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import APIRouter, Request
from starlette.responses import HTMLResponse

from app.text.exits import Exit
from app.text.findings import MEANINGS as VERDICTS
from app.web.dependencies import SettingsDep
from app.web.strip import MEANINGS as AUTONOMY
from app.web.templating import page
from engine.contract.run_dir import ExitCode
from worker.queue.deferral import Reason
from worker.queue.states import State
from worker.read.comparison.difference import LEAST_ROWS, Word
from worker.settings import WorkerSettings

router = APIRouter(include_in_schema=False)

KEYS: Mapping[str, str] = {
    "/": "to the filter or the search field of the page, or to that of the runs",
    "j": "one row down in the page's list",
    "k": "one row up",
    "Enter": "opens the row that has the focus",
    "x": "chooses the row of the table of runs that has the focus",
    "c": "compares the chosen runs of a table",
    "1–9": "another answer to the same prompt, in the reader of answers",
    "r": "the raw text of an answer",
    "d": "an answer beside another one to its prompt",
    "l": "copies the link to an answer",
    "Alt ↑ ↓": "moves the job that has the focus up or down in the queue",
    "t": "a job of the queue runs next",
    "e": "edits a job that waits",
    "Del": "cancels a job that waits, with a way back",
    "Ctrl K": "the command palette: pages, runs, things to do",
    "?": "this page",
}
"""Beside `g` and a page's letter."""

COMPARED: Mapping[Word, str] = {
    "better": "more of the rows that both runs have are solved than by the first run, and chance "
    "does not explain it",
    "worse": "fewer of them are solved, and chance does not explain it",
    "no difference proven": "what difference the rows show may be chance",
    "too few rows": f"fewer than {LEAST_ROWS} rows that both runs have",
    "not the same rows": "no row that both runs have, so none can be held against another",
}

STATES: Mapping[State, str] = {
    State.QUEUED: "waits for its turn, or for what its deferral names",
    State.RUNNING: "holds the lane; its heartbeat says that somebody looks after it",
    State.SUCCEEDED: "the engine finished and wrote a result; the verdict says what it is worth",
    State.FAILED: "it ended without a result; its cause says why",
    State.CANCELLED: "a person ended it; tried again, it goes on from its last checkpoint",
    State.ABORTED: "it was stopped, by the memory watchdog or an operator, and not queued again",
}

EXITS: Mapping[Exit, str] = {
    Exit.OK: "done",
    Exit.FAILED: "failed; standard error says why",
    Exit.USAGE: "wrong usage, or a config that does not hold",
    Exit.NOT_FOUND: "no such job or sweep",
    Exit.REFUSED: "refused by policy, budget or a lane that is held",
    Exit.UNREACHABLE: "the cockpit or its database does not answer",
    Exit.INTERRUPTED: "interrupted from the keyboard",
}

ENGINE_EXITS: Mapping[ExitCode, str] = {
    ExitCode.DONE: "finished",
    ExitCode.ABORTED: "stopped on request behind a checkpoint; it can go on",
    ExitCode.DECLINED: "it looked at the work and refused it: no headroom, no signal",
    ExitCode.CONFIG: "its config does not hold",
}


@router.get("/help")
def help_page(request: Request, settings: SettingsDep) -> HTMLResponse:
    """The page; nothing on it changes."""
    context = {
        "title": "Help",
        "keys": KEYS,
        "verdicts": VERDICTS,
        "compared": COMPARED,
        "reasons": list(Reason),
        "autonomy": AUTONOMY,
        "states": STATES,
        "exits": EXITS,
        "engine_exits": ENGINE_EXITS,
        "commands": request.app.state.commands,
        "places": _places(settings),
    }
    return page(request, "help.html", context)


def _places(settings: WorkerSettings) -> list[tuple[str, str]]:
    """What lies where on this machine."""
    return [
        ("data directory", str(settings.data_dir)),
        ("runs: events, logs, checkpoints", str(settings.runs_dir)),
        ("cache: what only depends on a recipe", str(settings.cache_dir)),
        ("logs of drains and of the resident model", str(settings.data_dir / "logs")),
        ("lane locks of the whole machine", str(settings.lock_dir)),
    ]
