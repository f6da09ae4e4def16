"""Rows whose prompt leaves no room for a completion: named before anything trains.

Refused or dropped, as `prompting.too_long` says. Knows no model, only its window.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from engine.contract.errors import RLLoopError
from engine.contract.kinds.rl_run import RLRunConfig
from engine.data.rows import Question
from engine.data.split import Split

Lengths = Callable[[Sequence[Question], float], Sequence[int]]
"""`(questions, enough)`: tokens of each prompt, exact where they may be above `enough`."""

_NAMED = 5
"""Rows that a message names."""


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
    warn: Callable[[str, str], None],
) -> Split:
    """The split without rows that do not fit, if dropping is what the config says.

    `lengths` are those of the bare prompts of the gates, `training_lengths` those of the first
    step, examples and all.
    Raises RLLoopError for a row that does not fit, and where dropping leaves a part empty.
    """
    longest = None if window is None else window - config.max_new_tokens
    found = [
        *_misfits(split.train, training_lengths, longest),
        *_misfits([*split.select, *split.report], lengths, longest),
    ]
    if not found:
        return split
    problem = _problem(found, config, window)
    if config.prompting.too_long == "refuse":
        remedy = "shorten them, lower max_new_tokens, or set prompting.too_long to drop"
        raise RLLoopError.of("data", None, problem, remedy)
    warn("PROMPTS_DROPPED", f"left out: {problem}")
    return _without(split, {misfit.id for misfit in found}, problem)


def _misfits(
    questions: Sequence[Question], lengths: Lengths, longest: int | None
) -> Sequence[OverlongPrompt]:
    most = math.inf if longest is None else longest
    measured = zip(questions, lengths(questions, most), strict=True)
    return [OverlongPrompt(q.id, tokens) for q, tokens in measured if not 0 < tokens <= most]


def _problem(found: Sequence[OverlongPrompt], config: RLRunConfig, window: int | None) -> str:
    named = ", ".join(f"{m.id!r} ({m.tokens} tokens)" for m in found[:_NAMED])
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    rows = "row has a prompt" if len(found) == 1 else "rows have prompts"
    room = f"with no room for max_new_tokens={config.max_new_tokens} in the window of {window}"
    if all(misfit.tokens == 0 for misfit in found):
        room = "without a single token"
    return f"{len(found)} {rows} {room}: {named}{more}"


def _without(split: Split, dropped: set[str], problem: str) -> Split:
    parts = {
        name: [q for q in getattr(split, name) if q.id not in dropped]
        for name in ("train", "select", "report")
    }
    for name in ("train", "select"):
        if not parts[name]:
            remedy = "shorten the prompts, or lower max_new_tokens"
            raise RLLoopError.of("data", None, f"{problem}; no {name} row is left", remedy)
    return Split(**parts)
