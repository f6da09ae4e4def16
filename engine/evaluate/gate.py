"""The held-out gate: what the current policy scores on rows it never trained on.

Draws with the same random numbers at every gate, so two gates differ by their weights alone.
Knows no loop and picks no checkpoint.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from engine.contract.asked import asked
from engine.contract.intervals import evidence, wilson
from engine.data.rows import Question
from engine.rewards.adapter import Reason, RewardAdapter, Verdict
from engine.rewards.case import Case
from engine.rewards.judgement import BROKE, told
from engine.rewards.soundness import Soundness
from engine.rewards.text.forms import form_shares, shares_of
from engine.run.stop import check_abort
from engine.sampling.base import Rollout, Sampler

_BATCH = 32
"""Completions judged between two looks at the abort."""
_FAILING = 0.1
"""A verifier that breaks on so many of the rows is worth a word: the score is not the policy's."""


def case_of(question: Question, rollout: Rollout, step: int) -> Case:
    """All that a verifier or reward function may ask of a completion by the weights of `step`."""
    prompt = question.prompt if question.messages is None else question.messages
    ids, columns = rollout.completion_ids, question.columns
    return Case(rollout.text, question.answer, prompt, ids, columns, step, question.verifier)


class Judgement(NamedTuple):
    """What one verifier says of a completion."""

    verdict: Verdict
    success: bool | None
    """None: it judged nothing."""


@dataclass(frozen=True)
class Scored:
    """One held-out question with what the policy made of it."""

    question: Question
    rollout: Rollout
    verdict: Verdict
    success: bool | None
    """None: the verdict judged nothing, and the row is in no score."""
    also: Mapping[str, Judgement] = field(default_factory=dict)
    """By other verifiers, which pick and decide nothing."""


@dataclass(frozen=True)
class GateResult:
    """A gate's score with its items; converts to the float that the loop compares."""

    step: int
    items: Sequence[Scored]
    temp: float
    failure: str | None = None
    """That the verifier itself broke, on how many rows and how."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """Of a mixture's sources by name; without any, every row counts alike."""

    def __float__(self) -> float:
        """The success rate; of a mixture the mean over its sources by weight."""
        parts = self._weighed()
        if parts:
            return math.fsum(share * float(part) for share, part in parts)
        return sum(self.counted) / len(self.counted) if self.counted else 0.0

    def by_source(self) -> dict[str, GateResult]:
        """The rows of each source of a mixture by themselves; none without a mixture."""
        found: dict[str, list[Scored]] = {}
        for item in self.items if self.weights else ():
            found.setdefault(item.question.source, []).append(item)
        return {name: GateResult(self.step, items, self.temp) for name, items in found.items()}

    def _weighed(self) -> list[tuple[float, GateResult]]:
        """Each source with rows that were judged, with its share of the score."""
        parts = [(self.weights[n], part) for n, part in self.by_source().items() if part.counted]
        whole = math.fsum(weight for weight, _ in parts)
        return [(weight / whole, part) for weight, part in parts]

    @property
    def outcomes(self) -> list[bool | None]:
        """Success of each item, in the questions' order; None where it was not judged."""
        return [item.success for item in self.items]

    @property
    def counted(self) -> list[bool]:
        """Success of the items that were judged: what broke is among them, as not solved."""
        return [item.success for item in self.items if item.success is not None]

    @property
    def broke(self) -> frozenset[int]:
        """Places of the items that the verifier broke on."""
        return frozenset(i for i, one in enumerate(self.items) if one.verdict.reason in BROKE)

    @property
    def unread(self) -> frozenset[int]:
        """Places of the items in which the verifier could read no answer."""
        unparsed = Reason.UNPARSED
        return frozenset(i for i, one in enumerate(self.items) if one.verdict.reason is unparsed)

    @property
    def soundness(self) -> Soundness:
        """How many of them the verifier broke on, or did not judge."""
        return Soundness.of([item.verdict for item in self.items])

    @property
    def truncated(self) -> float:
        """Share of the completions that were cut off at their limit."""
        return statistics.fmean(item.rollout.truncated for item in self.items)

    @property
    def unparsed(self) -> float:
        """Share of the completions in which the verifier could read no answer."""
        return statistics.fmean(item.verdict.reason is Reason.UNPARSED for item in self.items)

    @property
    def ci95(self) -> tuple[float, float]:
        """Wilson interval of the score; rows that ask the same count as one, and rows of which
        few make up much of a weighted score for less.
        """
        rows, parts = self.evidence, self._weighed()
        if parts:
            rows = 1 / math.fsum(share**2 / part.evidence for share, part in parts)
        return wilson(float(self) * rows, rows)

    @property
    def evidence(self) -> float:
        """How many rows with questions of their own say as much as those that were judged."""
        judged = [item for item in self.items if item.verdict.counted]
        return evidence([asked(item.question.prompt) for item in judged])

    def shares(self) -> dict[str, float]:
        """Of the completions: unparsed, cut off, and of each form of answer, these also among those
        that were solved and those that were not.
        """
        cut = [item.rollout.truncated for item in self.items]
        return {
            "unparsed": self.unparsed,
            **shares_of("truncated", cut, self.outcomes),
            **form_shares([item.rollout.text for item in self.items], self.outcomes),
        }

    def values(self) -> dict[str, float]:
        """What else of a gate is worth a curve."""
        return {
            **self.shares(),
            **self.soundness.shares(),
            **told([item.verdict for item in self.items]),
            **self._as_others_judge(),
        }

    def _as_others_judge(self) -> dict[str, float]:
        """`as/NAME`: its score of the same completions; `as/NAME/unparsed`: what it cannot read."""
        found: dict[str, float] = {}
        for name in self.items[0].also if self.items else ():
            said = [item.also[name] for item in self.items]
            counted = [one.success for one in said if one.success is not None]
            unread = [one.verdict.reason is Reason.UNPARSED for one in said]
            found |= {f"as/{name}": statistics.fmean(counted)} if counted else {}
            found[f"as/{name}/unparsed"] = statistics.fmean(unread)
        return found


