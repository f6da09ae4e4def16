"""Section `sampling`: how the next token is drawn, beside the temperature.

Everything is off unless asked for: no setting of a model folder's generation config reaches a
rollout, only its end tokens do.
"""

from __future__ import annotations

from pydantic import Field

from engine.contract.section import Section


class SamplingConfig(Section):
    """What reshapes the draw of a token. Holds for training rollouts and held-out gates alike.

    The recorded log-probabilities stay those of the temperature-scaled full distribution, which
    the trainer reads too; how far a filter or penalty moved the draw away from it is measured as
    the series `rollout/draw_shift`.
    """

    top_p: float = Field(1.0, gt=0, le=1)
    """Draw from the smallest set of tokens that holds this much probability; 1 is off."""
    top_k: int = Field(0, ge=0)
    """Draw from the so many most probable tokens; 0 is off."""
    min_p: float = Field(0.0, ge=0, lt=1)
    """Drop tokens less probable than this share of the most probable one; 0 is off."""
    repetition_penalty: float = Field(1.0, gt=0, le=10)
    """Above 1: tokens of the prompt and the completion so far become less likely; 1 is off."""
    duplicates_alarm: float = Field(0.5, gt=0, le=1)
    """Warn when the share of equal pairs within the groups exceeds by so much what chance explains.

    A sampler that gives every request the same seed shows here at once; a policy that is merely
    sure of its answer does not.
    """

    @property
    def plain(self) -> bool:
        """Whether temperature alone shapes the draw."""
        filters_off = self.top_p == 1.0 and self.top_k == 0 and self.min_p == 0.0
        return filters_off and self.repetition_penalty == 1.0
