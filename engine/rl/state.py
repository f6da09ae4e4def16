"""What a loop has done so far: the report of a step, and all that a resumed loop must know.

JSON as it stands; knows no file.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from engine.rewards.soundness import Soundness
from engine.run.lineage import LineageSnapshot, snapshot
from engine.verdict.verdicts import best_step

_SOLVED, _FAILED, _BROKE, _UNJUDGED = "1", "0", "x", "-"
_RECENT = 10
"""Steps over which broken judgements are counted."""


def marks(outcomes: Sequence[bool | None], broke: Collection[int] = ()) -> str:
    """A gate's rows as `LoopState.heldout_solved` keeps them; `broke`: their places.

    >>> marks([True, False, None, False], broke=[3])
    '10-x'
    """
    return "".join(
        _UNJUDGED if solved is None else _SOLVED if solved else _BROKE if i in broke else _FAILED
        for i, solved in enumerate(outcomes)
    )


@dataclass(frozen=True)
class StepReport:
    """What one step measured. `metrics` are series by name."""

    step: int
    pool_score: float | None
    """Success rate of the rollouts sampled in this step; None where every group was read again."""
    groups: str
    """The rollouts behind it by prompt, as `engine.verdict.trend.written`."""
    trained: bool
    """False when no update was applied: every group tied without a KL term, or none was finite."""
    n_used: int
    keep_rate: float
    """Share of the groups whose rewards differ."""
    adv_spread: float
    """Largest minus smallest advantage used."""
    sampled: bool
    """False when every group came from the buffer."""
    fates: Mapping[str, int]
    """What became of the step's groups: used, wasted, filtered, failed."""
    metrics: Mapping[str, float]
    soundness: Soundness
    """How many of the rollouts sampled in this step the verifier broke on, or did not judge."""


@dataclass
class LoopState:
    """All that a resumed loop must know; JSON as it stands."""

    step: int = 0
    version: int = 0
    """The step that last moved the weights."""
    samplings: int = 0
    """Steps that sampled; with a buffer that is read more than once, fewer than `step`."""
    drawn: int | None = None
    """Rows that the curriculum has given; None before it gave any, and in states of versions that
    did not count them."""
    heldout_scores: dict[int, float] = field(default_factory=dict)
    heldout_solved: dict[int, str] = field(default_factory=dict)
    """By gate, one character a `select` row in the split's order: 1 solved, 0 not, x the verifier
    broke (counted as not solved), - not judged."""
    pool_scores: dict[int, float] = field(default_factory=dict)
    """By step; those that sampled nothing have none."""
    pool_groups: dict[int, str] = field(default_factory=dict)
    """By step, the rollouts behind its pool score by prompt (`engine.verdict.trend.written`); empty
    for steps of versions that did not count them."""
    history: list[dict[str, Any]] = field(default_factory=list)
    aborted_after: list[int] = field(default_factory=list)
    alerts: list[dict[str, Any]] = field(default_factory=list)
    """What a person should know: [{code, step, text}]."""
    inversion: dict[str, Any] | None = None
    """The newest one the inversion guard found."""
    diagnosis: dict[str, Any] | None = None
    """Why the collapse guard gave the run up."""
    guard: dict[str, Any] = field(default_factory=dict)
    """The collapse guard's memory."""
    buffer: list[dict[str, Any]] = field(default_factory=list)
    """Groups that may be trained on again, by where the journal holds them, in their order."""
    rollbacks: list[dict[str, Any]] = field(default_factory=list)
    """Collapses that were rolled back: their diagnoses, and the step gone back to."""
    seconds: float = 0.0
    """Time spent in steps and gates, over all attempts."""

    def as_dict(self) -> dict[str, Any]:
        """JSON form; keys of the tables by step become strings there."""
        return asdict(self)

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> LoopState:
        """The inverse of `as_dict` through JSON."""
        tables = {
            name: {int(step): entry for step, entry in value[name].items()}
            for name in ("heldout_scores", "heldout_solved", "pool_scores", "pool_groups")
            if name in value
        }
        return cls(**{**value, **tables})

    @property
    def selected_step(self) -> int | None:
        """The gated step with the highest held-out score, the earliest of equals."""
        return best_step(self.heldout_scores)

    def pool_scores_by_step(self) -> dict[int, float | None]:
        """Of every step so far; None for one that sampled nothing."""
        steps = [int(entry["step"]) for entry in self.history]
        return {step: self.pool_scores.get(step) for step in steps}

    def card(self) -> LineageSnapshot:
        """The run card so far."""
        return snapshot(self.heldout_scores, self.pool_scores_by_step(), self.aborted_after)

    def outcomes(self) -> dict[int, list[bool | None]]:
        """Success of each `select` row by gate; None where it was not judged."""
        return {
            step: [None if c == _UNJUDGED else c == _SOLVED for c in solved]
            for step, solved in self.heldout_solved.items()
        }

    def soundness(self) -> Soundness:
        """Of the rollouts of the last steps."""
        recent = (entry.get("soundness") for entry in self.history[-_RECENT:])
        return sum((Soundness(**one) for one in recent if one), Soundness())

    def gate_soundness(self, step: int) -> Soundness:
        """Of the `select` rows at a gate."""
        solved = self.heldout_solved.get(step, "")
        return Soundness(
            len(solved), crashes=solved.count(_BROKE), unjudged=solved.count(_UNJUDGED)
        )

    def gates_without_best(self) -> int:
        """How many gates lie behind the best one."""
        best = self.selected_step
        return sum(1 for step in self.heldout_scores if best is not None and step > best)
