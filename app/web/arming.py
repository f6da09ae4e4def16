"""The arming card of the queue page: a sentence with fields for tonight, the other terms behind it.

Knows no route; what was typed and what is wrong with it come in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.forms.schema import Setting, flattened, schema_of
from app.text import wording
from app.text.autonomy_words import hours_in_words, now_in_words
from engine.contract.documents import number_of
from engine.contract.errors import ConfigError, ConfigProblem
from worker.amounts import exact
from worker.clock.window import zone_named
from worker.schedule.autonomy import Status
from worker.schedule.one_night import NUMBERS, OneNight, last_terms, one_night
from worker.schedule.policy import Policy

SENTENCE = (
    ("opens", "Tonight from", "from"),
    ("closes", " to", "to"),
    ("cap_usd", ", spend at most $", "spend at most, in dollars"),
    ("max_failures", ", stop after", "failures in a row"),
)
"""(field, the words before it, its name for those who do not see the sentence)"""
LASTS = "+7d"
"""How long the lane is armed for by its every-night terms, unless the form says another time."""


@dataclass(frozen=True)
class Blank:
    """One field of the sentence."""

    name: str
    before: str
    label: str
    typed: str
    problems: Sequence[ConfigProblem]


@dataclass(frozen=True)
class Field:
    """One answer of the every-night form."""

    setting: Setting
    typed: str
    problems: Sequence[ConfigProblem]


@dataclass(frozen=True)
class Form:
    """What was typed into one of the two forms, and what is wrong with it."""

    typed: Mapping[str, str]
    problems: Sequence[ConfigProblem] = ()

    def at(self, name: str) -> Sequence[ConfigProblem]:
        """What is wrong with one field."""
        return [problem for problem in self.problems if problem.field == name]


@dataclass(frozen=True)
class Card:
    """The card: what is armed, or what would be."""

    stand: Status
    asked: Policy
    """One night's terms as far as they could be read; what an unarmed night is drawn by."""
    terms: Policy | None
    """Those that were set last."""
    tonight: Form
    every: Form
    now: float

    @property
    def drawn(self) -> Policy:
        """The terms of the night that is shown."""
        return self.terms if self.stand.armed and self.terms else self.asked

    @property
    def heading(self) -> str:
        """What holds, as a sentence."""
        if self.stand.over:
            return "No longer armed"
        if not self.stand.armed or self.terms is None:
            return "Not armed"
        return f"Armed: {terms_in_words(self.terms, self.now)}"

    @property
    def hours_now(self) -> str | None:
        """Of an armed lane: whether its window is open."""
        return now_in_words(self.terms, self.now) if self.terms and self.stand.armed else None

    @property
    def until(self) -> float | None:
        """When that is true no more, though nothing is written."""
        return self.terms.changes_at(self.now) if self.terms and self.stand.armed else None

    @property
    def ends(self) -> str:
        """When a night that is armed now is over."""
        at = self.asked.expires_at
        return f"{wording.hour(at)} on {wording.weekday(at)}"

    @property
    def lasts(self) -> str:
        """Of an armed lane: when it disarms itself."""
        at = self.drawn.expires_at
        if at is None:
            return "It stays armed until somebody disarms it."
        return f"It disarms itself at {wording.hour(at)} on {wording.weekday(at)}."

    @property
    def blanks(self) -> list[Blank]:
        """The sentence: what was typed, else the terms of before, else the safe ones."""
        known = last_terms(self.stand.terms).model_dump()
        return [
            Blank(name, before, label, self._typed(name, known[name]), self.tonight.at(name))
            for name, before, label in SENTENCE
        ]

    def _typed(self, name: str, known: Any) -> str:
        text = exact(known) if isinstance(known, float) else str(known)
        return self.tonight.typed.get(name, text)

    @property
    def refused(self) -> list[tuple[str, str]]:
        """(field, what is wrong with it) of the sentence, each called as the sentence calls it."""
        labels = {name: label.partition(",")[0] for name, _, label in SENTENCE}
        return [
            (problem.field, f"{labels.get(problem.field, problem.field)}: {_told(problem)}")
            for problem in self.tonight.problems
        ]

    @property
    def zone(self) -> str:
        """Whose hours are meant."""
        return self.tonight.typed.get("zone") or self.asked.zone

    @property
    def machine_zone(self) -> str:
        return zone_named(None).key

    @property
    def fields(self) -> list[Field]:
        """The every-night form: what was typed, else the terms of before, else the safe ones."""
        safe = last_terms(None)
        known: dict[str, Any] = {"window": f"{safe.opens}-{safe.closes}"}
        known |= {"cap_usd": safe.cap_usd, "max_failures": safe.max_failures}
        known |= self.stand.terms or {}
        return [
            Field(setting, self._answer(setting, known), self.every.at(setting.name))
            for setting in flattened(schema_of(Policy))
            if setting.name != "expires_at"
        ]

    def _answer(self, setting: Setting, known: Mapping[str, Any]) -> str:
        if self.every.typed:
            return self.every.typed.get(setting.name, "")
        value = known.get(setting.name, setting.default)
        return "" if value is None else exact(value) if isinstance(value, float) else str(value)

    @property
    def expires(self) -> str:
        return self.every.typed.get("expires", LASTS)


def _told(problem: ConfigProblem) -> str:
    got = "" if problem.value is None else f" (got {problem.value})"
    return f"{problem.problem}{got}; {problem.remedy}"


def terms_in_words(terms: Policy, now: float) -> str:
    """An armed policy in one sentence.

    >>> terms_in_words(Policy(window="22:00-07:00", zone="UTC", cap_usd=5), 0.0)
    'from 22:00 to 07:00 the next morning, every day (UTC), spend at most $5 a day'
    """
    last = terms.expires_at is not None and terms.closes_at(terms.opens_at(now)) == terms.expires_at
    if last and terms.window:
        opens, _, closes = terms.window.replace("–", "-").partition("-")
        said, night = f"tonight from {opens.strip()} to {closes.strip()} ({terms.zone})", ""
    else:
        said, night = hours_in_words(terms), " a day"
    if terms.cap_usd is not None:
        said += f", spend at most {wording.dollars(terms.cap_usd)}{night}"
    if terms.cap_gpu_hours is not None:
        said += f", at most {wording.exact(terms.cap_gpu_hours)} lane hours{night}"
    if terms.max_failures is not None:
        many = f"{terms.max_failures} failures in a row"
        said += f", stop after {many if terms.max_failures > 1 else 'one failure'}"
    return said


def asked_for(
    typed: Mapping[str, str], stand: Status, now: float
) -> tuple[Policy, list[ConfigProblem]]:
    """The night that a person asks for; where it cannot be read the one of before, and why."""
    try:
        return one_night(typed_terms(typed, stand), now), []
    except ConfigError as error:
        known = last_terms(stand.terms).model_dump(exclude_defaults=True)
        try:
            return one_night(known, now), list(error.problems)
        except ConfigError:
            return one_night({}, now), list(error.problems)


def typed_terms(typed: Mapping[str, str], stand: Status) -> dict[str, Any]:
    """One night's terms from texts; what nobody typed is as it was set last."""
    known = last_terms(stand.terms).model_dump()
    given = {name: text.strip().removeprefix("$") for name, text in typed.items()}
    return known | {
        name: _number(text) if name in NUMBERS else text for name, text in given.items()
    }


def _number(text: str) -> Any:
    """A text that is no number stays one, and is refused as such; an empty one is missing."""
    found = number_of(text)
    return (text or None) if found is None else found


FIELDS = frozenset(OneNight.model_fields)
"""What an address may say of a night that is not armed yet."""
