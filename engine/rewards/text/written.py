r"""Numbers rewritten so that math-verify reads them: it knows no `1e3`, `1 1/2`, `5 million`.

Signs that stand apart (`- 5`), words for them (minus 5) and the en dash (–5) become signs. Linear
in the text. Knows no verifier.
"""

from __future__ import annotations

import re
from fractions import Fraction

_SCIENTIFIC = re.compile(
    r"(?<![\w.,^\\])(\d{1,40}(?:\.\d{1,40})?)[eE]([-+]?\d{1,3})(?![\w.]\w)(?!\w)"
)
_SCALED = re.compile(
    r"(?<![\w.,])(\d{1,3}(?:,\d{3}){1,5}|\d{1,15})(\.\d{1,15})?\s(thousand|million|billion|trillion)\b",
    re.IGNORECASE,
)
_SCALES = {"thousand": 3, "million": 6, "billion": 9, "trillion": 12}
_MIXED = re.compile(r"(?<![\w.,^/])([-+]?\d{1,9}) ([1-9]\d{0,8})/([1-9]\d{0,8})(?![\w/.]\w)(?!\w)")
_MIXED_FRACTION = re.compile(r"(?<![\w.,^_])(\d{1,9}) ?\\[dt]?frac\{(\d{1,9})\}\{(\d{1,9})\}")
_SIGN_APART = re.compile(
    r"(?<=[=:{(])\s{0,2}-\s(?=[\d.])|(?<=\bis)\s-\s(?=[\d.])|^\s{0,2}-\s(?=[\d.])"
)
_SIGN_WORD = re.compile(
    r"(?:\bnegative|(?<=\bis )minus|(?<=\bequals )minus|(?<=\bto )minus|(?<=[=:] )minus|^minus)"
    r"\s(?=\d)",
    re.IGNORECASE,
)
_EN_DASH = re.compile(r"(?<![\w)\]}] )(?<![\w)\]}])–(?=\d)|(?<=\bis )–(?=\d)")
_PLUS = re.compile(r"(?:^|(?<=[=:{$])|(?<=\bis ))\s{0,2}\+(?=[\d.])")


def numbers_in_digits(text: str) -> str:
    r"""The same text with such numbers written out.

    >>> numbers_in_digits("It is 1.5e3, 1 1/2 and negative 5.")
    'It is 1500, 3/2 and -5.'
    """
    text = _EN_DASH.sub("-", text)
    text = _SIGN_APART.sub(" -", text)
    text = _SIGN_WORD.sub("-", text)
    text = _PLUS.sub(" ", text)
    text = _SCIENTIFIC.sub(lambda m: _written(Fraction(m[1]) * Fraction(10) ** int(m[2])), text)
    text = _SCALED.sub(_scaled, text)
    text = _MIXED.sub(_improper, text)
    return _MIXED_FRACTION.sub(_improper_fraction, text)


def _scaled(found: re.Match[str]) -> str:
    value = Fraction(found[1].replace(",", "") + (found[2] or ""))
    return _written(value * 10 ** _SCALES[found[3].lower()])


def _improper(found: re.Match[str]) -> str:
    whole, above, below = int(found[1]), int(found[2]), int(found[3])
    if above >= below:
        return found.group()
    sign = "-" if found[1].startswith("-") else ""
    return f"{sign}{abs(whole) * below + above}/{below}"


def _improper_fraction(found: re.Match[str]) -> str:
    whole, above, below = (int(part) for part in found.groups())
    if above >= below:
        return found.group()
    return f"\\frac{{{whole * below + above}}}{{{below}}}"


def _written(value: Fraction) -> str:
    """As a decimal, which the ends of its digits always are here."""
    if value.denominator == 1:
        return str(value.numerator)
    places = 0
    while (value * 10**places).denominator != 1:
        places += 1
    digits = str(abs(value * 10**places).numerator).rjust(places + 1, "0")
    return f"{'-' if value < 0 else ''}{digits[:-places]}.{digits[-places:]}"
