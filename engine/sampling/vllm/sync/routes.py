"""vLLM's routes that change weights, of one server.

They exist where it was started with VLLM_SERVER_DEV_MODE=1 (`needs`). What they answer is believed
of nothing but a failure.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import httpx

from engine.contract.serving import Serving
from engine.sampling.vllm.endpoint import Limits, RouteMissingError, ServerError
from engine.sampling.vllm.wire import Wire, as_object, no_route

S = TypeVar("S")
T = TypeVar("T")

_FREE_S = 10.0
"""Seconds that the prefix cache may be in use after the last request ended."""
_LOOK_S = 0.1


class WeightRoutes:
    """The server of a lane's settings. Raises ServerError with the address in it."""

    def __init__(self, serving: Serving, limits: Limits | None = None) -> None:
        """`limits`: for each call; a model goes over in several."""
        self.root = serving.root
        limits = limits or Limits(serving.timeout_s, serving.timeout_s)
        self._wire = Wire(self.root, limits, serving.socket)

    def init(self, info: Mapping[str, Any]) -> None:
        """What the server's backend needs to know once."""
        self._post("init_weight_transfer_engine", init_info=info)

    def start(self) -> None:
        """Begin an update. One that somebody left open, killed in the middle, is given up."""
        try:
            self._post("start_weight_update")
        except ServerError as error:
            if "already active" not in str(error):
                raise
            self._give_up()
            self._post("start_weight_update")

    def update(self, info: Mapping[str, Any]) -> None:
        """A part of the weights."""
        self._post("update_weights", update_info=info)

    def finish(self, version: str) -> None:
        """The weights are whole; from now on they are called so."""
        self._post("finish_weight_update", weight_version=version)

    def version(self) -> str:
        """Of the weights, as the last update called them; proves nothing."""
        return str(self._wire.get(f"{self.root}/weight_info").get("weight_version"))

    def reset_caches(self) -> None:
        """Forget keys, values and picture features of the old weights. Raises ServerError when it
        will not."""
        deadline = time.monotonic() + _FREE_S
        while self._post("reset_prefix_cache").get("success") is not True:
            if time.monotonic() > deadline:
                raise ServerError(
                    f"{self.root} does not empty its prefix cache: requests are running; give each "
                    "run a server of its own"
                )
            time.sleep(_LOOK_S)
        self._post("reset_encoder_cache")

    def checksums(self) -> Mapping[str, str]:
        """SHA-256 of each parameter's bytes, by worker and name."""
        found = self._post("weight_checker", action="checksum").get("checksums")
        if not isinstance(found, dict):
            raise ServerError(f"{self.root}/weight_checker tells no checksums; is it vLLM 0.32?")
        return found

    def world_size(self) -> int:
        """How many workers it has."""
        return int(self._wire.get(f"{self.root}/get_world_size")["world_size"])

    # --- inside ---

    def _give_up(self) -> None:
        """vLLM has no route for it; a part that it cannot read ends an update."""
        try:
            self.update({})
        except RouteMissingError:
            raise
        except ServerError:
            return

    def _post(self, route: str, **body: Any) -> dict[str, Any]:
        reply = self._wire.send(f"{self.root}/{route}", body)
        if no_route(reply):
            raise RouteMissingError(
                f"{self.root} has no route {route}; start it with VLLM_SERVER_DEV_MODE=1, or let "
                "the run start its own server"
            )
        if reply.status_code != httpx.codes.OK:
            raise self._wire.refused(route, reply)
        return as_object(reply)


def each(servers: Sequence[S], call: Callable[[S], T]) -> list[T]:
    """The call's answers in the servers' order; all are asked at once. Raises the first error."""
    with ThreadPoolExecutor(max_workers=max(1, len(servers))) as pool:
        return list(pool.map(call, servers))
