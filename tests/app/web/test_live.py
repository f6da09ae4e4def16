"""The stream: nothing is lost to a page that looks away, and no page can hold up the others."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Coroutine, Iterable
from typing import Any, NamedTuple

import pytest
from sqlalchemy.exc import OperationalError

from app.web import live as live_module
from app.web.live import Live, TooManyViewersError
from tests.app.night import night, queue
from worker.db.changes import announce
from worker.db.connection import Database
from worker.read import feed


class Heard(NamedTuple):
    """One event as a browser reads it."""

    event: str
    id: int | None
    data: str


def read(burst: bytes) -> list[Heard]:
    found = []
    for event in burst.decode().strip().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in event.splitlines())
        number = int(fields["id"]) if "id" in fields else None
        found.append(Heard(fields["event"], number, fields["data"]))
    return found


async def heard(stream: AsyncIterator[bytes], count: int) -> list[Heard]:
    """The events of so many bursts as bring `count` that are no beats."""
    found: list[Heard] = []
    async with asyncio.timeout(30):  # in all: beats alone are no answer
        while len(found) < count:
            burst = read(await anext(stream))
            found += [event for event in burst if event.event != "beat"]
    return found


def with_hub(db: Database, use: Any) -> None:
    """Run `use(hub)` beside a polling hub."""

    async def whole() -> None:
        hub = Live(db)
        poller = asyncio.create_task(hub.run())
        try:
            await use(hub)
        finally:
            poller.cancel()
            with pytest.raises(asyncio.CancelledError):
                await poller

    asyncio.run(whole())


def in_thread(function: Any, *arguments: Any) -> Coroutine[Any, Any, Any]:
    return asyncio.to_thread(function, *arguments)


@pytest.mark.requirement("UI-01")
def test_an_open_page_hears_of_a_new_job(db: Database) -> None:
    """Within a poll, not at the next reload."""

    async def use(hub: Live) -> None:
        stream = hub.follow(feed.last_change_id(db), None)
        await anext(stream)  # the greeting
        waiting = asyncio.create_task(heard(stream, 2))
        job_id = await in_thread(queue, db)
        events = await waiting
        assert {event.event for event in events} == {"job", "board"}
        assert f'{{"job": {job_id}}}' in {event.data for event in events}
        await stream.aclose()

    with_hub(db, use)


def test_a_page_that_was_away_hears_each_changed_job_once_and_then_goes_on(db: Database) -> None:
    """Replay behind Last-Event-ID; a hundred changes of one job are one reason to look again."""
    first = queue(db)
    seen = feed.last_change_id(db)
    with night(db) as lane:
        attempt = lane.start()
        for step in range(1, 30):
            attempt.step(step, 0.5)
    second = queue(db)

    async def use(hub: Live) -> None:
        stream = hub.follow(seen, None)
        events = await heard(stream, 4)
        jobs = [event.data for event in events if event.event == "job"]
        assert sorted(jobs) == [f'{{"job": {first}}}', f'{{"job": {second}}}']
        assert sorted(event.event for event in events) == ["board", "job", "job", "lane"]
        assert max(event.id or 0 for event in events) == feed.last_change_id(db)
        third = await in_thread(queue, db)
        assert (await heard(stream, 1))[0].data == f'{{"job": {third}}}'
        await stream.aclose()

    with_hub(db, use)


@pytest.mark.parametrize("after", [-1, 0, 10_000])
def test_a_page_whose_place_is_not_known_is_told_to_start_again(
    db: Database, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Too long away, another database, a foreign id: one `resync` instead of a silent gap."""
    monkeypatch.setattr(live_module, "REPLAY_LIMIT", 5)
    for _ in range(4):
        queue(db)

    async def use(hub: Live) -> None:
        stream = hub.follow(after, None)
        event = (await heard(stream, 1))[0]
        assert (event.event, event.id) == ("resync", feed.last_change_id(db))
        await stream.aclose()

    with_hub(db, use)


def test_a_run_page_hears_of_its_own_job_only(db: Database) -> None:
    """Each page asks for what it shows; other jobs' steps are no reason to draw it again."""
    mine, other = queue(db), queue(db)

    async def use(hub: Live) -> None:
        stream = hub.follow(feed.last_change_id(db), mine)
        waiting = asyncio.create_task(heard(stream, 1))
        await in_thread(_announce, db, other)
        await in_thread(_announce, db, mine)
        assert (await waiting)[0].data == f'{{"job": {mine}}}'
        await stream.aclose()

    with_hub(db, use)


