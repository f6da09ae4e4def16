r"""`math_verify`: pays what math-verify finds equal to the gold, and nothing else.

For evaluation: equals metric math_verify of minerva_math in lm-evaluation-harness 0.4.13, which
asks the library about the whole completion and the whole solution. `math` reads more carefully and
is the one to train on. A comparison that does not end is a timeout.
"""

from __future__ import annotations

from engine.rewards.judgement import Verdict

POOLED = True
WARM_UP = (r"So it is $\boxed{\frac{1}{2}}$.", r"\frac{x}{2x}")


def verify(completion: str, expected: str) -> Verdict:
    r"""`expected` is a solution with its `\boxed{}`.

    >>> verify(r"Hence $\boxed{0.5}$.", r"so $\boxed{\frac{1}{2}}$").reward
    1.0
    """
    from math_verify import parse  # noqa: PLC0415 - a second to import; only this verifier pays
    from math_verify import verify as equal  # noqa: PLC0415

    found = parse(completion, parsing_timeout=None)  # whoever asks has a deadline
    if not found:
        return Verdict.unparsed()
    same = equal(parse(expected, parsing_timeout=None), found, timeout_seconds=None)
    return Verdict.of(bool(same), str(found[-1]))
