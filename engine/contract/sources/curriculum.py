"""In which order training rows are drawn: files of ids, and how hard a row is. Torch-free.

A curriculum file is held against the rows before a job is queued: ids that no row has are an error
beyond a hundredth of the file, and counted below. Knows no split and no sampler.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from engine.contract.documents import UnreadableError, lines, parse_json, why
from engine.contract.errors import ConfigProblem, RLLoopError
from engine.contract.sources.mixture import DataConfig

MOST_UNMATCHED = 0.01
"""Share of a curriculum file's lines whose ids no row may have."""
_EXAMPLES = 5
_SHOWN = 80
FILE = "data.curriculum_file"
_SOLVED = ("pass", "solve", "success", "correct", "accuracy", "parsed")
"""What is in the name of a share of right answers: there a high value is an easy row."""
_WORDS = {
    "easy": 0.0, "introductory": 0.0, "medium": 1.0, "interview": 1.0, "hard": 2.0,
    "competition": 2.0,
}  # fmt: skip
_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?", re.IGNORECASE)
_RATIO = re.compile(r"\s*(\d+)\s*/\s*(\d+)\s*")


def normal(id_: str) -> str:
    """An id without what tools write differently: case, blanks, `&`.

    >>> normal("math_Counting & Probability_46")
    'math_counting_and_probability_46'
    """
    text = unicodedata.normalize("NFKC", id_).casefold().replace("&", " and ")
    return re.sub(r"[\s_]+", "_", text).strip("_")


class Ids:
    """Rows by their ids: as they are written, else normalised where that names one row."""

    def __init__(self, ids: Iterable[str]) -> None:
        self._written: dict[str, int] = {}
        self._normal: dict[str, int | None] = {}
        for place, id_ in enumerate(ids):
            self._written.setdefault(id_, place)
            plain = normal(id_)
            self._normal[plain] = None if plain in self._normal else place

    def place(self, id_: str) -> int | None:
        """Of the row with that id; None where no row has it, or two have."""
        found = self._written.get(id_)
        return self._normal.get(normal(id_)) if found is None else found


def read_ids(path: Path) -> list[str]:
    """One id a line, in the file's order, repeated ones as often as they stand there.

    Raises RLLoopError.
    """
    try:
        found = [line.strip() for _, line in lines(path)]
    except OSError as error:
        raise RLLoopError.of(
            FILE, str(path), why(error), "name a text file, one id a line"
        ) from None
    if not found:
        raise RLLoopError.of(FILE, str(path), "holds no id", "write one id a line")
    return found


class Matched(NamedTuple):
    """What of a curriculum file the rows have."""

    places: Sequence[int]
    """Of the rows, in the file's order."""
    unmatched: Sequence[str]

    @property
    def too_many(self) -> bool:
        return len(self.unmatched) > MOST_UNMATCHED * self._lines or not self.places

    @property
    def _lines(self) -> int:
        return len(self.places) + len(self.unmatched)

    def said(self, rows: Sequence[str] | Mapping[str, Any]) -> str:
        """How many ids no row has, with examples of both sides."""
        some = ", ".join(repr(id_[:_SHOWN]) for id_ in dict.fromkeys(self.unmatched[:_EXAMPLES]))
        like = ", ".join(repr(id_[:_SHOWN]) for id_ in list(rows)[:3])
        return (
            f"{len(self.unmatched)} of {self._lines} ids name no row of the data, "
            f"e.g. {some}; the rows' ids are like {like}"
        )


def matched(file: Sequence[str], rows: Sequence[str]) -> Matched:
    """A curriculum file's ids held against those of the rows."""
    known = Ids(rows)
    places = [(id_, known.place(id_)) for id_ in file]
    return Matched(
        [place for _, place in places if place is not None],
        [id_ for id_, place in places if place is None],
    )


def require_match(file: Sequence[str], rows: Sequence[str], path: str) -> Matched:
    """Raises RLLoopError when more than a hundredth of the file is unmatched."""
    found = matched(file, rows)
    if found.too_many:
        remedy = "correct the ids, or name the data file that this curriculum was made from"
        raise RLLoopError.of(FILE, path, found.said(rows), remedy)
    return found


# --- how hard a row is ---


def number_in(value: Any) -> float | None:
    """What a field says of a row's difficulty; None where it is no number.

    >>> [number_in(value) for value in (3, "Level 5", "7/8", "hard", "Level ?", True, None)]
    [3.0, 5.0, 0.875, 2.0, None, None, None]
    """
    match value:
        case bool():
            return None
        case int() | float():
            return float(value) if math.isfinite(value) else None
        case str() as text:
            if ratio := _RATIO.fullmatch(text):
                of = int(ratio[2])
                return int(ratio[1]) / of if of else None
            if text.strip().casefold() in _WORDS:
                return _WORDS[text.strip().casefold()]
            found = _NUMBER.search(text)
            return float(found[0]) if found else None
    return None


