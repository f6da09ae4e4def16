"""The proof at each sync that a server answers with the trainer's weights, and its refusals.

On the stand-in and, by `make test-vllm`, on the real vLLM.
"""

from __future__ import annotations

import pytest

from engine.contract.serving import Serving
from engine.models.policy import Policy
from engine.sampling.vllm.client import ServerApi
from engine.sampling.vllm.endpoint import Request, ServerError
from engine.sampling.vllm.lane import ServingLane
from engine.sampling.vllm.sync.proof import Synced
from tests.engine.sampling.conformance.backends import (
    SAME,
    TASKS,
    TEMP,
    backend_of,
    flat,
    gap,
    lane,
    move,
    policy,
)

__all__ = ["lane", "policy"]


@pytest.fixture
def synced(lane: ServingLane, monkeypatch: pytest.MonkeyPatch) -> list[Synced]:
    """What the lane tells of its syncs."""
    heard: list[Synced] = []
    monkeypatch.setattr(lane, "_listen", heard.append)
    return heard


@pytest.mark.requirement("RL-09")
def test_new_weights_answer_after_a_swap_and_the_old_adapter_is_gone(
    lane: ServingLane, policy: Policy, synced: list[Synced]
) -> None:
    """Each swap is proven by log-probabilities; what is served already is not sent again."""
    draw = backend_of(policy, lane)()
    before = flat(draw(TASKS, 4))
    heard = len(synced)

    for number in range(3):
        move(policy, 0.05, seed=10 + number)
        rollouts = flat(draw(TASKS, 4))
        draw(TASKS, 1)

        assert gap(policy, rollouts, TEMP) < SAME
        assert len(synced) == heard + number + 1
        assert synced[-1].compared.gap < SAME
        moved = synced[-1].compared.moved
        assert moved is not None
        assert moved > 100 * synced[-1].compared.gap
    assert gap(policy, before, TEMP) > 0.01
    assert len(list(lane._folder.iterdir())) == 1


@pytest.mark.requirement("RL-09")
def test_a_small_step_is_told_from_the_weights_of_before(
    lane: ServingLane, policy: Policy, synced: list[Synced]
) -> None:
    """One that moves a log-probability far less than the tolerance allows."""
    backend_of(policy, lane)()(TASKS[:1], 1)

    move(policy, 2e-5, seed=3)
    backend_of(policy, lane)()(TASKS[:1], 1)

    compared = synced[-1].compared
    assert compared.moved is not None
    assert compared.gap < compared.moved / 2 < 0.001
    assert not compared.stale


@pytest.mark.requirement("RL-09")
@pytest.mark.parametrize(
    ("size", "said"),
    [
        (0.05, "nats a token away from the trainer's model, more than sync_tolerance=0.001"),
        (2e-5, "still answers with the weights of before"),
    ],
)
def test_a_load_that_changed_nothing_is_found_out(
    lane: ServingLane, policy: Policy, size: float, said: str
) -> None:
    """A 200 proves nothing: the server's log-probabilities must be those of the new weights."""
    backend_of(policy, lane)()(TASKS[:1], 1)
    move(policy, size, seed=21)

    with pytest.raises(ServerError, match=said):
        lane._sync.bring(lambda _: None)

    backend_of(policy, lane)()(TASKS[:1], 1)


def test_a_refusal_is_one_line(lane: ServingLane, policy: Policy) -> None:
    """With the server's own words."""
    ids = policy.encode(TASKS[0].prompt) * 20
    request = Request(ids, k=1, seed=0, temp=1.0, max_new_tokens=4, end_ids=(0,))

    with pytest.raises(ServerError, match=r"refused with status 400: .*length") as caught:
        lane.complete([request])

    assert "\n" not in str(caught.value)


def test_a_server_is_known_by_its_models_and_version(lane: ServingLane, serving: Serving) -> None:
    """What a run goes by before it uses a server that was there."""
    api = ServerApi(serving)
    base, adapter = api.models()

    assert api.answers()
    assert api.version().startswith("0.")
    assert (base.parent, base.window) == (None, 120)
    assert (adapter.name, adapter.parent is not None) == ("policy", True)
