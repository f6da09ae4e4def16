"""`stage2_ab`: the schedule of both channels, their loss weights, and Channel-B's own knobs."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator
from pydantic.json_schema import SkipJsonSchema

from engine.contract.section import StrictSection, absent, legacy, refusal


def _given(value: Any) -> Any:
    if value is None:
        raise ValueError("must be given; set it in [0, 1], 0.05 runs Channel-B every 20th step")
    return value


class ScheduleConfig(StrictSection):
    """Which optimizer step runs which channel."""

    b_ratio: Annotated[float, BeforeValidator(_given)] = Field(
        None, ge=0, le=1, validate_default=True
    )
    """Share of steps that run Channel-B: step s does iff floor((s+1) b) > floor(s b). Required."""
    pattern: Annotated[
        SkipJsonSchema[None],
        legacy("is no longer a setting; set stage2_ab.schedule.b_ratio to Channel-B's share"),
    ] = Field(None, exclude=True)


class SemanticDescGateConfig(StrictSection):
    """Leaves a matched description alone when it means the same as the ground truth's."""

    enabled: bool = True
    """Whether near descriptions are accepted at all."""
    threshold: float = Field(0.5, ge=0, le=1)
    """Cosine similarity from which a predicted description is accepted."""
    model_name_or_path: str = Field("sentence-transformers/all-MiniLM-L6-v2", min_length=1)
    """The sentence encoder: a hub id or a folder."""
    revision: str | None = Field(None, min_length=1)
    """Its pinned version; required while enabled."""

    @model_validator(mode="after")
    def _pinned(self) -> Self:
        if self.enabled and self.revision is None:
            raise refusal(
                ["revision"],
                None,
                "is required while the gate is enabled; "
                "set stage2_ab.channel_b.semantic_desc_gate.revision to the model's commit, "
                "or enabled: false",
            )
        return self


class ChannelBConfig(StrictSection):
    """Training on the model's own rollouts."""

    mode: Literal["step"] = "step"
    """Rollouts are counted per optimizer step; the only mode."""
    rollouts_per_step: int | None = Field(None, ge=1)
    """Raw rollouts per optimizer step over all ranks; by default the effective batch size."""
    enable_pipeline: bool = False
    """Servers draw the next `decode_batch_size` rollouts of a step while it learns from the last
    ones; needs vLLM servers and `training.packing`."""
    desc_ce_weight_matched: float | None = Field(None, ge=0)
    """Weight of a matched description the gate did not accept; by default `desc_ce_weight`."""
    drop_invalid_struct_ce_multiplier: float = Field(1.0, ge=1, le=4)
    """Factor on structure tokens of a sample whose rollout had entries dropped."""
    semantic_desc_gate: SemanticDescGateConfig = Field(
        default_factory=absent, validate_default=True
    )
    """Accepts descriptions that are near enough."""


class Stage2ABConfig(StrictSection):
    """The typed home of Stage-2 AB's knobs."""

    schedule: ScheduleConfig = Field(default_factory=absent, validate_default=True)
    """Which step runs which channel."""
    n_softctx_iter: int = Field(2, ge=1)
    """Full forwards of Channel-A; 1 is plain teacher forcing."""
    softctx_grad_mode: Literal["unroll", "em_detach"] = "unroll"
    """Gradients through every forward, or the expected embeddings detached."""
    softctx_temperature: float = Field(1.0, gt=0)
    """Shapes the soft context of Channel-A, never the decode."""
    desc_ce_weight: float = Field(1.0, ge=0)
    """Weight of description tokens."""
    bbox_smoothl1_weight: float = Field(1.0, ge=0)
    """Weight of the SmoothL1 term."""
    bbox_ciou_weight: float = Field(1.0, ge=0)
    """Weight of the CIoU term."""
    coord_mass_weight: float = Field(0.0, ge=0)
    """Weight of -log P(any coord token) at the slots of boxes; 0 leaves that probability alone.

    Neither CE nor the box terms see it, and a small model forgets to write coord tokens there.
    """
    channel_b: ChannelBConfig = Field(default_factory=absent, validate_default=True)
    """Training on the model's own rollouts."""

    @property
    def desc_ce_weight_matched(self) -> float:
        """Channel-B's weight of a matched description, its default resolved."""
        own = self.channel_b.desc_ce_weight_matched
        return self.desc_ce_weight if own is None else own
