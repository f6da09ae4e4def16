"""`exact`: the whole completion, without white space around it, is the expected answer."""

from __future__ import annotations

from engine.rewards.judgement import Reason, Verdict


def verify(completion: str, expected: str) -> Verdict:
    """Reward 1 for equal text, else 0.

    >>> verify(" 092", "092").reward
    1.0
    """
    answer = completion.strip()
    if not answer:
        return Verdict(0.0, None, Reason.UNPARSED)
    if answer == expected.strip():
        return Verdict(1.0, answer, Reason.CORRECT)
    return Verdict(0.0, answer, Reason.WRONG)
