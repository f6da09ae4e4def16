"""NCCL between the trainer's GPU and servers' workers, without vLLM in the trainer's environment.

Five calls of the library that torch brings along. Needs CUDA; was not run on one here.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch
from torch import Tensor

from engine.sampling.vllm.endpoint import ServerError

ID_BYTES = 128
_SUM = 0
_TYPES = {
    torch.int8: 0,
    torch.uint8: 1,
    torch.int32: 2,
    torch.int64: 4,
    torch.float16: 6,
    torch.float32: 7,
    torch.float64: 8,
    torch.bfloat16: 9,
}
"""ncclDataType_t."""


class UniqueId(ctypes.Structure):
    """ncclUniqueId: what the members of a group find each other by."""

    _fields_ = (("internal", ctypes.c_byte * ID_BYTES),)


class Group:
    """One rank of a group of GPUs; blocks until all are there. Raises ServerError.

    As vLLM's PyNcclCommunicator, its first call is an all-reduce of one number.
    """

    def __init__(self, unique: bytes, *, rank: int, world: int, device: torch.device) -> None:
        self.rank = rank
        self._device = device
        self._nccl = _library()
        self._group = ctypes.c_void_p()
        found = UniqueId.from_buffer_copy(unique)
        with torch.cuda.device(device):
            self._do("ncclCommInitRank", ctypes.byref(self._group), world, found, rank)
            one = torch.zeros(1, device=device)
            place, kind = ctypes.c_void_p(one.data_ptr()), _TYPES[one.dtype]
            size = ctypes.c_size_t(1)
            self._do("ncclAllReduce", place, place, size, kind, _SUM, self._group, _stream())
            torch.cuda.current_stream().synchronize()

    def broadcast(self, tensor: Tensor) -> None:
        """From this rank to all others; `tensor` is contiguous and on this rank's device."""
        place = ctypes.c_void_p(tensor.data_ptr())
        kind = _TYPES[tensor.dtype]
        count = ctypes.c_size_t(tensor.numel())
        with torch.cuda.device(self._device):
            self._do("ncclBroadcast", place, place, count, kind, self.rank, self._group, _stream())

    def close(self) -> None:
        """Leave the group."""
        self._do("ncclCommDestroy", self._group)

    def _do(self, call: str, *arguments: Any) -> None:
        status = getattr(self._nccl, call)(*arguments)
        if status != 0:
            raise ServerError(f"{call} failed with status {status}; set NCCL_DEBUG=INFO to see why")


def new_id() -> bytes:
    """Of a group to be: minted by one member, handed to all."""
    found = UniqueId()
    status = _library().ncclGetUniqueId(ctypes.byref(found))
    if status != 0:
        raise ServerError(f"ncclGetUniqueId failed with status {status}; is NCCL installed?")
    return bytes(found)


def _library() -> Any:
    """Raises ServerError without one."""
    try:
        return ctypes.CDLL("libnccl.so.2")
    except OSError as error:
        raise ServerError(
            "NCCL cannot be loaded; weights go between GPUs by it: install a torch with CUDA"
        ) from error


def _stream() -> ctypes.c_void_p:
    return ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
