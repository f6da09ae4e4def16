r"""When two MATH answers are the same string, as the MATH dataset's own grader has it.

Source: Hendrycks et al. 2021; hendrycks_math of lm-evaluation-harness 0.4.13. Text only, no
algebra: `\frac{1}{2}` equals `1/2` and `0.5`, but not `\frac{2}{4}`.
"""

from __future__ import annotations

_SPACING = [
    ("\n", ""),
    ("\\!", ""),
    ("\\\\", "\\"),
    ("tfrac", "frac"),
    ("dfrac", "frac"),
    ("\\left", ""),
    ("\\right", ""),
    ("^{\\circ}", ""),
    ("^\\circ", ""),
    ("\\$", ""),
]
_DECIMALS = [("\\%", ""), (" .", " 0."), ("{.", "{0.")]


class NoAnswerError(ValueError):
    """A string the grader itself breaks on; it then compares the raw strings."""


def same_string(left: str, right: str) -> bool:
    """Equal after normalisation; equal as they stand when either cannot be normalised."""
    try:
        return normalise(left) == normalise(right)
    except NoAnswerError:
        return left == right


def between_dollars(completion: str) -> str:
    """From the first `$` to the last one; the whole completion when there are not two.

    >>> between_dollars("So $x=3$.")
    'x=3'
    """
    first, last = completion.find("$"), completion.rfind("$")
    return completion if first == last else completion[first + 1 : last]


def normalise(answer: str) -> str:
    """Raises NoAnswerError for what the grader cannot normalise (two units, an empty root)."""
    text = _replace_all(answer, _SPACING)
    text = _replace_all(_without_unit(text), _DECIMALS)
    if not text:
        return text
    text = "0" + text if text[0] == "." else text
    sides = text.split("=")
    if len(sides) == 2 and len(sides[0]) <= 2:
        text = sides[1]
    text = _complete_roots(text).replace(" ", "")
    text = _complete_fractions(text)
    if text == "0.5":
        return "\\frac{1}{2}"
    return _slash_as_fraction(text)


def _replace_all(text: str, pairs: list[tuple[str, str]]) -> str:
    for old, new in pairs:
        text = text.replace(old, new)
    return text


def _without_unit(text: str) -> str:
    value, *units = text.split("\\text{ ")
    if len(units) > 1:
        raise NoAnswerError(text)
    return value


def _complete_roots(text: str) -> str:
    head, *roots = text.split("\\sqrt")
    for root in roots:
        if not root:
            raise NoAnswerError(text)
        head += "\\sqrt" + (root if root[0] == "{" else f"{{{root[0]}}}{root[1:]}")
    return head


def _complete_fractions(text: str) -> str:
    head, *fractions = text.split("\\frac")
    for fraction in fractions:
        if not fraction:
            raise NoAnswerError(text)
        if fraction[0] == "{":
            head += "\\frac" + fraction
            continue
        if len(fraction) < 2:
            return text
        above, below, rest = fraction[0], fraction[1], fraction[2:]
        head += f"\\frac{{{above}}}" + (below if below == "{" else f"{{{below}}}") + rest
    return head


def _slash_as_fraction(text: str) -> str:
    """`3/4` → `\\frac{3}{4}`; only two plain whole numbers, and what else has one `/` breaks."""
    sides = text.split("/")
    if len(sides) != 2:
        return text
    try:
        above, below = (int(side) for side in sides)
    except ValueError:
        raise NoAnswerError(text) from None
    if text != f"{above}/{below}":
        return text
    return f"\\frac{{{above}}}{{{below}}}"
