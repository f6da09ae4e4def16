"""A policy's rollouts: weights where they must be, completions drawn, texts told whole.

What a prompt began (a prefix, an opened thought) is part of the answer for who reads it: a verifier
that never saw the `<think>` of a chat template would take the thought for the answer. Torch-free;
knows no verifier and no backend.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from engine.data.rows import Question
from engine.sampling.base import Groups, Sampler, WeightSync


@dataclass(frozen=True)
class Rollouts:
    """A sampler that draws with the trainer's weights; ids stay as they were drawn."""

    sampler: Sampler
    sync: WeightSync
    begins: Callable[[Question], str]
    """What of an answer the question's prompt ends in already."""

    def __call__(self, tasks: Sequence[Question], k: int) -> Groups:
        """k completions of each task, in the tasks' order."""
        self.sync.bring()
        groups = self.sampler(tasks, k)
        return [
            [replace(one, text=begun + one.text, begun=begun) for one in group] if begun else group
            for begun, group in zip(map(self.begins, tasks), groups, strict=True)
        ]
