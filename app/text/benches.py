"""Held-out rows, sources and benches of a run in words: for pages, reports and the command line.

Knows no page.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import urlencode

from app.text import wording
from engine.contract.power import CHANGED, paired_lift, unpaired_lift
from worker.read.benches import BenchLine, Kind, parts

FORMS: Mapping[str, str] = {
    "format/boxed": "\\boxed{}",
    "format/hashes": "####",
    "format/answer_is": "“answer is”",
    "format/tags": "<answer>",
    "format/code": "code block",
}
"""What each form of an answer looks like."""
_KINDS: Mapping[Kind, str] = {"own": "own rows", "source": "source", "bench": "bench"}


_MOST_PARTS = 6
"""Sources that are named beside their mean; a table has them all."""


class Share(NamedTuple):
    """A share of the completions before and after, and among those right and those wrong."""

    name: str
    all: str
    right: str
    wrong: str


def kind(line: BenchLine) -> str:
    """What a line is of."""
    return _KINDS[line.kind]


def moved(before: float | None, after: float | None) -> str:
    """Two shares of one.

    >>> moved(0.5, 0.625), moved(0.5, 0.5)
    ('50.0 % → 62.5 %', '50.0 %')
    """
    first, last = wording.percent(before), wording.percent(after)
    return first if first == last else f"{first} → {last}"


def so_far(line: BenchLine) -> str:
    """Which gate a score without a verdict is of, and its interval."""
    if line.after_low is None or line.after_high is None:
        return f"step {line.step}"
    low, high = wording.percent(line.after_low), wording.percent(line.after_high)
    return f"step {line.step}, {low} to {high}"


def address(job_id: int, line: BenchLine, step: int) -> str:
    """Of the completions at a step that the numbers of a line are of."""
    asked = {"split": line.split, "step": step}
    if line.kind == "source":
        asked["source"] = line.name
    return f"/jobs/{job_id}/samples?{urlencode(asked)}"


def change(line: BenchLine) -> str:
    """With its interval; a dash before there is a verdict."""
    if line.lift is None:
        return wording.UNKNOWN
    return f"{wording.points(line.lift)} ({wording.interval(line.low, line.high)})"


def verdict(line: BenchLine) -> str:
    """The word and its reason."""
    return ": ".join(filter(None, (line.verdict, line.reason))) or wording.UNKNOWN


def can_show(line: BenchLine, lines: Sequence[BenchLine]) -> str:
    """The smallest change that its rows find with 80 % power, of as many lines as are looked at."""
    if not line.n:
        return wording.UNKNOWN
    looked = max(1, sum(one.kind == line.kind for one in lines))
    changed = ((line.gained or 0) + (line.lost or 0)) / line.n
    return shown_by(line.different or line.n, changed or CHANGED, line.before, 0.05 / looked)


def shown_by(n: float, changed: float, before: float | None, alpha: float = 0.05) -> str:
    """
    >>> shown_by(200, 0.16, 0.5)
    '200 rows can show +8.1 points, paired; +14.3 points unpaired'
    """
    told = wording.rows(round(n))
    paired = paired_lift(n, changed, alpha)
    if paired is None:
        return f"{told} can show nothing"
    apart = unpaired_lift(n, n, 0.5 if before is None else before, alpha)
    unpaired = "nothing" if apart is None else wording.points(apart)
    return f"{told} can show {wording.points(paired)}, paired; {unpaired} unpaired"


def shares(line: BenchLine) -> list[Share]:
    """Truncated, unparsed, and the forms that some completion had."""
    names = [name for name in line.shares if not name.endswith(("/right", "/wrong"))]
    shown = [name for name in names if not name.startswith("format/") or any(line.shares[name])]
    nothing = (None, None)
    return [
        Share(
            FORMS.get(name, name),
            moved(*line.shares[name]),
            *(moved(*line.shares.get(f"{name}/{side}", nothing)) for side in ("right", "wrong")),
        )
        for name in sorted(shown, key=lambda name: name.startswith("format/"))
    ]


def average_of(lines: Sequence[BenchLine]) -> str | None:
    """The parts of a mean over sources, where that decides: none is shown without them."""
    own = any(line.decides and line.kind == "own" for line in lines)
    found = parts(lines) if own else []
    if not found:
        return None
    said = [f"{one.label} {moved(one.before, one.after)}" for one in found[:_MOST_PARTS]]
    more = len(found) - len(said)
    rest = f", and {more} more" if more else ""
    return f"mean of {len(found)} sources by weight: {', '.join(said)}{rest}"


def looked_at(lines: Sequence[BenchLine]) -> str:
    """How many chances for a gain there were.

    >>> looked_at([])
    ''
    """
    benches = sum(line.kind == "bench" for line in lines)
    sources = sum(line.kind == "source" for line in lines)
    counts = [
        f"{n} {name}{'' if n == 1 else ending}"
        for n, name, ending in ((benches, "bench", "es"), (sources, "source", "s"))
        if n
    ]
    if not counts:
        return ""
    were = "was" if benches + sources == 1 else "were"
    return (
        f"{' and '.join(counts)} {were} looked at. Each has its verdict on rows that picked "
        "nothing; the more there are of a kind, the more it takes for a gain."
    )


def text_table(lines: Sequence[BenchLine]) -> tuple[Sequence[str], list[Sequence[str]]]:
    """Head and rows, for a terminal."""
    head = (
        *("held-out", "what", "rows", "before → after", "change, 95 %", "verdict"),
        *("can show, at 80 % power", "answers"),
    )
    rows: list[Sequence[str]] = [
        (
            line.label,
            f"{kind(line)}, decides" if line.decides else kind(line),
            wording.rows(line.n, line.different).replace(" rows", ""),
            moved(line.before, line.after),
            change(line),
            verdict(line),
            can_show(line, lines),
            ", ".join(f"{one.name} {one.all}" for one in shares(line)) or wording.UNKNOWN,
        )
        for line in lines
    ]
    return head, rows


def to_read(lines: Sequence[BenchLine]) -> Iterator[str]:
    """`nines: lost -13, -49`: rows that changed, where a verdict or a reason asks for them."""
    for line in lines:
        sides = (("lost", line.look_lost), ("gained", line.look_gained))
        said = [f"{side} {', '.join(ids)}" for side, ids in sides if ids]
        if said and (line.reason or line.verdict == "loss"):
            yield f"{line.label}: {'; '.join(said)}"
