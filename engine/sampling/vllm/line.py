"""One server's share of what is asked: its calls go out, are watched, tried again and halved.

A call that fails is sent once more on fresh connections; then it is halved, and its halves again,
until single completions are left. A false answer is asked for once more, and not in parts. Beside
the calls a health probe is asked, which ends a wait without limit when the server is gone and is a
sign of life while it is there. Torch-free.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import httpx

from engine.run.pace import advance
from engine.run.stop import check_abort, sign_of_life
from engine.sampling.vllm.endpoint import (
    Alive,
    Call,
    Drawn,
    Endpoint,
    FalseReplyError,
    Placed,
    Request,
    ServerError,
    ServerLostError,
    halved,
)

_POLL_S = 0.05
_PROBE_EVERY_S = 2.0


Happened = Literal["sent", "retried", "halved", "lost", "revived", "moved"]
Answers = dict[int, list[list[Drawn]]]
"""By a call's number: the completions of each of its requests."""


@dataclass(frozen=True)
class CallEvent:
    """Something that a person may want to know about a call."""

    what: Happened
    server: str
    requests: tuple[str, ...]
    """Ids of the requests."""
    attempt: int
    """1 is the first."""
    seed: int
    """Of the first request."""
    decoding: Mapping[str, Any]
    problem: str = ""
    """Why it is not a plain one."""

    @classmethod
    def of(
        cls,
        what: Happened,
        server: str,
        requests: Sequence[Request],
        problem: str = "",
        *,
        attempt: int = 1,
    ) -> CallEvent:
        """With the seed and the decoding of the first request: a call has one of each."""
        ids = tuple(request.id for request in requests)
        first = requests[0]
        return cls(what, server, ids, attempt, first.seed, first.decoding, problem)


Tell = Callable[[CallEvent], None]


def silent(_: CallEvent) -> None:
    """Tells nobody."""


@dataclass
class Line:
    """`run()` sends the calls; what was answered stands in `answers`, also after an error."""

    endpoint: Endpoint
    model: str
    calls: Mapping[int, Call]
    at_once: int
    alive: Alive
    tell: Tell
    answers: Answers = field(default_factory=dict)

    @property
    def left(self) -> Mapping[int, Call]:
        """What was not answered."""
        return {n: call for n, call in self.calls.items() if n not in self.answers}

    async def run(self) -> None:
        """Until all are answered. Raises ServerError, and Aborted when asked to stop."""
        flying = 1 if self.endpoint.one_at_a_time else self.at_once
        gate = asyncio.Semaphore(flying)
        async with self.endpoint.client(flying + 1) as client:
            tasks = [
                asyncio.ensure_future(self._one(client, gate, number)) for number in self.calls
            ]
            probe = asyncio.ensure_future(self._probe(client))
            try:
                await self._watch(tasks, probe)
            finally:
                for task in (*tasks, probe):
                    task.cancel()
                await asyncio.gather(*tasks, probe, return_exceptions=True)

    async def _watch(
        self, tasks: Sequence[asyncio.Future[None]], probe: asyncio.Future[None]
    ) -> None:
        """Until all are done or one failed; stops for an abort and for a server that is gone."""
        waiting = set(tasks)
        while waiting:
            check_abort(working=False)
            self.alive()
            done, _ = await asyncio.wait(
                {*waiting, probe}, timeout=_POLL_S, return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                task.result()
            waiting -= done

    async def _probe(self, client: httpx.AsyncClient) -> None:
        """A connection that hangs says nothing of a server that is gone; this does."""
        clock = asyncio.get_running_loop().time
        seen, patience = clock(), self.endpoint.limits.timeout_s
        while True:
            await asyncio.sleep(min(_PROBE_EVERY_S, patience))
            try:
                await self.endpoint.probe(client)
            except httpx.ConnectError as error:
                raise ServerLostError(f"{self.endpoint.url} is gone ({error})") from error
            except httpx.HTTPError as error:
                if clock() - seen > patience:
                    raise ServerLostError(
                        f"{self.endpoint.url} has not said for {patience:g} s that it lives; it "
                        "hangs or is stopped"
                    ) from error
                continue
            seen = clock()
            sign_of_life()

    async def _one(self, client: httpx.AsyncClient, gate: asyncio.Semaphore, number: int) -> None:
        requests = [request for _, request in self.calls[number]]
        async with gate:
            try:
                self.answers[number] = await self._send(client, requests)
            except ServerError as error:
                if not error.again:
                    raise
                self.answers[number] = await self._again(requests, error)
            advance(len(requests))

    async def _again(self, requests: Sequence[Request], error: ServerError) -> list[list[Drawn]]:
        """The one retry; what fails then is halved."""
        self._tell("retried", requests, error)
        async with self.endpoint.client(1) as fresh:
            return await self._or_halved(fresh, requests)

    async def _or_halved(
        self, client: httpx.AsyncClient, requests: Sequence[Request]
    ) -> list[list[Drawn]]:
        try:
            return await self._send(client, requests)
        except ServerError as error:
            parts = halved(requests)
            # What is false of many is not believed of few, and nobody is left to ask a part.
            hopeless = isinstance(error, FalseReplyError | ServerLostError)
            if parts is None or not error.again or hopeless:
                raise
            self._tell("halved", requests, error)
            first, second = [await self._or_halved(client, part) for part in parts]
            return first + second if len(requests) > 1 else [first[0] + second[0]]

    async def _send(
        self, client: httpx.AsyncClient, requests: Sequence[Request]
    ) -> list[list[Drawn]]:
        return await self.endpoint.send(client, self.model, requests)

    def _tell(self, what: Happened, requests: Sequence[Request], error: ServerError) -> None:
        self.tell(CallEvent.of(what, self.endpoint.url, requests, str(error), attempt=2))


def complete(
    endpoint: Endpoint,
    model: str,
    requests: Sequence[Request],
    *,
    at_once: int,
    alive: Alive = lambda: None,
    tell: Tell = silent,
) -> list[list[Drawn]]:
    """The completions of each request by one server, in their order.

    Raises ServerError, and Aborted when asked to stop.
    """
    calls = dict(enumerate(endpoint.calls(placed(requests))))
    line = Line(endpoint, model, calls, at_once, alive, tell)
    asyncio.run(line.run())
    return gathered(len(requests), calls, line.answers)


def placed(requests: Sequence[Request]) -> list[Placed]:
    """Each request with its place."""
    return list(enumerate(requests))


def gathered(count: int, calls: Mapping[int, Call], answers: Answers) -> list[list[Drawn]]:
    """The completions by the places of their requests."""
    found: list[list[Drawn]] = [[] for _ in range(count)]
    for number, call in sorted(calls.items()):
        for (place, _), drawn in zip(call, answers[number], strict=True):
            found[place] += drawn
    return found
