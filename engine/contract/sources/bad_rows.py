"""Rows that cannot be trained on: each with its line and field, all of a source said at once.

Knows no format and no column.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.contract.errors import MOST_PROBLEMS, ConfigProblem, RLLoopError

_PLACES = 5
"""Lines that are named of one kind of problem."""


class BadRowError(Exception):
    """A row that cannot be trained on."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(problem)
        self.problem, self.remedy = problem, remedy


@dataclass
class BadRows:
    """Those of one source, the same problem of several lines as one."""

    count: int = 0
    _of: dict[tuple[str, str], list[tuple[str, str]]] = field(default_factory=dict)
    _counts: dict[tuple[str, str], int] = field(default_factory=dict)
    _others: int = 0

    def add(self, place: tuple[str, str], bad: BadRowError) -> None:
        """`place`: what is counted in which file, and its number: `("line", "3")`."""
        self.count += 1
        key = (bad.problem, bad.remedy)
        if key not in self._of and len(self._of) >= MOST_PROBLEMS:
            self._others += 1
            return
        self._counts[key] = self._counts.get(key, 0) + 1
        places = self._of.setdefault(key, [])
        if len(places) < _PLACES:
            places.append(place)

    def refused(self, source: str) -> RLLoopError:
        """All of them; of very many kinds the first."""
        said = self._said()
        said[-1] = (said[-1][0], f"{said[-1][1]}, or leave such rows out with data.bad_rows: drop")
        found = [ConfigProblem("data.source", source, *each) for each in said]
        if self._others:
            rest = f"and {self._others} rows with other problems"
            found[-1] = ConfigProblem("data.source", source, rest, "correct these first")
        return RLLoopError(found)

    def dropped(self) -> str:
        """What was left out, in a sentence; empty where nothing was."""
        if not self.count:
            return ""
        shown = "; ".join(problem for problem, _ in self._said()[:3])
        more = "" if len(self._of) <= 3 else "; …"
        return f"left {_rows(self.count)} out (bad_rows: drop): {shown}{more}"

    def _said(self) -> list[tuple[str, str]]:
        return [
            (f"{_named(places, self._counts[key])}: {key[0]}", key[1])
            for key, places in self._of.items()
        ]


def _named(places: Sequence[tuple[str, str]], count: int) -> str:
    """
    >>> _named([("line", "3")], 1), _named([("line", "3"), ("line", "4")], 9)
    ('line 3', 'lines 3, 4 and 7 more')
    """
    counted = places[0][0]
    if count == 1:
        return f"{counted} {places[0][1]}"
    numbers = [number if unit == counted else f"{unit} {number}" for unit, number in places]
    more = count - len(places)
    last = f"{more} more" if more else numbers.pop()
    return f"{counted}s {', '.join(numbers)} and {last}"


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count} rows"
