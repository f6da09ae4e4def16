"""The serving lane of ms-swift's rollout servers: `/infer/`, and weights by their own group.

They were started by somebody else, and are never stopped. Weights are merged and broadcast in
flattened buckets; then each server answers a few of the run's own prompts, and the trainer's model
is asked about these answers. Knows no question and no reward.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self

import torch

from engine.contract.errors import RLLoopError
from engine.contract.served import Server, ServerConfig
from engine.contract.serving import Serving
from engine.models.merged import MergedWeights
from engine.models.policy import Policy
from engine.run.stop import check_abort
from engine.sampling.vllm.checks import SeedProbe
from engine.sampling.vllm.client import ServerApi
from engine.sampling.vllm.endpoint import Drawn, Limits, Request, ServerError, ServerLostError
from engine.sampling.vllm.fleet import Fleet
from engine.sampling.vllm.infer import InferApi
from engine.sampling.vllm.line import Tell, complete, silent
from engine.sampling.vllm.parity import Compared
from engine.sampling.vllm.sync.full import Transfer
from engine.sampling.vllm.sync.proof import Synced, SyncError, digest_of

_LOOK_S = 0.2
_TRIES = 2
"""A sync that did not arrive is sent once more."""


def speaks_infer(first: Server, server: ServerConfig | None) -> bool:
    """Whether servers have ms-swift's routes: by the config, else the first one is asked, as long
    as it may take to be reachable. One that never answers is taken for vLLM. Raises Aborted.
    """
    assert server is not None
    if server.routes is not None:
        return server.routes == "infer"
    root, limits = first.base_url.rstrip("/"), Limits(server.timeout_s, server.infer_timeout_s)
    infer, openai = (
        InferApi(root, batch_size=1, limits=limits),
        ServerApi(Serving(url=f"{root}/v1")),
    )
    deadline = time.monotonic() + server.timeout_s
    while time.monotonic() < deadline:
        if openai.healthy():
            return False
        if infer.healthy():
            return True
        check_abort(working=False)
        time.sleep(_LOOK_S)
    return False


class Witness(NamedTuple):
    """What is asked of each server after a sync, and how its answers are judged."""

    requests: Sequence[Request]
    gap: Callable[[Sequence[Drawn]], float]
    """Nats a token between these answers and the trainer's model."""
    tolerance: float
    """The largest that is believed."""


class InferLane:
    """As `ServingLane`; raises what that raises."""

    def __init__(
        self,
        apis: Sequence[InferApi],
        policy: Policy,
        transfer: Transfer,
        witness: Witness,
        *,
        dtype: torch.dtype,
        listen: Callable[[Synced], None] = lambda _: None,
        calls: Tell = silent,
    ) -> None:
        """`transfer`: to the servers of `apis`, in their order; `dtype`: theirs; `listen` is told
        about every sync, `calls` about what is sent, tried again, halved and moved.
        """
        self._policy = policy
        self._transfer = transfer
        self._witness = witness
        self._weights = MergedWeights(policy.model, dtype)
        self._listen = listen
        self._fleet = Fleet(apis, tell=calls)
        self._served: str | None = None
        """Hash of the weights that were proven to be served."""
        self.facts: dict[str, Any] = {
            "url": [api.url for api in apis],
            "version": None,
            "pin": None,
            "started_here": False,
            "sync": {"mode": "full", "fell_back": None},
        }
        """For the run card and checkpoints."""

    @property
    def servers(self) -> list[str]:
        """Addresses of those that are left, in their order."""
        return [server.url for server in self._fleet.live]

    @property
    def reached_at(self) -> tuple[list[str], str]:
        """Where others may ask too, and for which model: right until the next `bring`."""
        return self.servers, ""

    def __enter__(self) -> Self:
        try:
            self._fleet.reach()
        except ServerError as error:
            problem, _, remedy = str(error).partition("; ")
            raise RLLoopError.of("vllm.server", None, problem, remedy or "look at it") from error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._transfer.close()

    def bring(self) -> None:
        """The servers answer with the policy's weights afterwards; nothing to do if they do."""
        digest = digest_of(self._policy)
        if digest == self._served:
            return
        first, self._served = self._served is None, None
        self._listen(self._arrive(f"{self._policy.version}-{digest[:16]}"))
        self._served = digest
        if first:
            self._fleet.probe_seeds("", SeedProbe(self._witness.requests))

    def complete(self, requests: Sequence[Request]) -> list[list[Drawn]]:
        """k completions of each request, by the weights that were brought last."""
        return self._fleet.complete("", requests, at_once=1)

    def rest(self) -> None:
        """They are others': their memory is theirs."""

    # --- inside ---

    def _arrive(self, version: str) -> Synced:
        """Raises SyncError when they do not answer with these weights."""
        began = time.monotonic()
        for tries in range(1, _TRIES + 1):
            try:
                size = self._transfer.send(self._weights, version)
                gap = self._proven()
            except ServerError as error:
                if tries == _TRIES or isinstance(error, ServerLostError):
                    raise
            else:
                seconds = time.monotonic() - began
                return Synced(Compared(gap, None, None), seconds, "full", size, tries)
        raise AssertionError

    def _proven(self) -> float:
        """Of the server that is furthest away."""
        witness, gaps = self._witness, []
        for server in self._fleet.live:
            answers = complete(server, "", witness.requests, at_once=1)
            gaps.append(witness.gap([drawn for [drawn] in answers]))
            if not gaps[-1] <= witness.tolerance:
                raise SyncError(
                    f"{server.url} took the weights of step {self._policy.version} and answers "
                    f"{gaps[-1]:.3g} nats a token away from the trainer's model, where "
                    f"{witness.tolerance:g} is believed; does it serve the same base with the same "
                    "precision?"
                )
        return max(gaps)
