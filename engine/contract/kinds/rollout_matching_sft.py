"""`rollout_matching_sft`: trains a Qwen3-VL on its own rollouts, completed by what they missed."""

from __future__ import annotations

from engine.contract.stage2_kind import stage2_kind

KIND = stage2_kind(
    "rollout_matching_sft",
    "Rollout matching: a Qwen3-VL learns boxes and missed objects from its own rollouts.",
    variant="rollout_matching_sft",
    entry="engine.stage2.rollout_matching_sft:run",
)
