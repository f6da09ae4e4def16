r"""`minerva_final_answer`: pays what minerva_math's exact_match in lm-evaluation-harness reads.

That is "Final Answer: The final answer is X. I hope it is correct." and no `\boxed{}`: the
published code looks for the sentence alone (0.4.13).
"""

from __future__ import annotations

from engine.rewards.judgement import Verdict
from engine.rewards.text import minerva
from engine.rewards.verifiers.minerva_math import same_answer, same_text

POOLED = True
WARM_UP = (r"Final Answer: The final answer is $\frac{1}{2}$. I hope it is correct.", "0.5")


def quick(completion: str, expected: str) -> Verdict | None:
    """What needs no algebra: no such sentence, or the same text."""
    answer = minerva.final_answer(completion)
    return Verdict.unparsed() if answer is None else same_text(answer, expected)


def verify(completion: str, expected: str) -> Verdict:
    """`expected` as for `minerva_math`.

    >>> text = "Final Answer: The final answer is $3$. I hope it is correct."
    >>> verify(text, "3").reward
    1.0
    """
    answer = minerva.final_answer(completion)
    return Verdict.unparsed() if answer is None else same_answer(answer, expected)
