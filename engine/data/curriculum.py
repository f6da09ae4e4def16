"""Which questions a step trains on: epochs over seeded permutations of the training rows, shuffled,
staged by difficulty or as a file lists them, and mixtures of sources by weight.

Stateless: a draw depends on seed and counts of rows alone, so a resumed run draws the same.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any

from engine.contract.errors import RLLoopError
from engine.contract.sources.curriculum import Difficulty, Ids, read_ids, require_match
from engine.contract.sources.mixture import DataConfig
from engine.data.rows import Question

_SOON = 8
"""Rows that may stand in for one tied prompt of an ordered curriculum."""


@dataclass(frozen=True)
class Curriculum:
    """Every row once an epoch, however many a step takes."""

    train: Sequence[Question]
    seed: int
    """The run's seed; the draw uses seed + 1, so that it is not the split's shuffle again."""
    stages: Sequence[int] | None = None
    """Of each row; rows of a lower stage come first, shuffled inside. None: one stage."""
    listed: Sequence[int] | None = None
    """An epoch by places of rows instead: in this order, repeated ones as often as they stand."""
    name: str = ""
    """Of the part of a mixture, which is shuffled for itself."""

    def __len__(self) -> int:
        """Draws of an epoch."""
        return len(self.train) if self.listed is None else len(self.listed)

    def draw(self, drawn: int, count: int, *, draw: int) -> Sequence[Question]:
        """The next `count` rows behind the first `drawn`; at an epoch's end what is left, however
        few. Each row is told that this is draw number `draw`.
        """
        left = len(self) - drawn % len(self)
        return _told(self.rows(drawn, min(count, left)), draw)

    def rows(self, drawn: int, count: int) -> Iterator[Question]:
        """The same over the ends of epochs."""
        while count > 0:
            epoch, start = divmod(drawn, len(self))
            part = self.epoch(epoch)[start : start + count]
            yield from (self.train[place] for place in part)
            drawn, count = drawn + len(part), count - len(part)

    def epoch(self, number: int) -> Sequence[int]:
        """Places of the rows in the order of one epoch."""
        if self.listed is not None:
            return self.listed
        order = list(range(len(self.train)))
        named = f":{self.name}" if self.name else ""
        random.Random(f"{self.seed + 1}{named}:{number}").shuffle(order)
        stages = self.stages
        return order if stages is None else sorted(order, key=lambda place: stages[place])

    def drawn_by(self, steps: int, tasks_per_step: int) -> int:
        """Rows drawn by so many steps that all took `tasks_per_step`, or what was left.

        >>> Curriculum(train=[Question(str(i), "", "") for i in range(8)], seed=0).drawn_by(4, 3)
        11
        """
        epochs, place = divmod(steps, -(-len(self) // tasks_per_step))
        return epochs * len(self) + place * tasks_per_step

    def stand_ins(self, drawn: int, count: int) -> Sequence[Question]:
        """Rows that may be drawn in place of `count` whose groups tied: any of a shuffle, else
        those that come soon in the order.
        """
        if self.stages is None and self.listed is None:
            return self.train
        soon = self.rows(drawn, min(_SOON * count, len(self)))
        return list({question.id: question for question in soon}.values())


@dataclass(frozen=True)
class Mixture:
    """Sources by weight, each in epochs of its own; every step has its shares to within a row.

    The k-th row of a source has its turn at (k + ½) / weight: the divisor method of Webster, which
    needs no memory of the rows before.
    """

    parts: Mapping[str, Curriculum]
    weights: Mapping[str, float]

    def draw(self, drawn: int, count: int, *, draw: int) -> Sequence[Question]:
        """The next `count` rows; a source at the end of its epoch begins the next one."""
        before = self.counts(drawn)
        turns = [name for name, _ in zip(self._turns(before), range(count), strict=False)]
        rows = {name: self.parts[name].rows(before[name], turns.count(name)) for name in self.parts}
        return _told((next(rows[name]) for name in turns), draw)

    def drawn_by(self, steps: int, tasks_per_step: int) -> int:
        """Rows drawn by so many steps: there is no last step of an epoch."""
        return steps * tasks_per_step

    def stand_ins(self, drawn: int, count: int) -> Sequence[Question]:
        """Of every source, as it would by itself."""
        counts = self.counts(drawn)
        return [
            row for name, part in self.parts.items() for row in part.stand_ins(counts[name], count)
        ]

    def counts(self, drawn: int) -> dict[str, int]:
        """How many of the first `drawn` rows are of each source."""
        whole = sum(self._shares.values())
        turn = max(Fraction(0), (drawn - Fraction(len(self._shares), 2)) / whole)
        found = {name: int(share * turn + Fraction(1, 2)) for name, share in self._shares.items()}
        turns = self._turns(found)
        for _ in range(drawn - sum(found.values())):
            found[next(turns)] += 1
        return found

    def _turns(self, counts: Mapping[str, int]) -> Iterator[str]:
        """Whose turn it is after so many rows of each, on and on."""
        taken = dict(counts)
        while True:
            name = min(taken, key=lambda one: (2 * taken[one] + 1) / self._shares[one])
            yield name
            taken[name] += 1

    @cached_property
    def _shares(self) -> dict[str, Fraction]:
        return {name: Fraction(str(self.weights[name])) for name in self.parts}


def _told(rows: Iterator[Question], draw: int) -> list[Question]:
    """Each with its draw, and one that this draw has already had with how often."""
    had: Counter[str] = Counter()
    found = []
    for row in rows:
        found.append(row.but(draw=draw, again=had[row.id]))
        had[row.id] += 1
    return found


# --- from a config ---


def curriculum_of(
    train: Sequence[Question],
    data: DataConfig,
    seed: int,
    weights: Mapping[str, float] | None = None,
) -> Curriculum | Mixture:
    """The order that a config asks for; `weights`: of the parts of a mixture, in their order.

    Raises RLLoopError for a file that cannot be read or names no training row.
    """
    if data.curriculum == "file":
        return Curriculum(train, seed, listed=_listed(train, data))
    stages = _stages(train, data)
    if not weights:
        return Curriculum(train, seed, stages)
    places = _by_source(train, weights)
    if data.mix_order == "one_after_the_other":
        first = {name: number for number, name in enumerate(places)}
        within = stages or [0] * len(train)
        turns = _dense([(first[q.source], stage) for q, stage in zip(train, within, strict=True)])
        return Curriculum(train, seed, turns)
    parts = {
        name: Curriculum(
            [train[place] for place in of],
            seed,
            None if stages is None else [stages[place] for place in of],
            name=name,
        )
        for name, of in places.items()
    }
    return Mixture(parts, weights)


def _by_source(
    train: Sequence[Question], weights: Mapping[str, float]
) -> Mapping[str, Sequence[int]]:
    places: dict[str, list[int]] = {name: [] for name in weights}
    for place, question in enumerate(train):
        if question.source not in places:
            problem = f"gives no weight to {question.source!r}, of which there are training rows"
            raise RLLoopError.of("data.mix", None, problem, "add the part with its weight")
        places[question.source].append(place)
    for name, of in places.items():
        if not of:
            problem = f"has no training row in its part {name!r}"
            raise RLLoopError.of("data.mix", None, problem, "remove the part, or its filters")
    return places


def _listed(train: Sequence[Question], data: DataConfig) -> Sequence[int]:
    known = Ids([question.id for question in train])
    path = data.curriculum_file or ""
    found = [place for id_ in read_ids(Path(path)) if (place := known.place(id_)) is not None]
    if not found:
        problem = "names none of the training rows"
        raise RLLoopError.of("data.curriculum_file", path, problem, "name rows that train")
    return found


def _stages(train: Sequence[Question], data: DataConfig) -> Sequence[int] | None:
    difficulty = Difficulty.of(data)
    if difficulty is None:
        return None
    values = difficulty.values([(question.id, question.columns) for question in train])
    last = float("inf")
    ranks = _dense([last if value is None else value for value in values])
    return _banded(ranks, data.difficulty_bands) if data.curriculum == "bands" else ranks


def _dense(keys: Sequence[Any]) -> list[int]:
    """
    >>> _dense([0.5, 0.1, 0.5])
    [1, 0, 1]
    """
    rank = {key: number for number, key in enumerate(sorted(set(keys)))}
    return [rank[key] for key in keys]


def _banded(ranks: Sequence[int], bands: int) -> list[int]:
    """Ranks in bands of about equally many rows; equal ranks are in one band.

    >>> _banded([0, 0, 0, 1, 2, 3], 2)
    [0, 0, 0, 1, 1, 1]
    """
    count, below, band = Counter(ranks), 0, {}
    for rank in sorted(count):
        band[rank] = min(bands - 1, bands * (2 * below + count[rank]) // (2 * len(ranks)))
        below += count[rank]
    return [band[rank] for rank in ranks]


def what_is_drawn(
    data: DataConfig, rows: Sequence[Question], train: Sequence[Question]
) -> Iterator[str]:
    """What a person should know of the order, in sentences; `rows`: all that the data has.

    Raises RLLoopError for a curriculum file that is not of these rows.
    """
    if data.curriculum == "file":
        path = data.curriculum_file or ""
        file, ids = read_ids(Path(path)), [question.id for question in rows]
        found = require_match(file, ids, path)
        known = {question.id for question in train}
        left_out = sum(ids[place] not in known for place in found.places)
        drawn = len(found.places) - left_out
        yield f"data.curriculum: file: {drawn} draws an epoch, of {path}"
        if left_out:
            yield f"{left_out} of its {len(file)} ids are held out, or left out, and are not drawn"
        if found.unmatched:
            yield found.said(ids)
        return
    difficulty = Difficulty.of(data)
    if difficulty is not None:
        values = difficulty.values([(question.id, question.columns) for question in train])
        yield f"data.curriculum: {data.curriculum}: {difficulty.said(values)}"
