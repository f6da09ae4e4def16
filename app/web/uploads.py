"""Files of rows that a browser sends: each is kept whole or not at all.

Knows no kind and reads no row; a job names the file by its path.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import AsyncIterable
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import IO

import anyio.to_thread
from starlette.exceptions import HTTPException

from engine.contract.documents import opened
from engine.contract.errors import ConfigError, ConfigProblem

MAX_UPLOAD_BYTES = 2 * 1000**3
"""Of one file; a larger one is named by its path."""
KEPT_FREE_BYTES = 1000**3
"""Of the disk, for what runs beside."""
_LONGEST_NAME, _LONGEST_ENDING = 100, 20
_NO_NAME = re.compile(r"[^\w.-]+")


async def receive(folder: Path, name: str, chunks: AsyncIterable[bytes], length: int) -> Path:
    """The file, under its own name or with a number behind it; the same content is kept once.

    `length`: bytes as announced, 0 where nothing was. Raises ConfigError, HTTPException.
    """
    kept_name = _named(name)
    folder.mkdir(parents=True, exist_ok=True)
    _require_room(folder, length)
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".part-", delete=False) as part:
        path = Path(part.name)
        try:
            digest = await _written(part, chunks, folder)
            return await anyio.to_thread.run_sync(_settled, path, folder / kept_name, digest)
        finally:
            path.unlink(missing_ok=True)


def _named(name: str) -> str:
    last = _NO_NAME.sub("_", name.replace("\\", "/").rpartition("/")[2]).lstrip(".")
    stem, dot, ending = last.rpartition(".")
    if not stem or not ending:
        remedy = "send a file of rows: .jsonl, .json, .csv or .parquet"
        raise ConfigError([ConfigProblem("name", name, "is no name of a file of rows", remedy)])
    ending = ending[:_LONGEST_ENDING]
    return stem[: _LONGEST_NAME - len(ending)] + dot + ending


def _require_room(folder: Path, wanted: int) -> None:
    free = shutil.disk_usage(folder).free
    if wanted > free - KEPT_FREE_BYTES:
        raise HTTPException(
            HTTPStatus.INSUFFICIENT_STORAGE,
            f"{folder} has {free / 1e9:.1f} GB free and 1 GB must stay so; "
            "make room, or name the file by its path",
        )


async def _written(part: IO[bytes], chunks: AsyncIterable[bytes], folder: Path) -> str:
    """Its SHA-256."""
    digest, since = hashlib.sha256(), 0
    async for chunk in chunks:
        digest.update(chunk)
        await anyio.to_thread.run_sync(part.write, chunk)
        since += len(chunk)
        if since > KEPT_FREE_BYTES // 10:
            _require_room(folder, 0)
            since = 0
    await anyio.to_thread.run_sync(part.flush)
    if not part.tell():
        raise ConfigError([ConfigProblem("file", None, "is empty", "send a file with rows")])
    return digest.hexdigest()


def _settled(part: Path, wanted: Path, digest: str) -> Path:
    """Its place; linked there, so that no file of that name is ever replaced."""
    for number in range(1, 10_000):
        more = f"-{number}" if number > 1 else ""
        path = wanted.with_name(f"{wanted.stem}{more}{wanted.suffix}")
        with suppress(FileExistsError):
            os.link(part, path)
            return path
        with opened(path) as there:
            if hashlib.file_digest(there, "sha256").hexdigest() == digest:
                return path
    raise ConfigError([ConfigProblem("name", wanted.name, "is taken", "rename the file")])
