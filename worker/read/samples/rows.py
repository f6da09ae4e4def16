"""One completion as a row of a rollout file says it, of either kind of run.

An `rl_run` row brings reward, reason and advantage; a `stage2_ab` row brings boxes, and its F1
stands for the reward. A field that is missing or of another type reads as not known. Knows no file.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict

from engine.contract.asked import asked as same_text
from engine.contract.known import real, whole

NOT_LEARNT = frozenset({"crash", "timeout", "unjudged"})
"""Reasons of completions that are in no baseline and no loss."""
_RIGHT = frozenset({"correct", "lenient"})


class Outcome(NamedTuple):
    """What a row came to: all that a filter or a comparison asks of it."""

    id: str
    reward: float | None
    reason: str
    truncated: bool
    unparsed: bool
    """No answer could be read from it."""
    success: bool | None
    hits: tuple[int, int, int] | None
    """(hits, predictions, objects) of a stage-2 row."""
    asked: int | None
    """Stands for what was asked, as text or as boxes: equal in this process where that is equal."""
    question: int | None
    """What counts as one observation: the question however it is written, or the picture."""
    asked_ids: int | None
    """What was asked, by the prompt's token ids: a row of an older engine has nothing else."""

    @property
    def right(self) -> bool | None:
        """Whether it solved its task; None for a row that was not judged."""
        if self.success is not None:
            return self.success
        return None if self.reason in NOT_LEARNT | {"unknown"} else self.reason in _RIGHT


class Box(BaseModel):
    """One box over a picture, in thousandths of its sides."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    number: int
    """Place among the objects, or among the rollout's entries, from 1."""
    desc: str
    bounds: tuple[int, int, int, int] | None
    """x1, y1, x2, y2; null for an entry that was dropped."""
    fate: str
    """Of an object: found or missed. Of an entry: matched, false positive, or why it was
    dropped."""
    partner: int | None = None
    """Number of the object that the entry matched."""
    iou: float | None = None


class Picture(BaseModel):
    """A picture kept beside the rollouts; sizes in pixels of the original."""

    name: str
    width: int
    height: int


class Span(BaseModel):
    """Neighbouring tokens of one role."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    text: str
    tokens: int
    part: str | None
    """text, structure, desc, coord or stop; null behind the cut."""
    source: str
    """prefix, frame, matched, FP, dropped, FN or cut."""
    entry: int | None
    weight: float | None
    """Of its cross-entropy; null where nothing is taught by text."""
    target: int | None
    """Bin that a coord token should have said."""


class Detection(BaseModel):
    """What stage-2 found on one picture."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    picture: Picture | None
    objects: list[Box]
    entries: list[Box]
    spans: dict[str, list[Span]]
    """answer, b2 (what geometry is learnt on) and b3 (what text is learnt); empty where the
    engine kept none."""


class Sample(BaseModel):
    """One completion."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    split: str
    step: int
    row: int
    """Place in its file, from 0."""
    id: str
    """Of the prompt."""
    sample: int | None
    """Which of the prompt's completions."""
    version: int | None
    """Step of the weights that wrote it."""
    prompt: str | None
    text: str
    answer: str | None
    """What the verifier read out of it."""
    reward: float | None
    reason: str
    detail: str | None
    """In words: what was matched, or what each of several rewards gave and logged."""
    gold: str | None
    """The reference answer, where the row brings it."""
    parts: dict[str, float | None]
    """What each of several rewards gave; null where one did not judge."""
    judged: dict[str, str]
    """Reason by judge, where several judged it."""
    extra: dict[str, Any]
    """Columns that reward functions logged about it."""
    advantage: float | None
    truncated: bool
    unparsed: bool
    """No answer could be read from it."""
    success: bool | None
    right: bool | None
    """Solved; null for a row that was not judged."""
    tokens: int | None
    ids: list[int]
    logprobs: list[float]
    """Of each token under the weights that sampled it."""
    tied: bool = False
    """Every completion of its prompt got the same reward: nothing to rank."""
    group: int = 1
    """Completions of its prompt in this step."""
    group_right: int = 0
    """Of them those that solved it."""
    detection: Detection | None = None

    @property
    def mean_logprob(self) -> float | None:
        """Nats a token."""
        return math.fsum(self.logprobs) / len(self.logprobs) if self.logprobs else None


