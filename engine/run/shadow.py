"""A shadow of a folder: links to all that it holds, and one file replaced by another text.

For a model folder that is good but for one file, and may belong to somebody else: it is read
through the shadow and never written. Shadows of an attempt stand in its own directory, so another
attempt makes its own; without an attempt they are temporary. Knows no model.
"""

from __future__ import annotations

import functools
import hashlib
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import NamedTuple

Say = Callable[[str, str], None]
"""`(code, text)`: a note among the run's events."""


class _Shadows(NamedTuple):
    place: Path
    say: Say


_SHADOWS: ContextVar[_Shadows | None] = ContextVar("shadows", default=None)


@contextmanager
def shadows_in(place: Path, say: Say) -> Iterator[None]:
    """Inside, shadows are made in `place`, and `say` is told of each."""
    token = _SHADOWS.set(_Shadows(place, say))
    try:
        yield
    finally:
        _SHADOWS.reset(token)


def shadow(source: Path, name: str, text: str, why: str) -> Path:
    """The folder `source` with `text` as its file `name`; `why` is said with both places.

    Whole or not at all, and one for all processes of an attempt. Raises OSError.
    """
    there = _SHADOWS.get()
    source = source.resolve()
    place = _temporary() if there is None else there.place
    # Two models may have folders of one name.
    folder = place / f"{source.name}-{hashlib.sha256(str(source).encode()).hexdigest()[:8]}"
    if folder.is_dir() and not _is_of(folder, source, name, text):
        shutil.rmtree(folder, ignore_errors=True)
    if not folder.is_dir():
        _make(folder, source, name, text)
        if there is not None:
            there.say("SHADOW", f"{source} {why}: it is read through {folder}, and not written")
    return folder


def _is_of(folder: Path, source: Path, name: str, text: str) -> bool:
    """Whether a shadow is that of the source as it is now: an attempt may be run again."""
    names = {entry.name for entry in source.iterdir()} | {name}
    found = {entry.name for entry in folder.iterdir()}
    return found == names and (folder / name).read_text("utf-8") == text


def _make(folder: Path, source: Path, name: str, text: str) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=".", dir=folder.parent))
    try:
        for entry in source.iterdir():
            if entry.name != name:
                (temporary / entry.name).symlink_to(entry)
        (temporary / name).write_text(text, "utf-8")
        temporary.rename(folder)
    except OSError:
        shutil.rmtree(temporary, ignore_errors=True)
        if not folder.is_dir():  # another process of the attempt was faster
            raise


@functools.cache
def _temporary() -> Path:
    """Gone with this process."""
    made = tempfile.TemporaryDirectory(prefix="nightlane-shadow-")
    _KEPT.append(made)
    return Path(made.name)


_KEPT: list[tempfile.TemporaryDirectory[str]] = []
