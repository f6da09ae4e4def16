r"""A number in any usual spelling, with its unit: read exactly, compared exactly.

`1,000`, `1e3`, `10^{3}`, `1\,000.0` and `$1{,}000$` are one number; `1 1/2`, `1\frac{1}{2}`, `1½`,
`3/2` and `1.5` another. What is no single number (`5 or 6`, `10:30`, `3\pi`, `1,80`) is None. Every
function is linear in the text. Knows no verifier.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, replace
from fractions import Fraction

LONGEST = 500
"""Characters of an answer that is still read; a longer one is no number."""
FEWEST_DIGITS = 6
"""Significant digits with which a decimal stands for a fraction that has no end (0.333333)."""
NOISY_DIGITS = 16
"""A decimal written with so many digits is a computer's double; its last digits are noise."""
_HIGHEST_EXPONENT = 400
_LONGEST_POWER = 4096
"""Bits of a power that is worked out."""

MINUS_SIGNS = str.maketrans(
    {"\u2212": "-", "\u2010": "-", "\u2011": "-", "\ufe63": "-", "\uff0d": "-"}
)
"""Minus and hyphens that a model writes for `-`; the en dash stays, it joins ranges."""
_SUPERSCRIPTS = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-", strict=True))


@dataclass(frozen=True)
class Quantity:
    """`1,500 km` is 1500, `("km", "")`; `50%` is 50, in percent."""

    value: Fraction
    unit: tuple[str, str] = ("", "")
    """What it is measured in, and per what; "" where there is none that is known."""
    percent: bool = False
    places: int | None = None
    """Digits after the point, of a decimal; None for what is exact."""
    digits: int = 0
    """Significant digits as written."""


def read(text: str) -> Quantity | None:
    r"""The one number of a text that holds nothing else but its name, its unit and its dress.

    >>> read(r"x = 1\frac{1}{2} \text{ cm}")
    Quantity(value=Fraction(3, 2), unit=('cm', ''), percent=False, places=None, digits=0)
    """
    if len(text) > LONGEST:
        return None
    plain = _NAMED.sub("", _undressed(text))
    for _ in range(3):
        inside = _IN_PARENTHESES.fullmatch(plain)
        if inside is None:
            break
        plain = inside[1].strip()
    found = _START.match(plain)
    if found is None:
        return None
    number = _number(plain, found.end())
    if number is None:
        return None
    value, end, places, digits = number
    rest = plain[end:]
    scale = _SCALE.match(rest)
    if scale is not None:
        value *= 10 ** _SCALES[scale[1].lower()]
        rest = rest[scale.end() :]
    percent = _PERCENT.match(rest)
    unit = unit_of(rest[percent.end() :] if percent else rest)
    if unit is None:
        return None
    currency = _CURRENCIES.get((found["currency"] or "").strip(" .").lower(), "")
    negative = found.group().count("-") % 2 == 1
    return Quantity(
        -value if negative else value,
        (unit[0] or currency, unit[1]),
        percent is not None,
        places if scale is None else None,
        digits,
    )


def same(one: Quantity, other: Quantity) -> bool:
    """Whether two spellings mean one quantity.

    Units count where both are known: 5 feet are not 5 meters, 5 is either. A percentage equals its
    fraction and, since a question asked in percent is answered in percent, its bare number. A
    decimal equals a fraction without an end when it is its rounding to six significant digits.

    >>> same(read("50%"), read("0.5")), same(read("5 feet"), read("5 meters"))
    (True, False)
    """
    if units_differ(one.unit, other.unit):
        return False
    if one.percent == other.percent:
        return _equal(one, other)
    part, whole = (one, other) if one.percent else (other, one)
    if whole.unit != ("", ""):
        return False
    places = None if part.places is None else part.places + 2
    fraction = replace(part, value=part.value / 100, places=places)
    return _equal(part, whole) or _equal(fraction, whole)


def units_differ(one: tuple[str, str], other: tuple[str, str]) -> bool:
    """Whether both name a known unit, and not the same one."""
    degrees = {"degree", "°C", "°F"}
    for left, right in zip(one, other, strict=True):
        if left and right and left != right:
            plain_degrees = "degree" in {left, right} and {left, right} <= degrees
            if not plain_degrees:
                return True
    return False


