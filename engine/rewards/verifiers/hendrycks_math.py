r"""`hendrycks_math`: what stands between the first and the last `$`, compared as text.

For evaluation: equals hendrycks_math of lm-evaluation-harness 0.4.13, which gives a bare
`\boxed{18}` nothing and reads a whole completion without two `$` as the answer.
"""

from __future__ import annotations

from engine.contract.golds.boxes import last_boxed
from engine.rewards.judgement import Verdict
from engine.rewards.text.hendrycks import between_dollars, same_string


def verify(completion: str, expected: str) -> Verdict:
    r"""`expected` is LaTeX, or a whole MATH solution with its `\boxed{}`.

    >>> verify("It is $1/2$.", r"\frac{1}{2}").reward
    1.0
    """
    answer = between_dollars(completion)
    if not answer.strip():
        return Verdict.unparsed()
    gold = expected if "\\boxed" not in expected else last_boxed(expected) or expected
    return Verdict.of(same_string(answer, gold), answer)
