"""Asks `python -m engine look` what only torch or a user's own module can tell about a config.

A child process, bounded in time and memory and killed with its group: nothing of it enters this
process. An answer is kept for as long as the files it rests on stay as they are, so that a sweep,
or the same job sent again, costs one process; a page that checks what is typed shows what is kept
and starts none. Knows no kind.
"""

from __future__ import annotations

import json
import math
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel

from engine.contract import registry
from engine.contract.errors import ConfigProblem
from engine.contract.kind import Kind
from engine.contract.look import Looked
from worker.queue.asking import answer_of
from worker.queue.tried import canonical_hash

LIMIT_S = 60.0
"""A module that imports torch and a tokenizer takes some ten seconds on a busy machine."""
MEMORY_GB = 8
UNKNOWN_S = 60.0
"""What could not be found out is tried again after this."""
REFUSED_S = 2.0
"""A refusal is looked at anew when the job is sent again: a module that was missing is no file
whose change could be seen. Long enough for all points of a sweep."""
MOST = 256
"""Answers that are kept."""
_MOST_BYTES = 2**20
"""Of an answer."""

COMMAND: Sequence[str] = (sys.executable, "-P", "-m", "engine", "look")


class _Kept(NamedTuple):
    found: Looked
    files: Mapping[str, object]
    """Each file with what another content would change."""
    until: float
    """Monotonic seconds; after them a job that is sent is looked at anew."""


_kept: OrderedDict[str, _Kept] = OrderedDict()
_turn = threading.Lock()
"""One look at a time: those who ask the same meanwhile get its answer."""


def look(kind: Kind, config: BaseModel) -> Looked:
    """What a look finds; at once where there is nothing to ask, or the answer is kept."""
    key = _key(kind, config)
    if kind.look is None or key is None:
        return Looked()
    with _turn:
        kept = _valid(key)
        if kept is not None and time.monotonic() < kept.until:
            return kept.found
        files = [str(path) for path in kind.inputs(config)]
        found, known = _ask(kind, config)
        states = {file: _state(file) for file in (*files, *found.files)}
        lasts = REFUSED_S if found.problems else math.inf if known else UNKNOWN_S
        _kept[key] = _Kept(found, states, time.monotonic() + lasts)
        while len(_kept) > MOST:
            _kept.popitem(last=False)
        return found


def seen(kind: Kind, config: BaseModel) -> Looked:
    """What is known without a look."""
    key = _key(kind, config)
    kept = _valid(key) if key else None
    return kept.found if kept else Looked()


def cautions(kind_name: str, raw: Mapping[str, Any]) -> Sequence[ConfigProblem]:
    """What a config that was accepted had better not say, what its look found among it."""
    kind = registry.get_kind(kind_name)
    found = seen(kind, kind.config.model_validate(dict(raw)))
    return [*registry.cautions(kind_name, raw), *found.cautions]


def _key(kind: Kind, config: BaseModel) -> str | None:
    asked = kind.look.asks(config) if kind.look else None
    return canonical_hash([kind.name, asked]) if asked else None


def _valid(key: str) -> _Kept | None:
    kept = _kept.get(key)
    if kept is None or any(_state(file) != state for file, state in kept.files.items()):
        return None
    return kept


def _state(file: str) -> object:
    try:
        known = Path(file).stat()
    except OSError as error:
        return error.errno
    return known.st_dev, known.st_ino, known.st_size, known.st_mtime_ns


def _ask(kind: Kind, config: BaseModel) -> tuple[Looked, bool]:
    """The answer, and whether it is one."""
    question = json.dumps({"kind": kind.name, "config": config.model_dump(mode="json")}).encode()
    try:
        answer = _answer(question)
    except OSError as error:
        return Looked.unknown(f"its process did not start: {error.strerror}"), False
    if answer is None:
        return Looked.unknown(f"no answer within {LIMIT_S:g} s"), False
    try:
        return Looked.read(answer), True
    except ValueError:
        reason = "its process ended without an answer, as after a crash or out of memory"
        return Looked.unknown(reason), False


def _answer(question: bytes) -> bytes | None:
    """What the child wrote, all of it or what there was when it ended; None: it took too long."""
    limits = [str(int(LIMIT_S) + 5), str(MEMORY_GB)]
    return answer_of([*COMMAND, *limits], question, limit_s=LIMIT_S, most_bytes=_MOST_BYTES)
