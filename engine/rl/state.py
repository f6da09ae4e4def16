"""What a loop has done so far: the report of a step, and all that a resumed loop must know.

JSON as it stands; knows no file.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol, SupportsFloat, runtime_checkable

from engine.rewards.soundness import Soundness
from engine.run.lineage import LineageSnapshot, snapshot
from engine.verdict.verdicts import best_step

_SOLVED, _FAILED, _BROKE, _UNJUDGED, _UNREAD = "1", "0", "x", "-", "u"
_RECENT = 10
"""Steps over which broken judgements are counted."""


def marks(
    outcomes: Sequence[bool | None], broke: Collection[int] = (), unread: Collection[int] = ()
) -> str:
    """A gate's rows as `LoopState.heldout_solved` keeps them; `broke` and `unread`: their places.

    >>> marks([True, False, None, False, False], broke=[3], unread=[4])
    '10-xu'
    """
    return "".join(
        _UNJUDGED
        if solved is None
        else _SOLVED
        if solved
        else _BROKE
        if i in broke
        else _UNREAD
        if i in unread
        else _FAILED
        for i, solved in enumerate(outcomes)
    )


def marks_of(result: SupportsFloat) -> str:
    """Of a gate's result; empty for one that is a number alone."""
    if not isinstance(result, HasOutcomes):
        return ""
    return marks(result.outcomes, getattr(result, "broke", ()), getattr(result, "unread", ()))


@runtime_checkable
class HasOutcomes(Protocol):
    """A gate's result that knows which of its rows were solved; None: not judged."""

    @property
    def outcomes(self) -> Sequence[bool | None]: ...


def solved_of(kept: str) -> list[bool | None]:
    """Success of each row; None where it was not judged."""
    return [None if c == _UNJUDGED else c == _SOLVED for c in kept]


def read_of(kept: str) -> list[bool]:
    """Whether the verifier could read an answer in each row."""
    return [c in {_SOLVED, _FAILED} for c in kept]


def soundness_of(kept: str) -> Soundness:
    """How many of the rows the verifier broke on, or did not judge."""
    return Soundness(len(kept), crashes=kept.count(_BROKE), unjudged=kept.count(_UNJUDGED))


@dataclass
class BenchState:
    """What the gates have found of a bench that picks nothing."""

    scores: dict[int, float] = field(default_factory=dict)
    solved: dict[int, str] = field(default_factory=dict)
    """By gate, as `LoopState.heldout_solved`."""
    shares: dict[int, dict[str, float]] = field(default_factory=dict)
    """By gate, of its completions: truncated, unparsed, forms of answers."""

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> BenchState:
        """Of its JSON."""
        return cls(**{name: _by_step(table) for name, table in value.items()})


def _by_step(table: Mapping[str, Any]) -> dict[int, Any]:
    return {int(step): entry for step, entry in table.items()}


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
    """By gate, one character a `select` row in the split's order: 1 solved, 0 not, u not solved
    because no answer could be read, x the verifier broke (counted as not solved), - not judged."""
    benches: dict[str, BenchState] = field(default_factory=dict)
    """By name, those that pick nothing."""
    pool_scores: dict[int, float] = field(default_factory=dict)
    """By step; those that sampled nothing have none."""
    pool_groups: dict[int, str] = field(default_factory=dict)
    """By step, the rollouts behind its pool score by prompt (`engine.verdict.trend.written`); empty
    for steps of versions that did not count them."""
    formed: bool = False
    """Whether a completion wrote its answer in one of the known forms: then every step says in how
    many (`format/boxed`)."""
    history: list[dict[str, Any]] = field(default_factory=list)
    aborted_after: list[int] = field(default_factory=list)
    alerts: list[dict[str, Any]] = field(default_factory=list)
    """What a person should know: [{code, step, text}], some with `numbers` and `samples`."""
    inversion: dict[str, Any] | None = None
    """The newest one the inversion guard found."""
    diagnosis: dict[str, Any] | None = None
    """Why the collapse guard gave the run up."""
    guard: dict[str, Any] = field(default_factory=dict)
    """The collapse guard's memory."""
    watch: dict[str, Any] = field(default_factory=dict)
    """What the warnings have seen and said (`WatchMemory`)."""
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
            name: _by_step(value[name])
            for name in ("heldout_scores", "heldout_solved", "pool_scores", "pool_groups")
            if name in value
        }
        kept = value.get("benches", {}).items()
        benches = {name: BenchState.from_dict(bench) for name, bench in kept}
        return cls(**{**value, **tables, "benches": benches})

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
        return {step: solved_of(kept) for step, kept in self.heldout_solved.items()}

    def soundness(self) -> Soundness:
        """Of the rollouts of the last steps."""
        recent = (entry.get("soundness") for entry in self.history[-_RECENT:])
        return sum((Soundness(**one) for one in recent if one), Soundness())

    def gate_soundness(self, step: int) -> Soundness:
        """Of the `select` rows at a gate."""
        return soundness_of(self.heldout_solved.get(step, ""))

    def gates_without_best(self) -> int:
        """How many gates lie behind the best one."""
        best = self.selected_step
        return sum(1 for step in self.heldout_scores if best is not None and step > best)
