"""Where the servers of a run are, by its config."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from engine.contract.errors import RLLoopError
from engine.contract.served import RunVLLMConfig, VLLMConfig
from engine.contract.serving import Serving
from engine.sampling.vllm.places import parallel, places

OPERATOR = Serving(url="http://127.0.0.1:8123/v1", gpu_util=0.55)
PRIVATE = Path("/run/private")


def of_run(**said: Any) -> RunVLLMConfig:
    return RunVLLMConfig.model_validate(said)


def test_a_run_that_names_no_server_uses_the_operators_address() -> None:
    """As it always did: one that answers there, else one that is started there."""
    [place] = places(OPERATOR, of_run(), PRIVATE, [])

    assert place.serving == OPERATOR
    assert not place.external
    assert place.field == "NIGHTLANE_VLLM_URL"


@pytest.mark.requirement("RM-03")
def test_external_servers_are_asked_at_their_address_and_never_started() -> None:
    """In the order of the list; a path in front of the routes is kept."""
    servers = {"base_url": ["http://a:1/one/", "http://b:2"], "group_port": 9, "timeout_s": 7}

    first, second = places(OPERATOR, of_run(server=servers), PRIVATE, [])

    assert [first.serving.url, second.serving.url] == ["http://a:1/one/v1", "http://b:2/v1"]
    assert first.external
    assert second.external
    assert first.serving.timeout_s == 7


def test_launched_servers_get_ports_and_devices_of_their_own() -> None:
    """Each as many as tensor_parallel_size says, in the lane's order."""
    launch = {"replicas": 2, "tensor_parallel_size": 2}

    found = places(OPERATOR, of_run(server={"launch": launch}), PRIVATE, ["0", "1", "2", "3"])

    assert [one.environment["CUDA_VISIBLE_DEVICES"] for one in found] == ["0,1", "2,3"]
    assert len({one.serving.port for one in found}) == 2
    assert all(one.serving.host == "127.0.0.1" for one in found)


@pytest.mark.requirement("RM-10")
@pytest.mark.parametrize(
    ("devices", "learners", "replicas", "own"),
    [
        (4, 1, 3, ["1", "2", "3"]),
        (8, 1, 7, [*"1234567"]),
        (8, 2, 3, ["2,3", "4,5", "6,7"]),
        (8, 4, 1, ["4,5,6,7"]),
        (2, 2, 1, ["0,1"]),
    ],
)
def test_servers_stand_on_the_devices_that_no_learner_has(
    devices: int, learners: int, replicas: int, own: list[str]
) -> None:
    """Three servers and one learner on four; where there are not enough they share."""
    vllm = of_run(server={"launch": {"replicas": replicas}})

    found = places(OPERATOR, vllm, PRIVATE, [*map(str, range(devices))], learners)

    assert [one.environment["CUDA_VISIBLE_DEVICES"] for one in found] == own


@pytest.mark.requirement("RM-02")
def test_a_colocated_engine_has_a_socket_instead_of_a_port_and_a_share_of_the_memory() -> None:
    [stage2] = places(OPERATOR, VLLMConfig(), PRIVATE, [])
    [told] = places(OPERATOR, VLLMConfig(gpu_memory_utilization=0.3), PRIVATE, [])

    assert stage2.serving.socket == PRIVATE / "vllm.sock"
    assert stage2.serving.gpu_util == 0.45
    assert told.serving.gpu_util == 0.3


@pytest.mark.requirement("RM-02")
@pytest.mark.parametrize(("devices", "used"), [(0, 1), (1, 1), (3, 3), (4, 4), (8, 4)])
def test_an_engine_is_spread_over_the_lanes_devices_four_at_most(devices: int, used: int) -> None:
    assert parallel(VLLMConfig(), devices) == used


@pytest.mark.requirement("RM-02")
def test_more_devices_than_the_lane_has_are_refused_with_the_number() -> None:
    with pytest.raises(RLLoopError, match=r"than the lane has \(2\) \(got 4\); set it to 2"):
        parallel(VLLMConfig(tensor_parallel_size=4), 2)
