"""Which gains of a night stand when all of its runs were asked.

A run says *gain* by its own test, at its own level; the best of ten runs that gained nothing is
called one in every third night. Knows no sentence.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from worker.read.comparison.difference import ALPHA, holm
from worker.report.runs import GAIN, UNJUDGED, RunLine


class Judged(Protocol):
    """What of a run decides here."""

    @property
    def verdict(self) -> str | None: ...
    @property
    def p(self) -> float | None: ...


One = TypeVar("One", bound=Judged)


def asked(runs: Sequence[One]) -> list[One]:
    """Those that could have said *gain*: each was a chance for a false one."""
    return [run for run in runs if run.verdict not in {None, UNJUDGED}]


def standing(runs: Sequence[One]) -> list[One]:
    """The gains that chance among all of these runs does not explain: Holm's correction at 5 %.

    One alone stands as its run said it; so does one whose test is not known, of a night kept long
    ago.
    """
    among = asked(runs)
    corrected = holm([run.p for run in among])
    return [
        run
        for run, p in zip(among, corrected, strict=True)
        if run.verdict == GAIN and (p is None or p <= ALPHA)
    ]


def doubtful(runs: Sequence[RunLine]) -> list[RunLine]:
    """The gains that do not stand."""
    firm = {run.job_id for run in standing(runs)}
    return [run for run in runs if run.verdict == GAIN and run.job_id not in firm]


def holds_zero(run: RunLine) -> bool:
    """Whether a gain's interval includes none: it is of the `report` rows, the test is of all."""
    return run.verdict == GAIN and run.low is not None and run.low <= 0
