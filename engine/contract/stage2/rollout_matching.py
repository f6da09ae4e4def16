"""`custom.extra.rollout_matching`: who generates the rollouts, how, and how they are matched."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator
from pydantic.json_schema import SkipJsonSchema

from engine.contract.section import StrictSection, absent, legacy, refusal
from engine.contract.served import VLLMConfig

_MOVED = (
    "has moved; set custom.extra.rollout_matching.decoding.{0} "
    "instead of custom.extra.rollout_matching.{0}"
)

FEWEST_AT_ONCE = 2
MOST_AT_ONCE = 64
"""Answers of one decode call where memory chooses how many."""


class DecodingConfig(StrictSection):
    """How the next token is chosen."""

    temperature: float = Field(0.0, ge=0)
    """0 is greedy."""
    top_p: float = Field(1.0, gt=0, le=1)
    """Smallest probability mass to sample from."""
    top_k: int = -1
    """Number of tokens to sample from; -1 is all."""

    @model_validator(mode="after")
    def _top_k(self) -> Self:
        if self.top_k != -1 and self.top_k < 1:
            raise refusal(["top_k"], self.top_k, "must be -1 or at least 1; -1 samples from all")
        return self


class RepeatGuardConfig(StrictSection):
    """Ends a rollout that repeats itself."""

    enabled: bool = True
    """Whether it watches."""
    min_new_tokens: int = Field(1024, ge=0)
    """It looks from this length on."""
    max_consecutive_token_repeats: int = Field(64, ge=2)
    """The same token so many times in a row."""
    ngram_size: int = Field(64, ge=1)
    """Length of a repeated stretch."""
    ngram_repeats: int = Field(2, ge=2)
    """How often the stretch may stand there."""
    max_object_keys: int = Field(256, ge=1)
    """Most objects in one rollout."""


class RolloutMatchingConfig(StrictSection):
    """Everything about rollouts, whichever trainer asks for them."""

    rollout_backend: Literal["vllm", "hf"] = "vllm"
    """Who generates."""
    vllm: VLLMConfig = Field(default_factory=absent, validate_default=True)
    """The vLLM engine."""
    decoding: DecodingConfig = DecodingConfig()
    """How the next token is chosen."""
    decode_batch_size: int | None = Field(None, ge=1)
    """Samples generated in one call; the learner's micro-batch is its own. By default as many as
    have room in the memory that learning takes: 2 to 64, the same in every attempt."""
    max_new_tokens: int = Field(3084, ge=1)
    """Longest rollout, in tokens."""
    repetition_penalty: float = Field(1.0, gt=0)
    """1 is none."""
    repeat_terminate: RepeatGuardConfig = RepeatGuardConfig()
    """Ends a rollout that repeats itself."""
    candidate_top_k: int = Field(5, ge=1)
    """Objects a prediction may be matched to."""
    iou_gate: float = Field(0.3, ge=0, le=1)
    """Box IoU from which a match is feasible."""
    eval_iou_gate: float | None = Field(None, ge=0, le=1)
    """The same in evaluations and for the F1 that a warm-up stops at; by default `iou_gate`. Lower
    in training, boxes that are far off are still moved towards their object."""
    fp_cost: float = Field(0.5, ge=0, le=1000)
    """Cost of leaving a prediction unmatched."""
    fn_cost: float = Field(2.0, ge=0, le=1000)
    """Cost of leaving an object unmatched."""
    desc_ce_weight: float = Field(0.0, ge=0)
    """Weight of appended objects' descriptions in `rollout_matching_sft`."""
    post_rollout_pack_scope: Literal["micro", "window"] = "micro"
    """Carry leftovers from pack to pack, or pack a whole accumulation window at once."""
    temperature: Annotated[SkipJsonSchema[None], legacy(_MOVED.format("temperature"))] = Field(
        None, exclude=True
    )
    top_p: Annotated[SkipJsonSchema[None], legacy(_MOVED.format("top_p"))] = Field(
        None, exclude=True
    )
    top_k: Annotated[SkipJsonSchema[None], legacy(_MOVED.format("top_k"))] = Field(
        None, exclude=True
    )
    rollout_buffer: Annotated[
        SkipJsonSchema[None],
        legacy("is no longer a setting; remove rollout_buffer, every step rolls out afresh"),
    ] = Field(None, exclude=True)

    @property
    def answers_a_call(self) -> int:
        """`decode_batch_size`, or few where nobody has said it."""
        return self.decode_batch_size or FEWEST_AT_ONCE

    @property
    def evaluated(self) -> Self:
        """As evaluations match."""
        gate = self.iou_gate if self.eval_iou_gate is None else self.eval_iou_gate
        return self.model_copy(update={"iou_gate": gate})
