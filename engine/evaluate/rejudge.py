"""Stored completions judged again by any verifiers. Nothing is sampled, and no file is written.

The judges are a run's own (`engine.rewards`): what hangs is ended, what breaks is counted, a
reward function has its own process, a program its box.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.evaluate.completions import Completion
from engine.rewards.adapter import RewardAdapter, load_rewards
from engine.rewards.case import Case
from engine.rewards.judgement import Verdict

_AT_ONCE = 256
"""Completions of one call, also of a reward function."""


@dataclass(frozen=True)
class Judged:
    """The completions of a file by one judge, in their order."""

    name: str
    verdicts: Sequence[Verdict]
    solved: Sequence[bool | None]
    """None where it did not judge."""
    stored: bool = False
    """The file says it; nobody judged again."""


@dataclass(frozen=True)
class Judge:
    """A verifier by its name."""

    name: str
    reward: RewardAdapter

    def __call__(self, completions: Sequence[Completion]) -> Judged:
        """All of them; a completion that was cut off and is not solved says so, as at a gate."""
        verdicts: list[Verdict] = []
        for start in range(0, len(completions), _AT_ONCE):
            some = completions[start : start + _AT_ONCE]
            cut = [bool(one.truncated) for one in some]
            verdicts += self.reward.judge_all([_case(one) for one in some], cut)
        solved = [self.reward.success(one) if one.counted else None for one in verdicts]
        return Judged(self.name, verdicts, solved)


def load_judges(names: Sequence[str], threshold: float) -> list[Judge]:
    """Raises RLLoopError for one that cannot run on this machine."""
    return [Judge(name, _reward(name, threshold)) for name in names]


def _reward(name: str, threshold: float) -> RewardAdapter:
    # Whoever asked kills this process with its group.
    return RewardAdapter(load_rewards([(name, 1.0)], threshold, own_group=False), threshold)


def _case(one: Completion) -> Case:
    return Case(one.text, one.gold or "", one.prompt, one.ids, one.columns, one.step)


def stored(completions: Sequence[Completion]) -> list[Judged]:
    """What the file says of all of its completions, by each judge that it names for all."""
    names = list(dict.fromkeys(name for one in completions for name in one.judged))
    found = []
    for name in names:
        said = [one.judged[name] for one in completions if name in one.judged]
        if len(said) == len(completions):
            found.append(Judged(name, [v for v, _ in said], [ok for _, ok in said], stored=True))
    return found
