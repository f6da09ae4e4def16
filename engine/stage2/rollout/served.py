"""Servers of a run, as its trainer knows them: the lane, and at which step the weights are."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from engine.models.policy import Policy
from engine.sampling.vllm.infer_lane import InferLane
from engine.sampling.vllm.lane import ServingLane
from engine.stage2.rollout.shared_lane import SharedLane


class Served:
    """The lane of a run, and the weights that it serves."""

    def __init__(
        self, lane: ServingLane | InferLane | SharedLane, policy: Policy, limit: float
    ) -> None:
        self.lane = lane
        self.policy = policy
        self.limit = limit
        """Nats a token that a server's answers may lie from the trainer's model."""

    def said(self) -> dict[str, Any]:
        """Who answers now, and how weights get there: for the log of each step's rollouts."""
        return {"servers": self.lane.servers, "sync": self.lane.facts["sync"]}

    def version(self) -> int:
        """Step of the weights that train."""
        return self.policy.version


class FollowSteps(TrainerCallback):
    """Tells the lane at which step the weights are."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002 - its contract
        """A run that goes on begins at its checkpoint's step."""
        self._policy.version = state.global_step

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002 - its contract
        """The optimizer has moved."""
        self._policy.version = state.global_step
