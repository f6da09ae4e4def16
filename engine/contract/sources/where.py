"""`where`: which rows of a source are used, as a condition over their columns.

    level >= 3 and type in [Algebra, "Counting & Probability"]
    extra_info.level in 3..5 or not (solve_rate < 0.1)

A column is named as it is, dotted inside another, in backticks where it holds blanks. Numbers
compare with numbers; `Level 3` is one. Ranges include their ends. Nothing of it is Python, and
nothing is evaluated. Knows no file.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.contract.documents import number_of
from engine.contract.sources.values import Columns, cell

MOST_LETTERS = 2_000
_EXAMPLES = 3
_TOKEN = re.compile(
    r"\s*(?:(?P<number>[-+]?(?:\d+(?:\.(?!\.)\d*)?|\.\d+)(?:[eE][-+]?\d+)?(?![\w.]*[A-Za-z_]))"
    r"|(?P<text>\"[^\"]*\"|'[^']*')|(?P<column>`[^`]+`)"
    r"|(?P<sign>\.\.|==|!=|<=|>=|[<>=()\[\],])|(?P<word>[^\W\d][\w.-]*\w|[^\W\d]))"
)
_NUMBER = re.compile(r"(?:[^\W\d_]+[\s_:-]*)?([-+]?(?:\d+(?:\.\d+)?|\.\d+)(?:[eE][-+]?\d{1,3})?)%?")
"""A number alone, or behind a word: `Level 3`."""
_ORDER: Mapping[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
_DEEPEST = 50


class WhereError(ValueError):
    """What is wrong with a condition: `problem; remedy`."""


Test = Callable[[Columns, "Counted"], bool]


@dataclass
class Counted:
    """What a condition met in the rows of one pass."""

    seen: int = 0
    kept: int = 0
    no_number: int = 0
    """Rows that a numeric comparison left out because their value is none."""
    no_numbers: list[str] = field(default_factory=list)
    """Some of these values."""
    met: dict[str, dict[str, None]] = field(default_factory=dict)
    """By column some of its values; a column that no row has is not in it."""
    row_has_none: bool = False

    def meet(self, column: str, value: Any) -> None:
        """One value of a column."""
        values = self.met.setdefault(column, {})
        if len(values) < 2 * _EXAMPLES:
            values.setdefault(_shown(value))

    def is_no_number(self, value: Any) -> None:
        """A value that a number was wanted of."""
        self.row_has_none = True
        shown = _shown(value)
        if len(self.no_numbers) < _EXAMPLES and shown not in self.no_numbers:
            self.no_numbers.append(shown)


def _shown(value: Any) -> str:
    shown = repr(value) if isinstance(value, str) else str(value)
    return shown if len(shown) <= 40 else shown[:39] + "…"


@dataclass(frozen=True)
class Where:
    """A condition, and the columns that it asks for."""

    condition: str
    columns: Sequence[str]
    _test: Test

    def keeps(self, row: Columns, counted: Counted) -> bool:
        """Whether the row is used."""
        counted.row_has_none = False
        counted.seen += 1
        kept = self._test(row, counted)
        counted.kept += kept
        counted.no_number += counted.row_has_none and not kept
        return kept


def number_in(value: Any) -> float | None:
    """The number that a value is; None for one that is none.

    >>> number_in("Level 3"), number_in("0.5"), number_in("Level ?"), number_in(True)
    (3.0, 0.5, None, None)
    """
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        return float(value) if math.isfinite(value) else None
    found = _NUMBER.fullmatch(value.strip()) if isinstance(value, str) else None
    return float(found[1]) if found else None


def parsed(condition: str) -> Where:
    """Raises WhereError."""
    return _Parser(condition).whole()


class _Parser:
    """Recursive descent: `or` under `and` under `not` under one comparison."""

    def __init__(self, condition: str) -> None:
        if len(condition) > MOST_LETTERS:
            raise WhereError(f"has more than {MOST_LETTERS} letters; filter the file itself")
        self._condition, self._columns = condition, dict[str, None]()
        self._tokens = list(_tokens(condition))
        self._at = self._depth = 0

    def whole(self) -> Where:
        test = self._any()
        if self._at < len(self._tokens):
            raise self._unexpected("and, or, or its end")
        return Where(self._condition, list(self._columns), test)

    # --- tokens ---

    def _peek(self) -> tuple[str, str]:
        return self._tokens[self._at] if self._at < len(self._tokens) else ("end", "")

    def _next(self) -> tuple[str, str]:
        token = self._peek()
        self._at += 1
        return token

    def _takes(self, *written: str) -> bool:
        """Whether these come next; they are passed then."""
        ahead = [text.lower() for _, text in self._tokens[self._at : self._at + len(written)]]
        if ahead != list(written):
            return False
        self._at += len(written)
        return True

    def _unexpected(self, wanted: str) -> WhereError:
        _, text = self._peek()
        met = f"{text!r} stands" if text else "it ends"
        return WhereError(f"is not understood: {met} where {wanted} is wanted; {_EXAMPLE}")

    # --- the language ---

    def _any(self) -> Test:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise WhereError("is nested too deeply; write it flatter")
        tests = [self._all()]
        while self._takes("or"):
            tests.append(self._all())
        self._depth -= 1
        return tests[0] if len(tests) == 1 else _any_of(tests)

    def _all(self) -> Test:
        tests = [self._one()]
        while self._takes("and"):
            tests.append(self._one())
        return tests[0] if len(tests) == 1 else _all_of(tests)

    def _one(self) -> Test:
        negated = False
        while self._takes("not"):
            negated = not negated
        if self._takes("("):
            test = self._any()
            if not self._takes(")"):
                raise self._unexpected(")")
        else:
            test = self._comparison()
        return _not(test) if negated else test

    def _comparison(self) -> Test:
        if self._peek()[0] == "number":
            return self._chain()
        column = self._column()
        if self._takes("not", "in"):
            return _not(self._inside(column))
        if self._takes("in"):
            return self._inside(column)
        return _compared(column, self._order(), self._value())

    def _chain(self) -> Test:
        """`3 <= level <= 5`."""
        low = self._value()
        first = _FLIPPED[self._order()]
        column = self._column()
        tests = [_compared(column, first, low)]
        if self._peek()[1] in {*_ORDER, "="}:
            tests.append(_compared(column, self._order(), self._value()))
        return _all_of(tests)

    def _column(self) -> str:
        kind, text = self._peek()
        if kind not in {"word", "column"} or text.lower() in {"and", "or", "not", "in"}:
            raise self._unexpected("a column")
        self._at += 1
        name = text.strip("`")
        self._columns[name] = None
        return name

    def _order(self) -> str:
        kind, text = self._peek()
        if kind != "sign" or text not in {*_ORDER, "="}:
            raise self._unexpected("one of == != < <= > >= in")
        self._at += 1
        return "==" if text == "=" else text

    def _value(self) -> Any:
        kind, text = self._peek()
        if kind not in {"number", "text", "word"}:
            raise self._unexpected("a number or a text")
        self._at += 1
        if kind == "number":
            return number_of(text) if number_of(text) is not None else float(text)
        if kind == "text":
            return text[1:-1]
        return _CONSTANTS.get(text.lower(), text)

    def _inside(self, column: str) -> Test:
        """A list, or a range with its ends."""
        closing = {"[": "]", "(": ")"}.get(self._peek()[1])
        if closing is None:
            low = self._value()
            if not self._takes(".."):
                raise self._unexpected("..")
            return _all_of([_compared(column, ">=", low), _compared(column, "<=", self._value())])
        self._at += 1
        values = [self._value()]
        while self._takes(","):
            values.append(self._value())
        if not self._takes(closing):
            raise self._unexpected(f"a comma or {closing}")
        return _any_of([_compared(column, "==", value) for value in values])


_CONSTANTS: Mapping[str, Any] = {"true": True, "false": False, "null": None, "none": None}
_EXAMPLE = 'write it like level >= 3 and type == "Algebra" (docs/data.md)'


def _tokens(condition: str) -> Iterator[tuple[str, str]]:
    at, end = 0, len(condition.rstrip())
    while at < end:
        found = _TOKEN.match(condition, at)
        if found is None or found.lastgroup is None:
            rest = condition[at:].strip()[:20]
            raise WhereError(f"is not understood at {rest!r}; {_EXAMPLE}")
        yield found.lastgroup, found[found.lastgroup]
        at = found.end()


# --- the tests ---


def _compared(column: str, order: str, wanted: Any) -> Test:
    compare = _ORDER[order]
    if isinstance(wanted, int | float) and not isinstance(wanted, bool):
        return _of_numbers(column, compare, wanted)
    if order not in {"==", "!="}:
        raise WhereError(f"compares {column} {order} with what is no number; use == or a number")
    return _of_texts(column, compare, wanted)


def _of_numbers(column: str, compare: Callable[[Any, Any], bool], wanted: float) -> Test:
    def test(row: Columns, counted: Counted) -> bool:
        value = _met(row, column, counted)
        number = number_in(value)
        if number is None:
            counted.is_no_number(value)
            return False
        return compare(number, wanted)

    return test


def _of_texts(column: str, compare: Callable[[Any, Any], bool], wanted: Any) -> Test:
    def test(row: Columns, counted: Counted) -> bool:
        value = _met(row, column, counted)
        if isinstance(wanted, str) and isinstance(value, int | float):
            value = str(value)
        elif isinstance(wanted, bool) and isinstance(value, str):
            value = _CONSTANTS.get(value.lower(), value)
        return compare(value, wanted)

    return test


def _met(row: Columns, column: str, counted: Counted) -> Any:
    try:
        value = cell(row, column)
    except KeyError:
        return None
    counted.meet(column, value)
    return value


def _any_of(tests: Sequence[Test]) -> Test:
    return lambda row, counted: any(test(row, counted) for test in tests)


def _all_of(tests: Sequence[Test]) -> Test:
    return lambda row, counted: all(test(row, counted) for test in tests)


def _not(test: Test) -> Test:
    def negated(row: Columns, counted: Counted) -> bool:
        """A value that is no number is outside `level < 3` and outside its negation."""
        before, counted.row_has_none = counted.row_has_none, False
        inside = test(row, counted)
        outside = not inside and not counted.row_has_none
        counted.row_has_none = counted.row_has_none or before
        return outside

    return negated
