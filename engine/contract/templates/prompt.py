"""A prompt out of its parts: form, system prompt, worked examples, question.

One place for training, gates, benches and what a page shows before a run. Knows no tokenizer: under
a chat template the turns are the prompt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from engine.contract.templates.template import BETWEEN, Template, joined

Turn = Mapping[str, str]


class Prompt(NamedTuple):
    """What is asked, part by part."""

    system: Sequence[Turn]
    history: Sequence[Turn]
    """Turns of the row's own conversation in front of its question."""
    shots: Sequence[tuple[str, str]]
    """Written questions with their answers."""
    question: str
    """Written."""
    prefix: str
    """How the completion is made to begin."""
    delimiter: str | None = None
    """As `Template.delimiter`."""
    after_system: str = BETWEEN
    """As `Template.after_system`."""

    def text(self) -> str:
        """Without a chat template; a `history` has no place in it."""
        system = [turn["content"] + self.after_system for turn in self.system]
        shots = [joined(*shot, self.delimiter) + BETWEEN for shot in self.shots]
        return "".join([*system, *shots, self.question]) + self.prefix

    def messages(self) -> list[Turn]:
        """For a chat template, which writes the prefix behind them."""
        shown = [
            {"role": role, "content": content}
            for shot in self.shots
            for role, content in zip(("user", "assistant"), shot, strict=True)
        ]
        asked = {"role": "user", "content": self.question}
        return [*self.system, *shown, *self.history, asked]


def compose(
    template: Template,
    turns: Sequence[Turn],
    *,
    system_prompt: str = "",
    shots: Sequence[tuple[str, str]] = (),
    prefix: str = "",
) -> Prompt:
    r"""`turns` are a row's conversation, its question the last; `shots` bare questions and answers.

    A system turn of the row counts, else `system_prompt`. Each worked answer begins with `prefix`,
    as the completion does.

    >>> asked = [{"role": "user", "content": "Why?"}]
    >>> compose(Template("q", "Q: {prompt}\nA:", ""), asked, shots=[("How?", "So.")]).text()
    'Q: How?\nA: So.\n\nQ: Why?\nA:'
    """
    *before, asked = turns
    if system_prompt and not (before and before[0]["role"] == "system"):
        before.insert(0, {"role": "system", "content": system_prompt})
    return Prompt(
        system=[turn for turn in before if turn["role"] == "system"],
        history=[turn for turn in before if turn["role"] != "system"],
        shots=[(template.write(question), prefix + answer) for question, answer in shots],
        question=template.write(asked["content"]),
        prefix=prefix,
        delimiter=template.delimiter,
        after_system=template.after_system,
    )