def _equal(one: Quantity, other: Quantity) -> bool:
    if one.value == other.value:
        return True
    apart = abs(one.value - other.value)
    for decimal, exact in ((one, other.value), (other, one.value)):
        if decimal.places is None:
            continue
        rounded = apart <= Fraction(1, 2 * 10**decimal.places)
        if rounded and decimal.digits >= FEWEST_DIGITS and not _ends(exact):
            return True
        if decimal.digits >= NOISY_DIGITS and apart * 2 * 10**15 <= abs(decimal.value):
            return True
    return False


def _ends(value: Fraction) -> bool:
    """Whether it is a decimal with an end."""
    rest = value.denominator
    for prime in (2, 5):
        while rest % prime == 0:
            rest //= prime
    return rest == 1


# --- undressing -----------------------------------------------------------------------------

_SPACES = [
    *("\\,", "\\;", "\\:", "\\ ", "~", "\\quad", "\\qquad", "\\displaystyle", "\\left", "\\right"),
    *"\u00a0\u2007\u2009\u202f\t\n",
]
_REPLACED = [("\\!", ""), ("{,}", ","), ("\\$", "$"), ("\\%", "%"), ("\\#", "#")]
_REPLACED += [(space, " ") for space in _SPACES]
_REPLACED += [
    (circle, "°") for circle in ("^{\\circ}", "^\\circ", "^{ \\circ}", "\\degree", "\\circ")
]
_WRAPPED = re.compile(
    r"\\(?:text|textrm|textbf|textit|textnormal|mathrm|mathbf|mathit|mathsf|mbox|operatorname)"
    r"\s*\{([^{}]*)\}"
)
_FRACTION = re.compile(
    r"\\[dtc]?frac\s*(?:\{\s*([-+]?)\s*([\d.,]+)\s*\}|(\d))\s*(?:\{\s*([-+]?)\s*([\d.,]+)\s*\}|(\d))"
)
_NAMED = re.compile(
    r"^(?:\\?[^\W\d_]{1,20}(?:_\{?\w{1,8}\}?)?(?:\s?\(\w{1,8}\))?|\|\w{1,8}\|)\s*=\s*"
)
_IN_PARENTHESES = re.compile(r"[({]\s*([-+]?[^(){}]*)\s*[)}]")


def plain_digits(text: str) -> str:
    """Unicode decimal digits and minus signs as ASCII.

    >>> plain_digits("\u2212\uff11\uff18")
    '-18'
    """
    if text.isascii():
        return text
    digits = "".join(str(int(c)) if c.isdecimal() else c for c in text)
    return digits.translate(MINUS_SIGNS)


def plain_fractions(text: str) -> str:
    """`1½` as `1 1/2`, `10⁶` as `10^{6}`.

    >>> plain_fractions("2½ and 10⁻³")
    '2 1/2 and 10^{-3}'
    """
    if text.isascii():
        return text
    text = re.sub("[⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+", _raised, text)
    return re.sub("[¼-¾⅐-⅞]", _vulgar, text)


def _raised(found: re.Match[str]) -> str:
    return "^{" + "".join(_SUPERSCRIPTS[c] for c in found.group()) + "}"


def _vulgar(found: re.Match[str]) -> str:
    apart = unicodedata.normalize("NFKC", found.group()).replace("\u2044", "/")
    before = found.string[: found.start()][-1:]
    return f" {apart}" if before.isdigit() else apart


def _undressed(text: str) -> str:
    plain = plain_digits(plain_fractions(text.strip()))
    for old, new in _REPLACED:
        plain = plain.replace(old, new)
    plain = _WRAPPED.sub(r" \1 ", plain)
    plain = _FRACTION.sub(_slashed, plain).strip().strip("*_`").strip()
    while len(plain) > 1 and plain[0] == plain[-1] == "$":
        plain = plain[1:-1].strip()
    return re.sub(r"\s+", " ", plain.rstrip(".").strip())


def _slashed(found: re.Match[str]) -> str:
    r"""`\frac{-1}{2}` as ` -1/2`: apart from a whole number before it."""
    signs = (found[1] or "") + (found[4] or "")
    sign = "-" if signs.count("-") % 2 else ""
    return f" {sign}{found[2] or found[3]}/{found[5] or found[6]} "


# --- the number -----------------------------------------------------------------------------

