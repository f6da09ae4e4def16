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

_NUMBER = re.compile(r"(?<![\w.])[-+]?\$?(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)?(?:\.\d+)?%?")


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

    `\boxed 5` holds what stands before the next `$`.

    >>> last_boxed(r"so $\boxed{\frac{1}{2}}$.")
    '\\frac{1}{2}'
    """
    if "\\boxed " in text:
        return text.rpartition("\\boxed ")[2].partition("$")[0]
    start = max(text.rfind("\\boxed{"), text.rfind("\\fbox{"))
    if start < 0:
        return None
    opening = text.index("{", start)
    depth = 0
    for position in range(opening, len(text)):
        depth += {"{": 1, "}": -1}.get(text[position], 0)
        if depth == 0:
            return text[opening + 1 : position]
    return None


def number(text: str) -> Decimal | None:
    """The value of a text that is one number; None when it is not.

    Thousands separators, a leading `$` and a closing `%` or `.` are dropped, `%` without
    dividing: a question asked in percent is answered in percent.

    >>> number("$1,800.00")
    Decimal('1800.00')
    """
    plain = plain_digits(text.strip()[:LONGEST_ANSWER]).replace("\\", "").rstrip(".")
    plain = plain.replace("$", "").replace("{,}", ",").rstrip("%").strip()
    if re.fullmatch(r"[-+]?\d{1,3}(,\d{3})+(\.\d+)?", plain):
        plain = plain.replace(",", "")
    if not re.fullmatch(r"[-+]?(\d+(\.\d*)?|\.\d+)", plain):
        return None
    try:
        return Decimal(plain)
    except InvalidOperation:
        return None


def last_number(text: str) -> str | None:
    """The last number as it is written, None without any.

    >>> last_number("5 * 4 = 20, so he pays $1,020.50.")
    '$1,020.50'
    """
    plain = plain_digits(text)
    found = [m.group() for m in _NUMBER.finditer(plain) if re.search(r"\d", m.group())]
    return found[-1] if found else None
