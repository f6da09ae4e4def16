"""Section `buffer`: how old and how used a rollout may be when it is trained on.

Knows settings; draws nothing.
"""

from __future__ import annotations

from pydantic import Field

from engine.contract.section import Section


class BufferConfig(Section):
    """The rollout buffer between sampler and trainer. The defaults are strictly on-policy."""

    max_staleness: int = Field(0, ge=0)
    """Trainer versions that a rollout may lie behind when it is trained on; older ones go.

    With `rollout_backend: vllm` and `max_reads: 1`, anything above 0 lets the server draw the next
    steps' rollouts (so many steps at most) while a step trains; 1 is enough unless draws take very
    unequal times. It needs `objective.sampler_correction: tis`. With 0 the server waits for each
    step's weights. With `hf`, which samples with the weights that train, it counts for rollouts
    that are read again (`max_reads` above 1) alone.
    """
    max_reads: int = Field(1, ge=1)
    """How often one group may be trained on, as long as it is not stale."""
