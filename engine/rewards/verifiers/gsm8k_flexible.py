"""`gsm8k_flexible`: pays when the last thing that looks like a number equals the gold.

Equals flexible-extract of gsm8k and gsm8k_cot in lm-evaluation-harness 0.4.13, its quirks
included: two characters of `$`, digits, dots and commas already count, so `...` at the end is
read as the answer, and a Unicode minus is dropped.
"""

from __future__ import annotations

import re

from engine.contract.golds.harness import bare
from engine.rewards.judgement import Verdict

_NUMBER = re.compile(r"(-?[$0-9.,]{2,})|(-?[0-9]+)")


def verify(completion: str, expected: str) -> Verdict:
    """`expected` as for `gsm8k`.

    >>> verify("That makes $18.", "18").reward
    1.0
    """
    found = [match.group() for match in _NUMBER.finditer(completion)]
    if not found:
        return Verdict.unparsed()
    answer = found[-1].strip()
    return Verdict.of(bare(answer) == bare(expected), answer)
