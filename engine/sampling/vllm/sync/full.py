"""Merged weights, in memory: by vLLM's weight-transfer engine, or by what else takes whole weights.

The trainer's own weights stay as they are (`engine.models.merged`). How the bytes travel is a
transport's: `shared` on a CPU, `cuda` between GPUs; `swift` for ms-swift's servers. What is served
is known by a hash of what trains, which is part of the version that a server is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from engine.models.merged import MergedWeights
from engine.sampling.vllm.endpoint import ServerError
from engine.sampling.vllm.sync.checksums import Checksums, Hashed
from engine.sampling.vllm.sync.proof import Proof, Synced, SyncError, digest_of
from engine.sampling.vllm.sync.routes import WeightRoutes, each


class Transport(Protocol):
    """Carries bytes to the servers' workers, inside an update that has begun."""

    def join(self, servers: Sequence[WeightRoutes], weights: MergedWeights) -> None:
        """Once for servers that are new."""
        ...

    def send(self, servers: Sequence[WeightRoutes], weights: Iterable[tuple[str, Tensor]]) -> int:
        """All of the weights to each; returns the bytes of one server's."""
        ...

    def close(self) -> None:
        """Give back what it holds."""
        ...


class Transfer(Protocol):
    """Brings merged weights to all servers of one kind. Every method raises ServerError."""

    def send(self, weights: MergedWeights, version: str) -> int:
        """Afterwards they answer with these weights, from empty caches; returns the bytes."""
        ...

    def check(self, version: str) -> None:
        """What they tell about what they hold. Raises SyncError where it is not what was sent."""
        ...

    def proven(self) -> None:
        """What was sent last is what they answer with."""
        ...

    def still(self, version: str) -> None:
        """Raises ServerError when somebody else has sent them others since."""
        ...

    def forget(self) -> None:
        """They were started anew."""
        ...

    def close(self) -> None:
        """No call after this one."""
        ...


class FullSync:
    """`bring()` makes the servers answer with the policy's merged weights."""

    def __init__(
        self,
        proof: Proof,
        transfer: Transfer,
        *,
        dtype: torch.dtype | None = None,
        name: str | None = None,
    ) -> None:
        """`dtype`: the servers', which weights are rounded to before they travel; `name`: of the
        model there, by default the base that they list.
        """
        self._proof = proof
        self._transfer = transfer
        self._weights = MergedWeights(proof.policy.model, dtype)
        self._name = name
        self._served: str | None = None
        """Version that was proven to be served."""

    @property
    def serves(self) -> str:
        """What completions are asked for under."""
        if self._name is None:
            bases = [one.name for one in self._proof.servers[0].models() if one.parent is None]
            if not bases:
                raise ServerError(f"{self._proof.servers[0].url} lists no model; is it vLLM?")
            self._name = bases[0]
        return self._name

    def bring(self, load: Callable[[Path], None] | None = None) -> Synced | None:  # noqa: ARG002
        """None when the policy's weights are served already. No folder is loaded.

        Raises SyncError when a server does not answer with these weights afterwards, ServerError
        when it is gone.
        """
        version = f"{self._proof.policy.version}-{digest_of(self._proof.policy)[:16]}"
        if self._served is not None and self._served.partition("-")[2] == version.partition("-")[2]:
            return None

        def send() -> int:
            size = self._transfer.send(self._weights, version)
            self._transfer.check(version)
            return size

        self._served = None
        synced = self._proof.arrive(lambda: self.serves, send)
        self._transfer.proven()
        self._served = version
        return replace(synced, mode="full")

    def still_ours(self) -> None:
        """Raises ServerError when somebody else has sent other weights since."""
        if self._served is not None:
            self._transfer.still(self._served)

    def forget(self) -> None:
        """The servers were started anew: nothing is served yet."""
        self._served = None
        self._transfer.forget()

    def close(self) -> None:
        """Give back what the transfer holds; no call after this one."""
        self._transfer.close()


class VLLMTransfer:
    """By vLLM's weight routes."""

    def __init__(self, servers: Sequence[WeightRoutes], transport: Transport) -> None:
        self._servers = tuple(servers)
        self._transport = transport
        self._joined = False
        self._checksums = [Checksums(server.root) for server in self._servers]
        self._sent: Mapping[str, str] = {}
        self._told: Sequence[Mapping[str, str]] = ()

    def send(self, weights: MergedWeights, version: str) -> int:
        """Begin, all of it, finish; then empty caches."""
        if not self._joined:
            self._transport.join(self._servers, weights)
            self._joined = True
        hashed = Hashed(weights)
        each(self._servers, lambda server: server.start())
        size = self._transport.send(self._servers, hashed)
        each(self._servers, lambda server: server.finish(version))
        each(self._servers, lambda server: server.reset_caches())
        self._sent = hashed.digests
        return size * len(self._servers)

    def check(self, version: str) -> None:
        """The version, and checksums where names map."""
        self.still(version)
        self._told = each(self._servers, lambda server: server.checksums())
        for checksums, told in zip(self._checksums, self._told, strict=True):
            checksums.compare(self._sent, told)

    def proven(self) -> None:
        """Learn which of the servers' parameters hold what was sent."""
        for checksums, told in zip(self._checksums, self._told, strict=True):
            checksums.learn(self._sent, told)

    def still(self, version: str) -> None:
        """By the version alone."""
        for server in self._servers:
            found = server.version()
            if found != version:
                raise SyncError(
                    f"{server.root} was sent weights {version!r} and tells {found!r}; give each "
                    "run a server of its own"
                )

    def forget(self) -> None:
        """Join again."""
        self._joined = False

    def close(self) -> None:
        """Give back what the transport holds."""
        self._transport.close()
