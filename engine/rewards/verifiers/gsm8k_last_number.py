"""`gsm8k_last_number`: pays when the value of the last number equals the gold's.

No harness has it: compared are values, so `$1,800.00` is 1800, and Unicode digits and minus
signs are read. What it shares with them is the danger: any trailing number is the answer.
"""

from __future__ import annotations

from engine.rewards.judgement import Verdict
from engine.rewards.text.reading import last_number, number, without_thinking


def verify(completion: str, expected: str) -> Verdict:
    """`expected` as for `gsm8k`.

    >>> verify("He pays $18.00 in all.", "18").reward
    1.0
    """
    answer = last_number(without_thinking(completion))
    if answer is None:
        return Verdict.unparsed()
    return same_number(answer, expected)


def same_number(answer: str, expected: str) -> Verdict:
    """Compares values; a gold that is no number is compared as text."""
    gold = expected.rpartition("#### ")[2].strip()
    value, gold_value = number(answer), number(gold)
    if gold_value is None:
        return Verdict.of(answer.strip() == gold, answer)
    return Verdict.unparsed(answer) if value is None else Verdict.of(value == gold_value, answer)
