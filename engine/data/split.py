"""The split: which rows train, which pick the checkpoint, which are scored once at the end.

Carved before anything trains, stored with its ids and hash, and never carved again for a run.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from engine.contract.asked import asked_hash
from engine.contract.documents import read_json_object
from engine.contract.errors import RLLoopError
from engine.contract.kinds.rl_run import RLRunConfig, alike_problem
from engine.contract.rl.shares import sizes
from engine.contract.run_dir import write_json
from engine.contract.sources.benches import OWN
from engine.data.rows import Question


@dataclass(frozen=True)
class Split:
    """Disjoint lists of rows, in the order of the seeded shuffle."""

    train: Sequence[Question]
    select: Sequence[Question]
    """Held-out rows that every gate looks at and that pick the checkpoint."""
    report: Sequence[Question]
    """Held-out rows that nothing looks at before the end."""
    others: Mapping[str, Sequence[Question]] = field(default_factory=dict)
    """Held-out rows that pick nothing, by name: benches that do not decide, and the run's own where
    one does."""
    benches: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """How each bench is asked, by name, with a `hash` over it all."""
    overlap: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """What of each bench stood in the training rows when they were carved."""

    @property
    def hash(self) -> str:
        """SHA-256 over every row's content and its place."""
        parts = [_content(rows) for rows in (self.train, self.select, self.report)]
        if self.others:
            others = {name: _content(rows) for name, rows in self.others.items()}
            parts.append(_object(others))
        return _hash(_list(parts))

    @property
    def rows(self) -> Sequence[Question]:
        """All of them."""
        others = (row for rows in self.others.values() for row in rows)
        return [*self.train, *self.select, *self.report, *others]

    @property
    def solutions_hash(self) -> str:
        """SHA-256 over the worked answers of the training rows: what may be shown and taught."""
        return _hash(_list([json.dumps(question.solution)] for question in self.train))


def _hash(pieces: Iterable[str]) -> str:
    found = hashlib.sha256()
    for piece in pieces:
        found.update(piece.encode())
    return found.hexdigest()


def _content(rows: Sequence[Question]) -> Iterator[str]:
    """Of each its id, prompt and answer, as JSON."""
    return _list([json.dumps([q.id, q.prompt, q.answer])] for q in rows)


def _list(parts: Iterable[Iterable[str]]) -> Iterator[str]:
    """A JSON list of parts that are JSON in pieces: the whole is never one text.

    >>> "".join(_list([["1"], ["[", "2]"]]))
    '[1, [2]]'
    """
    yield "["
    for place, part in enumerate(parts):
        yield ", " if place else ""
        yield from part
    yield "]"


def _object(parts: Mapping[str, Iterable[str]]) -> Iterator[str]:
    yield "{"
    for place, (name, part) in enumerate(parts.items()):
        yield f"{', ' if place else ''}{json.dumps(name)}: "
        yield from part
    yield "}"


def carve(
    questions: Sequence[Question], *, heldout_frac: float, select_frac: float, seed: int
) -> Split:
    """Seeded shuffle; held-out = max(1, round(n·frac)) rows, parted into select and report.

    Rows that ask the same stay together, whatever their ids and however they are written: a
    question that trains is never asked by a gate. `select` gets at least one row; `report` gets
    the rest, which may be none. Each source of a mixture is carved by itself, and a question that
    one of them holds out trains in none.
    Raises RLLoopError when no row is left to train on.
    """
    sources: dict[str, list[Question]] = {}
    for question in questions:
        sources.setdefault(question.source, []).append(question)
    parts = [_carve(rows, heldout_frac, select_frac, seed) for rows in sources.values()]
    if len(parts) == 1:
        return parts[0]
    select = [q for part in parts for q in part.select]
    report = without_twins([q for part in parts for q in part.report], select)
    train = without_twins([q for part in parts for q in part.train], [*select, *report])
    return Split(train, select, report)


def without_twins(rows: Sequence[Question], heldout: Sequence[Question]) -> list[Question]:
    """The rows that ask nothing that a held-out row asks."""
    asks = {asked_hash(row.prompt) for row in heldout}
    return [row for row in rows if asked_hash(row.prompt) not in asks]


def halves(
    rows: Sequence[Question], select_frac: float, seed: int
) -> tuple[Sequence[Question], Sequence[Question]]:
    """The rows of a bench that decides, as `select` and `report`; twins stay together."""
    groups = _by_prompt(rows)
    random.Random(seed).shuffle(groups)
    select, report = _take(groups, max(1, round(len(rows) * select_frac)))
    return [q for group in select for q in group], [q for group in report for q in group]


