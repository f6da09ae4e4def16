r"""`gsm8k_any`: pays the gold number in any usual dress; for a warm-up, not for an eval.

The first of these that is there is the answer: the last `\boxed{}`, the number behind the last
`####`, the one behind the last "answer is", the last number. No harness has it.
"""

from __future__ import annotations

import re

from engine.rewards.judgement import Verdict
from engine.rewards.text.reading import (
    NUMBER,
    last_boxed,
    last_number,
    lone_number,
    spaced_plainly,
    without_thinking,
)
from engine.rewards.verifiers.gsm8k_last_number import same_number

_MARKED = [
    re.compile(rf"#### *\**{NUMBER}"),
    re.compile(rf"answer is:? *\**{NUMBER}", re.IGNORECASE),
]


def verify(completion: str, expected: str) -> Verdict:
    r"""`expected` as for `gsm8k`.

    >>> verify("\\boxed{18}", "18").reward
    1.0
    """
    answer = _answer(spaced_plainly(without_thinking(completion)))
    return Verdict.unparsed() if answer is None else same_number(answer, expected)


def _answer(text: str) -> str | None:
    boxed = last_boxed(text)
    if boxed is not None:
        return lone_number(boxed) or boxed
    for pattern in _MARKED:
        found = pattern.findall(text)
        if found:
            return str(found[-1])
    return last_number(text)
