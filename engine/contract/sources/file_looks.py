"""What was found in a file, looked at once for as long as the file stays as it is.

A form is checked at every change and a sweep at each of its points, and each wants to know what
a corpus holds, which can take seconds to read. Knows no format.
"""

from __future__ import annotations

import functools
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

Found = TypeVar("Found")
Files = TypeVar("Files", bound=Path | tuple[Path, ...])
More = ParamSpec("More")

MOST = 64
"""Looks that are kept of each kind."""
UNSETTLED_S = 2.0
"""A file changed since then may change again within the same tick of its clock."""


def once_a_file(
    look: Callable[Concatenate[Files, More], Found],
) -> Callable[Concatenate[Files, More], Found]:
    """`look(path, …)` again only when the file is another one, or was changed a moment ago.

    A tuple of paths is several files of one source.

    Its other arguments have a hash. Those who ask at the same time wait for one look. What it
    raises is raised to each of them and not kept.
    """
    kept: OrderedDict[Hashable, Future[Found]] = OrderedDict()
    turn = threading.Lock()

    @functools.wraps(look)
    def looked(files: Files, /, *more: More.args, **named: More.kwargs) -> Found:
        states = [_state(path) for path in ([files] if isinstance(files, Path) else files)]
        if None in states:
            return look(files, *more, **named)
        key = (files, tuple(states), more, tuple(sorted(named.items())))
        with turn:
            first = key not in kept
            found = kept.setdefault(key, Future())
            kept.move_to_end(key)
            while len(kept) > MOST:
                kept.popitem(last=False)
        if first:
            try:
                found.set_result(look(files, *more, **named))
            except BaseException as error:
                with turn:
                    kept.pop(key, None)
                found.set_exception(_bare(error))
                raise
        return found.result()

    return looked


def _bare(error: BaseException) -> BaseException:
    """The same without the frames that it came through, which hold all that was read."""
    bare = type(error).__new__(type(error), *error.args)
    bare.__dict__.update(error.__dict__)
    return bare


def _state(path: Path) -> Hashable | None:
    """What another content would change; None while that cannot be told."""
    try:
        known = path.stat()
    except OSError:
        return None
    if abs(time.time() - known.st_mtime) < UNSETTLED_S:
        return None
    return known.st_dev, known.st_ino, known.st_size, known.st_mtime_ns
