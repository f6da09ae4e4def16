"""From an error to one line and an exit code: the only place where a command's failure ends.

What a user did wrong never shows a traceback; a defect of ours does, because it must be mended.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import typer
from pydantic import ValidationError

from app.text.exits import Exit
from engine.contract.errors import ConfigError, NightlaneError


@contextmanager
def reporting() -> Iterator[None]:
    """Turn what a command raises into lines on standard error and an exit status."""
    try:
        yield
    except NightlaneError as error:
        _say(str(error))
        sys.exit(exit_code(error))
    except ValidationError as error:
        if not error.title.endswith("Settings"):
            raise
        for detail in error.errors():
            _say(_setting_line(detail["loc"], detail["msg"]))
        sys.exit(Exit.USAGE)
    except OSError as error:
        if error.errno not in _NO_ROOM or error.filename is not None:
            raise
        remedy = "make room for it, or send it elsewhere"
        _say(f"the output cannot be written: {error.strerror}; {remedy}")
        _forget_output()
        sys.exit(Exit.FAILED)
    except KeyboardInterrupt:
        sys.exit(Exit.INTERRUPTED)


_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


def _forget_output() -> None:
    """What is still in the buffer would fail again, with a traceback, when Python ends."""
    with suppress(OSError), Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


def exit_code(error: NightlaneError) -> Exit:
    """The exit status of an error this project can explain."""
    from app.web.settings import HostRefusedError  # noqa: PLC0415 - only when something failed
    from worker.lane.accelerator import NoLaneError  # noqa: PLC0415 - only when something failed
    from worker.lane.lease import LaneHeldError  # noqa: PLC0415 - only when something failed
    from worker.queue.lookup import (  # noqa: PLC0415 - only when something failed
        JobNotFoundError,
        SweepNotFoundError,
    )
    from worker.queue.refusals import (  # noqa: PLC0415 - only when something failed
        QueueRefusedError,
    )

    if isinstance(error, ConfigError):
        return Exit.USAGE
    if isinstance(error, JobNotFoundError | SweepNotFoundError):
        return Exit.NOT_FOUND
    if isinstance(error, LaneHeldError | NoLaneError | HostRefusedError | QueueRefusedError):
        return Exit.REFUSED
    # The demo hands on what its drain said.
    return Exit(getattr(error, "exit_code", Exit.FAILED))


def _setting_line(loc: tuple[int | str, ...], message: str) -> str:
    """A setting of the program itself that does not hold: its variable, and what is wrong."""
    name = f"NIGHTLANE_{'.'.join(map(str, loc)).upper()}"
    what, _, remedy = message.removeprefix("Value error, ").partition("; ")
    return f"{name}: {what[:1].lower()}{what[1:]}; {remedy or 'correct it'}, or leave it out"


def _say(lines: str) -> None:
    for line in lines.splitlines() or [""]:
        typer.echo(f"cockpit: {line}", err=True)
