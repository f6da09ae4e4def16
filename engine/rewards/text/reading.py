r"""Reading an answer out of a completion: boxes, thinking blocks, numbers.

Every function is linear in the text, so a megabyte of braces costs milliseconds. Knows no
verifier and no gold answer.
"""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation

LONGEST_ANSWER = 500
"""Characters of an answer that is still compared; a longer one is no answer to a question."""
LONGEST_TAIL = 20_000
"""Characters of a completion's end that a pattern-heavy library is shown."""

MINUS_SIGNS = str.maketrans({"\u2212": "-", "\u2010": "-", "\u2011": "-", "\ufe63": "-"})
"""Minus and hyphens that a model writes for `-`; the en dash stays, it joins ranges."""

_BOX = re.compile(r"\\(?:boxed\s*|fbox)\{")
_DIGITS = (
    r"(?:\d{1,3}(?:(?:,\d{3})+|(?: \d{3})+|(?:_\d{3})+|(?:'\d{3})+)(?!\d)|\d+)(?:\.\d+)?|\.\d+"
)
_SIGNED = rf"[-+]?\$?(?:{_DIGITS})%?"
_JOINS = (
    r"[ \t]*/[ \t]*|[ \t]*\^[ \t]*\{?|[eE](?=[-+]?\d)|[:.,](?=\d)|(?<=\d)[-\u2013](?=\d)"
    r"|[ \t]+(?=\d+[ \t]*/[ \t]*\d)|\s+or\s+(?:maybe\s+|perhaps\s+|possibly\s+)?"
)
"""What makes one value, or a choice, of two numbers: 5/6, 10^3, 1e3, 10:30, 5-6, 3 1/2, 5 or 6.
A comma or a point that separates no thousands and no decimals joins as well (1,80 and 1.2.3)."""
NUMBER = (
    r"(?<![\w.])_{0,2}(?:(?:USD|EUR|GBP|INR|CAD|AUD|Rs)\.?)?"
    rf"({_SIGNED}(?:(?:{_JOINS}){_SIGNED})*)"
)
"""Pattern of a number in prose; its one group is the number, with what is joined to it."""
_NUMBER = re.compile(NUMBER)

_SPACING = [("\\!", ""), ("{,}", ","), ("\\$", "$"), ("\\%", "%")]
_SPACING += [
    (space, " ") for space in ("\\,", "\\;", "\\:", "\\ ", "~", *"\u00a0\u2007\u2009\u202f")
]
_FRACTION = re.compile(r"\\[dt]?frac\{([^{}]*)\}\{([^{}]*)\}")
_WORDS = re.compile(
    r"\\(?:text|textrm|textbf|textit|mathrm|mathbf|mathit|mbox)\s*\{([^{}]*)\}(?:\^\{?\d\}?)?"
)
_NO_MATHS = re.compile(r"[^\W\d]|[\s.,{}$%*\u20ac\u00a3\u00b0]")
"""What may stand beside the number of an answer: a unit, but no operation."""


def without_thinking(text: str) -> str:
    """The part behind the last `</think>`; nothing of a thought that never ended.

    >>> without_thinking("<think>maybe 4</think> It is 5.")
    ' It is 5.'
    """
    behind = text.rpartition("</think>")[2]
    return behind.partition("<think>")[0]


def plain_digits(text: str) -> str:
    """Unicode decimal digits and minus signs as ASCII.

    >>> plain_digits("\u2212\uff11\uff18")
    '-18'
    """
    if text.isascii():
        return text
    digits = "".join(str(int(c)) if c.isdecimal() else c for c in text)
    return digits.translate(MINUS_SIGNS)


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


def spaced_plainly(text: str) -> str:
    r"""ASCII digits and minus signs; narrow spaces as plain ones, `\frac{1}{2}` as 1/2.

    >>> spaced_plainly(r"1,\!800 and 18\,000")
    '1,800 and 18 000'
    """
    plain = plain_digits(text)
    for old, new in _SPACING:
        plain = plain.replace(old, new)
    return _FRACTION.sub(r" \1/\2", plain)


def lone_number(answer: str) -> str | None:
    r"""The one number of an answer that holds nothing else but its name, its unit and its dress.

    >>> lone_number(r"x = \mathbf{18} \text{ cm}^2")
    '18'
    """
    plain = spaced_plainly(answer[:LONGEST_ANSWER]).rpartition("=")[2]
    plain = _WORDS.sub(lambda m: m[1] if re.search(r"\d", m[1]) else " ", plain)
    found = list(_NUMBER.finditer(plain))
    if len(found) != 1:
        return None
    beside = plain[: found[0].start()] + plain[found[0].end() :]
    return None if _NO_MATHS.sub("", beside) else found[0][1]


def number(text: str) -> Decimal | None:
    """The value of a text that is one number; None when it is not.

    Thousands separators, a leading `$` and a closing `%` or `.` are dropped, `%` without
    dividing: a question asked in percent is answered in percent.

    >>> number("$1,800.00")
    Decimal('1800.00')
    """
    if len(text.strip()) > LONGEST_ANSWER:
        return None
    plain = plain_digits(text.strip()).replace("\\", "").rstrip(".")
    plain = plain.replace("$", "").replace("{,}", ",").rstrip("%").strip()
    if re.fullmatch(r"[-+]?\d{1,3}([, _'])\d{3}(\1\d{3})*(\.\d+)?", plain):
        plain = re.sub("[, _']", "", plain)
    if not re.fullmatch(r"[-+]?(\d+(\.\d*)?|\.\d+)", plain):
        return None
    try:
        return Decimal(plain)
    except InvalidOperation:
        return None


def last_number(text: str) -> str | None:
    """The last number as it is written, with what is joined to it (`5/6`); None without any.

    >>> last_number("5 * 4 = 20, so he pays $1,020.50.")
    '$1,020.50'
    """
    found = None
    for found in _NUMBER.finditer(spaced_plainly(text)):  # noqa: B007 - the last one is meant
        pass
    return found[1] if found else None
