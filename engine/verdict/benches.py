"""Verdicts of benches and sources beside the one that decides, and the sentence of reasons.

Rows that picked nothing: step 0 against the picked step, row by row, by the same words and rule as
the run's own verdict. Of k benches that are looked at each is tested at a k-th of the level
(Bonferroni), so that the more one looks at, the more it takes.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from engine.contract.intervals import PairedAt, PairedComparison, compare, weighted
from engine.verdict.trend import Rise
from engine.verdict.verdicts import POOL_ROSE, Verdict, judge

Kind = Literal["bench", "source", "own"]

FORMAT_ONLY = "format only"
NO_TRANSFER = "no transfer"
_LOOK_AT = 3
"""Rows that are named on either side."""


@dataclass(frozen=True)
class Rows:
    """Outcomes of some rows in one fixed order, at one checkpoint."""

    solved: Sequence[bool | None]
    """None where a row was not judged."""
    read: Sequence[bool]
    """Whether an answer could be read."""
    shares: Mapping[str, float] = field(default_factory=dict)
    """What else of the completions explains a score, by name."""

    @property
    def unread(self) -> float | None:
        """Share of the rows in which none could."""
        return 1 - sum(self.read) / len(self.read) if self.read else None


@dataclass(frozen=True)
class Looked:
    """What a run found of one bench or source."""

    name: str
    kind: Kind
    before: Rows
    """By step 0."""
    after: Rows
    """By the picked step."""
    asks: Sequence[Hashable]
    """What each row asks."""
    ids: Sequence[str]
    unsound: str | None = None
    """Why what was judged carries no verdict."""
    parts: Sequence[tuple[float, Sequence[int]]] = ()
    """Of a mixture: each source's weight and the places of its rows."""

    def compared(self) -> PairedComparison:
        """Row by row; of a mixture the mean over its sources by weight."""
        first, last = self.before.solved, self.after.solved
        parts = [
            PairedAt(
                weight,
                compare(
                    [first[i] for i in places],
                    [last[i] for i in places],
                    [self.asks[i] for i in places],
                ),
            )
            for weight, places in self.parts
        ]
        return weighted(compare(first, last, self.asks), parts)

    def look_at(self) -> dict[str, list[str]]:
        """Rows whose outcome changed, to be read by a person."""
        rows = list(zip(self.ids, self.before.solved, self.after.solved, strict=True))
        return {
            "gained": [id_ for id_, first, last in rows if last and first is False][:_LOOK_AT],
            "lost": [id_ for id_, first, last in rows if first and last is False][:_LOOK_AT],
        }


def is_format_only(before: Rows, after: Rows, asks: Sequence[Hashable]) -> bool:
    """Whether more rows are solved because more can be read, and no more of those that could be
    read before.
    """
    read = compare(before.read, after.read, asks)
    if not (read.n and read.lift > 0 and read.p_value < 0.05):
        return False
    both = [a and b for a, b in zip(before.read, after.read, strict=True)]
    answers = compare(
        [solved if one else None for solved, one in zip(before.solved, both, strict=True)],
        [solved if one else None for solved, one in zip(after.solved, both, strict=True)],
        asks,
    )
    return answers.n == 0 or not (answers.lift > 0 and answers.p_value < 0.05)


def line(found: Looked, pool: Rise, report_min: int, looked_at: int) -> dict[str, Any]:
    """One row of the report's table. `looked_at`: benches and sources of the same kind."""
    report = found.compared()
    p_better = report.p_value / 2 if report.n and report.lift > 0 else 1.0
    verdict = judge(report, min(1.0, p_better * looked_at), pool, report_min, unsound=found.unsound)
    form = verdict == "gain" and is_format_only(found.before, found.after, found.asks)
    few = f"{report.n} rows, under report_min={report_min}" if report.n < report_min else None
    return {
        "name": found.name,
        "kind": found.kind,
        "decides": False,
        **_numbers(report),
        "unread_before": found.before.unread,
        "unread_after": found.after.unread,
        "shares_before": dict(found.before.shares),
        "shares_after": dict(found.after.shares),
        "verdict": verdict,
        "reason": found.unsound or few or (FORMAT_ONLY if form else None),
        "look_at": found.look_at(),
    }


def _numbers(report: PairedComparison) -> dict[str, Any]:
    if not report.n:
        return dict.fromkeys(("before", "after", "lift", "ci95", "p_value")) | {
            "n": 0,
            "different": 0,
            "gained": 0,
            "lost": 0,
        }
    return {
        "n": report.n,
        "different": report.different,
        "before": report.before,
        "after": report.after,
        "lift": report.lift,
        "ci95": list(report.ci95),
        "p_value": report.p_value,
        "gained": report.gained,
        "lost": report.lost,
    }


def with_transfer(
    lines: Sequence[dict[str, Any]], own: Verdict, pool: Rise
) -> list[dict[str, Any]]:
    """The benches, with "no transfer" where pool and own held-out rows rose and they did not."""
    rose = own == "gain" and pool.low > 0 and pool.by >= POOL_ROSE
    flat = {"no gain proven", "pool only"}
    return [
        one | {"reason": NO_TRANSFER}
        if rose and one["kind"] == "bench" and one["verdict"] in flat
        else one
        for one in lines
    ]


def reasons(lines: Sequence[dict[str, Any]]) -> str | None:
    """What belongs into the sentence of the run's verdict: losses first, then what did not follow,
    and how many were looked at; None where nothing does.

    >>> reasons([{"name": "MATH", "verdict": "loss", "lift": -0.061, "n": 200, "reason": None}])
    'lost on MATH (-6.1 points, 200 rows); 1 looked at'
    """
    found = [
        f"lost on {_named(one)} ({100 * one['lift']:+.1f} points, {one['n']} rows)"
        for one in lines
        if one["verdict"] == "loss"
    ]
    flat = [_named(one) for one in lines if one["reason"] == NO_TRANSFER]
    if flat:
        found.append(f"{NO_TRANSFER} to {', '.join(flat)}")
    form = [_named(one) for one in lines if one["reason"] == FORMAT_ONLY]
    if form:
        found.append(f"{FORMAT_ONLY} on {', '.join(form)}")
    return "; ".join([*found, f"{len(lines)} looked at"]) if found else None


def _named(one: Mapping[str, Any]) -> str:
    """With the shots of a bench that shows any."""
    return str(one.get("label") or one["name"])
