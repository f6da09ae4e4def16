"""Where the servers of a run are, by its config: running ones, new ones, or one without a port.

Starts nothing and asks nobody.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from engine.contract.errors import RLLoopError
from engine.contract.served import (
    COLOCATED_SHARE,
    VLLMConfig,
    parallel_problem,
    parallel_used,
)
from engine.contract.serving import Serving

VISIBLE = "CUDA_VISIBLE_DEVICES"


class Place(NamedTuple):
    """One server."""

    serving: Serving
    field: str
    """The setting that names it."""
    external: bool = False
    """It was started beforehand, by somebody else."""
    environment: Mapping[str, str] = MappingProxyType({})
    """Of one that is started: the devices that are its own."""


def places(
    serving: Serving, vllm: VLLMConfig, private: Path, devices: Sequence[str], learners: int = 1
) -> list[Place]:
    """The servers in their order. `private`: a short folder that nobody else may enter; `devices`:
    those of the lane, none on a CPU, of which the first `learners` train.
    """
    if vllm.mode == "colocate":
        share = vllm.gpu_memory_utilization or COLOCATED_SHARE
        own = serving.model_copy(update={"socket": private / "vllm.sock", "gpu_util": share})
        return [Place(own, "NIGHTLANE_SERVE_CMD")]
    share = vllm.gpu_memory_utilization or serving.gpu_util
    told = serving.model_copy(update={"gpu_util": share})
    if vllm.external:
        assert vllm.server is not None
        limit = {"timeout_s": vllm.server.timeout_s}
        return [
            Place(
                told.model_copy(update={"url": f"{server.base_url.rstrip('/')}/v1", **limit}),
                "vllm.server",
                external=True,
            )
            for server in vllm.external
        ]
    if vllm.server is None:
        return [Place(told, "NIGHTLANE_VLLM_URL")]
    launch = vllm.launch
    each = parallel(vllm, len(devices), learners)
    behind = devices[learners:]
    theirs = behind if len(behind) >= each * launch.replicas else devices
    return [
        Place(
            told.model_copy(update={"url": f"http://127.0.0.1:{_free_port()}/v1"}),
            "vllm.server.launch",
            environment=_devices(theirs, each, number),
        )
        for number in range(launch.replicas)
    ]


def parallel(vllm: VLLMConfig, devices: int, learners: int = 1) -> int:
    """GPUs of one engine: servers that the run starts share those that no learner has, where there
    are any. Raises RLLoopError for more than the lane has.
    """
    launch = vllm.launch
    problem = parallel_problem(launch.tensor_parallel_size, devices)
    if problem:
        said, _, remedy = problem.partition("; ")
        size = launch.tensor_parallel_size
        raise RLLoopError.of("vllm.tensor_parallel_size", size, said, remedy)
    apart = vllm.mode == "server" and devices >= learners + launch.replicas
    free = devices - learners if apart else devices
    return parallel_used(launch.tensor_parallel_size, free, launch.replicas)


def visible_devices(count: int) -> list[str]:
    """What this process may see of the machine's devices, as CUDA_VISIBLE_DEVICES names them."""
    told = os.environ.get(VISIBLE)
    return [one for one in told.split(",") if one][:count] if told else [*map(str, range(count))]


def _devices(devices: Sequence[str], each: int, number: int) -> dict[str, str]:
    """Those of one of several servers, while there are enough to give each its own."""
    own = devices[number * each : (number + 1) * each]
    return {VISIBLE: ",".join(own)} if len(own) == each else {}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
