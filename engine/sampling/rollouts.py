"""A policy's rollouts: weights where they must be, completions drawn, texts told whole.

What a prompt began (a prefix, an opened thought) is part of the answer for who reads it: a verifier
that never saw the `<think>` of a chat template would take the thought for the answer. Torch-free;
knows no verifier and no backend.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from engine.data.rows import Question
from engine.sampling.base import Groups, Rollout, Sampler, WeightSync
from engine.sampling.stops import cut_at


@dataclass(frozen=True)
class Rollouts:
    """A sampler that draws with the trainer's weights; ids stay as they were drawn."""

    sampler: Sampler
    sync: WeightSync
    begins: Callable[[Question], str]
    """What of an answer the question's prompt ends in already."""
    stops: Sequence[str] = ()
    """Texts at which a completion ends, for a backend that decodes beyond them."""

    def __call__(self, tasks: Sequence[Question], k: int) -> Groups:
        """k completions of each task, in the tasks' order."""
        self.sync.bring()
        return self.draw(tasks, k)

    def draw(self, tasks: Sequence[Question], k: int) -> Groups:
        """The same by the weights that are there already."""
        groups = [[self._cut(one) for one in group] for group in self.sampler(tasks, k)]
        return [
            [replace(one, text=begun + one.text, begun=begun) for one in group] if begun else group
            for begun, group in zip(map(self.begins, tasks), groups, strict=True)
        ]

    def _cut(self, rollout: Rollout) -> Rollout:
        text = cut_at(rollout.text, self.stops)
        return rollout if text == rollout.text else replace(rollout, text=text, truncated=False)
