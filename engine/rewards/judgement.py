"""What a verifier says about one completion."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any


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
    UNJUDGED = "unjudged"
    """A reward function said None: it does not judge this row."""


BROKE = frozenset({Reason.CRASH, Reason.TIMEOUT})
"""Counted as 0 in scores, and left out of baseline and loss: it says nothing about the policy."""


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
    parts: Mapping[str, float | None] = field(default_factory=dict)
    """What each of several rewards gave, or one function; None where it did not judge."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Columns that a reward function logged about this completion."""
    logged: Mapping[str, float] = field(default_factory=dict)
    """Numbers that it logged about the call that this completion was judged in."""

    @property
    def judged(self) -> bool:
        """Whether the reward says anything about the completion: only then it is learnt from."""
        return self.reason not in BROKE and self.reason is not Reason.UNJUDGED

    @property
    def counted(self) -> bool:
        """Whether it stands in a mean: what broke counts as 0, what was not judged not at all."""
        return self.reason is not Reason.UNJUDGED

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
    def unjudged(cls) -> Verdict:
        """The row is not the verifier's to judge; the 0 is a filler."""
        return cls(0.0, None, Reason.UNJUDGED)

    @classmethod
    def unparsed(cls, answer: str | None = None) -> Verdict:
        """0: there is nothing to compare."""
        return cls(0.0, answer, Reason.UNPARSED)


def verdict_of(said: Any, threshold: float) -> Verdict:
    """What a verifier returned, as a verdict. A number at or above `threshold` is a right answer.

    NaN, infinity and what is no number are a crash worth 0.

    >>> verdict_of(0.25, 0.5).reason.value, verdict_of(None, 0.5).reason.value
    ('wrong', 'unjudged')
    """
    if isinstance(said, Verdict):
        return _sound(said)
    if said is None:
        return Verdict.unjudged()
    try:
        reward = number_of(said)
    except (TypeError, ValueError) as error:
        return Verdict.broke(error)
    return _sound(Verdict(reward, None, Reason.CORRECT if reward >= threshold else Reason.WRONG))


def number_of(value: Any) -> float:
    """A reward as TRL takes it: a number or switch of Python, numpy or torch, or one in a tensor.

    Raises TypeError for text and everything else that is not one number.
    """
    if isinstance(value, str | bytes | bytearray):
        raise TypeError(f"the reward is text, not a number: {str(value)[:40]!r}")
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise TypeError(f"the reward is a {type(value).__name__}, not a number") from error


def _sound(verdict: Verdict) -> Verdict:
    """What broke is worth 0, whatever stands in it."""
    try:
        finite = math.isfinite(verdict.reward) and math.isfinite(verdict.strict)
    except TypeError:
        finite = False
    if not finite:
        answer = verdict.answer or f"the reward is {verdict.reward!r}"
        return replace(verdict, reward=0.0, verified=None, answer=answer, reason=Reason.CRASH)
    if verdict.judged or not verdict.reward:
        return verdict
    return replace(verdict, reward=0.0)


def told(verdicts: Sequence[Verdict]) -> dict[str, float]:
    """Series of what several rewards, or reward functions, gave: the mean of each, where it judged
    (`rewards/NAME`), and of what it logged (`logged/NAME`).
    """
    given: dict[str, list[float]] = {}
    for verdict in verdicts:
        for name, reward in verdict.parts.items():
            if reward is not None:
                given.setdefault(f"rewards/{name}", []).append(reward)
        for name, value in verdict.logged.items():
            given.setdefault(f"logged/{name}", []).append(value)
    means = {name: math.fsum(values) / len(values) for name, values in given.items()}
    return {name: mean for name, mean in means.items() if math.isfinite(mean)}
