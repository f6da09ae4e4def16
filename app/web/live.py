"""The live stream: one shared poller of the change table, a bounded set of events a client.

A client says which change it saw last (Last-Event-ID) and gets what came after it, the newest
change of each job once and at most `RATE_HZ` times a second; a client that was away too long, or
reads too slowly, gets one `resync` and asks for its page's parts again. So no client can be left
silently behind. Knows no page.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncGenerator, Iterable, Sequence
from dataclasses import dataclass, field

import anyio
import anyio.to_thread
from sqlalchemy.exc import SQLAlchemyError
from sse_starlette import ServerSentEvent

from engine.contract.errors import NightlaneError
from worker.db.connection import Database
from worker.read.feed import ChangeView, changes_after, last_change_id, oldest_change_id

_LOG = logging.getLogger(__name__)

POLL_S = 0.15
GLANCE_S = 0.05
"""The same where the database says at once whether anything was written."""
SETTLE_S = 0.08
"""So long is waited for what is written together with a change: it goes out in one burst."""
BEAT_S = 5.0
"""A page that hears nothing for three beats calls itself stale."""
RATE_HZ = 2.0
"""Bursts of changes a second to one client: what comes between two of them is told together."""
REPLAY_LIMIT = 500
QUEUE_LIMIT = 64
"""Different events that may wait for one client."""
CLIENT_LIMIT = 200
AT_ONCE = 8
"""Clients that are woken before the server turns to its requests again."""
_RESYNC = ("resync", None)


class TooManyViewersError(NightlaneError):
    """Every place at the stream is taken."""

    retryable = True

    def __init__(self) -> None:
        super().__init__(f"{CLIENT_LIMIT} pages are open already; close one and reload")


@dataclass(frozen=True)
class Frame:
    """One event, encoded once for all clients."""

    topic: str
    job_id: int | None
    data: bytes

    @property
    def key(self) -> tuple[str, int | None]:
        """Events of one key say the same: look again."""
        return self.topic, self.job_id if self.topic == "job" else None


@dataclass(eq=False)
class _Client:
    job_id: int | None
    waiting: dict[tuple[str, int | None], Frame] = field(default_factory=dict)
    """Of each topic, and of each job under `job`, the newest event; in the order of their ids."""
    called: asyncio.Event = field(default_factory=asyncio.Event)
    closed: bool = False
    """The server goes down: the stream ends as an answer does, instead of being cut."""

    def wants(self, frame: Frame) -> bool:
        if self.job_id is None or frame.topic in {"beat", "resync"}:
            return True
        return frame.topic == "job" and frame.job_id == self.job_id

    def offer(self, frame: Frame, position: int) -> None:
        """Never waits: who cannot follow starts again from the page."""
        if not self.wants(frame):
            return
        self.waiting.pop(frame.key, None)
        if _RESYNC in self.waiting or len(self.waiting) >= QUEUE_LIMIT:
            self.waiting.clear()
            frame = _resync(position)
        self.waiting[frame.key] = frame
        self.called.set()

    def close(self) -> None:
        self.closed = True
        self.called.set()

    async def burst(self) -> list[Frame]:
        """All that waits, as soon as something does."""
        await self.called.wait()
        self.called.clear()
        frames = list(self.waiting.values())
        self.waiting.clear()
        return frames


class Live:
    """Hub between the change table and every open page."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._clients: set[_Client] = set()
        self._position = 0
        self._stamp: int | None = None
        """Of the database when it was read last; None = it has to be read."""
        self._beat_at = 0.0
        self._turn = asyncio.Lock()

    async def run(self) -> None:
        """Poll until cancelled. While the database fails no beat goes out, and pages say stale."""
        while True:
            try:
                if self._clients:
                    await self._poll()
            except (SQLAlchemyError, NightlaneError) as error:
                _LOG.warning("the change table cannot be read: %s", error)
                await asyncio.sleep(BEAT_S)
            await asyncio.sleep(POLL_S if self._stamp is None else GLANCE_S)

    async def _poll(self) -> None:
        stamp = await anyio.to_thread.run_sync(self._database.stamp)
        written = stamp is None or stamp != self._stamp
        if written and stamp is not None:
            await asyncio.sleep(SETTLE_S)
        async with self._turn:
            frames = await self._read(stamp) if written else []
            await self._hand_out(frames)

    async def _read(self, stamp: int | None) -> list[Frame]:
        """What was written up to now. `stamp`: of a moment before."""
        changes = await anyio.to_thread.run_sync(
            changes_after, self._database, self._position, REPLAY_LIMIT
        )
        if changes:
            self._position = changes[-1].id
        # Of a full answer the rest is still to be read.
        self._stamp = stamp if len(changes) < REPLAY_LIMIT else None
        return list(_frames(changes))

    async def _hand_out(self, frames: list[Frame]) -> None:
        """A few clients at a time: a request that comes meanwhile waits for those few alone."""
        if time.monotonic() >= self._beat_at:
            self._beat_at = time.monotonic() + BEAT_S
            frames.append(_beat())
        for place, client in enumerate([*self._clients] if frames else []):
            for frame in frames:
                client.offer(frame, self._position)
            if place % AT_ONCE == AT_ONCE - 1:
                await asyncio.sleep(0)

    def require_room(self) -> None:
        """Raises TooManyViewersError; asked before an answer begins."""
        if len(self._clients) >= CLIENT_LIMIT:
            raise TooManyViewersError

    @property
    def viewers(self) -> int:
        """Open streams; a browser has one, however many tabs it shows."""
        return len(self._clients)

    async def follow(
        self, after: int | None, job_id: int | None, until: anyio.Event | None = None
    ) -> AsyncGenerator[bytes]:
        """Events behind change `after` (None: from now on), for all jobs or for one.

        Ends when `until` is set.
        """
        client = _Client(job_id)
        closing = asyncio.create_task(_close(client, until)) if until else None
        try:
            yield _beat().data  # the answer's head goes out with its first bytes
            missed = [
                frame.data for frame in await self._join(client, after) if client.wants(frame)
            ]
            if missed:
                yield b"".join(missed)
                await asyncio.sleep(1 / RATE_HZ)
            while not client.closed:
                frames = await client.burst()
                yield b"".join(frame.data for frame in frames)
                # A sign of life holds no news up.
                news = any(frame.topic != "beat" for frame in frames)
                if not client.closed:
                    await asyncio.sleep(1 / RATE_HZ if news else 0)
        finally:
            self._clients.discard(client)
            if closing:
                closing.cancel()

    async def _join(self, client: _Client, after: int | None) -> Sequence[Frame]:
        async with self._turn:
            newest = await anyio.to_thread.run_sync(last_change_id, self._database)
            if not self._clients:
                self._position = newest
            self._clients.add(client)
            return await self._missed(newest if after is None else after, newest)

    async def _missed(self, after: int, newest: int) -> Sequence[Frame]:
        """What stands between a client's last change and the hub's position."""
        oldest = await anyio.to_thread.run_sync(oldest_change_id, self._database)
        if not max(oldest - 1, newest - REPLAY_LIMIT) <= after <= newest:
            # Away too long; or from before the database was replaced by a younger one.
            return [_resync(self._position)]
        changes = await anyio.to_thread.run_sync(changes_after, self._database, after, REPLAY_LIMIT)
        return list(_frames(change for change in changes if change.id <= self._position))


async def _close(client: _Client, until: anyio.Event) -> None:
    await until.wait()
    client.close()


def _frames(changes: Iterable[ChangeView]) -> Iterable[Frame]:
    """The newest change of each topic, and of each job under `job`; oldest first."""
    newest = {
        (change.topic, change.job_id if change.topic == "job" else None): change.id
        for change in changes
    }
    for (topic, job_id), change_id in sorted(newest.items(), key=lambda item: item[1]):
        yield _frame(topic, job_id, change_id, {"job": job_id})


def _beat() -> Frame:
    return _frame("beat", None, None, {"at": time.time()})


def _resync(position: int) -> Frame:
    return _frame("resync", None, position, {})


def _frame(topic: str, job_id: int | None, change_id: int | None, data: object) -> Frame:
    event = ServerSentEvent(
        data=json.dumps(data),
        event=topic,
        id=None if change_id is None else str(change_id),
        sep="\n",
    )
    return Frame(topic, job_id, event.encode())
