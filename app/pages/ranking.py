"""Runs in the order of their held-out score, each held against the first one named."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from app.charts.run_style import slots
from app.charts.scale import Scale
from app.text.headline import Headline
from app.text.run_cells import in_words
from app.text.wording import UNKNOWN, interval, percent, points
from worker.read.comparison.compare import Against, Comparison, Side
from worker.read.comparison.difference import Difference
from worker.read.runs.run import Change

_WORDS: Mapping[str, tuple[str, str]] = {
    "better": ("gain", "▲"),
    "worse": ("loss", "▼"),
    "no difference proven": ("no gain proven", "○"),
    "too few rows": ("no verdict", "–"),
    "not the same rows": ("no verdict", "≠"),
}


@dataclass(frozen=True)
class Placed:
    """One run in the ranked table, as words."""

    rank: str
    side: Side
    first: bool
    """The others are held against it."""
    mark: Markup
    score: str
    score_interval: str
    scale: Markup
    lift: str
    """Its own gain over step 0."""
    why: str
    """What its own verdict is for, where that is more than the gain: `lost on math_qwen`."""
    difference: str
    difference_interval: str
    p: str
    word: str
    verdict: str
    """The word's colour."""
    glyph: str


@dataclass(frozen=True)
class Ranking:
    """The table, and what it says in a sentence."""

    rows: Sequence[Placed]
    head: Markup
    """The axis that every row shares."""
    measure: str
    sentence: str


def ranking(found: Comparison, heads: Sequence[Headline]) -> Ranking:
    """Best first; runs without a score last."""
    changes = [_change(head) for head in heads]
    scale = Scale.of(one for one in changes if one)
    against = {one.job_id: one for one in found.against}
    slot = slots(side.job_id for side in found.sides)
    order = sorted(range(len(found.sides)), key=lambda i: _key(found.sides[i]))
    rows = [
        _placed(
            place,
            found.sides[i],
            against.get(found.sides[i].job_id),
            change=changes[i],
            why=heads[i].reason or "",
            scale=scale,
            mark=slot[found.sides[i].job_id].mark,
            several=len(found.against) > 1,
            unlike=found.sides[0].why_not or "they measure different things",
        )
        for place, i in enumerate(order, 1)
    ]
    measure = "F1" if found.measure == "f1" else "held-out"
    return Ranking(rows, scale.head(), measure, " ".join(_sentences(found, rows)))


def _change(head: Headline) -> Change | None:
    if head.lift is None:
        return None
    return Change(head.lift, head.lift_low, head.lift_high)


def _key(side: Side) -> tuple[bool, float]:
    return side.picked is None, -(side.picked.score if side.picked else 0.0)


def _placed(
    place: int,
    side: Side,
    one: Against | None,
    *,
    change: Change | None,
    why: str,
    scale: Scale,
    mark: Markup,
    several: bool,
    unlike: str,
) -> Placed:
    """`unlike`: why a run with a score of its own cannot be held against the first."""
    picked, last = side.picked, one.picked if one else None
    word = last.word if last else ""
    verdict, glyph = _WORDS.get(word, ("no verdict", "–"))
    return Placed(
        rank=UNKNOWN if picked is None else str(place),
        side=side,
        first=one is None,
        mark=mark,
        score=percent(picked.score) if picked else UNKNOWN,
        score_interval=_ends(picked.low, picked.high) if picked else "",
        scale=scale.mark(change, _clear(change), in_words(change) if change else ""),
        lift=points(change.lift) if change else UNKNOWN,
        why=why,
        difference="the others are held against it" if one is None else _lift(last),
        difference_interval=interval(last.low, last.high) if last else "",
        p=_p(last, several=several) if one else "",
        word="" if one is None else word or side.why_not or unlike,
        verdict=verdict,
        glyph=glyph,
    )


def _clear(change: Change | None) -> str:
    if change is None or not change.clear:
        return "no gain proven"
    return "gain" if change.lift > 0 else "loss"


def _lift(last: Difference | None) -> str:
    return points(last.lift) if last else UNKNOWN


def _ends(low: float | None, high: float | None) -> str:
    return f"{percent(low)} to {percent(high)}" if low is not None and high is not None else ""


def _p(last: Difference | None, *, several: bool) -> str:
    """Corrected where several runs are tested."""
    p = None if last is None else last.p_holm if several else last.p_value
    if p is None:
        return UNKNOWN
    return "< 0.0001" if p < 0.0001 else f"{p:.4f}"


def _sentences(found: Comparison, rows: Sequence[Placed]) -> Iterator[str]:
    """Which scores highest, and how many of the others differ from the first for sure."""
    best, first = rows[0], found.sides[0]
    if best.side.picked is None:
        yield "None of these runs has a held-out score yet."
        return
    yield (
        f"#{best.side.job_id} scores highest: {best.score} of {best.side.picked.n} rows "
        f"at step {best.side.picked.step}."
    )
    told = [row.word for row in rows if not row.first]
    counted = {word: told.count(word) for word in ("better", "worse", "no difference proven")}
    parts = [f"{n} {word}" for word, n in counted.items() if n]
    if parts:
        others = "Held" if len(told) == 1 else f"Of {len(told)} others held"
        yield f"{others} against #{first.job_id}: {', '.join(parts)}."
    if len(told) > 1 and any(one.picked and one.picked.paired for one in found.against):
        yield f"p is corrected for {len(told)} comparisons (Holm)."
