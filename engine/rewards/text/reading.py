r"""Reading an answer out of a completion: boxes, thinking blocks, numbers.

Every function is linear in the text, so a megabyte of braces costs milliseconds. Knows no
verifier and no gold answer.
"""

from __future__ import annotations

import re

from engine.contract.golds.quantity import plain_digits, plain_fractions

LONGEST_ANSWER = 500
"""Characters of an answer that is still compared; a longer one is no answer to a question."""
LONGEST_TAIL = 20_000
"""Characters of a completion's end that a pattern-heavy library is shown."""

_DIGITS = (
    r"(?:\d{1,3}(?:(?:,\d{3})+|(?: \d{3})+|(?:_\d{3})+|(?:'\d{3})+)(?!\d)|\d+)(?:\.\d+)?|\.\d+"
)
_SIGNED = rf"[-+]?\$?(?:{_DIGITS})%?"
_JOINS = (
    r"[ \t]*/[ \t]*|[ \t]*(?:\\times|\\cdot|[×x*])[ \t]*(?=10[ \t]*\^)"
    r"|[ \t]*\^[ \t]*|[eE](?=[-+]?\d)|[:.,](?=\d)|(?<=\d)[-\u2013](?=\d)"
    r"|[ \t]+(?=\d+[ \t]*/[ \t]*\d)|\s+or\s+(?:maybe\s+|perhaps\s+|possibly\s+)?"
)
"""What makes one value, or a choice, of two numbers: 5/6, 10^3, 1e3, 10:30, 5-6, 3 1/2, 5 or 6,
3 x 10^5.
A comma or a point that separates no thousands and no decimals joins as well (1,80 and 1.2.3)."""
NUMBER = (
    r"(?<![\w.])_{0,2}(?:(?:USD|EUR|GBP|INR|CAD|AUD|Rs)\.?)?"
    rf"({_SIGNED}(?:(?:{_JOINS}){_SIGNED}|[ \t]*\^[ \t]*\{{{_SIGNED}\}})*"
    r"(?:\s(?:thousand|million|billion|trillion)\b)?)"
)
"""Pattern of a number in prose; its one group is the number, with what is joined to it."""
_NUMBER = re.compile(NUMBER)

_SPACING = [("\\!", ""), ("{,}", ","), ("\\$", "$"), ("\\%", "%")]
_SPACING += [
    (space, " ") for space in ("\\,", "\\;", "\\:", "\\ ", "~", *"\u00a0\u2007\u2009\u202f")
]
_FRACTION = re.compile(r"\\[dt]?frac\{([^{}]*)\}\{([^{}]*)\}")


def without_thinking(text: str) -> str:
    """The part behind the last `</think>`; nothing of a thought that never ended.

    >>> without_thinking("<think>maybe 4</think> It is 5.")
    ' It is 5.'
    """
    behind = text.rpartition("</think>")[2]
    return behind.partition("<think>")[0]


def spaced_plainly(text: str) -> str:
    r"""ASCII digits and minus signs; narrow spaces as plain ones, `\frac{1}{2}` as 1/2.

    >>> spaced_plainly(r"1,\!800 and 18\,000")
    '1,800 and 18 000'
    """
    plain = plain_digits(plain_fractions(text))
    for old, new in _SPACING:
        plain = plain.replace(old, new)
    return _FRACTION.sub(r" \1/\2", plain)


def last_number(text: str) -> str | None:
    """The last number as it is written, with what is joined to it (`5/6`); None without any.

    >>> last_number("5 * 4 = 20, so he pays $1,020.50.")
    '$1,020.50'
    """
    found = None
    for found in _NUMBER.finditer(spaced_plainly(text)):  # noqa: B007 - the last one is meant
        pass
    return found[1] if found else None
