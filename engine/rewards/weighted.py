"""Several rewards with weights as one, and a reward function as a verifier.

The sum of what judged, each by its weight, as in TRL: a None is left out of it, and where all say
None nothing is judged. What breaks breaks the completion: a sum that lacks an addend by accident
would rank it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.rewards.case import Case
from engine.rewards.functions import Functions, Said
from engine.rewards.judgement import Reason, Verdict

_FIRST = (Reason.CRASH, Reason.TIMEOUT)
"""Of several reasons that a completion says nothing, the one that is told."""


@dataclass(frozen=True)
class Part:
    """One of the rewards."""

    name: str
    """Of a verifier, or `module:function`."""
    weight: float = 1.0
    judge: Callable[[Sequence[Case]], list[Verdict]] | None = None
    """None for a function of the worker process."""

    @property
    def short(self) -> str:
        """As a series is named: without the module."""
        return self.name.rpartition(":")[2]


@dataclass(frozen=True)
class WeightedReward:
    """Judges by all of its parts."""

    parts: Sequence[Part]
    functions: Functions
    threshold: float = 0.5
    """The sum at or above it is a right answer, where no verifier reads one."""
    takes_cases = True

    def __call__(self, completion: str, expected: str) -> Verdict:
        return self.many([Case(completion, expected)])[0]

    def many(self, cases: Sequence[Case]) -> list[Verdict]:
        """One verdict a case, in their order."""
        said = self.functions.ask(cases)
        columns: list[list[Verdict]] = [
            [one.verdict(self.threshold) for one in said[part.name]]
            if part.judge is None
            else part.judge(cases)
            for part in self.parts
        ]
        told = [_told(self.parts, said, i) for i in range(len(cases))]
        return [self._sum([column[i] for column in columns], *told[i]) for i in range(len(cases))]

    def _sum(
        self, verdicts: Sequence[Verdict], extra: Mapping[str, Any], logged: Mapping[str, float]
    ) -> Verdict:
        parts = {
            name: verdict.reward if verdict.judged else None
            for name, verdict in zip(_names(self.parts), verdicts, strict=True)
        }
        for reason in _FIRST:
            for verdict in verdicts:
                if verdict.reason is reason:
                    return Verdict(0.0, verdict.answer, reason, None, parts, extra, logged)
        judged = [
            (part, verdict)
            for part, verdict in zip(self.parts, verdicts, strict=True)
            if verdict.judged
        ]
        if not judged:
            return Verdict(0.0, None, Reason.UNJUDGED, None, parts, extra, logged)
        reward = sum(part.weight * verdict.reward for part, verdict in judged)
        read = next((verdict for part, verdict in judged if part.judge is not None), None)
        if read is not None:
            return Verdict(reward, read.answer, read.reason, None, parts, extra, logged)
        reason = Reason.CORRECT if reward >= self.threshold else Reason.WRONG
        return Verdict(reward, None, reason, None, parts, extra, logged)


def _names(parts: Sequence[Part]) -> list[str]:
    """Short ones, in full where two would be alike."""
    short = [part.short for part in parts]
    return [part.short if short.count(part.short) == 1 else part.name for part in parts]


def _told(
    parts: Sequence[Part], said: Mapping[str, Sequence[Said]], row: int
) -> tuple[dict[str, Any], dict[str, float]]:
    """What the functions logged about a row."""
    extra: dict[str, Any] = {}
    logged: dict[str, float] = {}
    for part in parts:
        if part.judge is None:
            extra |= said[part.name][row].extra or {}
            logged |= said[part.name][row].logged or {}
    return extra, logged