_CURRENCIES = {
    **dict.fromkeys(("$", "us$", "usd", "dollar", "dollars", "buck", "bucks"), "$"),
    **dict.fromkeys(("€", "eur", "euro", "euros"), "€"),
    **dict.fromkeys(("£", "gbp"), "£"),
    **dict.fromkeys(("¥", "jpy", "yen"), "¥"),
    **dict.fromkeys(("₹", "rs", "inr", "rupee", "rupees"), "₹"),
    **dict.fromkeys(("cad", "ca$"), "cad"),
    **dict.fromkeys(("aud", "a$"), "aud"),
}
_START = re.compile(
    r"\s*[-+]?\s?(?P<currency>(?:US|CA|A)?\$|[€£¥₹]|(?:USD|EUR|GBP|JPY|INR|CAD|AUD|Rs)\b\.?)?"
    r"\s?[-+]?\s?(?=[\d.])"
)
_SEPARATED = r"\d{1,3}(?:(?:,\d{3})+|(?: \d{3})+|(?:'\d{3})+|(?:_\d{3})+)(?!\d)"
_DECIMAL = rf"(?:{_SEPARATED}|\d+)(?:\.\d+|\.(?!\d))?|\.\d+"
_MIXED = re.compile(r"(\d{1,9})(?: |-)([1-9]\d{0,8}) ?/ ?([1-9]\d{0,8})(?![\d./])")
_RATIO = re.compile(rf"({_DECIMAL}) ?/ ?([-+]?)({_DECIMAL})(?!\d)")
_SCIENTIFIC = re.compile(
    rf"({_DECIMAL})(?:[eE]([-+]?\d{{1,4}})(?![\d.])"
    r"| ?(?:\\times|\\cdot|×|·|x|\*) ?10 ?(?:\^|\*\*) ?"
    r"(?:\{ ?([-+]?\d{1,4}) ?\}|\(?([-+]?\d{1,4})\)?))"
)
_POWER = re.compile(r"(\d{1,9}) ?(?:\^|\*\*) ?(?:\{ ?(\d{1,4}) ?\}|(\d{1,4}))(?!\d)")
_PLAIN = re.compile(rf"(?:{_DECIMAL})(?![\d,.:'_^/!]\d|[\^/!])")
_SCALE = re.compile(r" ?(thousand|million|billion|trillion)\b", re.IGNORECASE)
_SCALES = {"thousand": 3, "million": 6, "billion": 9, "trillion": 12}
_PERCENT = re.compile(r" ?(?:%|per ?cent\b|pct\b)", re.IGNORECASE)

_Number = tuple[Fraction, int, int | None, int]
"""Value, where it ends, digits after the point, significant digits."""


def _number(text: str, start: int) -> _Number | None:
    for reader in (_mixed, _ratio, _scientific, _power, _plain):
        number = reader(text, start)
        if number is not None:
            return number
    return None


def _mixed(text: str, start: int) -> _Number | None:
    found = _MIXED.match(text, start)
    whole, above, below = (int(part) for part in found.groups()) if found else (0, 1, 1)
    return (
        (whole + Fraction(above, below), found.end(), None, 0) if found and above < below else None
    )


def _ratio(text: str, start: int) -> _Number | None:
    found = _RATIO.match(text, start)
    below = _value(found[3]) if found else 0
    if found is None or not below:
        return None
    return _value(found[1]) / (-below if found[2] == "-" else below), found.end(), None, 0


def _scientific(text: str, start: int) -> _Number | None:
    found = _SCIENTIFIC.match(text, start)
    exponent = int(found[2] or found[3] or found[4]) if found else 0
    if found is None or abs(exponent) > _HIGHEST_EXPONENT:
        return None
    places = max(0, _places(found[1]) - exponent)
    return _value(found[1]) * Fraction(10) ** exponent, found.end(), places, _digits(found[1])


def _power(text: str, start: int) -> _Number | None:
    found = _POWER.match(text, start)
    base, exponent = (int(found[1]), int(found[2] or found[3])) if found else (0, 0)
    if found is None or base.bit_length() * exponent > _LONGEST_POWER:
        return None
    return Fraction(base**exponent), found.end(), None, 0


def _plain(text: str, start: int) -> _Number | None:
    found = _PLAIN.match(text, start)
    if found is None:
        return None
    written = found.group()
    return _value(written), found.end(), _places(written) or None, _digits(written)


