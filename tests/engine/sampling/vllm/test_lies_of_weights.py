"""A server that says it took the weights and did not is caught before anything is drawn."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import httpx
import pytest

from engine.models.policy import Policy
from engine.sampling.vllm.endpoint import ServerError
from engine.sampling.vllm.lane import ServingLane
from tests.engine.sampling.conformance.backends import (
    SAME,
    TASKS,
    TEMP,
    backend_of,
    flat,
    gap,
    move,
    new_lane,
    policy,
)
from tests.engine.sampling.vllm import stand_in_lies
from tests.engine.sampling.vllm.conftest import lane_of

__all__ = ["policy"]

LIES = f"{sys.executable} -m {stand_in_lies.__name__} {{base}} {{options}}"


@pytest.fixture(scope="module")
def lying(
    policy: Policy, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[ServingLane, Callable[[str], None]]]:
    """A lane over the lying stand-in, and its switch."""
    serving = lane_of(LIES)

    def lie(name: str) -> None:
        body = {"lie": name}
        httpx.post(f"{serving.root}/lie", json=body, trust_env=False).raise_for_status()

    with new_lane(serving, policy, tmp_path_factory.mktemp("lying")) as lane:
        yield lane, lie


@pytest.mark.parametrize("lie", ["loads nothing", "version stands", "another model"])
def test_weights_that_did_not_arrive_end_the_step(
    lying: tuple[ServingLane, Callable[[str], None]], policy: Policy, lie: str
) -> None:
    """By the numbers that it answers; then the truth is brought, and drawn by."""
    lane, tell = lying
    tell("")
    lane.bring()
    move(policy, 0.05, seed=len(lie))
    tell(lie)

    with pytest.raises(ServerError, match=r"http://127.0.0.1:.* nats a token away"):
        lane.bring()

    tell("")
    assert gap(policy, flat(backend_of(policy, lane)()(TASKS, 2)), TEMP) < SAME