def outcome_of(row: Mapping[str, Any], place: int) -> Outcome:
    """The row at `place` of its file."""
    truncated = row.get("truncated") is True
    hits = _hits_of(row)
    prompt, prompt_ids = row.get("prompt"), row.get("prompt_ids")
    if hits is not None:
        asked = _fingerprint(row.get("objects"))
        found, said, there = hits
        name = _text(row.get("record")) or f"row {place + 1}"
        invalid = row.get("invalid") is True
        solved = found == said == there and not invalid
        dropped = bool(row.get("dropped"))
        # Nothing there and nothing said is a right answer; its quotient is 0 / 0.
        f1 = 1.0 if solved and not dropped else 2 * found / max(said + there, 1)
        fate = _fate(hits, invalid=invalid, dropped=dropped)
        shown = _shown(row)
        return Outcome(name, f1, fate, truncated, invalid, solved, hits, asked, shown, None)
    name = _text(row.get("id")) or f"row {place + 1}"
    reason = _text(row.get("reason")) or "unknown"
    success = row["success"] if isinstance(row.get("success"), bool) else None
    reward = real(row.get("reward"))
    asked = question = None
    if isinstance(prompt, str):
        asked, question = hash(prompt), hash(same_text(prompt))
    ids = hash(str(prompt_ids)) if isinstance(prompt_ids, list) else None
    unparsed = reason == "unparsed"
    seen = ids if question is None else question
    return Outcome(name, reward, reason, truncated, unparsed, success, None, asked, seen, ids)


def read_sample(row: Mapping[str, Any], *, split: str, step: int, place: int) -> Sample:
    """A row as a sample; `tied` and `group` are its file's to say."""
    outcome = outcome_of(row, place)
    ids = _whole_numbers(row.get("completion_ids" if outcome.hits is None else "ids"))
    known = [value for value in map(real, _listed(row.get("logprobs"))) if value is not None]
    return Sample(
        split=split,
        step=step,
        row=place,
        id=outcome.id,
        sample=whole(row.get("sample")),
        version=whole(row.get("version")),
        prompt=_text(row.get("prompt")),
        text=_text(row.get("text")) or "",
        answer=_text(row.get("answer")),
        reward=outcome.reward,
        reason=outcome.reason,
        detail=_given(row) if outcome.hits is None else _counted(outcome.hits, row.get("dropped")),
        gold=_text(row.get("gold")),
        parts=_parts(row),
        judged=_judges(row),
        extra=dict(extra) if isinstance(extra := row.get("extra"), Mapping) else {},
        advantage=real(row.get("advantage")),
        truncated=outcome.truncated,
        unparsed=outcome.unparsed,
        success=outcome.success,
        right=outcome.right,
        tokens=len(ids) or None,
        ids=ids,
        logprobs=known,
        detection=None if outcome.hits is None else _detection(row),
    )


def _hits_of(row: Mapping[str, Any]) -> tuple[int, int, int] | None:
    hits, alone, missed = (whole(row.get(name)) for name in ("matched", "false", "missed"))
    if hits is None or alone is None or missed is None:
        return None
    return hits, hits + alone, hits + missed


def _given(row: Mapping[str, Any]) -> str | None:
    """`accuracy 1, judge not judged; gold: 7`."""
    extra = row.get("extra")
    given = [
        f"{name} {'not judged' if reward is None else f'{reward:g}'}"
        for name, reward in _parts(row).items()
    ]
    logged = [
        f"{name}: {str(value)[:_SHOWN]}"
        for name, value in (extra.items() if isinstance(extra, Mapping) else ())
    ]
    return "; ".join(filter(None, [", ".join(given), *logged])) or None


def _parts(row: Mapping[str, Any]) -> dict[str, float | None]:
    parts = row.get("parts")
    return {
        str(name): None if reward is None else real(reward)
        for name, reward in (parts.items() if isinstance(parts, Mapping) else ())
        if reward is None or real(reward) is not None
    }


