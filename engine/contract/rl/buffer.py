"""Section `buffer`: how old and how used a rollout may be when it is trained on."""

from __future__ import annotations

from pydantic import Field

from engine.contract.section import Section


class BufferConfig(Section):
    """The rollout buffer between sampler and trainer. The defaults are strictly on-policy."""

    max_staleness: int = Field(0, ge=0)
    """Trainer versions that a rollout may lie behind when it is trained on; older ones go."""
    max_reads: int = Field(1, ge=1)
    """How often one group may be trained on, as long as it is not stale."""
