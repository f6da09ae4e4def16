"""One policy for the whole suite, and every backend beside it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engine.models.policy import Policy
from tests.engine.sampling.conformance.backends import Backend, backend_of, new_lane, policy
from tests.engine.sampling.vllm.conftest import SERVERS, chat_base, serving_by

__all__ = ["chat_base", "policy"]


@pytest.fixture(scope="module", params=["hf", *SERVERS])
def backend(
    request: pytest.FixtureRequest, policy: Policy, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Backend]:
    """Every backend there is, behind the same two protocols."""
    if request.param == "hf":
        yield backend_of(policy, None)
        return
    with new_lane(serving_by(request.param), policy, tmp_path_factory.mktemp("lane")) as lane:
        yield backend_of(policy, lane)