@dataclass(frozen=True)
class Gate:
    """The held-out seam of the loop: `(step, tasks) → score`."""

    sampler: Sampler
    reward: RewardAdapter
    temp: float
    weights: Mapping[str, float] = field(default_factory=dict)
    """Of a mixture's sources by name."""
    also: Mapping[str, RewardAdapter] = field(default_factory=dict)
    """Other verifiers by name, for curves of their own."""

    def __call__(self, step: int, tasks: Sequence[Question]) -> GateResult:
        """One completion a question. Raises Aborted while sampling or judging."""
        rollouts = [rollout for [rollout] in self.sampler(tasks, 1)]
        items: list[Scored] = []
        size = max(1, len(tasks)) if self.reward.batched else _BATCH
        for start in range(0, len(tasks), size):
            check_abort()
            end = start + size
            items += self._score(step, tasks[start:end], rollouts[start:end])
        return GateResult(step, items, self.temp, self._failure(items), self.weights)

    def _failure(self, items: Sequence[Scored]) -> str | None:
        broken = [i for i in items if not i.verdict.judged]
        if not broken or len(broken) < _FAILING * len(items):
            return None
        first = broken[0]
        did = "broke on" if any(one.verdict.counted for one in broken) else "did not judge"
        why = first.verdict.answer or first.verdict.reason.value
        return (
            f"the verifier {did} {len(broken)} of {len(items)} held-out rows; "
            f"first on row {first.question.id!r}: {why}"
        )

    def _score(
        self, step: int, tasks: Sequence[Question], rollouts: Sequence[Rollout]
    ) -> list[Scored]:
        cases = [case_of(task, roll, step) for task, roll in zip(tasks, rollouts, strict=True)]
        cut = [rollout.truncated for rollout in rollouts]
        own = _judged(self.reward, cases, cut)
        others = {name: _judged(one, cases, cut) for name, one in self.also.items()}
        return [
            Scored(task, rollout, *own[i], {name: said[i] for name, said in others.items()})
            for i, (task, rollout) in enumerate(zip(tasks, rollouts, strict=True))
        ]


def _judged(reward: RewardAdapter, cases: Sequence[Case], cut: Sequence[bool]) -> list[Judgement]:
    return [
        Judgement(one, reward.success(one) if one.counted else None)
        for one in reward.judge_all(cases, cut)
    ]
