"""What a cell of the table of runs says: of a run, of a group, of the head. Knows no markup."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from app.text import wording
from worker.read.runs.columns import Column, Unit
from worker.read.runs.filter import Value
from worker.read.runs.run import Change, Run
from worker.read.runs.table import Group

GLYPHS = {
    "gain": "▲",
    "no gain proven": "○",
    "pool only": "◇",
    "loss": "▼",
    "no verdict": "–",
    "running": "●",
    "queued": "◌",
    "failed": "✕",
    "aborted": "■",
    "cancelled": "–",
    "done": "✓",
}
TITLES = {
    "gain": "held-out",
    "kl_coef": "KL",
    "optim.schedule": "schedule",
    "objective.loss": "loss",
    "data.source": "data",
    "peak": "peak, GB",
}
"""How the head of the table calls a column, where not by its key."""

_SMALL = 1e-3
"""Smaller settings are written with a power of ten."""


@dataclass(frozen=True)
class Cell:
    """One cell; `note` is read as a second word, in small."""

    text: str = ""
    note: str = ""
    strong: bool = False
    number: bool = True
    mono: bool = False
    wide: str = ""
    """w2, w3: shown from 1800 or 2300 px on."""


def title(column: Column) -> str:
    """The name of a column in the head."""
    return TITLES.get(column.key) or column.key.rpartition(".")[2]


def of_run(column: Column, run: Run, wide: str = "") -> Cell:
    """What one run has in a column."""
    if column.change is not None:
        change = column.change(run)
        strong = change is not None and change.clear and change.lift > 0
        return Cell(difference(change), plus_minus(change), strong=strong, wide=wide)
    return _cell(column, column.value(run), wide)


def of_group(column: Column, group: Group, wide: str = "") -> Cell:
    """The mean with its interval of differences, sums of time and money, else the common value."""
    if column.change is not None:
        found = group.between(column)
        if found is None:
            return Cell(wording.UNKNOWN, wide=wide)
        low, high = found.ci95 or (None, None)
        change = Change(found.mean, low, high)
        return Cell(difference(change), plus_minus(change), strong=column.key == "gain", wide=wide)
    if column.key in {"cost", "time"}:
        told = [value for run in group.runs if isinstance(value := column.value(run), float)]
        return _cell(column, sum(told) if told else None, wide)
    if column.key in {"ended", "created", "note", "name", "id"}:
        return Cell(wide=wide)
    common = group.common(column)
    return Cell(wide=wide) if common is None else _cell(column, common, wide)


def difference(change: Change | None) -> str:
    """`+7.1`, in points; the head says the unit."""
    return (
        wording.UNKNOWN if change is None else wording.points(change.lift).removesuffix(" points")
    )


def plus_minus(change: Change | None) -> str:
    """`±2.7`: half the 95 % interval."""
    return "" if change is None or change.half is None else f"±{100 * change.half:.1f}"


def before_after(change: Change | None) -> tuple[str, str] | None:
    """Both scores in percent; the head says the unit."""
    if change is None or change.before is None or change.after is None:
        return None
    return f"{100 * change.before:.1f}", f"{100 * change.after:.1f}"


def in_words(change: Change) -> str:
    """For who does not see the mark: `+7.1 points, +4.4 to +9.8`."""
    ends = f", {wording.interval(change.low, change.high)}" if change.low is not None else ""
    return wording.points(change.lift) + ends


def _cell(column: Column, value: Value, wide: str) -> Cell:
    number = column.kind == "number"
    mono = column.source == "setting"
    if value is None or value == ():
        return Cell(wording.UNKNOWN if number else "", number=number, wide=wide)
    if isinstance(value, float):
        return Cell(_number(column, value), number=True, mono=mono, wide=wide)
    text = value if isinstance(value, str) else ", ".join(value)
    return Cell(text, number=False, mono=mono, wide=wide)


_IN_UNITS: dict[Unit, Callable[[float], str]] = {
    "usd": lambda value: f"${value:.2f}",
    "seconds": wording.duration,
    "moment": lambda value: wording.when(value).partition(",")[0],
    "percent": lambda value: f"{value:.1f}",
    "gb": lambda value: f"{value:.1f}",
    "points": lambda value: wording.points(value / 100).removesuffix(" points"),
}


def _number(column: Column, value: float) -> str:
    if (said := _IN_UNITS.get(column.unit)) is not None:
        return said(value)
    if column.source == "setting" and 0 < abs(value) < _SMALL:
        mantissa, _, power = f"{value:e}".partition("e")
        return f"{float(mantissa):g}e{int(power)}"
    return wording.number(value) if column.source == "series" else f"{value:g}"
