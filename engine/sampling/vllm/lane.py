"""The serving lane: vLLM beside the trainer, up for as long as a run needs it.

    with ServingLane(…) as lane:      servers that are there are used, else they are started
        lane.bring()                  they answer with the policy's weights, proven
        lane.complete(requests)       completions by these weights
        lane.rest()                   before the learner learns: a colocated engine's memory is back

Knows no question and no reward.
"""

from __future__ import annotations

import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import torch

from engine.contract.served import RunVLLMConfig, VLLMConfig
from engine.contract.serving import Serving
from engine.models.policy import Policy
from engine.sampling.vllm.endpoint import (
    Drawn,
    Endpoint,
    Request,
    RouteMissingError,
    ServerError,
)
from engine.sampling.vllm.fleet import Fleet
from engine.sampling.vllm.launch import Needs
from engine.sampling.vllm.line import Tell, silent
from engine.sampling.vllm.places import places, visible_devices
from engine.sampling.vllm.replica import Replica, Say
from engine.sampling.vllm.sync.adapter import AdapterSync
from engine.sampling.vllm.sync.proof import Proof, Synced


class Rested(NamedTuple):
    """A colocated engine that made room."""

    seconds: float
    given_back_gb: float
    """What its processes held."""


class ServingLane:
    """Raises RLLoopError when no server of the right kind can be had, ServerError when it fails
    later on, Aborted while waiting for it."""

    def __init__(
        self,
        serving: Serving,
        needs: Needs,
        policy: Policy,
        *,
        contexts: Sequence[tuple[int, ...]],
        folder: Path,
        log: Path,
        tolerance: float,
        say: Say,
        listen: Callable[[Synced], None] = lambda _: None,
        rested: Callable[[Rested], None] = lambda _: None,
        calls: Tell = silent,
        vllm: VLLMConfig | None = None,
    ) -> None:
        """`contexts`: prompts at which the weights are proven; `folder`: for the adapters;
        `listen` is told about every sync, `rested` about every time that memory was given back,
        `calls` about what is sent, tried again, halved and moved.
        """
        vllm = vllm or RunVLLMConfig()
        self._needs = needs
        self._name = serving.lora_name
        self._folder = folder
        self._say = say
        self._listen = listen
        self._rested = rested
        self._colocated = vllm.mode == "colocate"
        self._policy = policy
        self._private = Path(tempfile.gettempdir()) / f"nightlane-{secrets.token_hex(8)}"
        """For a Unix socket, whose path may have 107 bytes at most; nobody else enters it."""
        devices = visible_devices(torch.cuda.device_count())
        self._replicas = [
            Replica(
                place.serving,
                needs,
                log=log,
                say=say,
                adapter=self._first_adapter,
                environment=place.environment,
                field=place.field,
                external=place.external,
            )
            for place in places(serving, vllm, self._private, devices)
        ]
        self._fleet = Fleet([one.api for one in self._replicas], tell=calls, revive=self._revive)
        proof = Proof([one.api for one in self._replicas], policy, contexts, tolerance)
        self._sync = AdapterSync(proof, name=self._name, folder=folder)

    @property
    def facts(self) -> dict[str, Any]:
        """For the run card: address, version, pin, whether it was started here."""
        return self._replicas[0].facts

    def __enter__(self) -> Self:
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        self._private.mkdir(mode=0o700)
        try:
            for replica in self._replicas:
                replica.bring_up()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for replica in self._replicas:
            replica.stop()
        shutil.rmtree(self._folder, ignore_errors=True)
        shutil.rmtree(self._private, ignore_errors=True)

    def bring(self) -> None:
        """The servers answer with the policy's weights afterwards; nothing to do if they do."""
        for replica in self._replicas if self._colocated else ():
            if not replica.ours:
                replica.restart()
        synced = self._sync.bring(self._load)
        if synced is not None:
            self._listen(synced)

    def complete(self, requests: Sequence[Request]) -> list[list[Drawn]]:
        """k completions of each request, by the weights that were brought last."""
        at_once = max(1, self._needs.at_once // max(request.k for request in requests))
        drawn = self._fleet.complete(self._name, requests, at_once=at_once, alive=self._alive)
        self._sync.still_ours()
        return drawn

    def rest(self) -> None:
        """A colocated engine gives its weights and its keys and values back; the next `bring`
        starts it again.
        """
        if not self._colocated or not any(replica.ours for replica in self._replicas):
            return
        began = time.monotonic()
        held = sum(replica.memory_gb() for replica in self._replicas)
        for replica in self._replicas:
            replica.stop()
        self._sync.forget()
        self._rested(Rested(time.monotonic() - began, held))

    # --- inside ---

    def _alive(self, endpoint: Endpoint) -> None:
        self._replica_at(endpoint).alive()

    def _revive(self, endpoint: Endpoint) -> Endpoint | None:
        """A dead server of ours is started again and brought the weights of this step; None where
        it is not ours, or does not come up.
        """
        replica = self._replica_at(endpoint)
        if not replica.ours:
            return None
        self._say("SERVING_RESTART", f"{replica.serving.shown} is dead and is started again")
        replica.restart()
        self._sync.forget()
        self.bring()
        return replica.api

    def _replica_at(self, endpoint: Endpoint) -> Replica:
        return next(replica for replica in self._replicas if replica.api is endpoint)

    def _first_adapter(self) -> Path:
        return self._sync.write()

    def _load(self, adapter: Path) -> None:
        for replica in self._replicas:
            self._load_at(replica, adapter)

    def _load_at(self, replica: Replica, adapter: Path) -> None:
        """Minutes instead of a blink where the server takes no adapter while it runs."""
        try:
            replica.api.load_adapter(self._name, str(adapter))
        except RouteMissingError as error:
            if not replica.ours:
                raise ServerError(
                    f"{error}; start it with VLLM_ALLOW_RUNTIME_LORA_UPDATING=True, or let the run "
                    "start its own server"
                ) from error
            if str(adapter) not in {model.root for model in replica.api.models()}:
                told = "the server takes no adapter while it runs; it is restarted"
                self._say("SERVING_RESTART", told)
                replica.restart()
            return
        replica.alive()
