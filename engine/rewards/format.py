"""The reward of an answer in its form: gated or added, lenient at first, strict at the end.

Wraps verifiers, is one itself. What it pays depends on the step it is made for; a held-out gate
uses the strict verifier alone. Knows no model and no schedule's shape: the config tells both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from engine.contract.rl.format import FormatConfig
from engine.rewards.case import Case
from engine.rewards.judgement import Reason, Verdict

Ask = Callable[[Sequence[Case]], list[Verdict]]
"""Judges many completions at once, in their order; never raises."""


def formed(form: Ask | None, cases: Sequence[Case], strict: Sequence[Verdict]) -> list[bool]:
    """Whether each completion has the form; without `form`, what the strict verifier could read."""
    if form is None:
        return [verdict.reason in {Reason.CORRECT, Reason.WRONG} for verdict in strict]
    return [verdict.reason is Reason.CORRECT for verdict in form(cases)]


@dataclass(frozen=True)
class FormatReward:
    """What training pays at one step."""

    strict: Ask
    """The verifier of the run."""
    form: Ask | None
    """Reads the form alone; without it, well-formed is what `strict` could read."""
    lenient: Ask | None
    added: bool
    """Whether the form's reward comes on top of the answer's, instead of gating it."""
    form_pays: float
    lenient_pays: float
    """Share of its reward that a right answer in another form gets."""

    takes_cases = True

    def __call__(self, completion: str, expected: str) -> Verdict:
        return self.many([Case(completion, expected)])[0]

    def many(self, cases: Sequence[Case]) -> list[Verdict]:
        """One verdict a case, in their order.

        With gating, form_pays 0.1 and lenient_pays 0: form and answer 1.0, form alone 0.1, anything
        else 0. A right answer in another form is `lenient`, never `correct`.
        """
        strict = self.strict(cases)
        well_formed = formed(self.form, cases, strict)
        lenient = self._lenient(cases, strict, well_formed)
        paid = (self._paid(*judged) for judged in zip(strict, well_formed, lenient, strict=True))
        return [replace(v, verified=s.reward) for v, s in zip(paid, strict, strict=True)]

    def _lenient(
        self,
        cases: Sequence[Case],
        strict: Sequence[Verdict],
        well_formed: Sequence[bool],
    ) -> list[Verdict | None]:
        """Asked only where it could pay more."""
        found: list[Verdict | None] = [None] * len(cases)
        if self.lenient is None or not self.lenient_pays:
            return found
        open_ = [
            i
            for i, (verdict, has_form) in enumerate(zip(strict, well_formed, strict=True))
            if verdict.judged and not (has_form and verdict.reason is Reason.CORRECT)
        ]
        for i, verdict in zip(open_, self.lenient([cases[i] for i in open_]), strict=True):
            found[i] = verdict
        return found

    def _paid(self, strict: Verdict, well_formed: bool, lenient: Verdict | None) -> Verdict:
        paid = self._strictly(strict, well_formed)
        if lenient is None:
            return paid
        generous = lenient.reward * self.lenient_pays
        if not lenient.judged or generous <= paid.reward:
            return paid
        return replace(strict, reward=generous, answer=lenient.answer, reason=Reason.LENIENT)

    def _strictly(self, strict: Verdict, well_formed: bool) -> Verdict:
        if not strict.judged:
            return strict  # its form says nothing of an answer that nobody judged
        if not self.added:
            if not well_formed:
                return replace(strict, reward=0.0, reason=Reason.UNPARSED)
            return replace(strict, reward=max(strict.reward, self.form_pays))
        extra = self.form_pays if well_formed else 0.0
        right = strict.reason is Reason.CORRECT and not well_formed
        reason = Reason.LENIENT if right else strict.reason
        return replace(strict, reward=strict.reward + extra, reason=reason)


@dataclass(frozen=True)
class FormatSchedule:
    """`schedule(step)` is the reward of that step, counted from 1."""

    config: FormatConfig
    max_steps: int
    strict: Ask
    form: Ask | None
    lenient: Ask | None

    def __call__(self, step: int) -> FormatReward:
        return FormatReward(
            strict=self.strict,
            form=self.form,
            lenient=self.lenient,
            added=self.config.composition == "added",
            form_pays=self.config.reward_at(step, self.max_steps),
            lenient_pays=self.config.lenient_at(step, self.max_steps),
        )
