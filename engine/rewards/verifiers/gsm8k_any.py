r"""`gsm8k_any`: pays the gold number in any usual dress; for a warm-up, not for an eval.

The first of these that is there is the answer: the last `\boxed{}`, the number behind the last
`####`, the one behind the last "answer is", the last number. What is denied, asked or left open is
not stated (`engine.rewards.text.stated`). No harness has it.
"""

from __future__ import annotations

import re

from engine.contract.golds.boxes import last_boxed
from engine.rewards.judgement import Verdict
from engine.rewards.text.reading import (
    LONGEST_TAIL,
    NUMBER,
    last_number,
    spaced_plainly,
    without_thinking,
)
from engine.rewards.text.stated import BLANK, CHOICE, Gold, stated
from engine.rewards.text.written import numbers_in_digits
from engine.rewards.verifiers.gsm8k_last_number import same_number

_MARKED = [
    re.compile(rf"#### *\**{NUMBER}"),
    re.compile(
        rf"answer is:? *\**(?:(?:{BLANK.strip()} +(?:but +)?)?{NUMBER}"
        rf"|{BLANK.strip()}|{CHOICE.strip()})",
        re.IGNORECASE,
    ),
]


def verify(completion: str, expected: str) -> Verdict:
    r"""`expected` as for `gsm8k`.

    >>> verify("\\boxed{18}", "18").reward
    1.0
    """
    gold = Gold.of(expected)
    text = without_thinking(completion)
    end = text[-LONGEST_TAIL:]
    left = stated(numbers_in_digits(spaced_plainly(end)), gold)
    boxed = last_boxed(left.text)
    if boxed is None and left.ruled_out is None and len(text) > len(end):
        boxed = last_boxed(text)
    if boxed is None:
        boxed = None if left.leaves_open else _in_prose(left.text)
    return same_number(boxed, gold, left)


def _in_prose(text: str) -> str | None:
    for pattern in _MARKED:
        found = list(pattern.finditer(text))
        if found:
            return found[-1][1] or last_number(text[found[-1].end() :])
    return last_number(text)
