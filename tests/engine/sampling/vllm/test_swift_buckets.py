"""Flattened buckets for ms-swift's servers: what is sent, in which order, and that it is all.

Against a server that records; the broadcast itself needs GPUs, and a recorder stands for it.
"""

from __future__ import annotations

import ctypes
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from engine.contract.served import Server
from engine.models import lora
from engine.models.merged import MergedWeights
from engine.models.policy import build
from engine.sampling.vllm.endpoint import Limits, ServerError
from engine.sampling.vllm.sync.proof import SyncError
from engine.sampling.vllm.sync.swift import SwiftTransfer, read_told
from tests.engine.sampling.vllm.canned import Canned

ROUTES = (
    *("init_communicator", "update_flattened_params", "process_weights_after_loading"),
    *("reset_prefix_cache", "close_communicator"),
)


class Recorded:
    """A weight group that keeps what was broadcast."""

    def __init__(self) -> None:
        self.heard: list[torch.Tensor] = []
        self.left = False

    def broadcast(self, flat: torch.Tensor) -> None:
        self.heard.append(flat.clone())

    def close(self) -> None:
        self.left = True


@pytest.fixture
def server() -> Iterator[Canned]:
    with Canned() as server:
        for route in ROUTES:
            server[f"/{route}/"] = (200, {"message": "Request received, …: True"})
        server["/get_world_size/"] = (200, {"world_size": 2})
        yield server


def transfer_to(group: Recorded, server: Canned) -> SwiftTransfer:
    return SwiftTransfer(
        [Server(base_url=server.serving.root, group_port=51216)],
        limits=Limits(timeout_s=5),
        join=lambda *_: group,
        memory=lambda size: torch.zeros(size, dtype=torch.uint8),
        most=20_000,
    )


def received(server: Canned, group: Recorded) -> dict[str, torch.Tensor]:
    """What its workers would put together again."""
    told = [body["metadatas"] for route, body in server.asked if "flattened" in route]
    found = {}
    for metadatas, flat in zip(told, group.heard, strict=True):
        assert len({one["dtype"] for one in metadatas}) == 1
        assert len(flat) == metadatas[-1]["end_idx"]
        assert str(flat.dtype) == metadatas[0]["dtype"]
        for one in metadatas:
            assert one["end_idx"] - one["start_idx"] == one["numel"]
            part = flat[one["start_idx"] : one["end_idx"]]
            found[one["name"]] = part.view(one["shape"])
    return found


@pytest.mark.requirement("RM-06")
def test_every_merged_weight_arrives_in_buckets_of_a_bounded_size(
    chat_base: Path, server: Canned
) -> None:
    """Then the verb that waits for the workers, then empty caches; the group is made once."""
    model = lora.attach_zero(build(str(chat_base), 0).model, base="x", rank=2, alpha=4, seed=1)
    weights, group = MergedWeights(model, torch.bfloat16), Recorded()
    transfer = transfer_to(group, server)

    sent = [transfer.send(weights, "1"), transfer.send(weights, "2")]

    assert sent == [sum(tensor.numel() for _, tensor in weights) * 2] * 2
    buckets = len(group.heard) // 2
    assert buckets > 2
    largest = max(tensor.numel() for _, tensor in weights)
    assert max(len(flat) for flat in group.heard) <= max(10_000, largest)
    routes = [route.strip("/") for route, _ in server.asked]
    one_sync = ["update_flattened_params"] * buckets
    one_sync += ["process_weights_after_loading", "reset_prefix_cache"]
    assert routes == ["get_world_size", "init_communicator", *one_sync, *one_sync]
    told = {"host": "0.0.0.0", "port": 51216, "world_size": 3}  # noqa: S104 - where it meets
    assert server.asked[1][1] == told
    assert {n: t.tolist() for n, t in received(server, group).items()} == {
        name: tensor.tolist() for name, tensor in weights
    }
    transfer.close()
    assert group.left
    assert server.asked[-1][0] == "/close_communicator/"


def test_a_refused_bucket_and_a_cache_that_stays_are_told_by_name(
    chat_base: Path, server: Canned
) -> None:
    """Before anything is drawn."""
    weights = MergedWeights(build(str(chat_base), 0).model)
    transfer = transfer_to(Recorded(), server)
    server["/reset_prefix_cache/"] = (200, {"message": "resetting prefix cache status: False"})
    with pytest.raises(SyncError, match="does not empty its prefix cache"):
        transfer.send(weights, "1")

    server["/update_flattened_params/"] = (500, {"error": "no such parameter"})
    with pytest.raises(ServerError, match=r"update_flattened_params was refused with status 500"):
        transfer.send(weights, "1")


def test_the_id_of_a_group_is_read_as_vllm_pickles_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the name of its class there; nothing of vLLM is imported for it."""
    home = "vllm.distributed.device_communicators.pynccl_wrapper"

    class ncclUniqueId(ctypes.Structure):  # noqa: N801 - its name there
        _fields_ = (("internal", ctypes.c_byte * 128),)

    ncclUniqueId.__module__, ncclUniqueId.__qualname__ = home, "ncclUniqueId"
    with monkeypatch.context() as patch:
        for end in (4, 16, 37, len(home)):
            patch.setitem(sys.modules, home[:end], SimpleNamespace(ncclUniqueId=ncclUniqueId))
        found = ncclUniqueId()
        found.internal[3] = 7
        told = pickle.dumps(found)

    assert bytes(read_told(told)) == bytes(found)


def test_a_group_that_tells_anything_else_is_refused() -> None:
    """Unpickled, it would run."""
    assert read_told(pickle.dumps("barrier_1")) == "barrier_1"
    with pytest.raises(pickle.UnpicklingError, match="a weight group told"):
        read_told(pickle.dumps(ctypes.c_byte))
