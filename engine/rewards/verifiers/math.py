r"""`math`: pays what math-verify finds equal to the gold: any format, symbolic comparison.

lm-evaluation-harness reports the same as minerva_math's `math_verify`. Ours differs on purpose:
a `\boxed` inside a thinking block is no answer; "3 or 4" answers nothing; Unicode digits and
minus signs are read; answers beyond 500 characters are not compared; a comparison that does not
end is a timeout, not a wrong answer.
"""

from __future__ import annotations

import re

from engine.rewards.judgement import Verdict
from engine.rewards.text.reading import (
    LONGEST_ANSWER,
    LONGEST_TAIL,
    last_boxed,
    plain_digits,
    without_thinking,
)

POOLED = True
WARM_UP = (r"So it is $\boxed{\frac{1}{2}}$.", r"\frac{x}{2x}")

_HEDGE = re.compile(
    r"answer is\W{0,3}(?:either\W{1,3})?-?\$?[\d.,]*\d\W{1,3}or\W{1,3}"
    r"(?:(?:maybe|perhaps|possibly)\W{1,3})?-?\$?\d",
    re.IGNORECASE,
)


def quick(completion: str, expected: str) -> Verdict | None:
    """What needs no algebra: one box that holds the gold itself, or an answer too long."""
    text = without_thinking(completion)
    boxed = last_boxed(text)
    if boxed is None:
        return None
    if len(boxed) > LONGEST_ANSWER:
        return Verdict.unparsed(boxed[:LONGEST_ANSWER])
    if boxed.strip() == expected.strip() and text.count("\\boxed") == 1 and boxed.strip():
        return Verdict.of(True, boxed)
    return None


def verify(completion: str, expected: str) -> Verdict:
    r"""`expected` is LaTeX, bare or in `\boxed{}`; the library's own alarms are off.

    >>> verify(r"Hence $\boxed{\frac{2}{4}}$.", "0.5").reward
    1.0
    """
    from math_verify import parse  # noqa: PLC0415 - a second to import; only this verifier pays
    from math_verify import verify as equal  # noqa: PLC0415

    at_once = quick(completion, expected)
    if at_once is not None:
        return at_once
    text = plain_digits(_end(without_thinking(completion)))
    hedge = _HEDGE.search(text)
    if hedge is not None and "\\boxed" not in text:
        return Verdict.of(False, hedge.group())
    found = parse(text, parsing_timeout=None)
    answer = next((str(part) for part in found if isinstance(part, str)), None)
    if not found or answer is None or len(answer) > LONGEST_ANSWER:
        return Verdict.unparsed(answer and answer[:LONGEST_ANSWER])
    golds = [expected if "\\boxed" in expected else f"\\boxed{{{expected}}}"]
    if expected.strip().endswith("\\%"):
        golds.append(f"${expected}$")  # in a box 50\% is a text that 50 does not equal
    same = any(
        equal(parse(gold, parsing_timeout=None), found, timeout_seconds=None) for gold in golds
    )
    return Verdict.of(same, answer)


def _end(text: str) -> str:
    """What is shown to the library: the end of the text, or a box that stands before it."""
    end = text[-LONGEST_TAIL:]
    if len(text) == len(end) or last_boxed(end) is not None:
        return end
    boxed = last_boxed(text)
    return end if boxed is None else f"$\\boxed{{{boxed}}}$"
