"""`gsm8k_last_number`: pays when the value of the last number stated equals the gold's.

No harness has it: compared are values in any spelling (`engine.contract.golds.quantity`), and what
is denied, asked or left open is not stated (`engine.rewards.text.stated`). What it shares with the
harnesses is the danger: any trailing number is the answer.
"""

from __future__ import annotations

from engine.contract.golds.quantity import read
from engine.rewards.judgement import Verdict
from engine.rewards.text.reading import (
    LONGEST_TAIL,
    last_number,
    spaced_plainly,
    without_thinking,
)
from engine.rewards.text.stated import Gold, Stated, stated
from engine.rewards.text.written import numbers_in_digits


def verify(completion: str, expected: str) -> Verdict:
    """`expected` as for `gsm8k`.

    >>> verify("He pays $18.00 in all.", "18").reward
    1.0
    """
    gold = Gold.of(expected)
    end = spaced_plainly(without_thinking(completion)[-LONGEST_TAIL:])
    left = stated(numbers_in_digits(end), gold)
    answer = None if left.leaves_open else last_number(left.text)
    return same_number(answer, gold, left)


def same_number(answer: str | None, gold: Gold, left: Stated) -> Verdict:
    """Compares values; a gold that is no number is compared as text."""
    if answer is None:
        return Verdict.of(False, left.ruled_out) if left.ruled_out else Verdict.unparsed()
    if gold.quantity is not None and read(answer) is None:
        return Verdict.unparsed(answer)
    return Verdict.of(gold.is_named_by(answer), answer)