def _judges(row: Mapping[str, Any]) -> dict[str, str]:
    judged = row.get("judged")
    return {
        str(name): _text(said.get("reason")) or "unknown"
        for name, said in (judged.items() if isinstance(judged, Mapping) else ())
        if isinstance(said, Mapping)
    }


_SHOWN = 80
"""Characters of a logged value in a line."""


def _counted(hits: tuple[int, int, int], dropped: Any) -> str:
    found, said, there = hits
    text = f"{found} matched, {said - found} false, {there - found} missed"
    if isinstance(dropped, Mapping) and dropped:
        text += "; dropped: " + ", ".join(f"{count} {why}" for why, count in dropped.items())
    return text


def _fingerprint(objects: Any) -> int | None:
    """Of the ground truth alone: whether it was found is the rollout's."""
    if not isinstance(objects, list):
        return None
    return hash(str([(one.get("desc"), one.get("bbox_2d")) for one in _mappings(objects)]))


def _shown(row: Mapping[str, Any]) -> int | None:
    """The picture that a stage-2 row answers, by its file."""
    image = _text(row.get("image"))
    return None if image is None else hash(image)


def _fate(counts: tuple[int, int, int], *, invalid: bool, dropped: bool) -> str:
    hits, said, there = counts
    if invalid:
        return "invalid"
    if dropped:
        return "entries dropped"
    if hits == said == there:
        return "all found"
    if said > hits and there > hits:
        return "false and missed"
    return "false positives" if said > hits else "missed"


def _detection(row: Mapping[str, Any]) -> Detection | None:
    """None for a row of an engine that kept no boxes."""
    if not isinstance(row.get("objects"), list):
        return None
    spans = row.get("spans")
    return Detection(
        picture=_picture(row.get("picture")),
        objects=[_object(i, value) for i, value in enumerate(_mappings(row.get("objects")), 1)],
        entries=[_entry(i, value) for i, value in enumerate(_mappings(row.get("entries")), 1)],
        spans={
            str(name): [_span(value) for value in _mappings(values)]
            for name, values in (spans.items() if isinstance(spans, Mapping) else ())
        },
    )


def _object(number: int, value: Mapping[str, Any]) -> Box:
    fate = "found" if value.get("matched") is True else "missed"
    desc = _text(value.get("desc")) or ""
    return Box(number=number, desc=desc, bounds=_bounds(value.get("bbox_2d")), fate=fate)


def _entry(number: int, value: Mapping[str, Any]) -> Box:
    match, drop = value.get("match"), _text(value.get("drop"))
    paired = match if isinstance(match, Mapping) else {}
    index = whole(paired.get("object"))
    return Box(
        number=number,
        desc=_text(value.get("desc")) or _text(value.get("key")) or "",
        bounds=_bounds(value.get("bbox_2d")),
        fate=f"dropped: {drop}" if drop else "false positive" if index is None else "matched",
        partner=None if index is None else index + 1,
        iou=real(paired.get("iou")),
    )


def _span(value: Mapping[str, Any]) -> Span:
    return Span(
        text=_text(value.get("text")) or "",
        tokens=whole(value.get("tokens")) or 0,
        part=_text(value.get("part")),
        source=_text(value.get("source")) or "cut",
        entry=whole(value.get("entry")),
        weight=real(value.get("weight")),
        target=whole(value.get("target")),
    )


def _picture(value: Any) -> Picture | None:
    if not isinstance(value, Mapping):
        return None
    name = _text(value.get("name"))
    width, height = whole(value.get("width")), whole(value.get("height"))
    if name is None or not width or not height or min(width, height) < 1:
        return None
    return Picture(name=name, width=width, height=height)


def _bounds(value: Any) -> tuple[int, int, int, int] | None:
    numbers = _whole_numbers(value)
    return (numbers[0], numbers[1], numbers[2], numbers[3]) if len(numbers) == 4 else None


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    return [item for item in _listed(value) if isinstance(item, Mapping)]


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def _whole_numbers(value: Any) -> list[int]:
    return [item for item in _listed(value) if whole(item) is not None]


def _text(value: Any) -> str | None:
    """A lone surrogate cannot be written out again; it becomes the replacement character."""
    if not isinstance(value, str) or not value:
        return None
    return value if value.isascii() else value.encode("utf-8", "replace").decode()
