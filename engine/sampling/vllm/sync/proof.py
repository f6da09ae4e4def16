"""What every sync ends with: the server's log-probabilities against the trainer's own forward.

A 200 of a weight route, and a version it tells, prove nothing: both were seen without a load. What
did not arrive is sent once more, and then the step ends by name.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import torch

from engine.contract.ends import STALE_WEIGHTS
from engine.models.policy import Policy
from engine.sampling.vllm.client import ServedModel
from engine.sampling.vllm.endpoint import Drawn, Request, ServerError, ServerLostError
from engine.sampling.vllm.parity import Compared, ParityCheck

_TRIES = 2
"""A sync that did not arrive is sent once more; what fails twice will fail again."""


class SyncError(ServerError):
    """The server lives, and the weights that it was sent did not arrive: trained on its answers,
    a run would learn from another policy."""

    cause = STALE_WEIGHTS
    again = False


@dataclass(frozen=True)
class Synced:
    """One sync that was proven."""

    compared: Compared
    """Of the server that was furthest away."""
    seconds: float
    """From the merge to the end of the proof."""
    mode: Literal["full", "adapter"] = "adapter"
    bytes: int = 0
    """Of weights handed over, to all servers together."""
    tries: int = 1
    """2 where the first one did not arrive."""


class Probed(Protocol):
    """A server that can be asked what it answers; `client.ServerApi` is one."""

    url: str

    def models(self) -> Sequence[ServedModel]:
        """What is served."""
        ...

    def healthy(self) -> bool:
        """Whether it lives."""
        ...

    def complete(
        self, model: str, requests: Sequence[Request], *, at_once: int
    ) -> Sequence[Sequence[Drawn]]:
        """Completions with their likeliest tokens."""
        ...


class Proof:
    """That servers answer with the policy's weights, at fixed contexts.

    `tolerance` is the largest mean difference of log-probabilities, in nats a token.
    """

    def __init__(
        self,
        servers: Sequence[Probed],
        policy: Policy,
        contexts: Sequence[tuple[int, ...]],
        tolerance: float,
    ) -> None:
        self.servers = tuple(servers)
        self.policy = policy
        self._witness = ParityCheck(policy, contexts)
        self._tolerance = tolerance

    def arrive(self, name: Callable[[], str], send: Callable[[], int]) -> Synced:
        """`send` brings the weights over and returns their bytes; asked for under `name` they must
        answer. Raises SyncError when they do not, ServerError when a server is gone.
        """
        began = time.monotonic()
        self._witness.read()
        for tries in range(1, _TRIES + 1):
            try:
                size = send()
                compared = self._ask(name())
            except ServerError as error:
                if tries == _TRIES or isinstance(error, ServerLostError):
                    raise self._named(error) from error
            else:
                self._witness.keep()
                return Synced(compared, time.monotonic() - began, bytes=size, tries=tries)
        raise AssertionError

    # --- inside ---

    def _ask(self, name: str) -> Compared:
        """Of the server that is furthest away. Raises SyncError."""
        witness = self._witness
        requests = [
            Request(ids, k=1, seed=0, temp=1.0, max_new_tokens=1, end_ids=(), top=witness.top)
            for ids in witness.contexts
        ]
        found = []
        for server in self.servers:
            answers = server.complete(name, requests, at_once=len(requests))
            compared = witness.compare([drawn.top[0] for [drawn] in answers])
            self._judge(server, compared)
            found.append(compared)
        return max(found, key=lambda compared: compared.gap)

    def _judge(self, server: Probed, compared: Compared) -> None:
        took = f"{server.url} took the weights of step {self.policy.version} and"
        if not compared.gap <= self._tolerance:
            raise SyncError(
                f"{took} answers {compared.gap:.3g} nats a token away from the trainer's model, "
                f"more than sync_tolerance={self._tolerance:g}; does it serve the same base with "
                "the same precision?"
            )
        if compared.stale:
            raise SyncError(
                f"{took} still answers with the weights of before: {compared.gap_before:.3g} nats "
                f"a token away from those, {compared.gap:.3g} from the new ones; start it anew"
            )

    def _named(self, error: ServerError) -> ServerError:
        """One that lives and fails twice did not take the weights; one that is gone is gone."""
        if isinstance(error, SyncError | ServerLostError):
            return error
        alive = all(one.healthy() for one in self.servers)
        return SyncError(str(error)) if alive else ServerLostError(str(error))


def digest_of(policy: Policy) -> str:
    """Of names and bytes of all that trains: every way of changing weights is seen by it."""
    digest = hashlib.sha256()
    for name, parameter in policy.trainable().items():
        digest.update(name.encode())
        digest.update(raw(parameter))
    return digest.hexdigest()


def raw(tensor: torch.Tensor) -> memoryview:
    """The bytes of a tensor."""
    return tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data
