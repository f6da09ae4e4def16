"""A file that a person names to be written: whole or not at all where it is a file, as a stream
where it is a pipe, a device or standard output. Nothing but a regular file is ever replaced. And a
folder that a person names to be filled.
"""

from __future__ import annotations

import io
import os
import re
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from engine.contract.errors import ConfigError, ConfigProblem

STANDARD_OUTPUT = Path("-")
_DESCRIPTOR = re.compile(r"/(?:dev|proc/self)/fd/([0-9]+)")
_NAMED = {"/dev/stdin": 0, "/dev/stdout": 1, "/dev/stderr": 2}


def is_standard_output(target: Path) -> bool:
    """Whether what is written there stands between what a command prints."""
    return target == STANDARD_OUTPUT or _descriptor(target) == 1


def write_output(target: Path, pieces: Iterable[str]) -> int:
    """Write texts one after the other; how many. Without any nothing is written.

    A link is followed and stays, a file keeps its mode. Raises OSError; a file that stood there is
    whole then, the old or the new one.
    """
    waiting = iter(pieces)
    first = next(waiting, None)
    if first is None:
        return 0
    count = 1
    with _opened(target) as stream:
        stream.write(first)
        for piece in waiting:
            stream.write(piece)
            count += 1
    return count


@contextmanager
def _opened(target: Path) -> Iterator[TextIO]:
    if is_standard_output(target):
        sys.stdout.flush()
        printed = io.TextIOWrapper(sys.stdout.buffer, "utf-8")
        try:
            yield printed
            printed.flush()
        finally:
            printed.detach()
        return
    number = _descriptor(target)
    if number is not None:
        with os.fdopen(os.dup(number), "w", encoding="utf-8") as stream:
            yield stream
        return
    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        mode = None
    if mode is not None and not stat.S_ISREG(mode):
        with target.open("w", encoding="utf-8") as stream:  # a folder is an error of its own
            yield stream
        return
    final = Path(os.path.realpath(target))
    part = final.with_name(f".{final.name}.{os.getpid()}.part")
    try:
        with part.open("w", encoding="utf-8") as stream:
            yield stream
        if mode is not None:
            part.chmod(stat.S_IMODE(mode))
        part.replace(final)
    finally:
        part.unlink(missing_ok=True)


def _descriptor(target: Path) -> int | None:
    """Of this process, where the name means one: opening it again would begin a file anew."""
    found = _DESCRIPTOR.fullmatch(str(target))
    return int(found[1]) if found else _NAMED.get(str(target))


def require_empty(field: str, target: Path) -> None:
    """Raises ConfigError for a folder that holds anything, and for what is no folder."""
    if target.is_dir() and not any(target.iterdir()):
        return
    if target.exists() or target.is_symlink():
        problem = "exists already and is not an empty folder"
        raise ConfigError([ConfigProblem(field, str(target), problem, "name another folder")])