def _carve(
    questions: Sequence[Question], heldout_frac: float, select_frac: float, seed: int
) -> Split:
    groups = _by_prompt(questions)
    random.Random(seed).shuffle(groups)
    wanted = sizes(len(questions), heldout_frac, select_frac)
    heldout, rest = _take(groups, wanted.select + wanted.report)
    if len(groups) == 1:
        raise RLLoopError([alike_problem(len(questions))])
    if not rest:
        problem = f"holds out all {len(questions)} rows and leaves none to train on"
        raise RLLoopError.of("heldout_frac", heldout_frac, problem, "use a smaller share")
    select, report = _take(heldout, wanted.select)
    train, picks, once = ([q for group in part for q in group] for part in (rest, select, report))
    return Split(train, picks, once)


def _by_prompt(questions: Sequence[Question]) -> list[list[Question]]:
    """Rows in groups of one question, however it is written, in the order of their first row."""
    groups: dict[int, list[Question]] = {}
    for question in questions:
        groups.setdefault(asked_hash(question.prompt), []).append(question)
    return list(groups.values())


def _take(
    groups: Sequence[Sequence[Question]], rows: int
) -> tuple[Sequence[Sequence[Question]], Sequence[Sequence[Question]]]:
    """The first groups that hold at least so many rows together, and the others."""
    taken = 0
    for index, group in enumerate(groups):
        if taken >= rows:
            return groups[:index], groups[index:]
        taken += len(group)
    return groups, []


def carved(
    questions: Sequence[Question], benches: Mapping[str, Sequence[Question]], config: RLRunConfig
) -> Split:
    """A run's rows, all of which train that no gate looks at. `benches`: rows by name."""
    own = carve(
        questions,
        heldout_frac=config.heldout_frac,
        select_frac=config.select_frac,
        seed=config.split_seed,
    )
    others = {name: rows for name, rows in benches.items() if name != config.decide}
    if config.decide not in benches:
        return replace(own, others=others)
    deciding = benches[config.decide]
    select, report = halves(deciding, config.select_frac, config.split_seed)
    return Split(own.train, select, report, {OWN: [*own.select, *own.report], **others})


def thawed(questions: Sequence[Question], path: Path) -> Split | None:
    """The rows of a frozen split as they are now, by their ids; None before it was frozen, and
    where its file is damaged.

    Never carved again, so a run goes on with its own split under a later version too. What is gone
    is left out, and `freeze` refuses the rest.
    """
    frozen = _frozen(path)
    if frozen is None:
        return None
    known = {question.id: question for question in questions}

    def rows(ids: Sequence[str]) -> list[Question]:
        return [known[one] for one in ids if one in known]

    return Split(
        rows(frozen["train"]),
        rows(frozen["select"]),
        rows(frozen["report"]),
        {name: rows(ids) for name, ids in frozen.get("others", {}).items()},
        overlap=frozen.get("overlap", {}),
    )


def _frozen(path: Path) -> dict[str, Any] | None:
    """What a whole file says; None without one."""
    try:
        found = read_json_object(path)
    except OSError:
        return None
    others = found.get("others", {})
    if not isinstance(others, dict):
        return None
    lists = [*(found.get(name) for name in ("train", "select", "report")), *others.values()]
    return found if "hash" in found and all(isinstance(ids, list) for ids in lists) else None


def freeze(split: Split, path: Path, *, proof: Collection[str] | None = None) -> None:
    """Store the split once; a resumed run proves that its rows are still the same.

    `proof`: the hashes of it that the run has written down elsewhere; None before anything was
    trained. A file that is damaged is written anew where the split is one of them.
    Raises RLLoopError when the rows are not the same, and where nothing proves that they are.
    """
    document: dict[str, Any] = {
        "hash": split.hash,
        "solutions": split.solutions_hash,
        "train": [q.id for q in split.train],
        "select": [q.id for q in split.select],
        "report": [q.id for q in split.report],
    }
    if split.others:
        document["others"] = {name: [q.id for q in rows] for name, rows in split.others.items()}
    if split.overlap:
        document["overlap"] = split.overlap
    if split.benches:
        document["benches"] = {name: bench["hash"] for name, bench in split.benches.items()}
    frozen = _frozen(path)
    if frozen is None:
        if proof is not None and path.exists() and split.hash not in proof:
            raise RLLoopError.of(
                "split",
                str(path),
                "is damaged, and nothing proves which rows this run was split with",
                "bring it back from a copy, or run the job again: cockpit retry JOB --fresh",
            )
        write_json(path, document)
        return
    # a run of before has no word on its worked answers, nor on how its benches are asked
    kept = {name: value for name, value in document.items() if name in frozen}
    if {**frozen, "benches": None} != {**kept, "benches": None}:
        raise RLLoopError.of(
            "data.source",
            str(path),
            "the rows are no longer those that this run was split with",
            "restore the data file, or enqueue a new run",
        )
    if frozen.get("benches") != kept.get("benches"):
        raise RLLoopError.of(
            "heldout",
            str(path),
            "a bench is not asked as when this run began: its form or worked examples are others",
            "restore the file of shots_from, or enqueue a new run",
        )
