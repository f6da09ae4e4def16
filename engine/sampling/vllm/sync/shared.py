"""Merged weights through memory that trainer and server both see, on one machine.

A memory file without a name: nothing lies on a disk, nobody else finds it, and it is gone with the
trainer, however that ends. The server opens it by the trainer's process id, so both must run under
one user and see each other's processes. Its side is `transfer/nightlane_weights.py`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from engine.models.merged import MergedWeights
from engine.run.stop import sign_of_life
from engine.sampling.vllm.sync import buckets
from engine.sampling.vllm.sync.routes import WeightRoutes, each


class SharedMemory:
    """For servers on this machine's CPU."""

    def __init__(self, most: int = buckets.MOST) -> None:
        """`most`: bytes of the memory, unless one tensor is larger."""
        self._most = most
        self._file: int | None = None
        self._memory = torch.empty(0, dtype=torch.uint8)

    def join(self, servers: Sequence[WeightRoutes], weights: MergedWeights) -> None:
        """The servers map the memory, which is made at the first time."""
        if self._file is None:
            size = buckets.size_for(weights.bytes, weights.largest, self._most)
            self._file = os.memfd_create("nightlane-weights")
            os.ftruncate(self._file, size)
            self._memory = torch.from_file(self._path, shared=True, size=size, dtype=torch.uint8)
        each(servers, lambda server: server.init({"path": self._path}))

    def send(self, servers: Sequence[WeightRoutes], weights: Iterable[tuple[str, Tensor]]) -> int:
        """One bucketful after the other; returns the bytes of one server's."""
        sent = 0
        for bucket in buckets.fill(weights, self._memory):
            pieces = [
                [piece.name, piece.type_name, piece.shape, piece.first * piece.dtype.itemsize]
                for piece in bucket.pieces
            ]
            info = {"pieces": pieces, "last": bucket.last}
            each(servers, lambda server, info=info: server.update(info))  # type: ignore[misc]
            sent += bucket.bytes
            sign_of_life()
        return sent

    def close(self) -> None:
        """Give the memory back."""
        if self._file is not None:
            self._memory = torch.empty(0, dtype=torch.uint8)
            os.close(self._file)
            self._file = None

    @property
    def _path(self) -> str:
        return f"/proc/{os.getpid()}/fd/{self._file}"
