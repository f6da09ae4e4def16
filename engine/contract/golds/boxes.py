r"""The answer inside a longer text: what a box holds, what follows `####`.

Linear in the text, so a megabyte of braces costs milliseconds. Knows no verifier.
"""

from __future__ import annotations

import re

_BOX = re.compile(r"\\(?:boxed\s*|fbox)\{")


def last_boxed(text: str) -> str | None:
    r"""What the last `\boxed{…}` or `\fbox{…}` holds, braces balanced; None without one.

    `\boxed 5` holds what stands before the next `$`, unless a box with braces comes later: then the
    word stood in a sentence.

    >>> last_boxed(r"so $\boxed{\frac{1}{2}}$.")
    '\\frac{1}{2}'
    """
    begins = [found.start() for found in _BOX.finditer(text)]
    start = begins[-1] if begins else -1
    spaced = text.rfind("\\boxed ")
    if spaced > start:
        return text[spaced + len("\\boxed ") :].partition("$")[0]
    if start < 0:
        return None
    opening = text.index("{", start)
    depth = 0
    for position in range(opening, len(text)):
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if depth == 0:
            return text[opening + 1 : position]
    return None


def gold_text(expected: str) -> str:
    r"""Of a whole solution the last box, of a GSM8K answer what follows `####`, else all of it.

    >>> gold_text(r"so $\boxed{18}$"), gold_text("9 * 2 = 18\n#### 18"), gold_text("18")
    ('18', '18', '18')
    """
    boxed = last_boxed(expected) if "\\boxed" in expected else None
    return (expected.rpartition("####")[2] if boxed is None else boxed).strip()
