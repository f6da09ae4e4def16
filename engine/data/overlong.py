"""Rows whose prompt leaves no room for a completion: named before anything trains.

Refused or dropped, as `prompting.too_long` says. Knows no model, only its window.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple

from engine.contract.errors import RLLoopError
from engine.contract.kinds.rl_run import RLRunConfig
from engine.data.rows import Question
from engine.data.split import Split

Lengths = Callable[[Sequence[Question], float], Sequence[int]]
"""`(questions, enough)`: tokens of each prompt, exact where they may be above `enough`."""

SHORTEN = "shorten them, lower max_new_tokens, or set prompting.too_long to drop"
_NAMED = 5
"""Rows that a message names."""


class Room(NamedTuple):
    """What the prompts of a bench need."""

    lengths: Lengths
    max_new_tokens: int


@dataclass(frozen=True)
class OverlongPrompt:
    """A row that cannot be asked, with the length of its prompt in tokens."""

    id: str
    tokens: int


def fitted(
    split: Split,
    config: RLRunConfig,
    window: int | None,
    *,
    lengths: Lengths,
    training_lengths: Lengths,
    benches: Mapping[str, Room] = MappingProxyType({}),
    warn: Callable[[str, str], None],
) -> Split:
    """The split without rows that do not fit, if dropping is what the config says.

    `lengths` are those of the bare prompts of the gates, `training_lengths` those of the first
    step, examples and all; `benches` those that are none of the run's own rows.
    Raises RLLoopError for a row that does not fit, and where dropping leaves a part empty.
    """
    longest = None if window is None else window - config.max_new_tokens
    found = list(misfits(split.train, training_lengths, longest))
    for rows, (of_rows, new) in _heldout(split, config, lengths, benches):
        found += misfits(rows, of_rows, None if window is None else window - new)
    if not found:
        return split
    problem = misfit_problem(found, len(split.rows), config.max_new_tokens, window)
    if config.prompting.too_long == "refuse":
        remedy = SHORTEN
        if any(bench.shots for bench in config.heldout):
            remedy += "; a bench of heldout may do with fewer shots"
        raise RLLoopError.of("data", None, problem, remedy)
    warn("PROMPTS_DROPPED", f"left out: {problem}")
    return _without(split, {misfit.id for misfit in found}, problem)


def _heldout(
    split: Split, config: RLRunConfig, lengths: Lengths, benches: Mapping[str, Room]
) -> Iterator[tuple[Sequence[Question], Room]]:
    own = Room(lengths, config.max_new_tokens)
    yield [*split.select, *split.report], benches.get(config.decide, own)
    for name, rows in split.others.items():
        yield rows, benches.get(name, own)


def misfits(
    questions: Sequence[Question], lengths: Lengths, longest: int | None
) -> Sequence[OverlongPrompt]:
    """Rows whose prompt has more than `longest` tokens, or none."""
    most = math.inf if longest is None else longest
    measured = zip(questions, lengths(questions, most), strict=True)
    return [OverlongPrompt(q.id, tokens) for q, tokens in measured if not 0 < tokens <= most]


def misfit_problem(
    found: Sequence[OverlongPrompt], rows: int, max_new_tokens: int, window: int | None
) -> str:
    """What is wrong with them, of so many rows; some by name."""
    named = ", ".join(f"{m.id!r} ({m.tokens} tokens)" for m in found[:_NAMED])
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    have = "has a prompt" if len(found) == 1 else "have prompts"
    room = f"with no room for max_new_tokens={max_new_tokens} in the window of {window}"
    if all(misfit.tokens == 0 for misfit in found):
        room = "without a single token"
    share = f"{len(found)} of {rows} rows ({len(found) / rows:.1%})"
    return f"{share} {have} {room}: {named}{more}"


def _without(split: Split, dropped: set[str], problem: str) -> Split:
    parts = {
        name: [q for q in getattr(split, name) if q.id not in dropped]
        for name in ("train", "select", "report")
    }
    for name in ("train", "select"):
        if not parts[name]:
            remedy = "shorten the prompts, or lower max_new_tokens"
            raise RLLoopError.of("data", None, f"{problem}; no {name} row is left", remedy)
    others = {name: [q for q in rows if q.id not in dropped] for name, rows in split.others.items()}
    return replace(
        split,
        train=parts["train"],
        select=parts["select"],
        report=parts["report"],
        others=others,
    )
