"""`gsm8k`: pays the first "The answer is X." that equals the gold.

Equals strict-match of gsm8k_cot in lm-evaluation-harness 0.4.13: the first match counts, a
character must follow the number, commas and `$` do not matter, `18.00` is not `18`.
"""

from __future__ import annotations

import re

from engine.contract.golds.harness import bare
from engine.rewards.judgement import Verdict

_SENTENCE = re.compile(r"The answer is (\-?[0-9\.\,]+).")


def verify(completion: str, expected: str) -> Verdict:
    """`expected` is the number or a whole GSM8K answer that ends in `#### 18`.

    >>> verify("9 * 2 = 18. The answer is 18.", "...so 18.\\n#### 18").reward
    1.0
    """
    found = _SENTENCE.search(completion)
    if found is None:
        return Verdict.unparsed()
    answer = found.group(1).strip()
    return Verdict.of(bare(answer) == bare(expected), answer)
