"""What crossed between a learner and its servers, as `recording_proxy.py` wrote it down."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from tests.engine.sampling.vllm import recording_proxy

LOOKED_AT = frozenset({"/health", "/version", "/v1/models"})
"""Routes by which a server is found."""
ASKED = frozenset({"/v1/chat/completions", "/v1/completions"})
"""Routes of requests and outputs."""
WEIGHTS = frozenset(
    f"/{route}"
    for route in (
        "init_weight_transfer_engine",
        "start_weight_update",
        "update_weights",
        "finish_weight_update",
        "weight_info",
        "weight_checker",
        "reset_prefix_cache",
        "reset_encoder_cache",
    )
)


class Exchange(NamedTuple):
    """A request and its answer; seconds are those of the machine's clock."""

    method: str
    path: str
    status: int
    began: float
    ended: float
    sent: str
    told: str

    @property
    def body(self) -> Any:
        return json.loads(self.sent)


@dataclass(frozen=True)
class Crossed:
    """All that went to and from one server."""

    command: Sequence[str]
    """That started it, as the run wrote it."""
    environment: Mapping[str, str]
    exchanges: Sequence[Exchange]

    @property
    def port(self) -> int:
        return int(self.command[self.command.index("--port") + 1])

    def on(self, *paths: str) -> list[Exchange]:
        """Those that were answered."""
        return [one for one in self.exchanges if one.path in paths and one.status == 200]

    def rollouts(self, seeds: range) -> list[Exchange]:
        """The requests under some seeds."""
        return [one for one in self.on("/v1/chat/completions") if one.body["seed"] in seeds]


def through_proxy(folder: Path, upstreams: str, command: str) -> str:
    """A serve command with the proxy in front of `command`, or of servers that run already."""
    folder.mkdir()
    asked = upstreams or "''"
    return f"{sys.executable} -IS {recording_proxy.__file__} {folder} {asked} {command}"


def read(folder: Path) -> list[Crossed]:
    """Of each server, in the order of their ports."""
    found = []
    for path in folder.glob("*.jsonl"):
        first, *rest = map(json.loads, path.read_text().splitlines())
        exchanges = [Exchange(**one) for one in rest]
        found.append(Crossed(first["command"], first["environment"], exchanges))
    return sorted(found, key=lambda one: one.port)


def require_weights_alone(server: Crossed, model: Mapping[str, torch.Tensor]) -> None:
    """Memory that both see holds the model's parameters and nothing beside them."""
    names, size = set(model), sum(one.nbytes for one in model.values())
    for one in server.on("/init_weight_transfer_engine"):
        assert one.body.keys() == {"init_info"}
        assert one.body["init_info"].keys() == {"path"}
    for update in updates(server):
        assert {name for name, *_ in update} == names
        assert sum(_bytes(*piece) for piece in update) == size


def updates(server: Crossed) -> Iterator[list[tuple[str, str, list[int], int]]]:
    """The pieces of each update, over all its parts."""
    pieces: list[tuple[str, str, list[int], int]] = []
    for one in server.on("/update_weights"):
        told = one.body["update_info"]
        assert told.keys() == {"pieces", "last"}
        pieces += map(tuple, told["pieces"])
        if told["last"]:
            yield pieces
            pieces = []


def _bytes(_: str, dtype: str, shape: list[int], __: int) -> int:
    size: int = torch.Size(shape).numel() * getattr(torch, dtype).itemsize
    return size
