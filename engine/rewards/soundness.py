"""How often a verifier said nothing about a completion: it broke, gave up, or did not judge.

Counts, shares, and from which share on a person is told and a verdict is withheld. Knows no loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from engine.rewards.judgement import Reason, Verdict

MOST_CRASHES = 0.02
MOST_UNJUDGED = 0.02
MOST_TIMEOUTS = 0.1
"""Shares above which an alert is raised. The completion may be the cause of a timeout."""
MOST_BROKEN_OF_A_GATE = 0.2
"""Crashes and timeouts together; above it, or above MOST_UNJUDGED, a gate carries no verdict."""


@dataclass(frozen=True)
class Soundness:
    """Of `n` judgements."""

    n: int = 0
    crashes: int = 0
    timeouts: int = 0
    unjudged: int = 0
    first: str = ""
    """What the first one that broke said."""

    @classmethod
    def of(cls, verdicts: Sequence[Verdict]) -> Soundness:
        """Count them."""
        reasons = [verdict.reason for verdict in verdicts]
        said = (v.answer or "" for v in verdicts if v.reason is Reason.CRASH)
        return cls(
            len(reasons),
            reasons.count(Reason.CRASH),
            reasons.count(Reason.TIMEOUT),
            reasons.count(Reason.UNJUDGED),
            next(said, ""),
        )

    def __add__(self, other: Soundness) -> Soundness:
        return Soundness(
            self.n + other.n,
            self.crashes + other.crashes,
            self.timeouts + other.timeouts,
            self.unjudged + other.unjudged,
            self.first or other.first,
        )

    def shares(self) -> dict[str, float]:
        """By the reason's name: `crash`, `timeout`, `unjudged`."""
        if not self.n:
            return {}
        counts = {
            Reason.CRASH: self.crashes,
            Reason.TIMEOUT: self.timeouts,
            Reason.UNJUDGED: self.unjudged,
        }
        return {reason.value: count / self.n for reason, count in counts.items()}

    def alerts(self, where: str) -> Iterator[tuple[str, str]]:
        """(code, text) of each share that is too high. `where`: of what, `held-out rows`."""
        learnt = "they count as 0 in scores and are not learnt from"
        if self.crashes > MOST_CRASHES * self.n:
            why = f"; first: {self.first}" if self.first else ""
            yield (
                "VERIFIER_FAILED",
                f"the verifier broke on {self.crashes} of {self.n} {where}, {learnt}{why}",
            )
        if self.timeouts > MOST_TIMEOUTS * self.n:
            yield (
                "VERIFIER_TIMEOUT",
                f"the verifier ran out of time on {self.timeouts} of {self.n} {where}, {learnt}; "
                "raise reward_timeout_s where it is a reward function",
            )
        if self.unjudged > MOST_UNJUDGED * self.n:
            yield (
                "NOT_JUDGED",
                f"the reward function judged {self.n - self.unjudged} of {self.n} {where}: it "
                "returned None for the others, which are in no mean and are not learnt from",
            )

    def no_verdict(self, where: str) -> str | None:
        """Why a gate with these judgements carries no verdict; None where it does."""
        broken = self.crashes + self.timeouts
        if broken > MOST_BROKEN_OF_A_GATE * self.n:
            return f"the verifier broke or ran out of time on {broken} of {self.n} {where}"
        if self.unjudged > MOST_UNJUDGED * self.n:
            return f"{self.unjudged} of {self.n} {where} were not judged"
        return None
