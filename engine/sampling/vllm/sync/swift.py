"""Merged weights to ms-swift's rollout servers: flattened buckets over their own weight group.

Routes and fields as ms-swift 4.6 has them. Its weight verbs answer before the workers have loaded
anything; the one that waits comes after the last bucket, and the proof after that. The bytes are
broadcast by NCCL, which needs CUDA and was not run here.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, Protocol
from urllib.parse import urlsplit

import httpx
import torch
from torch import Tensor
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from engine.contract.served import Server
from engine.models.merged import MergedWeights
from engine.run.stop import sign_of_life
from engine.sampling.vllm.endpoint import Limits, ServerError
from engine.sampling.vllm.sync import buckets
from engine.sampling.vllm.sync.nccl import Group, UniqueId
from engine.sampling.vllm.sync.proof import SyncError
from engine.sampling.vllm.wire import Wire, as_object


class WeightGroup(Protocol):
    """The trainer, as the last rank, and the workers of one server."""

    def broadcast(self, flat: Tensor) -> None:
        """To the workers; returns when all of them have it."""
        ...

    def close(self) -> None:
        """Leave it."""
        ...


Join = Callable[[str, int, int], WeightGroup]
"""`(host, port, ranks)`; blocks until all are there."""


class SwiftTransfer:
    """By ms-swift's weight routes."""

    def __init__(
        self,
        servers: Sequence[Server],
        *,
        limits: Limits,
        join: Join,
        memory: Callable[[int], Tensor],
        most: int = buckets.MOST,
    ) -> None:
        """`join`: `join_nccl`; `memory`: so many bytes where the group can send from; `most`:
        bytes of a bucket.
        """
        self._servers = [_Routes(server, limits) for server in servers]
        self._join = join
        self._make = memory
        self._most = most
        self._memory: Tensor | None = None
        self._groups: list[WeightGroup] = []

    def send(self, weights: MergedWeights, version: str) -> int:  # noqa: ARG002 - it keeps none
        """All buckets to all servers, then wait for the workers and empty the prefix caches."""
        self._meet()
        if self._memory is None:
            size = buckets.size_for(weights.bytes, weights.largest, self._most)
            self._memory = self._make(size)
        sent = 0
        for bucket in buckets.fill(weights, self._memory):
            told = [_metadata(piece) for piece in bucket.pieces]
            flat = self._memory[: bucket.bytes].view(bucket.pieces[0].dtype)
            for server, group in zip(self._servers, self._groups, strict=True):
                server.post("update_flattened_params", metadatas=told)
                group.broadcast(flat)
            sent += bucket.bytes
            sign_of_life()
        for server in self._servers:
            server.post("process_weights_after_loading")
        for server in self._servers:
            server.empty_cache()
        return sent * len(self._servers)

    def check(self, version: str) -> None:
        """These servers tell neither version nor checksum: the log-probabilities decide."""

    def proven(self) -> None:
        """Nothing to keep."""

    def still(self, version: str) -> None:
        """Nothing to ask."""

    def forget(self) -> None:
        """Meet again."""
        for group in self._groups:
            group.close()
        self._groups = []

    def close(self) -> None:
        """The servers leave their groups too."""
        for server in self._servers:
            with suppress(ServerError):  # one that is gone has none
                server.post("close_communicator")
        self.forget()

    # --- inside ---

    def _meet(self) -> None:
        for server in self._servers[len(self._groups) :]:
            ranks = server.workers() + 1
            bind = "::" if ":" in server.host else "0.0.0.0"  # noqa: S104 - where the server meets
            server.post("init_communicator", host=bind, port=server.port, world_size=ranks)
            self._groups.append(self._join(server.host, server.port, ranks))


class _Routes:
    """Of one server. Raises ServerError."""

    def __init__(self, server: Server, limits: Limits) -> None:
        self.url = server.base_url.rstrip("/")
        self.port = server.group_port
        self.host = urlsplit(self.url).hostname or ""
        self._wire = Wire(self.url, limits)

    def workers(self) -> int:
        """Processes of its engine."""
        found = self._wire.get(f"{self.url}/get_world_size/").get("world_size")
        if not isinstance(found, int):
            raise ServerError(f"{self.url}/get_world_size/ names no world_size; is it ms-swift?")
        return found

    def post(self, route: str, **body: Any) -> Mapping[str, Any]:
        reply = self._wire.send(f"{self.url}/{route}/", body)
        if reply.status_code != httpx.codes.OK:
            raise self._wire.refused(route, reply)
        return as_object(reply)

    def empty_cache(self) -> None:
        """Raises SyncError when it will not."""
        if str(self.post("reset_prefix_cache").get("message", "")).endswith("False"):
            raise SyncError(
                f"{self.url} does not empty its prefix cache: requests are running; give each run "
                "a server of its own"
            )


def _metadata(piece: buckets.Piece) -> dict[str, Any]:
    """FlattenedTensorMetadata."""
    return {
        "name": piece.name,
        "shape": list(piece.shape),
        "dtype": str(piece.dtype),
        "start_idx": piece.first,
        "end_idx": piece.first + piece.numel,
        "numel": piece.numel,
    }


def join_nccl(device: torch.device, timeout_s: float) -> Join:
    """Weight groups over NCCL, of a trainer on `device`."""

    def join(host: str, port: int, ranks: int) -> WeightGroup:
        store = TCPStore(
            host,
            port,
            ranks,
            is_master=False,
            timeout=timedelta(seconds=timeout_s),
            use_libuv=False,
        )
        return _NcclGroup(store, ranks, device)

    return join


class _NcclGroup:
    """The last rank of a group as vLLM's StatelessProcessGroup makes one: the first keeps a store
    in which the others find the group's id, and meet after each broadcast."""

    def __init__(self, store: Any, ranks: int, device: torch.device) -> None:
        self._rank, self._ranks = ranks - 1, ranks
        self._store = store
        self._heard = self._told()
        self._device = device
        self._group = Group(
            bytes(next(self._heard)), rank=self._rank, world=self._ranks, device=device
        )

    def broadcast(self, flat: Tensor) -> None:
        """The barrier is the store's: a worker may still be reading."""
        torch.cuda.current_stream(self._device).synchronize()
        self._group.broadcast(flat)
        torch.cuda.current_stream(self._device).synchronize()
        meeting = next(self._heard)
        self._store.set(f"arrival_{meeting}_{self._rank}", "1")
        for rank in range(self._ranks):
            self._store.get(f"arrival_{meeting}_{rank}")
        self._store.set(f"departure_{meeting}_{self._rank}", "1")

    def close(self) -> None:
        self._group.close()

    def _told(self) -> Iterator[Any]:
        """What the first rank tells all others, one thing after the other."""
        number = 0
        while True:
            yield read_told(self._store.get(f"broadcast_from/0/{number}"))
            number += 1


def read_told(pickled: bytes) -> Any:
    """A text, or the id of a group, pickled by vLLM; nothing else is made of it."""
    return _Reader(io.BytesIO(pickled)).load()


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        """Raises pickle.UnpicklingError for all that is neither."""
        if (module, name) == ("_ctypes", "_unpickle"):
            return super().find_class(module, name)
        if module.startswith("vllm.") and name == "ncclUniqueId":
            return UniqueId
        raise pickle.UnpicklingError(f"a weight group told {module}.{name}")
