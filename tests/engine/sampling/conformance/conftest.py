"""One policy for the whole suite, and every backend beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache

import pytest

from engine.contract.serving import Serving
from engine.models.policy import Policy
from engine.sampling.vllm.lane import ServingLane
from tests.engine.sampling.conformance.backends import (
    Backend,
    backend_of,
    fleet_lane,
    in_conversation,
    infer_lane,
    new_lane,
    policy,
)
from tests.engine.sampling.vllm.conftest import SERVERS, chat_base, serving_by

__all__ = ["chat_base", "policy"]

BACKENDS = ["hf", *SERVERS, "fleet"]


@pytest.fixture(scope="module")
def backends(
    policy: Policy, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], Backend]]:
    """By name; a server is started when it is first asked for."""
    with ExitStack() as stack:

        @cache
        def server(name: str, _: int) -> tuple[ServingLane, Serving]:
            serving = serving_by(name)
            lane = new_lane(serving, policy, tmp_path_factory.mktemp("lane"))
            return stack.enter_context(lane), serving

        def backend(name: str) -> Backend:
            if name == "hf":
                return backend_of(policy, None)
            if name == "fleet":
                both = [server("stand-in", 1), server("stand-in", 2)]
                return backend_of(policy, fleet_lane(policy, both))
            if name == "infer":
                lane = infer_lane(policy, *server("stand-in", 1))
                return backend_of(policy, lane, **in_conversation(policy))
            return backend_of(policy, server(name, 1)[0])

        yield backend


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, backends: Callable[[str], Backend]) -> Backend:
    """Every backend that tells log-probabilities, with a seed for each request."""
    return backends(request.param)


@pytest.fixture(params=[*BACKENDS, "infer"])
def any_backend(request: pytest.FixtureRequest, backends: Callable[[str], Backend]) -> Backend:
    """And ms-swift's routes, which have one seed a call and tell no log-probabilities."""
    return backends(request.param)
