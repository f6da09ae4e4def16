"""One serving lane of several learner ranks: the first brings the weights, all of them ask.

Barrier, sync by the first rank, barrier, then every rank's requests: no server is sent weights
while it answers, and none is asked before all have them. Only the first rank starts servers or
reaches their weights. Knows no ground truth.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self

from engine.run.ranks import Ranks
from engine.sampling.vllm.endpoint import Drawn, Endpoint, Request
from engine.sampling.vllm.fleet import Fleet
from engine.sampling.vllm.infer_lane import InferLane
from engine.sampling.vllm.lane import ServingLane


class _Told(NamedTuple):
    """What the first rank tells the others after each sync."""

    addresses: Sequence[Any]
    """Of the servers that are left, as `connect` takes them."""
    model: str
    """What they are asked for."""
    servers: Sequence[str]
    sync: Mapping[str, Any]


class SharedLane:
    """As the lane that the first rank has; `own` is None on the others.

    `connect`: a server at one of its addresses; `at_once`: requests of this rank in flight on each.
    """

    def __init__(
        self,
        ranks: Ranks,
        own: ServingLane | InferLane | None,
        connect: Callable[[Any], Endpoint],
        *,
        at_once: int,
    ) -> None:
        self._ranks = ranks
        self._own = own
        self._connect = connect
        self._at_once = at_once
        self._fleet = Fleet([])
        self._told = _Told((), "", (), {})
        self.facts: dict[str, Any] = {"sync": {}} if own is None else own.facts
        """Those of the first rank's lane; others know how weights are sent."""

    @property
    def servers(self) -> Sequence[str]:
        """Addresses of those that were left at the last sync."""
        return self._told.servers if self._own is None else self._own.servers

    def __enter__(self) -> Self:
        if self._own is not None:
            self._own.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._own is not None:
            self._own.__exit__(kind, error, trace)

    def bring(self) -> None:
        """The servers answer with the weights that train, whichever rank asks."""
        self._ranks.wait()
        if self._own is not None:
            self._own.bring()
        told = self._ranks.from_first(self._tells)  # what is told is the second barrier
        if told.addresses != self._told.addresses or len(self._fleet.live) < len(told.addresses):
            self._fleet = Fleet([self._connect(one) for one in told.addresses])
        self._told = told
        self.facts["sync"] = told.sync

    def complete(self, requests: Sequence[Request]) -> Sequence[Sequence[Drawn]]:
        """Completions of this rank's requests, in their order; it may have none."""
        if not requests:
            return []
        if self._own is not None:
            return self._own.complete(requests)
        return self._fleet.complete(self._told.model, requests, at_once=self._at_once)

    def rest(self) -> None:
        """A server beside the learners keeps its memory."""

    def _tells(self) -> _Told:
        assert self._own is not None
        addresses, model = self._own.reached_at
        return _Told(addresses, model, self._own.servers, self._own.facts["sync"])
