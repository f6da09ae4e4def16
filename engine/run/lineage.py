"""The run card: which trial came from which, and which one held-out calls the best.

A trial is one thing that was tried: `baseline`, `rl-NNN` (the update of step NNN),
`heldout-NNN` (the gate after it) and `aborted-NNN` (a stop after step NNN). Pure; knows no file.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

TrialKind = Literal["baseline", "rl", "heldout", "aborted"]


@dataclass(frozen=True)
class Trial:
    """One node. `score` is held-out for baseline and heldout trials, pool for rl trials."""

    name: str
    kind: TrialKind
    step: int
    parent: str | None
    score: float | None


@dataclass(frozen=True)
class LineageSnapshot:
    """What `lineage.json` holds."""

    trials: Sequence[Trial]
    current_best: str | None
    """The gated trial with the highest held-out score; the earliest of equals."""
    chain_to_best: Sequence[str]
    """From the root to the best trial."""
    top: Sequence[str]
    """Gated trials, best first."""
    recent: Sequence[str]
    """The last trials, oldest first."""

    def as_dict(self) -> dict[str, Any]:
        """JSON form."""
        return asdict(self)


def snapshot(
    heldout_scores: Mapping[int, float],
    pool_scores: Mapping[int, float | None],
    aborted_after: Collection[int] = (),
    *,
    top_k: int = 5,
    recent_n: int = 10,
) -> LineageSnapshot:
    """The card of a run from its scores by step; step 0 is the untrained policy.

    A step whose pool score is None was trained on rollouts of earlier ones.
    """
    trials = _trials(heldout_scores, pool_scores, aborted_after)
    gated = sorted(
        (t for t in trials if t.kind in {"baseline", "heldout"} and t.score is not None),
        key=lambda t: (-(t.score or 0.0), t.step),
    )
    best = gated[0] if gated else None
    return LineageSnapshot(
        trials=trials,
        current_best=best.name if best else None,
        chain_to_best=_chain(best, {t.name: t for t in trials}),
        top=[t.name for t in gated[:top_k]],
        recent=[t.name for t in trials[-recent_n:]],
    )


def _trials(
    heldout_scores: Mapping[int, float],
    pool_scores: Mapping[int, float | None],
    aborted_after: Collection[int],
) -> list[Trial]:
    steps = sorted({0, *heldout_scores, *pool_scores, *aborted_after})
    trials: list[Trial] = []
    last = "baseline"
    for step in steps:
        if step == 0:
            trials.append(Trial("baseline", "baseline", 0, None, heldout_scores.get(0)))
        if step in pool_scores:
            trials.append(Trial(f"rl-{step:03d}", "rl", step, last, pool_scores[step]))
            last = f"rl-{step:03d}"
        if step > 0 and step in heldout_scores:
            name = f"heldout-{step:03d}"
            trials.append(Trial(name, "heldout", step, last, heldout_scores[step]))
        if step in aborted_after:
            trials.append(Trial(f"aborted-{step:03d}", "aborted", step, last, None))
    return trials


def _chain(best: Trial | None, by_name: Mapping[str, Trial]) -> list[str]:
    chain: list[str] = []
    while best is not None:
        chain.append(best.name)
        best = by_name[best.parent] if best.parent else None
    return chain[::-1]
