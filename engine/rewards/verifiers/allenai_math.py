r"""`allenai_math`: pays a boxed answer, Minerva's sentence, or the last `$…$`, by either grader.

Equals MathVerifier of open-instruct (allenai) in what it reads: the box and the sentence both
count, without them the last dollar pair, without that the whole completion; equal by sympy or
as MATH strings. Normalisation is the repaired one (see `engine.rewards.text.minerva`).
"""

from __future__ import annotations

import re

from engine.contract.golds.boxes import last_boxed
from engine.rewards.judgement import Verdict
from engine.rewards.text import minerva
from engine.rewards.text.hendrycks import same_string
from engine.rewards.text.reading import LONGEST_ANSWER

_WORD = re.compile(r"(?<![a-zA-Z\\])[a-zA-Z]{5,}")

POOLED = True
WARM_UP = (r"$\frac{1}{2}$", r"\frac{x}{2x}")


def quick(completion: str, expected: str) -> Verdict | None:
    """The same string as a MATH answer, before any algebra."""
    answers = _answers(completion)
    if not answers:
        return Verdict.unparsed()
    for answer in answers:
        if same_string(answer, expected):
            return Verdict.of(True, answer)
    return None


def verify(completion: str, expected: str) -> Verdict:
    r"""`expected` is LaTeX.

    >>> verify("Thus $x = 3$.", "3").reward
    1.0
    """
    from engine.rewards.text.symbolic import same_value  # noqa: PLC0415 - sympy costs half a second

    at_once = quick(completion, expected)
    if at_once is not None:
        return at_once
    answers = _answers(completion)
    # A sentence reads as a product of a hundred letters: seconds of algebra, never equal.
    formulas = [answer for answer in answers if not _WORD.search(answer)]
    return Verdict.of(any(same_value(answer, expected) for answer in formulas), answers[-1])


def _answers(completion: str) -> list[str]:
    marked = [last_boxed(completion), minerva.final_answer(completion)]
    answers = [text for text in marked[:1] if text is not None]
    answers += [_normal(text) for text in marked[1:] if text is not None]
    if not answers and completion.count("$") > 1:
        answers = [_normal(completion.rsplit("$", 2)[1])]
    if not answers and len(completion) <= LONGEST_ANSWER:
        answers = [_normal(completion), completion]
    return [text for text in answers if text.strip() and len(text) <= LONGEST_ANSWER]


def _normal(text: str) -> str:
    """Normalised; a text too long to be compared stays, as normalising takes its length squared."""
    return minerva.normalise(text) if len(text) <= LONGEST_ANSWER else text
