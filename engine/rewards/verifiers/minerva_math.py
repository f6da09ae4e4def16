r"""`minerva_math`: pays only the last `\boxed{…}`, normalised as the harness normalises.

The default for MATH: no fallback, so no other format is ever rewarded. What minerva_math of
lm-evaluation-harness itself reads is another sentence: see `minerva_final_answer`.
"""

from __future__ import annotations

from engine.contract.golds.boxes import last_boxed
from engine.rewards.judgement import Verdict
from engine.rewards.text import minerva
from engine.rewards.text.reading import LONGEST_ANSWER, without_thinking

POOLED = True
WARM_UP = (r"$\boxed{\frac{1}{2}}$", r"\frac{x}{2x}")


def quick(completion: str, expected: str) -> Verdict | None:
    """What needs no algebra: nothing boxed, too long, or the same text."""
    boxed = last_boxed(without_thinking(completion))
    return Verdict.unparsed() if boxed is None else same_text(boxed, expected)


def same_text(answer: str, expected: str) -> Verdict | None:
    """The verdict where normalised text decides; None where algebra must."""
    if not answer.strip() or len(answer) > LONGEST_ANSWER:
        return Verdict.unparsed(answer[:LONGEST_ANSWER])
    normal = minerva.normalise(answer)
    return Verdict.of(True, answer) if normal and normal == minerva.gold(expected) else None


def verify(completion: str, expected: str) -> Verdict:
    r"""`expected` is LaTeX, or a whole MATH solution with its `\boxed{}`.

    >>> verify(r"so $\boxed{x = \frac12}$", r"\frac{1}{2}").reward
    1.0
    """
    boxed = last_boxed(without_thinking(completion))
    return Verdict.unparsed() if boxed is None else same_answer(boxed, expected)


def same_answer(answer: str, expected: str) -> Verdict:
    """Text first, then sympy."""
    from engine.rewards.text.symbolic import same_value  # noqa: PLC0415 - sympy costs half a second

    at_once = same_text(answer, expected)
    if at_once is not None:
        return at_once
    return Verdict.of(same_value(minerva.normalise(answer), minerva.gold(expected)), answer)
