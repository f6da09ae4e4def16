r"""The answer format and the normalisation of Minerva, as lm-evaluation-harness reads them.

Source: Lewkowycz et al. 2022, appendix D, and minerva_math of lm-evaluation-harness 0.4.13,
whose repairs (units only as words, indexed roots, tuples kept) are followed. Knows no reward.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from engine.contract.golds.boxes import last_boxed

_SIGN_OFF = "I hope it is correct."
_FINAL = re.compile(r"Final Answer: The final answer is(.*)")
_END = " I hope it is correct"

_UNITS = [
    "square",
    "ways",
    "integers",
    "dollars",
    "mph",
    "inches",
    "ft",
    "hours",
    "km",
    "units",
    "sue",
    "points",
    "feet",
    "minutes",
    "digits",
    "cents",
    "degrees",
    "cm",
    "gm",
    "pounds",
    "meters",
    "meals",
    "edges",
    "students",
    "childrentickets",
    "multiples",
]
_EARLY_MARKUP = ["\\ldots"]
"""Dropped between `units` and `sue`; the order never matters for the rest."""
_MARKUP = [
    "\\text{s}",
    "\\text{.}",
    "\\text{\ns}",
    "\\text{}^2",
    "\\text{}^3",
    "\\text{\n}",
    "\\text{}",
    "\\mathrm{th}",
    "^\\circ",
    "^{\\circ}",
    "\\;",
    ",\\!",
    "{,}",
    '"',
    "\\dots",
]
_REWRITES = [
    ("an ", ""),
    ("a ", ""),
    (".$", "$"),
    ("\\$", ""),
    ("\\ ", ""),
    (" ", ""),
    ("mbox", "text"),
    (",\\text{and}", ","),
    ("\\text{and}", ","),
    ("\\text{m}", "\\text{}"),
]
_FRAMES = [r"\\text\{(.*?)\}", r"\\textbf\{(.*?)\}", r"\\overline\{(.*?)\}", r"\\boxed\{(.*)\}"]

_COMMAND = re.compile(r"(\\[a-zA-Z]+)")
_UNIT_WORDS = [re.compile(rf"(?<!\\)\b{unit}\b") for unit in _UNITS]


def final_answer(completion: str) -> str | None:
    """The X of "Final Answer: The final answer is X. I hope it is correct.", first match.

    The sign-off itself may be missing at the end. None when the sentence is not there. The full
    stops are any character, as in the harness's pattern, which takes hours for a sentence that is
    begun ten thousand times.

    >>> final_answer("Final Answer: The final answer is $5$. I hope it is correct.")
    '$5$'
    """
    for begun in _FINAL.finditer(completion + _SIGN_OFF):
        rest = begun[1]
        end = rest.find(_END, 1)
        if 0 < end < len(rest) - len(_END):
            return rest[: end - 1].strip()
    return None


def gold(expected: str) -> str:
    r"""The normalised gold: of a whole MATH solution the content of its last box."""
    return normalise(expected if "\\boxed" not in expected else last_boxed(expected) or expected)


def normalise(answer: str) -> str:
    r"""Units, articles, spacing and shorthand TeX away.

    >>> normalise(r"x = \frac12 \text{ cm}")
    '\\frac{1}{2}'
    """
    text = answer.rpartition("=")[2]
    for word in _UNIT_WORDS:
        text = word.sub("", text)
    for old, new in _REWRITES:
        text = text.replace(old, new)
    text = _strip_units_and_markup(text)
    text = re.sub(r".*?(\$.*?\$).*", r"\1", text)
    for frame in _FRAMES:
        text = re.sub(frame, r"\1", text)
    text = _complete_shorthand(text).replace("$", "")
    if re.fullmatch(r"-?\d{1,3}(,\d{3})+", text):
        text = text.replace(",", "")
    return text


def _strip_units_and_markup(text: str) -> str:
    for unit in _UNITS[:10]:
        text = _outside_commands(text, _drop(unit))
    for markup in _EARLY_MARKUP:
        text = text.replace(markup, "")
    for unit in _UNITS[10:]:
        text = _outside_commands(text, _drop(unit))
    for markup in _MARKUP:
        text = text.replace(markup, "")
    return text


def _drop(unit: str) -> Callable[[str], str]:
    return lambda text: text.replace(unit, "")


def _outside_commands(text: str, edit: Callable[[str], str]) -> str:
    """`ft` goes from `5ft`, never from `\\left`."""
    parts = _COMMAND.split(text)
    parts[::2] = [edit(part) for part in parts[::2]]
    return "".join(parts)


def _complete_shorthand(text: str) -> str:
    r"""`\frac12` → `\frac{1}{2}`, `\sqrt2` → `\sqrt{2}`, `\sqrt[3]2` → `\sqrt[3]{2}`."""
    text = re.sub(r"frac([^{])(.)", r"frac{\1}{\2}", text)
    text = re.sub(r"sqrt(\[[^\]]*\])(\w)", r"sqrt\1{\2}", text)
    return re.sub(r"sqrt(?!\[)([^{])", r"sqrt{\1}", text)
