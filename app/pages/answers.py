"""One answer as pages show it: its fate in a word, what each verifier gave, its group, its text."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from markupsafe import Markup

from app.charts.boxes import Drawing, drawing
from app.text.prose import prose
from app.text.visible import Visible, visible
from worker.read.samples.rows import NOT_LEARNT, Sample

_TOKENS_SHOWN = 200
_ANSWER_SHOWN = 400
_RAW_SHOWN = 60_000
_LINE_SHOWN = 140
"""Characters of a prompt in the list; the browser cuts what does not fit."""
_SHORT_PROMPT = 700
"""Characters; a longer one is folded."""
PART_NAMES: Mapping[str, str] = {
    "answer": "What was answered",
    "b2": "What geometry is learnt on",
    "b3": "What text is learnt",
}
REASONS: Mapping[str, str] = {
    "correct": "Right.",
    "lenient": "Right, in another form than the one asked for.",
    "wrong": "Not equal to the reference.",
    "unparsed": "No answer could be read from it.",
    "truncated": "It ran into the length limit.",
    "timeout": "The verifier took too long; it counts in no baseline and no loss.",
    "crash": "The verifier broke; it counts in no baseline and no loss.",
    "unjudged": "The reward functions did not judge it; it counts in no baseline and no loss.",
}


@dataclass(frozen=True)
class Fate:
    """Glyph, word, and the colour that only repeats them."""

    glyph: str
    word: str
    level: str
    """good, bad or quiet."""


def fate_of(sample: Sample) -> Fate:
    """Right, wrong (and in which way), or not judged."""
    if sample.right:
        return Fate("✓", "Right", "good")
    if sample.right is None or sample.reason in NOT_LEARNT:
        return Fate("–", "Not judged", "quiet")
    if sample.truncated:
        return Fate("✕", "Cut off", "bad")
    if sample.unparsed:
        return Fate("✕", "No answer read", "bad")
    return Fate("✕", "Wrong" if sample.detection is None else sample.reason.capitalize(), "bad")


@dataclass(frozen=True)
class Judgement:
    """What one verifier or reward function gave, and why."""

    name: str
    reward: float | None
    why: str | None = None


@dataclass(frozen=True)
class Shown:
    """One completion as a page shows it."""

    sample: Sample
    address: str
    """Of the whole text."""

    @cached_property
    def text(self) -> Visible:
        return visible(self.sample.text)

    @cached_property
    def raw(self) -> Visible:
        """The text as it was written, and of a very long one the ends."""
        return visible(self.sample.text, _RAW_SHOWN)

    @cached_property
    def prose(self) -> Markup | None:
        """To be read; None for what is no prose, or too long."""
        return None if self.sample.detection else prose(self.sample.text)

    @property
    def prompt_prose(self) -> Markup | None:
        return prose(self.sample.prompt) if self.sample.prompt else None

    @property
    def prompt_folded(self) -> bool:
        return len(self.sample.prompt or "") > _SHORT_PROMPT

    @cached_property
    def prompt(self) -> Visible:
        return visible(self.sample.prompt or self.sample.id)

    @cached_property
    def answer(self) -> Visible:
        return visible(self.sample.answer or "–", _ANSWER_SHOWN)

    @cached_property
    def drawing(self) -> Drawing | None:
        return drawing(self.sample.detection) if self.sample.detection else None

    @property
    def fate(self) -> Fate:
        return fate_of(self.sample)

    @cached_property
    def tokens(self) -> list[tuple[int, float | None]]:
        """(id, log-probability) of the first tokens."""
        pairs = itertools.zip_longest(self.sample.ids, self.sample.logprobs)
        return list(itertools.islice(pairs, _TOKENS_SHOWN))

    def judgements(self, verifier: str) -> list[Judgement]:
        """By verifier or reward function; of a run with one, that one with its reason."""
        sample = self.sample
        why = REASONS.get(sample.reason, sample.reason)
        if sample.detection:
            return [Judgement("F1 of boxes", sample.reward, sample.detail)]
        if sample.parts:
            return [Judgement(name, reward) for name, reward in sample.parts.items()]
        return [Judgement(verifier, sample.reward, why)]

    @property
    def ended(self) -> str:
        """What stopped the sampling."""
        return "the length limit" if self.sample.truncated else "its end token"


def shown_of(job_id: int, one: Sample) -> Shown:
    """A job's completion, with the address of its whole text."""
    return Shown(one, f"/jobs/{job_id}/samples/{one.split}/{one.step}/{one.row}")


# --- the list ---