def test_a_client_that_does_not_read_costs_a_bounded_queue_and_then_starts_again(
    db: Database,
) -> None:
    """A stuck browser must neither fill the memory nor miss what happened."""
    jobs = [queue(db) for _ in range(live_module.QUEUE_LIMIT + 10)]

    async def use(hub: Live) -> None:
        stuck = hub.follow(feed.last_change_id(db), None)
        joined = asyncio.create_task(heard(stuck, 1))
        await in_thread(_announce, db, jobs[0])
        await joined
        for job_id in jobs:
            await in_thread(_announce, db, job_id)
        reader = hub.follow(feed.last_change_id(db), None)
        await in_thread(_announce, db, jobs[1])
        await heard(reader, 1)  # the poller has handed everything out by now
        events = [event.event for event in await heard(stuck, 1)]
        assert events == ["resync"]
        await stuck.aclose()
        await reader.aclose()

    with_hub(db, use)


def test_a_busy_night_reaches_a_page_twice_a_second_and_not_more_often(db: Database) -> None:
    """What comes between two bursts is told together, and its last event is never lost."""
    jobs = [queue(db) for _ in range(3)]

    async def use(hub: Live) -> None:
        stream = hub.follow(feed.last_change_id(db), None)
        await anext(stream)
        came: list[float] = []
        told: set[str] = set()

        async def listen() -> None:
            while f'{{"job": {jobs[-1]}}}' not in told:
                events = await heard(stream, 1)
                came.append(asyncio.get_running_loop().time())
                told.update(event.data for event in events)

        listening = asyncio.create_task(listen())
        for _ in range(30):
            await in_thread(_announce, db, jobs[0])
            await in_thread(_announce, db, jobs[1])
            await asyncio.sleep(0.04)
        await in_thread(_announce, db, jobs[2])
        await asyncio.wait_for(listening, 10)
        gaps = [after - before for before, after in itertools.pairwise(came)]
        assert gaps
        assert min(gaps) >= 1 / live_module.RATE_HZ - 0.02
        await stream.aclose()

    with_hub(db, use)


@pytest.mark.requirement("UI-11")
def test_a_beat_holds_no_change_up(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes right behind a sign of life need not wait for its turn."""
    monkeypatch.setattr(live_module, "RATE_HZ", 0.01)
    monkeypatch.setattr(live_module, "BEAT_S", 0.01)

    async def use(hub: Live) -> None:
        stream = hub.follow(feed.last_change_id(db), None)
        for _ in range(3):
            [beat] = read(await anext(stream))
            assert beat.event == "beat"
        await in_thread(_announce, db, 7)
        assert (await heard(stream, 1))[0].data == '{"job": 7}'
        await stream.aclose()

    with_hub(db, use)


def test_more_than_one_answer_of_the_database_holds_reaches_a_page_to_the_last_event(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is behind a full answer is read as well, though nothing more is written."""
    monkeypatch.setattr(live_module, "REPLAY_LIMIT", 5)

    async def use(hub: Live) -> None:
        stream = hub.follow(feed.last_change_id(db), None)
        await anext(stream)
        joined = asyncio.create_task(heard(stream, 1))
        await in_thread(_announce, db, 9)
        await joined  # behind its place there is one change, not more than an answer holds
        await in_thread(_announce_all, db, range(1, 9))
        told = {event.data for event in await heard(stream, 8)}
        assert {f'{{"job": {number}}}' for number in range(1, 9)} <= told
        await stream.aclose()

    with_hub(db, use)


def test_a_closed_page_leaves_nothing_behind_and_a_full_house_is_refused(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Places are given back; the next viewer is told, not queued."""
    monkeypatch.setattr(live_module, "CLIENT_LIMIT", 1)

    async def use(hub: Live) -> None:
        stream = hub.follow(0, None)
        await heard(stream, 0)
        await anext(stream)
        job_id = await in_thread(queue, db)
        assert f"{job_id}" in (await heard(stream, 1))[0].data
        with pytest.raises(TooManyViewersError):
            hub.require_room()
        await stream.aclose()
        hub.require_room()

    with_hub(db, use)


def test_a_database_that_fails_for_a_moment_silences_the_stream_and_does_not_end_it(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No beat while it fails, so that pages call themselves stale; then everything comes."""
    monkeypatch.setattr(live_module, "BEAT_S", 0.05)
    failures = iter([OperationalError("SELECT", {}, Exception("disk I/O error"))] * 2)
    real = feed.changes_after

    def sometimes(*arguments: Any) -> Any:
        for failure in failures:
            raise failure
        return real(*arguments)

    async def use(hub: Live) -> None:
        stream = hub.follow(feed.last_change_id(db), None)
        await in_thread(queue, db)
        await heard(stream, 2)  # it has joined
        monkeypatch.setattr(live_module, "changes_after", sometimes)
        await in_thread(queue, db)
        assert (await heard(stream, 1))[0].data == '{"job": 2}'
        assert next(failures, None) is None, "the failures were met"
        await stream.aclose()

    with_hub(db, use)


def _announce(db: Database, job_id: int) -> None:
    _announce_all(db, [job_id])


def _announce_all(db: Database, job_ids: Iterable[int]) -> None:
    with db.write_tx() as conn:
        for job_id in job_ids:
            announce(conn, "job", job_id)
