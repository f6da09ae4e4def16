"""What a prompt template says: the question's form, its worked examples, how they are joined."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

PLACEHOLDER = "{prompt}"
BETWEEN = "\n\n"
"""Stands between two worked examples, and before the question: here and in the harness."""


class Shot(NamedTuple):
    """A worked example."""

    question: str
    answer: str


class Template(NamedTuple):
    """How a question is written, and what stands in front of it."""

    name: str
    question: str
    """The form, `{prompt}` standing for the question."""
    about: str
    """Where it comes from, in a few words."""
    verifiers: Sequence[str] = ()
    """Who reads answers as the bench of this template does."""
    stops: Sequence[str] = ()
    """Texts at which the harness ends a completion."""
    shots: Sequence[Shot] = ()
    """The harness's own worked examples; none where it draws them from training rows."""
    usual_shots: int = 0
    """How many the harness shows where nobody says a number."""
    shows_gold: bool = False
    """A worked example that is drawn from training rows shows the bare gold, not the solution."""
    delimiter: str | None = None
    """Stands between a question and its worked answer; None as `joined` says."""
    after_system: str = BETWEEN
    """Stands between a system prompt and what follows it, where there is no chat template."""

    def write(self, question: str) -> str:
        r"""One question in this form.

        >>> Template("q", "Q: {prompt}\nA:", "").write("Why?")
        'Q: Why?\nA:'
        """
        return self.question.replace(PLACEHOLDER, question)


def joined(question: str, answer: str, delimiter: str | None = None) -> str:
    r"""A written question and its worked answer, as the harness joins them: by one blank.

    A question that asks for no answer on its own line is answered on the next, where no
    `delimiter` is said.

    >>> joined("Q: Why?\nA:", "So.")
    'Q: Why?\nA: So.'
    """
    if delimiter is not None:
        return question + delimiter + answer
    return f"{question} {answer}" if question.endswith(":") else f"{question}\n{answer}"
