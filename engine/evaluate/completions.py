"""Stored completions: what a line of a held-out rollout file says, and how it is read again.

A line of a gate or an evaluation brings what was asked, what is right and how results are split,
so that the completion can be judged again without the source. Samples nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

from engine.contract.asked import asked
from engine.contract.documents import MAX_ROWS_BYTES, lines, parse_json, why
from engine.contract.errors import RLLoopError
from engine.contract.known import real, whole
from engine.contract.rescored import AS_JUDGED
from engine.data.rows import Question
from engine.rewards.judgement import Reason, Verdict
from engine.sampling.base import Rollout

SPLIT_BY = ("level", "subject", "type", "difficulty", "category")
"""Columns of benchmarks by which results are split: those that a row has go with it."""
MOST_COMPLETIONS = 1_000_000
_LONGEST = 80
"""Characters of such a value; a longer one is a text and splits nothing."""


def asked_and_gold(question: Question, rollout: Rollout) -> dict[str, Any]:
    """The fields of a line that are the row's own, and how its completion ended."""
    source = {"source": question.source} if question.source else {}
    return {
        "prompt": question.prompt,
        "gold": question.answer,
        "columns": split_columns(question.columns) | source,
        "finish_reason": "length" if rollout.truncated else "stop",
    }


def judged_by(
    own: Verdict, solved: bool | None, also: Mapping[str, tuple[Verdict, bool | None]]
) -> dict[str, Any]:
    """What each judge of a line says, where there are others beside its run's own."""
    if not also:
        return {}
    every = {AS_JUDGED: (own, solved), **also}
    return {"judged": {name: _said(*one) for name, one in every.items()}}


def _said(verdict: Verdict, solved: bool | None) -> dict[str, Any]:
    return {
        "reward": verdict.reward,
        "success": solved,
        "answer": verdict.answer,
        "reason": verdict.reason.value,
    }


def split_columns(columns: Mapping[str, Any]) -> dict[str, Any]:
    """The short values of a row by which results are split.

    >>> split_columns({"level": "Level 3", "solution": "so 7"})
    {'level': 'Level 3'}
    """
    return _short_ones({name: columns.get(name) for name in SPLIT_BY})


def _short_ones(columns: Mapping[str, Any]) -> dict[str, Any]:
    return {str(name): value for name, value in columns.items() if _is_short(value)}


def _is_short(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return False
    return len(str(value)) <= _LONGEST


@dataclass(frozen=True)
class Completion:
    """One completion as a file has it."""

    id: str
    sample: int
    prompt: str
    text: str
    gold: str | None
    """None: an older file; see `engine.evaluate.golds`."""
    truncated: bool | None
    """None where the file does not say how it ended."""
    columns: Mapping[str, Any] = field(default_factory=dict)
    ids: tuple[int, ...] = ()
    step: int = 0
    judged: Mapping[str, tuple[Verdict, bool | None]] = field(default_factory=dict)
    """By whom the file says what it came to."""

    @cached_property
    def ask(self) -> str:
        """What it asks: copies of a question are one observation. Without a prompt the row's id."""
        return asked(self.prompt) if self.prompt else f"\0{self.id}"

    def but(self, **changes: Any) -> Completion:
        """The same with other fields."""
        return replace(self, **changes)


def read_rollouts(path: Path) -> list[Completion]:
    """The lines of a run's held-out file. Raises RLLoopError with the line that is none."""
    return [_completion(path, number, row) for number, row in rows_of(path)]


def rows_of(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Number and object of each line. Raises RLLoopError."""
    number = 0
    try:
        for count, (number, line) in enumerate(lines(path, MAX_ROWS_BYTES), 1):
            if count > MOST_COMPLETIONS:
                refuse(path, f"has more than {MOST_COMPLETIONS:,} lines", "judge a part of it")
            row = parse_json(line)
            if not isinstance(row, dict):
                refuse(path, f"line {number} is no JSON object", "name a file of completions")
            yield number, row
    except OSError as error:
        at = f"line {number} " if number else ""
        refuse(path, f"{at}{why(error)}", "name a readable file of completions, whole to its end")


def refuse(path: Path, problem: str, remedy: str) -> NoReturn:
    """Raises RLLoopError."""
    raise RLLoopError.of("FILE", str(path), problem, remedy)


def _completion(path: Path, number: int, row: Mapping[str, Any]) -> Completion:
    id_, text, gold = row.get("id"), row.get("text"), row.get("gold")
    if not isinstance(id_, str) or not isinstance(text, str):
        what = "a stage-2 answer is judged by its boxes" if "record" in row else "it has no text"
        remedy = "name a held-out file of an rl_run or eval_rerun"
        refuse(path, f"line {number} is no completion that a verifier reads: {what}", remedy)
    prompt, columns, ids = row.get("prompt"), row.get("columns"), row.get("completion_ids")
    return Completion(
        id_,
        whole(row.get("sample")) or 0,
        prompt if isinstance(prompt, str) else "",
        text,
        gold if isinstance(gold, str) else None,
        row["truncated"] if isinstance(row.get("truncated"), bool) else None,
        _short_ones(columns) if isinstance(columns, Mapping) else {},
        tuple(one for one in ids if whole(one) is not None) if isinstance(ids, list) else (),
        whole(row.get("version")) or 0,
        _judged(row),
    )


def _judged(row: Mapping[str, Any]) -> dict[str, tuple[Verdict, bool | None]]:
    """By each filter that it was judged by, else by the judge of its run."""
    filters = row.get("judged")
    if isinstance(filters, Mapping) and filters:
        return {str(name): _verdict(one) for name, one in filters.items()}
    return {AS_JUDGED: _verdict(row)} if "success" in row else {}


def _verdict(said: Any) -> tuple[Verdict, bool | None]:
    found = said if isinstance(said, Mapping) else {}
    answer, success = found.get("answer"), found.get("success")
    known = isinstance(found.get("reason"), str) and found["reason"] in set(Reason)
    reason = Reason(found["reason"]) if known else Reason.CORRECT if success else Reason.WRONG
    verdict = Verdict(
        real(found.get("reward")) or 0.0, answer if isinstance(answer, str) else None, reason
    )
    return verdict, success if isinstance(success, bool) else None
