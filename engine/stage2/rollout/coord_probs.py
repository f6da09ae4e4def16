"""How sure the model is of the boxes that it wrote: what can order them for mAP."""

from __future__ import annotations

from collections.abc import Sequence

from engine.run.stop import check_abort
from engine.stage2.parse.parser import Prediction
from engine.stage2.rollout.answer_logits import answer_logits
from engine.stage2.rollout.prompts import Prompt, PromptReader


def coord_probs(
    reader: PromptReader, prompt: Prompt, ids: Sequence[int], predictions: Sequence[Prediction]
) -> list[float]:
    """Of each prediction the geometric mean of its four coord tokens' probabilities, over the whole
    vocabulary, under the weights of now. 0 to 1; one forward pass for the whole answer.
    """
    if not predictions:
        return []
    check_abort()
    log_p_TV = answer_logits(reader, prompt, ids).log_softmax(-1)
    log_p_T = log_p_TV[range(len(ids)), list(ids)]
    return [float(log_p_T[list(one.coord_positions)].mean().exp()) for one in predictions]
