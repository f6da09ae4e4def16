"""`gsm8k_hashes`: pays the first `#### X` that equals the gold.

Equals strict-match of gsm8k in lm-evaluation-harness 0.4.13: one blank behind the signs, the first
match counts, commas and `$` in it do not, `18.00` is not `18`.
"""

from __future__ import annotations

import re

from engine.contract.golds.harness import bare
from engine.rewards.judgement import Verdict

_MARKED = re.compile(r"#### (\-?[0-9\.\,]+)")


def verify(completion: str, expected: str) -> Verdict:
    """`expected` as for `gsm8k`.

    >>> verify("9 * 2 = 18\\n#### 18", "18").reward
    1.0
    """
    found = _MARKED.search(completion)
    if found is None:
        return Verdict.unparsed()
    answer = found.group(1).strip()
    return Verdict.of(bare(answer) == bare(expected), answer)