def field_of(columns: Mapping[str, Any], name: str) -> Any:
    """A field of a row by its name, `extra_info.level` for one inside another."""
    if name in columns:
        return columns[name]
    value: Any = columns
    for part in name.split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(part)
    return value


@dataclass(frozen=True)
class Difficulty:
    """How hard rows are: a field of the rows, or of a file that has one JSON object an id."""

    field: str
    high_is_easy: bool
    file: str | None = None

    @classmethod
    def of(cls, data: DataConfig) -> Difficulty | None:
        """None where the curriculum asks for none."""
        if data.curriculum in {"none", "file"}:
            return None
        written = "parsed" if data.curriculum == "by_form" else "pass_rate"
        field = data.difficulty_field or written
        solved = any(word in field.casefold() for word in _SOLVED)
        high = solved if data.easy_values is None else data.easy_values == "high"
        return cls(field, high, data.curriculum_file)

    def values(self, rows: Sequence[tuple[str, Mapping[str, Any]]]) -> list[float | None]:
        """Of each row (its id, its columns), lower for an easier one; None where it has no number.

        Raises RLLoopError when no row has one.
        """
        found = self._from_rows(rows) if self.file is None else self._from_file(rows)
        if all(value is None for value in found):
            raise RLLoopError.of(*self._lacking(rows))
        return [
            None if value is None else -value if self.high_is_easy else value for value in found
        ]

    def said(self, values: Sequence[float | None]) -> str:
        """Which end is taken for the easy one, and how many rows have no value."""
        known = [-value if self.high_is_easy else value for value in values if value is not None]
        first, last = (max, min) if self.high_is_easy else (min, max)
        missing = len(values) - len(known)
        more = f"; {missing} rows have no number there and come last" if missing else ""
        return f"{self.field} from {first(known):g} (first) to {last(known):g}{more}"

    def _from_rows(self, rows: Sequence[tuple[str, Mapping[str, Any]]]) -> list[float | None]:
        return [number_in(field_of(columns, self.field)) for _, columns in rows]

    def _from_file(self, rows: Sequence[tuple[str, Mapping[str, Any]]]) -> list[float | None]:
        known = Ids([id_ for id_, _ in rows])
        found: list[float | None] = [None] * len(rows)
        for id_, value in read_values(Path(self.file or ""), self.field):
            place = known.place(id_)
            if place is not None:
                found[place] = value
        return found

    def _lacking(self, rows: Sequence[tuple[str, Mapping[str, Any]]]) -> tuple[str, str, str, str]:
        problem = f"none of {len(rows)} rows has a number under {self.field!r}"
        if self.file is not None:
            remedy = "name the file that cockpit passk wrote for these rows"
            return FILE, self.file, problem, remedy
        names = sorted({name for _, columns in rows[:100] for name in columns})
        remedy = f"the rows have {', '.join(names)}" if names else "these rows have no fields"
        return "data.difficulty_field", self.field, problem, remedy


def read_values(path: Path, field: str) -> list[tuple[str, float | None]]:
    """(id, value) of each line of a JSONL file as `cockpit passk` writes it. Raises RLLoopError."""
    remedy = "name a file of cockpit passk: one JSON object a line, with an id"
    try:
        return [_value(number, line, field) for number, line in lines(path)]
    except OSError as error:
        raise RLLoopError.of(FILE, str(path), why(error), remedy) from None


def _value(number: int, line: str, field: str) -> tuple[str, float | None]:
    try:
        row = parse_json(line)
    except UnreadableError as error:
        raise UnreadableError(f"line {number}: {error}") from None
    if not isinstance(row, dict) or row.get("id") is None:
        raise UnreadableError(f"line {number}: is no JSON object with an id")
    return str(row["id"]), number_in(field_of(row, field))


# --- before a job is queued ---


def curriculum_problems(
    data: DataConfig, rows: Sequence[tuple[str, Mapping[str, Any]]]
) -> Sequence[ConfigProblem]:
    """What keeps these rows (id, columns) from being drawn in that order."""
    try:
        if data.curriculum == "file":
            path = data.curriculum_file or ""
            require_match(read_ids(Path(path)), [id_ for id_, _ in rows], path)
        elif (difficulty := Difficulty.of(data)) is not None:
            difficulty.values(rows)
    except RLLoopError as error:
        return error.problems
    return []


def unread_ids(data: DataConfig, rows: Collection[str]) -> Sequence[ConfigProblem]:
    """Ids of a curriculum file that no row has, few enough to go on."""
    if data.curriculum != "file":
        return []
    try:
        found = matched(read_ids(Path(data.curriculum_file or "")), list(rows))
    except RLLoopError:
        return []
    if found.too_many or not found.unmatched:
        return []
    remedy = "they are left out; correct them if they were meant"
    return [ConfigProblem(FILE, data.curriculum_file, found.said(list(rows)), remedy)]
