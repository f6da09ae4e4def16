"""What a pass@k job found: the tables of its result, and the files in its directory.

The engine writes the result and may be of another version: a part that is missing or of another
type reads as not there. Knows no page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from app.text import wording
from engine.contract.known import real, whole
from worker.read.jobs import JobView

RESULTS, CURRICULUM = "passk.jsonl", "curriculum.txt"
"""As the engine calls them."""


class PassAt(NamedTuple):
    """pass@k over all rows, with its 95 % interval."""

    k: int
    value: float
    low: float | None
    high: float | None
    rows: int

    @property
    def interval(self) -> str:
        """Both ends, in percent."""
        return f"{wording.percent(self.low)} to {wording.percent(self.high)}"


class Band(NamedTuple):
    """How many rows have a pass rate from `low`; below `high`, the last band with it."""

    low: float
    high: float
    rows: int

    @property
    def words(self) -> str:
        """
        >>> Band(0.1, 0.5, 26).words
        '0.1 to 0.5'
        """
        return f"{self.low:g} to {self.high:g}"


@dataclass(frozen=True)
class PassK:
    """Of one job."""

    rows: int
    samples: int
    pass_at: Sequence[PassAt]
    bands: Sequence[Band]
    keep: str
    """The range of pass rates of the curriculum's rows, in words."""
    kept: int
    parsed: float | None
    truncated: float | None
    files: Sequence[Path]
    """Those that are there."""

    @classmethod
    def of(cls, job: JobView) -> PassK | None:
        """None where the result has no such tables."""
        found = job.result.get("passk")
        rows = whole(found.get("rows")) if isinstance(found, Mapping) else None
        if not isinstance(found, Mapping) or rows is None:
            return None
        ends = [end for one in _listed(found.get("keep")) if (end := real(one)) is not None]
        files = [Path(job.run_dir) / name for name in (RESULTS, CURRICULUM)]
        return cls(
            rows=rows,
            samples=whole(found.get("samples")) or 0,
            pass_at=[*filter(None, map(_pass_at, _listed(found.get("pass_at"))))],
            bands=[*filter(None, map(_band, _listed(found.get("bands"))))],
            keep=" to ".join(f"{end:g}" for end in ends),
            kept=whole(found.get("kept")) or 0,
            parsed=real(found.get("parsed")),
            truncated=real(found.get("truncated")),
            files=[file for file in files if file.is_file()],
        )

    @property
    def lines(self) -> list[tuple[str, str]]:
        """(what, how much) for a terminal."""
        found = [
            (f"pass@{one.k}", f"{wording.percent(one.value)} (95 % interval {one.interval})")
            for one in self.pass_at
        ]
        counts = ", ".join(f"{band.words}: {band.rows}" for band in self.bands)
        found.append(("rows by rate", counts))
        found.append(("parsed", wording.percent(self.parsed)))
        found.append(("cut off", wording.percent(self.truncated)))
        found.append(("kept", f"{self.kept} of {self.rows} rows, pass rate {self.keep}"))
        return [*found, *(("file", str(file)) for file in self.files)]


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def _pass_at(row: Any) -> PassAt | None:
    if not isinstance(row, Mapping):
        return None
    k, value = whole(row.get("k")), real(row.get("value"))
    if k is None or value is None:
        return None
    return PassAt(
        k, value, real(row.get("low")), real(row.get("high")), whole(row.get("rows")) or 0
    )


def _band(row: Any) -> Band | None:
    if not isinstance(row, Mapping):
        return None
    low, high, rows = real(row.get("from")), real(row.get("to")), whole(row.get("rows"))
    return None if low is None or high is None or rows is None else Band(low, high, rows)
