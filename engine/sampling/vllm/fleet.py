"""Several rollout servers as one: contiguous chunks in a fixed order, and what a lost one leaves.

N requests over S servers are cut into chunks of ceil(N / S); server i gets the i-th, and one whose
chunk is empty is asked nothing. A request keeps its seed wherever it is answered, so what a lost
server's chunk draws on the others is what an unbroken step would have drawn. Torch-free; starts no
process and knows no weights.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from engine.run.stop import check_abort
from engine.sampling.vllm.checks import SeedProbe
from engine.sampling.vllm.endpoint import (
    Call,
    Drawn,
    Endpoint,
    FalseReplyError,
    Request,
    ServerError,
    ServerLostError,
)
from engine.sampling.vllm.line import (
    Answers,
    CallEvent,
    Happened,
    Line,
    Tell,
    gathered,
    placed,
    silent,
)

_LOOK_S = 0.2
T = TypeVar("T")
Revive = Callable[[Endpoint], Endpoint | None]
"""Starts a dead server again and brings it the weights; None for one that is not ours to start."""
Share = tuple[Endpoint, Mapping[int, Call]]
"""A server, and the calls that it is to send by their number in the step."""


def chunks(items: Sequence[T], servers: int) -> list[Sequence[T]]:
    """Contiguous chunks of ceil(N / S) for the first servers; empty ones are left out.

    >>> chunks([1, 2, 3, 4, 5], 4)
    [[1, 2], [3, 4], [5]]
    """
    size = max(1, -(-len(items) // servers))
    return [items[start : start + size] for start in range(0, len(items), size)]


class Fleet:
    """`complete()` asks all servers that are left."""

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        *,
        tell: Tell = silent,
        revive: Revive = lambda _: None,
    ) -> None:
        self.live = list(endpoints)
        """In their order; a lost one is left out from then on."""
        self._tell = tell
        self._revive = revive
        self._last_words = "no server is named"

    def reach(self) -> None:
        """Wait until all servers answer, each as long as its `timeout_s`.

        Raises ServerLostError for one that nobody listens at, and ServerError for something there
        that is no healthy server; Aborted when asked to stop.
        """
        began = time.monotonic()
        for endpoint in self.live:
            while not _there(endpoint, late=time.monotonic() - began > endpoint.limits.timeout_s):
                check_abort(working=False)
                time.sleep(_LOOK_S)

    def probe_seeds(self, model: str, probe: SeedProbe) -> None:
        """At bring-up. Raises FalseReplyError for a server that does not go by its seeds."""
        for endpoint in self.live:
            probe(endpoint, model)

    def complete(
        self,
        model: str,
        requests: Sequence[Request],
        *,
        at_once: int,
        alive: Callable[[Endpoint], None] = lambda _: None,
    ) -> list[list[Drawn]]:
        """The completions of each request, in their order; `at_once` are in flight on each server.

        `alive` raises ServerError when the process behind an endpoint is dead. Raises
        ServerLostError when no server is left, FalseReplyError and what a server refuses as they
        come, Aborted when asked to stop.
        """
        shares = self._shares(requests)
        calls = {number: call for _, share in shares for number, call in share.items()}
        answers: Answers = {}
        revived: set[str] = set()
        while shares:
            lines = [
                Line(endpoint, model, share, at_once, partial(alive, endpoint), self._tell)
                for endpoint, share in shares
            ]
            errors = asyncio.run(_until_ended(lines))
            for line in lines:
                answers |= line.answers
            broken = [(line, error) for line, error in zip(lines, errors, strict=True) if error]
            shares = self._moved(broken, revived)
        return gathered(len(requests), calls, answers)

    # --- inside ---

    def _shares(self, requests: Sequence[Request]) -> list[Share]:
        """The chunks as calls; none where nothing is asked."""
        if not requests:
            return []
        if not self.live:
            raise ServerLostError(self._last_words)
        shares: list[Share] = []
        number = 0
        # The last servers get nothing where there is less to ask than servers.
        for endpoint, chunk in zip(self.live, self._chunks(placed(requests)), strict=False):
            calls = endpoint.calls(chunk)
            shares.append((endpoint, dict(enumerate(calls, number))))
            number += len(calls)
            self._tell(CallEvent.of("sent", endpoint.url, [request for _, request in chunk]))
        return shares

    def _moved(self, broken: Sequence[tuple[Line, ServerError]], revived: set[str]) -> list[Share]:
        """Who sends what lost servers left: the same one started anew, or the others."""
        shares: list[Share] = []
        left: dict[int, Call] = {}
        for line, error in broken:
            self._said("lost", line.endpoint, line.left, str(error))
            anew = self._anew(line.endpoint, revived, error)
            if anew is None:
                left |= line.left
            else:
                self._said("revived", anew, line.left)
                shares.append((anew, line.left))
        if left and not self.live:
            raise ServerLostError(self._last_words)
        for endpoint, numbers in zip(self.live, self._chunks(sorted(left)), strict=False):
            share = {number: left[number] for number in numbers}
            self._said("moved", endpoint, share)
            shares.append((endpoint, share))
        return shares

    def _chunks(self, items: Sequence[T]) -> list[Sequence[T]]:
        return chunks(items, len(self.live)) if items else []

    def _anew(self, lost: Endpoint, revived: set[str], error: ServerError) -> Endpoint | None:
        """The server started again, once in a step; None where it stays away."""
        anew = None if lost.url in revived else self._revive(lost)
        place = self.live.index(lost)
        if anew is None:
            del self.live[place]
            self._last_words = str(error)
        else:
            revived.add(anew.url)
            self.live[place] = anew
        return anew

    def _said(
        self, what: Happened, endpoint: Endpoint, share: Mapping[int, Call], problem: str = ""
    ) -> None:
        requests = [request for call in share.values() for _, request in call]
        self._tell(CallEvent.of(what, endpoint.url, requests, problem))


def _there(endpoint: Endpoint, *, late: bool) -> bool:
    """Whether it answers; what is wrong with it is raised when it is too late to mend."""
    try:
        there = endpoint.answers()
    except ServerError:
        if late:
            raise
        return False
    if late and not there:
        raise ServerLostError(
            f"{endpoint.url} does not answer within {endpoint.limits.timeout_s:g} s; start that "
            "server, correct its address, or sample with rollout_backend: hf"
        )
    return there


async def _until_ended(lines: Sequence[Line]) -> list[ServerError | None]:
    """Each line's end: None, or how its server was lost. Raises what losing a server is not."""
    tasks = [asyncio.ensure_future(_ended(line)) for line in lines]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _ended(line: Line) -> ServerError | None:
    try:
        await line.run()
    except ServerError as error:
        if isinstance(error, FalseReplyError) or not error.again:
            raise
        return error
    return None
