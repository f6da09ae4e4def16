"""What a requant job found: its table of formats, beside the 16-bit model they are made of.

The engine writes the result and may be of another version: a part that is missing or of another
type reads as not there. Knows no page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.text import wording
from engine.contract.known import pair, real, whole
from worker.read.jobs import JobView


@dataclass(frozen=True)
class FormatLine:
    """One format; the first one is the 16-bit model."""

    name: str
    path: Path | None
    size_gb: float | None
    load_s: float | None
    tokens_per_s: float | None
    """None where this machine does not compute in it."""
    score: float | None
    n: int | None
    lift: float | None
    """Its score less that of the 16-bit model, row by row; None of that model itself."""
    low: float | None
    high: float | None
    left: Sequence[str]
    """Matrices that stay in 16 bit."""
    left_share: float | None
    """Of the weights in matrices."""
    note: str | None

    @property
    def size(self) -> str:
        """In MB below one GB."""
        if self.size_gb is None or self.size_gb >= 1:
            return wording.gigabytes(self.size_gb)
        return f"{1000 * self.size_gb:.3g} MB"

    @property
    def speed(self) -> str:
        """Tokens a second, where that says something of the format."""
        return "not run here" if self.tokens_per_s is None else f"{self.tokens_per_s:.0f}"

    @property
    def difference(self) -> str:
        """In points, with its 95 % interval."""
        if self.lift is None:
            return "–"
        return f"{wording.points(self.lift)} ({wording.interval(self.low, self.high)})"

    @property
    def left_words(self) -> str:
        """How much stays in 16 bit."""
        if not self.left:
            return "nothing" if self.lift is not None else "–"
        share = "" if self.left_share is None else f"{wording.percent(self.left_share)}: "
        return f"{share}{', '.join(self.left)}"


@dataclass(frozen=True)
class Quantized:
    """Of one job."""

    bench: str
    formats: Sequence[FormatLine]

    @classmethod
    def of(cls, job: JobView) -> Quantized | None:
        """None where the result has no such table."""
        found = job.result.get("requant")
        if not isinstance(found, Mapping) or not isinstance(found.get("formats"), list):
            return None
        lines = [_line(one) for one in found["formats"] if isinstance(one, Mapping)]
        return cls(str(found.get("bench") or "?"), lines)

    @property
    def lines(self) -> list[tuple[str, str]]:
        """(what, how much) for a terminal."""
        return [(one.name, _in_words(one)) for one in self.formats]


def _in_words(one: FormatLine) -> str:
    parts = [
        one.size,
        f"{wording.percent(one.score)} of {one.n} rows",
        None if one.lift is None else f"{one.difference} beside 16 bit",
        None if one.tokens_per_s is None else f"{one.speed} tokens/s",
        None if one.load_s is None else f"loaded in {one.load_s:.1f} s",
        f"left in 16 bit: {one.left_words}" if one.left else None,
        one.note,
        None if one.path is None else str(one.path),
    ]
    return "; ".join(part for part in parts if part)


def _line(one: Mapping[str, Any]) -> FormatLine:
    low, high = pair(one.get("ci95"))
    size, path, left, note = (
        whole(one.get("bytes")),
        one.get("path"),
        one.get("left"),
        one.get("note"),
    )
    return FormatLine(
        name=str(one.get("format") or "?"),
        path=Path(path) if isinstance(path, str) else None,
        size_gb=None if size is None else size / 1e9,
        load_s=real(one.get("load_s")),
        tokens_per_s=real(one.get("tokens_per_s")),
        score=real(one.get("score")),
        n=whole(one.get("n")),
        lift=real(one.get("lift")),
        low=low,
        high=high,
        left=[str(name) for name in left] if isinstance(left, list) else [],
        left_share=real(one.get("left_share")),
        note=note if isinstance(note, str) else None,
    )
