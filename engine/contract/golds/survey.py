"""What was found in all answers of a file, told in one sentence. Knows no row but its answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from engine.contract.errors import ConfigProblem
from engine.contract.golds.checks import GoldProblem, Level, gold_check

SHOWN = 3
"""Rows that are shown of each kind of problem."""
_LONGEST_SHOWN = 60
_SCORE = {
    Level.BROKEN: "hold none and would score 0",
    Level.UNPAID: "would score 0 whatever is answered",
    Level.DOUBTFUL: "would hardly ever score",
}
REFUSED_SHARE = 0.5
"""From this share of rows on, a harness that never pays them is no choice."""


class Unfit(NamedTuple):
    """One kind of problem of a verifier's answers."""

    verifier: str
    level: Level
    problem: str
    remedy: str
    rows: int
    of: int
    shown: tuple[str, ...]

    @property
    def refuses(self) -> bool:
        """Broken rows refuse a file, and so does a verifier that pays too few of them."""
        share = self.rows / self.of
        return self.level == Level.BROKEN or (self.level == Level.UNPAID and share >= REFUSED_SHARE)

    def as_problem(self, setting: str, column: str) -> ConfigProblem:
        """As the config's problem or caution; `column` holds the answers."""
        told = (
            f"{self.problem}; {self.rows} of {self.of} rows {_SCORE[self.level]}, by "
            f"column {column!r} ({'; '.join(self.shown)})"
        )
        return ConfigProblem(setting, self.verifier, told, self.remedy)


@dataclass
class GoldSurvey:
    """Asks one verifier's check about each answer of a file."""

    verifier: str
    _rows: int = 0
    _found: dict[tuple[Level, str], list[str]] = field(default_factory=dict)
    _counts: dict[tuple[Level, str], int] = field(default_factory=dict)
    _remedies: dict[tuple[Level, str], str] = field(default_factory=dict)

    def add(self, number: int, row_id: str, gold: str) -> None:
        """`number`: the row's place in the file, from 1."""
        self._rows = number
        check = gold_check(self.verifier)
        problem = None if check is None else check(gold)
        if problem is not None:
            self._keep(problem, number, row_id, gold)

    def _keep(self, problem: GoldProblem, number: int, row_id: str, gold: str) -> None:
        key = (problem.level, problem.problem)
        self._counts[key] = self._counts.get(key, 0) + 1
        self._remedies[key] = problem.remedy
        shown = self._found.setdefault(key, [])
        if len(shown) < SHOWN:
            named = "" if row_id == str(number) else f", id {row_id!r}"
            cut = gold if len(gold) <= _LONGEST_SHOWN else "…" + gold[1 - _LONGEST_SHOWN :]
            shown.append(f"row {number}{named}: {problem.detail or repr(cut)}")

    def found(self) -> Sequence[Unfit]:
        """The worst first."""
        return [
            Unfit(
                self.verifier,
                level,
                what,
                self._remedies[level, what],
                self._counts[level, what],
                self._rows,
                tuple(shown),
            )
            for (level, what), shown in sorted(self._found.items(), key=lambda item: -item[0][0])
        ]


def unfit_for(verifiers: Sequence[str], gold: str) -> Sequence[Unfit]:
    """The same of rows that all have such an answer."""
    surveys = [GoldSurvey(name) for name in verifiers]
    for asked in surveys:
        asked.add(1, "1", gold)
    return tuple(unfit for asked in surveys for unfit in asked.found())
