"""`stage2_ab`: trains a Qwen3-VL by soft context and by its own rollouts, alternately."""

from __future__ import annotations

from engine.contract.stage2_kind import stage2_kind

KIND = stage2_kind(
    "stage2_ab",
    "Stage-2 AB: a Qwen3-VL learns boxes from soft context and from its own rollouts.",
    variant="stage2_ab_training",
    entry="engine.stage2.stage2_ab:run",
)
