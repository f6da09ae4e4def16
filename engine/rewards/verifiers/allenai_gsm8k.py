"""`allenai_gsm8k`: pays when the last number, as text, is the gold.

Equals GSM8KVerifier of open-instruct (allenai): commas between digits are dropped, a minus
counts only before a number with a decimal point, and without any number the whole completion is
compared.
"""

from __future__ import annotations

import re

from engine.contract.golds.harness import ALLENAI_NUMBER
from engine.rewards.judgement import Verdict


def verify(completion: str, expected: str) -> Verdict:
    """`expected` is the number as text; no reasoning in front.

    >>> verify("so 1,800 dollars", "1800").reward
    1.0
    """
    found = ALLENAI_NUMBER.findall(re.sub(r"(\d),(\d)", r"\1\2", completion))
    answer = found[-1] if found else completion
    if not answer.strip():
        return Verdict.unparsed()
    return Verdict.of(answer.lower() == expected.lower(), answer)
