"""The filter of the table of runs: words and `column:condition`, all of which must hold.

    base:*qwen* lr:1e-5,3e-6 gain:>3 steps:100..300 -tag:night state:failed note:none boxes

A word by itself is part of a name, or `#12` a number. A condition is a value, several with commas
(any of them), a comparison (> >= < <=), a range, `none`; `*` stands for any characters, `-` before
a term turns it round, quotes keep spaces together. Letters compare whatever their case. Knows no
run and no column: those come in.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from engine.contract.errors import ConfigError, ConfigProblem
from worker.screen import folded

LONGEST = 400
"""Characters of a filter."""
_SHOWN = 60
"""Characters of a term that an error repeats."""
_TERM = re.compile(r'(?:[^\s"]|"[^"]*"?)+')
_COMPARES = re.compile(r"(>=|<=|>|<)(.*)", re.DOTALL)
_RANGE = re.compile(r"(.+?)\.\.(.+)", re.DOTALL)
_NUMBER = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)\s*(%|s|min|h|d|gb)?", re.IGNORECASE)
_UNITS = {"%": 0.01, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "gb": 1.0, "": 1.0}
NONE = "none"

Value = float | str | Sequence[str] | None
"""What a column says of a run: a number, a text, several texts, or nothing."""
Sort = Literal["number", "text", "words"]


@dataclass(frozen=True)
class Term:
    """One term as it was written."""

    text: str
    column: str | None
    """None: a word, to be found in names."""
    condition: str
    negated: bool = False


class FilterError(ConfigError):
    """A filter that cannot be read."""

    def __init__(self, term: str, problem: str, remedy: str) -> None:
        shown = term if len(term) <= _SHOWN else f"{term[:_SHOWN]}…"
        super().__init__([ConfigProblem("q", shown, problem, remedy)])


def terms(text: str) -> list[Term]:
    """The terms of a filter. Raises FilterError.

    >>> [(term.column, term.condition, term.negated) for term in terms('lr:1e-5 -tag:night "a b"')]
    [('lr', '1e-5', False), ('tag', 'night', True), (None, 'a b', False)]
    """
    if len(text) > LONGEST:
        raise FilterError(text, f"has {len(text)} characters", f"write at most {LONGEST}")
    return [_term(found[0]) for found in _TERM.finditer(text)]


def _term(text: str) -> Term:
    if text.count('"') % 2:
        raise FilterError(
            text, "opens a quote and does not close it", 'write both: note:"two words"'
        )
    negated = text.startswith("-") and len(text) > 1
    column, colon, condition = (text[1:] if negated else text).partition(":")
    if not colon or '"' in column:
        word = _bare(text[1:] if negated else text)
        if not word:
            raise FilterError(text, "says nothing", "write a part of a name between the quotes")
        return Term(text, None, word, negated)
    if not column or not _bare(condition):
        raise FilterError(text, "is half a condition", "write column:value, such as lr:1e-5")
    return Term(text, column, condition, negated)


def matcher(term: Term, kind: Sort) -> Callable[[Value], bool]:
    """Whether a column's value meets a term's condition. Raises FilterError."""
    conditions = [_condition(term, part, kind) for part in _parts(term.condition)]
    if not conditions:
        raise FilterError(term.text, "holds nothing between its commas", "write column:one,two")
    return lambda value: any(meets(value) for meets in conditions) != term.negated


def _parts(condition: str) -> Iterator[str]:
    """What stands between commas, outside of quotes."""
    for part in re.findall(r'(?:[^,"]|"[^"]*")+', condition):
        if bare := _bare(part):
            yield bare


def _bare(text: str) -> str:
    return text.replace('"', "").strip()


def _condition(term: Term, part: str, kind: Sort) -> Callable[[Value], bool]:
    if folded(part) == NONE:
        return lambda value: value is None or value == ()
    if found := _COMPARES.fullmatch(part):
        return _compared(term, found[1], found[2], kind)
    if kind == "number":
        if found := _RANGE.fullmatch(part):
            low, high = _number(term, found[1]), _number(term, found[2])
            return lambda value: isinstance(value, float) and low <= value <= high
        wanted = _number(term, part)
        return lambda value: isinstance(value, float) and math.isclose(value, wanted, rel_tol=1e-9)
    like = _like(part)
    return lambda value: any(like(one) for one in _texts(value))


def _compared(term: Term, sign: str, than: str, kind: Sort) -> Callable[[Value], bool]:
    if kind != "number":
        remedy = f"write {term.column}:*{_bare(than) or 'part'}*"
        raise FilterError(term.text, f"compares {term.column}, which is no number", remedy)
    limit = _number(term, than)
    holds: dict[str, Callable[[float], bool]] = {
        ">": lambda value: value > limit,
        ">=": lambda value: value >= limit,
        "<": lambda value: value < limit,
        "<=": lambda value: value <= limit,
    }
    return lambda value: isinstance(value, float) and holds[sign](value)


def _number(term: Term, text: str) -> float:
    found = _NUMBER.fullmatch(text.strip())
    if found is None:
        problem = f"compares {term.column}, a number, with {text.strip()[:_SHOWN]!r}"
        raise FilterError(
            term.text, problem, f"write a number: {term.column}:>3, {term.column}:1e-5"
        )
    return float(found[1]) * _UNITS[(found[2] or "").lower()]


def _texts(value: Value) -> Sequence[str]:
    if value is None:
        return ()
    return (str(value),) if isinstance(value, str | float) else value


def _like(pattern: str) -> Callable[[str], bool]:
    """Whether a text is like a pattern: `*` stands for any characters, nothing else for anything.

    Looked for piece by piece, each after the one before: no pattern takes more than one pass.
    """
    first, *rest = folded(pattern).split("*")
    if not rest:
        return lambda text: folded(text) == first
    *middle, last = rest

    def like(text: str) -> bool:
        said = folded(text)
        if not said.startswith(first) or len(said) < len(first) + len(last):
            return False
        at, end = len(first), len(said) - len(last)
        for piece in middle:
            found = said.find(piece, at, end)
            if found < 0:
                return False
            at = found + len(piece)
        return said.endswith(last)

    return like
