"""Answers that the prompt began (a prefix, an opened thought): told whole, as a reader sees them.

A verifier that never saw the `<think>` of a chat template would take the thought for the answer.
Torch-free; knows no verifier.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from engine.data.rows import Question
from engine.sampling.base import Groups, Sampler


@dataclass(frozen=True)
class Begun:
    """A sampler whose texts begin with what the prompt gave them; ids stay as they were drawn."""

    sampler: Sampler
    begins: Callable[[Question], str]

    def __call__(self, tasks: Sequence[Question], k: int) -> Groups:
        """k completions of each task, in the tasks' order."""
        groups = self.sampler(tasks, k)
        return [
            [replace(one, text=begun + one.text, begun=begun) for one in group] if begun else group
            for begun, group in zip(map(self.begins, tasks), groups, strict=True)
        ]
