"""What a verifier says about one completion."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Reason(enum.StrEnum):
    """Why a completion earned what it earned."""

    CORRECT = "correct"
    LENIENT = "lenient"
    """Right, but in another form than the one asked for."""
    WRONG = "wrong"
    UNPARSED = "unparsed"
    """No answer could be read from it."""
    TRUNCATED = "truncated"
    """It ran into the length limit."""
    TIMEOUT = "timeout"
    """The verifier gave up."""
    CRASH = "crash"
    """The verifier broke, or returned no number."""


@dataclass(frozen=True)
class Verdict:
    """`answer` is what the verifier read out of the completion, or what it raised; None when
    nothing was found.
    """

    reward: float
    answer: str | None
    reason: Reason
    verified: float | None = None
    """What the run's verifier alone gives, where training pays by another rule; None elsewhere."""

    @property
    def strict(self) -> float:
        """What a held-out gate would have given."""
        return self.reward if self.verified is None else self.verified

    @classmethod
    def of(cls, correct: bool, answer: str) -> Verdict:
        """1 and `correct`, or 0 and `wrong`.

        >>> Verdict.of(2 + 2 == 4, "4").reason.value
        'correct'
        """
        return cls(1.0, answer, Reason.CORRECT) if correct else cls(0.0, answer, Reason.WRONG)

    @classmethod
    def broke(cls, error: BaseException) -> Verdict:
        """0: the verifier raised, which says nothing about the completion.

        >>> Verdict.broke(ValueError("no JSON")).answer
        'ValueError: no JSON'
        """
        told = " ".join(f"{type(error).__name__}: {error}".split())
        return cls(0.0, told.removesuffix(":"), Reason.CRASH)

    @classmethod
    def unparsed(cls, answer: str | None = None) -> Verdict:
        """0: there is nothing to compare."""
        return cls(0.0, answer, Reason.UNPARSED)