@dataclass(frozen=True)
class Line:
    """One answer in the list."""

    sample: Sample
    address: str
    current: bool
    repeats: bool
    """Its prompt is that of the line above."""

    @property
    def fate(self) -> Fate:
        return fate_of(self.sample)

    @property
    def words(self) -> str:
        """The prompt in one line; of a prompt's further answers what they answered."""
        if self.repeats:
            return f"… answered {self.sample.answer or 'nothing'}"[:_LINE_SHOWN]
        return " ".join((self.sample.prompt or self.sample.id)[: 4 * _LINE_SHOWN].split())[
            :_LINE_SHOWN
        ]

    @property
    def notes(self) -> str:
        """`gsm8k 9071, 2 of 8 right, 388 tokens`."""
        return ", ".join(self._notes())

    def _notes(self) -> Iterator[str]:
        sample = self.sample
        if sample.prompt:
            yield sample.id[:60]
        if sample.group > 1:
            yield f"{sample.group_right} of {sample.group} right"
        if sample.tied:
            yield "no signal"
        if sample.truncated:
            yield f"cut off at {sample.tokens:,}" if sample.tokens else "cut off"
        elif sample.tokens:
            yield f"{sample.tokens:,} tokens"
        if sample.unparsed:
            yield "no answer read"
        if not sample.prompt and sample.detection:
            yield sample.reason


def lines_of(
    found: Sequence[Sample], current: Sample | None, address: Callable[..., str]
) -> list[Line]:
    """The answers of a page, each with the address that opens it."""
    pairs = zip([None, *found], found, strict=False)
    return [
        Line(
            one,
            address(row=one.row),
            current is not None and one.row == current.row,
            above is not None and above.id == one.id,
        )
        for above, one in pairs
    ]


# --- the group ---


@dataclass(frozen=True)
class Member:
    """One completion of a prompt beside the others, with its advantage as a bar."""

    number: int
    sample: Sample
    address: str
    current: bool
    widest: float
    """Largest advantage of the group by size; 0 where all are 0."""

    @property
    def fate(self) -> Fate:
        return fate_of(self.sample)

    @property
    def answer(self) -> str:
        return (self.sample.answer or "none")[:24]

    @property
    def key(self) -> str | None:
        """The key that opens it."""
        return str(self.number) if self.number <= 9 else None

    @property
    def length(self) -> float:
        """Per cent of half the width."""
        return 50 * abs(self.sample.advantage or 0.0) / self.widest if self.widest else 0.0

    @property
    def start(self) -> float:
        """Where the bar begins, per cent."""
        return 50.0 if (self.sample.advantage or 0.0) > 0 else 50.0 - self.length

    @property
    def sign(self) -> str:
        return "up" if (self.sample.advantage or 0.0) > 0 else "down"


def members_of(
    group: Sequence[Sample], current: Sample, address: Callable[..., str]
) -> list[Member]:
    """A prompt's completions; empty for one alone."""
    if len(group) < 2:
        return []
    widest = max(abs(one.advantage or 0.0) for one in group)
    return [
        Member(number, one, address(row=one.row), one.row == current.row, widest)
        for number, one in enumerate(group, 1)
    ]


def group_words(group: Sequence[Sample]) -> str:
    """`5 of 8 right, mean reward 0.71.`"""
    rewards = [one.reward for one in group if one.reward is not None]
    mean = f", mean reward {sum(rewards) / len(rewards):.2f}" if rewards else ""
    tied = " All got the same reward: nothing to rank, and no gradient." if group[0].tied else ""
    return f"{group[0].group_right} of {group[0].group} right{mean}.{tied}"


# --- filters ---


@dataclass(frozen=True)
class Choice:
    """A link with its count; `current` where it is what the page shows."""

    name: str
    address: str
    current: bool
    count: int | None = None
    title: str = ""


Conditions = Mapping[str, Any]
_NARROWING = ("right", "truncated", "unparsed", "tied", "changed")


def filters_of(found: Any, wanted: Any, address: Callable[..., str]) -> list[Choice]:
    """The usual questions to a page of answers, those that its rows can be asked."""
    asked: list[tuple[str, Conditions, int | None, str]] = [
        ("All", {}, found.total, ""),
        ("Right", {"right": "true"}, found.right, ""),
        ("Wrong", {"right": "false"}, found.wrong, ""),
        ("Cut off", {"truncated": "true"}, found.truncated, "ran into the length limit"),
        ("Unread", {"unparsed": "true"}, found.unparsed, "no answer could be read from it"),
        ("Flipped to right", {"changed": "gained"}, found.gained, "solved now, not at step 0"),
        ("Flipped to wrong", {"changed": "lost"}, found.lost, "solved at step 0, not now"),
    ]
    if found.split == "pool" and found.groups != found.total:
        title = "prompts whose answers all got the same reward: nothing to rank"
        asked.append(("No signal", {"tied": "true"}, found.tied, title))
    given = wanted.model_dump(mode="json", exclude_defaults=True, include=set(_NARROWING))
    here = {name: _said(value) for name, value in given.items()}
    return [
        Choice(
            name,
            address(**{**dict.fromkeys(_NARROWING), **conditions}, row=None),
            dict(conditions) == here,
            count,
            title,
        )
        for name, conditions, count, title in asked
        if count is not None
    ]


def _said(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else value
