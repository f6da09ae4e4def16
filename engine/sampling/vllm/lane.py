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
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import torch

from engine.contract.served import RunVLLMConfig, VLLMConfig
from engine.contract.serving import Serving
from engine.models.policy import Policy
from engine.sampling.vllm.checks import ReplyCheck, SeedProbe
from engine.sampling.vllm.endpoint import (
    Drawn,
    Endpoint,
    Limits,
    Request,
    RouteMissingError,
    ServerError,
    ServerLostError,
)
from engine.sampling.vllm.fleet import Fleet
from engine.sampling.vllm.launch import Needs
from engine.sampling.vllm.line import Tell, silent
from engine.sampling.vllm.places import Place, places, visible_devices
from engine.sampling.vllm.replica import Replica, Say
from engine.sampling.vllm.sync.adapter import AdapterSync, memory_folder
from engine.sampling.vllm.sync.chosen import ChosenSync
from engine.sampling.vllm.sync.cuda import IpcTransport, NcclTransport
from engine.sampling.vllm.sync.full import FullSync, Transport, VLLMTransfer
from engine.sampling.vllm.sync.needs import Device, Mode, launch_needs
from engine.sampling.vllm.sync.proof import Proof, Synced
from engine.sampling.vllm.sync.routes import WeightRoutes
from engine.sampling.vllm.sync.shared import SharedMemory

