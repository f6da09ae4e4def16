"""Merged weights from GPU to GPU, by vLLM's own backends: `nccl` between GPUs, `ipc` on one.

Written against vLLM 0.32's nccl_engine and ipc_engine. Need CUDA; were not run on one here.
"""

from __future__ import annotations

import base64
import pickle
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate

import torch
from torch import Tensor
from torch.multiprocessing.reductions import reduce_tensor

from engine.models.merged import MergedWeights
from engine.run.stop import sign_of_life
from engine.sampling.vllm.sync import buckets
from engine.sampling.vllm.sync.nccl import Group, new_id
from engine.sampling.vllm.sync.routes import WeightRoutes, each


class NcclTransport:
    """One group of the trainer (rank 0) and all workers of all servers: each tensor is broadcast
    once."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._group: Group | None = None

    def join(self, servers: Sequence[WeightRoutes], weights: MergedWeights) -> None:  # noqa: ARG002
        """The servers' calls return when all of the group is there, so they run beside ours."""
        self.close()
        unique = new_id()
        workers = each(servers, lambda server: server.world_size())
        offsets = list(accumulate(workers, initial=1))
        world = offsets.pop()
        told = base64.b64encode(unique).decode()
        with ThreadPoolExecutor(max_workers=len(servers)) as pool:
            joining = [
                pool.submit(
                    server.init,
                    {"nccl_unique_id_b64": told, "rank_offset": first, "world_size": world},
                )
                for server, first in zip(servers, offsets, strict=True)
            ]
            self._group = Group(unique, rank=0, world=world, device=self._device)
            for one in joining:
                one.result()

    def send(self, servers: Sequence[WeightRoutes], weights: Iterable[tuple[str, Tensor]]) -> int:
        """Names, types and shapes first, which takes a merge of its own; then the bytes."""
        assert self._group is not None
        told = [(name, tensor.dtype, list(tensor.shape)) for name, tensor in weights]
        info = {
            "names": [name for name, _, _ in told],
            "dtype_names": [str(dtype).removeprefix("torch.") for _, dtype, _ in told],
            "shapes": [shape for _, _, shape in told],
        }
        sent = 0
        with ThreadPoolExecutor(max_workers=len(servers)) as pool:
            loading = [pool.submit(server.update, info) for server in servers]
            for _, tensor in weights:
                whole = tensor.to(self._device).contiguous()
                self._group.broadcast(whole)
                # The tensor may be a merge's, whose memory is free again after this turn.
                torch.cuda.current_stream(self._device).synchronize()
                sent += whole.numel() * whole.itemsize
                sign_of_life()
            for one in loading:
                one.result()
        return sent

    def close(self) -> None:
        """Leave the group."""
        if self._group is not None:
            self._group.close()
            self._group = None


class IpcTransport:
    """Handles of one buffer on the GPU that trainer and servers share, bucketful by bucketful."""

    def __init__(self, device: torch.device, most: int = buckets.MOST) -> None:
        self._device = device
        self._most = most
        self._memory: Tensor | None = None

    def join(self, servers: Sequence[WeightRoutes], weights: MergedWeights) -> None:
        """No meeting is needed: they are told that tensors come packed."""
        if self._memory is None:
            size = buckets.size_for(weights.bytes, weights.largest, self._most)
            self._memory = torch.empty(size, dtype=torch.uint8, device=self._device)
        each(servers, lambda server: server.init({"packed": True}))

    def send(self, servers: Sequence[WeightRoutes], weights: Iterable[tuple[str, Tensor]]) -> int:
        """Each call returns when the workers have copied their part out."""
        assert self._memory is not None
        owner = str(torch.cuda.get_device_properties(self._device).uuid)
        sent = 0
        for bucket in buckets.fill(weights, self._memory):
            torch.cuda.current_stream(self._device).synchronize()
            _, handle = reduce_tensor(self._memory)  # type: ignore[no-untyped-call]
            info = {
                "names": [piece.name for piece in bucket.pieces],
                "dtype_names": [piece.type_name for piece in bucket.pieces],
                "shapes": [list(piece.shape) for piece in bucket.pieces],
                "tensor_sizes": [piece.bytes for piece in bucket.pieces],
                "ipc_handles_pickled": base64.b64encode(pickle.dumps({owner: handle})).decode(),
            }
            each(servers, lambda server, info=info: server.update(info))  # type: ignore[misc]
            sent += bucket.bytes
            sign_of_life()
        torch.cuda.ipc_collect()  # type: ignore[no-untyped-call]
        return sent

    def close(self) -> None:
        """Give the buffer back."""
        self._memory = None
