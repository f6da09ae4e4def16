"""Already tried: whether the same kind, settings and data have a result, or will have one.

Two hashes make a job comparable: of the kind and every setting that can change the result, and of
the input files. A file up to 64 MiB counts by its content; of a larger one size, change time and
its first and last MiB count, so that an enqueue stays quick: touching it lets a job run again,
and only a rewrite that keeps all of these would be overlooked. Knows no state but `succeeded` and
those that are not over.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import BaseModel
from sqlalchemy import Connection, bindparam, select, text, union_all

from engine.contract.documents import opened
from engine.contract.kind import Kind
from engine.contract.known import setting_of
from worker.db.tables import NOT_OVER, TRIED, job

WHOLE_BYTES = 64 * 2**20
_END_BYTES = 2**20


_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), default=str)


class Fingerprint(NamedTuple):
    """What makes two jobs the same."""

    config: str
    data: str
    group: str | None = None
    """Of runs that differ in their seed alone and hold out the same rows; None where they have no
    seed."""


_SAME = (
    select(job.c.id, job.c.state, job.c.result)
    .where(job.c.config_hash == bindparam("config"), job.c.data_hash == bindparam("data"))
    .order_by(job.c.id.desc())
    .limit(1)
)
_NEWEST = union_all(*(select(_SAME.where(text(which)).subquery()) for which in (TRIED, NOT_OVER)))
"""The newest finished one and the newest that is not over, each along an index of its own."""


class Same(NamedTuple):
    """A job of the same experiment."""

    job_id: int
    state: str
    verdict: str | None
    """Of a finished one, where it has one."""


def fingerprint(
    kind: Kind, config: BaseModel, plain: Mapping[str, Any] | None = None
) -> Fingerprint:
    """Of a validated config, with its input files as they are now. `plain`: the config as JSON,
    where it is at hand.
    """
    settings = config.model_dump(mode="json") if plain is None else plain
    if kind.indifferent:
        settings = _without(settings, kind.indifferent)
    data = _data(kind.inputs(config))
    return Fingerprint(canonical_hash([kind.name, settings]), data, _group(kind, settings, data))


def _group(kind: Kind, settings: Mapping[str, Any], data: str) -> str | None:
    if kind.seed is None:
        return None
    rest = _without(settings, frozenset(name for name in (kind.seed, kind.split_seed) if name))
    return canonical_hash([kind.name, rest, data, split_seed_of(kind, settings)])


def split_seed_of(kind: Kind, settings: Mapping[str, Any]) -> Any:
    """The seed of the held-out rows that is in force; None where none has a part in them."""
    if kind.split_seed is None:
        return None
    given = setting_of(settings, kind.split_seed)
    return setting_of(settings, kind.seed or "") if given is None else given


_NO_DATA = hashlib.sha256().hexdigest()


def _data(paths: Sequence[Path]) -> str:
    if not paths:
        return _NO_DATA
    digest = hashlib.sha256()
    for path in paths:
        digest.update(f"{path}\0{_content(path)}\0".encode())
    return digest.hexdigest()


def canonical_hash(value: Any) -> str:
    """SHA-256 of plain data; the order of keys does not count."""
    document = _CANONICAL.encode(value)
    return hashlib.sha256(document.encode(errors="surrogatepass")).hexdigest()


def same_before(conn: Connection, same: Fingerprint) -> Same | None:
    """The newest finished result of the same job, else the newest one that waits or runs."""
    asked = {"config": same.config, "data": same.data}
    found = sorted(conn.execute(_NEWEST, asked).all(), key=lambda row: row.state != "succeeded")
    for row in found:
        result = row.result if isinstance(row.result, dict) else {}
        return Same(row.id, row.state, result.get("verdict"))
    return None


def _without(settings: Mapping[str, Any], dotted: frozenset[str], prefix: str = "") -> Any:
    return {
        name: _without(value, dotted, f"{prefix}{name}.") if isinstance(value, Mapping) else value
        for name, value in settings.items()
        if prefix + name not in dotted
    }


def _content(path: Path) -> str:
    """One word for what a file holds; what cannot be read says so at the attempt's start."""
    try:
        with opened(path) as stream:
            known = os.fstat(stream.fileno())
            if known.st_size <= WHOLE_BYTES:
                return hashlib.file_digest(stream, "sha256").hexdigest()
            ends = hashlib.sha256(stream.read(_END_BYTES))
            stream.seek(-_END_BYTES, os.SEEK_END)
            ends.update(stream.read(_END_BYTES))
            return f"{known.st_size} {known.st_mtime_ns} {ends.hexdigest()}"
    except OSError as error:
        return f"unreadable: {error.errno}"