def _value(text: str) -> Fraction:
    return Fraction(re.sub("[, '_]", "", text).rstrip("."))


def _places(text: str) -> int:
    return len(text.partition(".")[2])


def _digits(text: str) -> int:
    return len(re.sub(r"\D", "", text).lstrip("0"))


# --- the unit -------------------------------------------------------------------------------

_UNITS = {
    alias: name
    for name, aliases in {
        "mm": "mm millimeter millimeters millimetre millimetres",
        "cm": "cm centimeter centimeters centimetre centimetres",
        "m": "m meter meters metre metres",
        "km": "km kilometer kilometers kilometre kilometres",
        "in": "inch inches",
        "ft": "ft foot feet",
        "yd": "yd yds yard yards",
        "mi": "mi mile miles",
        "mg": "mg milligram milligrams",
        "g": "g gram grams",
        "kg": "kg kilogram kilograms kilo kilos",
        "ton": "ton tons tonne tonnes",
        "lb": "lb lbs pound pounds",
        "oz": "oz ounce ounces",
        "ms": "ms millisecond milliseconds",
        "s": "s sec secs second seconds",
        "min": "min mins minute minutes",
        "h": "h hr hrs hour hours",
        "day": "day days",
        "week": "week weeks",
        "month": "month months",
        "year": "yr yrs year years",
        "ml": "ml milliliter milliliters millilitre millilitres",
        "l": "l liter liters litre litres",
        "gal": "gal gallon gallons",
        "degree": "° degree degrees deg",
        "°C": "celsius",
        "°F": "fahrenheit",
        "rad": "rad radian radians",
        "¢": "¢ cent cents",
    }.items()
    for alias in aliases.split()
} | _CURRENCIES
_SQUARES = {"square": "2", "sq": "2", "cubic": "3", "cu": "3"}
_SPEEDS = {"mph": ("mi", "h"), "kph": ("km", "h"), "kmh": ("km", "h")}
_NO_UNITS = frozenset(
    (
        *("and", "or", "to", "not", "nor", "but", "plus", "minus", "times", "over", "mod", "if"),
        *("when", "where", "for", "than", "more", "less", "pi", "sqrt", "sin", "cos", "tan"),
        *("log", "ln", "exp", "inf", "infinity", "infty", "theta", "alpha", "beta", "choose"),
        *("factorial", "squared", "cubed", "out", "hundred", "dozen", "half", "thirds", "point"),
        *("is", "are", "was", "were", "be", "has", "have", "had", "will", "can", "in", "on", "at"),
        *("by", "with", "from", "because", "since", "as", "then", "so"),
    )
)
"""Words behind a number that make another number of it, or none."""
_MOST_WORDS = 8
_WORD = re.compile(r"([^\W\d_]+|[°$€£¥₹¢])\.?(?: ?\^ ?\{? ?([23]) ?\}?)?")


def unit_of(text: str) -> tuple[str, str] | None:
    """The unit that a text names, and per what; None for a text that is more than a unit.

    >>> unit_of(" miles per hour"), unit_of(" apples"), unit_of("x + 1")
    (('mi', 'h'), ('', ''), None)
    """
    spaced = text.replace("/", " per ")
    attached = spaced[:1] not in {"", " ", "-"}
    words = _WORD.findall(spaced)
    if len(words) > _MOST_WORDS or _WORD.sub("", spaced).strip(" -,"):
        return None
    found, side, square = ["", ""], 0, ""
    for position, (written, power) in enumerate(words):
        word = written.lower()
        if word in {"per", "a", "an", "each", "every"} and position:
            side = 1
            continue
        known = written if written in _UNITS else word
        # one letter is a variable unless it is a unit, in lower case
        is_unit = known in _UNITS and (len(written) > 1 or written in _UNITS)
        if word in _NO_UNITS or (not is_unit and (len(word) == 1 or (attached and not position))):
            temperature = written in {"C", "F"} and position and words[position - 1][0] == "°"
            if not temperature:
                return None
            found[0] = f"°{written}"
            continue
        if word in _SPEEDS:
            return _SPEEDS[word]
        if word in _SQUARES:
            square = _SQUARES[word]
        elif is_unit and (not found[side] or _UNITS[known] in {"°C", "°F"}):
            found[side] = _UNITS[known] + (power or square)
            square = ""
    return found[0], found[1]