_PROBED = 4
"""Prompts at which a server shows what it does with seeds."""


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
        mode: Mode = "adapter",
        before: Mapping[str, Any] | None = None,
    ) -> None:
        """`contexts`: prompts at which the weights are proven; `folder`: for the adapters;
        `listen` is told about every sync, `rested` about every time that memory was given back,
        `calls` about what is sent, tried again, halved and moved. `mode`: how weights are sent;
        `before`: the `facts` of an earlier attempt.
        """
        self._vllm = vllm = vllm or RunVLLMConfig()
        self._needs = needs
        self._policy = policy
        self._contexts = contexts
        # Another's server, or one in a container, may see the run directory and no memory of ours.
        elsewhere = bool(vllm.external) or serving.serve_cmd is not None
        self._folder = folder if elsewhere else memory_folder(folder)
        self._log = log
        self._tolerance = tolerance
        self._say = say
        self._listen = listen
        self._rested = rested
        self._mode = mode
        self._served_before = bool(before)
        self._colocated = vllm.mode == "colocate"
        self._device: Device = _device(policy, vllm)
        self._sleeps = self._colocated and self._device != "cpu"
        """On a CPU vLLM's sleep gives nothing back, so that the engine is ended."""
        self._asleep = False
        self._lora_name = serving.lora_name
        self._private = Path(tempfile.gettempdir()) / f"nightlane-{secrets.token_hex(8)}"
        """For temporary files and Unix sockets, whose paths may have 107 bytes at most; nobody else
        enters it."""
        devices = visible_devices(torch.cuda.device_count())
        where = places(serving, vllm, self._private, devices, needs.learners)
        self._replicas = [self._replica(place) for place in where]
        self._fleet = Fleet([one.api for one in self._replicas], tell=calls, revive=self._revive)
        self._sync = self._new_sync(before.get("sync") if before else None)
        self._probed = False
        self.facts: dict[str, Any] = {"sync": self._sync.state}
        """For the run card and checkpoints: address, version, pin, whether it was started here, how
        weights are sent. One object for the whole run."""

    @property
    def servers(self) -> list[str]:
        """Addresses of those that are left, in their order."""
        return [replica.serving.shown for replica in self._replicas]

    @property
    def reached_at(self) -> tuple[list[Serving], str]:
        """Where others may ask too, and for which model: right until the next `bring`."""
        return [replica.serving for replica in self._replicas], self._sync.serves

    def __enter__(self) -> Self:
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True, mode=0o700)
        self._private.mkdir(mode=0o700)
        try:
            for replica in self._replicas:
                replica.begin()
            for replica in self._replicas:
                replica.bring_up()
            self.facts |= self._replicas[0].facts
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
        try:
            self._sync.close()
        finally:
            for replica in self._replicas:
                replica.stop()
            shutil.rmtree(self._folder, ignore_errors=True)
            shutil.rmtree(self._private, ignore_errors=True)

    def bring(self) -> None:
        """The servers answer with the policy's weights afterwards; nothing to do if they do."""
        for replica in self._replicas if self._colocated else ():
            if not replica.ours:
                replica.restart()
            elif self._asleep:
                replica.api.wake_up()
        self._asleep = False
        synced = self._brought()
        self.facts["sync"] = self._sync.state
        if synced is not None:
            self._listen(synced)
        if not self._probed:
            self._fleet.probe_seeds(self._sync.serves, SeedProbe(self._some_requests()))
            self._probed = True

    def complete(self, requests: Sequence[Request]) -> list[list[Drawn]]:
        """k completions of each request, by the weights that were brought last."""
        at_once = max(1, self._needs.at_once // max(request.k for request in requests))
        name = self._sync.serves
        drawn = self._fleet.complete(name, requests, at_once=at_once, alive=self._alive)
        self._without_the_lost()
        self._sync.still_ours()
        return drawn

    def rest(self) -> None:
        """A colocated engine gives its weights and its keys and values back; the next `bring`
        starts or wakes it again.
        """
        awake = self._colocated and not self._asleep
        if not awake or not any(replica.ours for replica in self._replicas):
            return
        began = time.monotonic()
        given_back = self._to_sleep() if self._sleeps else self._ended()
        self._sync.forget()
        self._rested(Rested(time.monotonic() - began, given_back))

    # --- inside ---

    def _ended(self) -> float:
        """GB that its processes held."""
        held = sum(replica.memory_gb() for replica in self._replicas)
        for replica in self._replicas:
            replica.stop()
        return held

    def _to_sleep(self) -> float:
        """GB of the GPU that are free since. Merged weights come again, so none are kept; an
        adapter's base is kept on the CPU.
        """
        before, _ = torch.cuda.mem_get_info(self._policy.device)
        for replica in self._replicas:
            replica.api.sleep(2 if self._sync.state["mode"] == "full" else 1)
        self._asleep = True
        after, _ = torch.cuda.mem_get_info(self._policy.device)
        return (after - before) / 1e9

    def _brought(self) -> Synced | None:
        """As the sync's `bring`; servers of ours that it finds dead are started again, once."""
        try:
            return self._sync.bring(self._load)
        except ServerLostError:
            dead = [one for one in self._replicas if one.ours and not one.api.healthy()]
            if not dead:
                raise
            for replica in dead:
                self._restart(replica)
            return self._sync.bring(self._load)

    def _restart(self, replica: Replica) -> None:
        self._say("SERVING_RESTART", f"{replica.serving.shown} is dead and is started again")
        replica.restart()
        self._sync.forget()

    def _alive(self, endpoint: Endpoint) -> None:
        self._replica_at(endpoint).alive()

    def _revive(self, endpoint: Endpoint) -> Endpoint | None:
        """A dead server of ours is started again and brought the weights of this step; None where
        it is not ours, or does not come up.
        """
        replica = self._replica_at(endpoint)
        if not replica.ours:
            return None
        self._restart(replica)
        self.bring()
        return replica.api

    def _replica_at(self, endpoint: Endpoint) -> Replica:
        return next(replica for replica in self._replicas if replica.api is endpoint)

    def _replica(self, place: Place) -> Replica:
        needs = launch_needs(
            self._mode, self._device, may_fall_back=self._may_fall_back, sleeps=self._sleeps
        )
        serving, policy = place.serving, self._policy
        server = self._vllm.server
        limits = None
        if place.external and server is not None:
            limits = Limits(server.timeout_s, server.infer_timeout_s)
        vocabulary = int(policy.model.config.get_text_config().vocab_size)
        return Replica(
            serving,
            self._needs,
            check=ReplyCheck(vocabulary, policy.tokenizer),
            limits=limits,
            log=self._log,
            say=self._say,
            adapter=self._first_adapter if self._mode == "adapter" else None,
            options=needs.options,
            environment={**needs.environment, **place.environment},
            temporary=self._private,
            folders=(self._folder, self._private),
            field=place.field,
            external=place.external,
            served_before=self._served_before,
        )

    @property
    def _may_fall_back(self) -> bool:
        return self._mode == "adapter" and self._vllm.sync.fallback_to_full

    def _new_sync(self, state: Mapping[str, Any] | None) -> ChosenSync:
        """To the servers that are left."""
        apis = [replica.api for replica in self._replicas]
        proof = Proof(apis, self._policy, self._contexts, self._tolerance)
        routes = [WeightRoutes(replica.serving) for replica in self._replicas]
        adapter = full = None
        if self._mode == "adapter":
            adapter = AdapterSync(proof, name=self._lora_name, folder=self._folder)
        if self._mode == "full" or self._may_fall_back:
            transfer = VLLMTransfer(routes, _transport(self._device, self._policy))
            full = FullSync(proof, transfer, dtype=getattr(torch, self._needs.dtype))
        return ChosenSync(proof, adapter=adapter, full=full, warn=self._say, state=state)

    def _without_the_lost(self) -> None:
        """A server that was lost gets no weights any more."""
        left = [one for one in self._replicas if one.api in self._fleet.live]
        if len(left) < len(self._replicas):
            self._sync.close()
            self._replicas = left
            self._sync = self._new_sync(self._sync.state)

    def _some_requests(self) -> list[Request]:
        ends = tuple(sorted(self._policy.eos_ids))
        return [
            Request(ids, k=1, seed=0, temp=1.0, max_new_tokens=1, end_ids=ends)
            for ids in self._contexts[:_PROBED]
        ]

    def _first_adapter(self) -> Path | None:
        return self._sync.write()

    def _load(self, adapter: Path) -> None:
        for replica in self._replicas:
            self._load_at(replica, adapter)

    def _load_at(self, replica: Replica, adapter: Path) -> None:
        """Minutes instead of a blink where the server takes no adapter while it runs."""
        try:
            replica.api.load_adapter(self._lora_name, str(adapter))
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


def _device(policy: Policy, vllm: VLLMConfig) -> Device:
    """What carries merged weights to the servers."""
    if policy.device.type != "cuda":
        return "cpu"
    return "cuda" if vllm.external or torch.cuda.device_count() > 1 else "cuda-shared"


def _transport(device: Device, policy: Policy) -> Transport:
    if device == "cpu":
        return SharedMemory()
    return NcclTransport(policy.device) if device == "cuda" else IpcTransport(policy.device)
