"""The reader of answers: a list, and one of them at full width; its group, its raw text, its diff.

The address is the view: split, step, filters and the row that is shown all stand in it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from fastapi import Path as PathValue
from pydantic import Field, ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, HTMLResponse, PlainTextResponse

from app.pages.answers import (
    PART_NAMES,
    Choice,
    Member,
    Shown,
    filters_of,
    group_words,
    lines_of,
    members_of,
    shown_of,
)
from app.text.headline import label
from app.text.visible import visible
from app.text.wording_changes import Stretch, changes
from app.web.dependencies import DatabaseDep, JobId
from app.web.plainly import require_plain
from app.web.templating import page
from engine.contract.errors import ConfigError
from engine.contract.problems import problems_of
from engine.contract.verifiers import verifier_names
from worker.db.connection import Database
from worker.read import feed, jobs
from worker.read.benches import OWN, benches_of, check_split, parts
from worker.read.comparison.heldout import picked_step
from worker.read.groups import group_of as seeds_of
from worker.read.jobs import JobView
from worker.read.samples.elsewhere import Tally, counterpart, group_of, tallies
from worker.read.samples.files import Split, picture_file, rollout_files
from worker.read.samples.index import BYTES_A_LOOK, SHELF
from worker.read.samples.query import (
    SamplePage,
    SplitName,
    Wanted,
    find_history,
    find_samples,
)
from worker.read.samples.rows import Sample

router = APIRouter(prefix="/jobs/{job_id}/samples", include_in_schema=False)

_LISTED = 50
_MOST_REASONS = 100
_NEVER_ASKED = 10**12
"""More than any step or row has."""


class Asked(Wanted):
    """Which answers, and how the one that is shown is looked at."""

    limit: int = Field(_LISTED, ge=1, le=100)
    view: Literal["text", "raw", "diff"] = "text"
    other: int | None = Field(None, ge=1, le=2**63 - 1)
    """Of a diff: the other run; this one by default."""
    at: int | None = Field(None, ge=0, le=_NEVER_ASKED)
    """Of a diff: the step of the other answer; the one that held-out picked by default."""


@dataclass(frozen=True)
class Against:
    """The answer to the same prompt that the shown one is held against."""

    title: str
    problem: str | None = None
    shown: Shown | None = None
    sides: tuple[Sequence[Stretch], Sequence[Stretch]] | None = None
    """The other text and this one, in stretches; None where they are too long to compare."""


@dataclass(frozen=True)
class Reading:
    """The answer that is shown, with what stands around it."""

    shown: Shown
    members: Sequence[Member]
    group_words: str
    views: Sequence[Choice]
    against: Against | None
    elsewhere: Sequence[tuple[Tally, str]]
    """Of steps that answered the prompt too, with the address of the diff."""
    siblings: Sequence[tuple[int, str]]
    """Runs of other seeds: number, and what tells them apart."""
    history: str
    link: str
    """The address of this answer alone, without any filter."""


@router.get("")
def samples(request: Request, job_id: JobId, database: DatabaseDep) -> HTMLResponse:
    """The page, or with `?part=live` what changes on it; every filter stands in the address.

    Without a step in the address it follows the newest one, until the run is over.
    """
    # Read before the rest: what changes in between comes once more by the stream, never less.
    position = feed.last_change_id(database)
    job = jobs.get_job(database, job_id)
    asked = _asked(request.query_params)
    check_split(job, asked.split)
    found = find_samples(job.run_dir, asked)
    here = _Address(job_id, _conditions(asked, found))
    current = _current(found, asked)
    after = asked.after if asked.after >= 0 else None
    context = {
        "position": position,
        "live": here(step=asked.step, after=after, row=asked.row, part="live"),
        "follows": asked.step is None and not job.state.final,
        "job": job,
        "title": f"answers · {label(job)}",
        "asked": asked,
        "found": found,
        "why_none": _why_none(job),
        "reading": current and _reading(database, job, current, asked, here),
        "lines": lines_of(found.samples, current, here),
        "splits": _splits(job, found),
        "filters": filters_of(found, asked, here),
        "reasons": _reasons(found, asked),
        "sources": _sources(job, found.split),
        "steps": _Steps.of(found),
        "here": here,
        "hidden": _hidden(asked, found),
        "part_names": PART_NAMES,
        "verifier": str(job.config.get("verifier") or "verifier"),
        "verifiers": verifier_names(),
    }
    return page(request, "samples.html", context)


def _current(found: SamplePage, asked: Asked) -> Sample | None:
    """The answer that the address names, else the first of the page."""
    named = (one for one in found.samples if one.row == asked.row)
    return next(named, next(iter(found.samples), None))


def _reading(
    database: Database, job: JobView, sample: Sample, asked: Asked, here: _Address
) -> Reading:
    files = rollout_files(job.run_dir)[sample.split]
    group = group_of(files[sample.step], sample)
    compared = _default_step(sample, files)
    alone = {"split": sample.split, "step": sample.step, "row": sample.row}
    return Reading(
        shown=shown_of(job.id, sample),
        members=members_of(group, sample, here),
        group_words=group_words(group) if len(group) > 1 else "",
        views=_views(sample, asked, here, compared),
        against=_against(database, job, sample, asked) if asked.view == "diff" else None,
        elsewhere=[
            (tally, here(row=sample.row, view="diff", other=None, at=tally.step))
            for tally in tallies(files, sample.split, _near(job, sample, files), sample.id)
        ],
        siblings=_siblings(database, job),
        history=_Address(job.id, {"split": sample.split, "id": sample.id})("/history"),
        link=_Address(job.id, alone)(),
    )


def _views(sample: Sample, asked: Asked, here: _Address, compared: int | None) -> list[Choice]:
    row = sample.row
    views = [
        Choice("Read", here(row=row, view=None, other=None, at=None), asked.view == "text"),
        Choice("Raw text", here(row=row, view="raw", other=None, at=None), asked.view == "raw"),
    ]
    if sample.detection is None and (compared is not None or asked.view == "diff"):
        address = here(row=row, view="diff", other=asked.other, at=asked.at or compared)
        views.append(Choice("Diff", address, asked.view == "diff"))
    return views


def _default_step(sample: Sample, files: Mapping[int, Path]) -> int | None:
    """What an answer is held against first: step 0, or from there the newest."""
    first, last = min(files), max(files)
    return next((step for step in (first, last) if step != sample.step), None)


def _near(job: JobView, sample: Sample, files: Mapping[int, Path]) -> list[int]:
    """Of held-out rows the steps one asks for: the first, those beside this one, the picked one.

    A training prompt is drawn once in a while, so neighbours would hardly ever have it.
    """
    if sample.split == Split.POOL:
        return []
    steps = sorted(files)
    at = steps.index(sample.step)
    beside = steps[max(at - 1, 0) : at + 2]
    return sorted({steps[0], *beside, picked_step(job, files)})


def _siblings(database: Database, job: JobView) -> list[tuple[int, str]]:
    group = seeds_of(database, job.id)
    runs = group.runs if group else []
    return [(run.job_id, f"seed {run.seed}") for run in runs if run.job_id != job.id]


def _against(database: Database, job: JobView, sample: Sample, asked: Asked) -> Against:
    other = job
    if asked.other is not None and asked.other != job.id:
        other = jobs.get_job(database, asked.other)
    files = rollout_files(other.run_dir).get(sample.split, {})
    run = "" if other is job else f"#{other.id} {other.name}, "
    if not files:
        return Against(run or "no step", f"job {other.id} wrote no answers of {sample.split}")
    step = picked_step(other, files) if asked.at is None else asked.at
    title = f"{run}step {step}"
    if step not in files:
        known = ", ".join(map(str, sorted(files)[:12]))
        return Against(
            title, f"job {other.id} has no {sample.split} answers at step {step}; it has: {known}"
        )
    found = counterpart(files[step], step, sample)
    if found is None:
        return Against(
            title,
            f"job {other.id} was not asked this at step {step}, or something else under its name",
        )
    return Against(title, None, shown_of(other.id, found), changes(found.text, sample.text))


@dataclass(frozen=True)
class _Steps:
    """Where a step stands among those that have a file."""

    shown: int | None
    earlier: int | None
    later: int | None
    newest: int | None
    count: int

    @classmethod
    def of(cls, found: SamplePage) -> _Steps:
        steps = found.splits.get(found.split, []) if found.split else []
        shown = found.step or 0
        return cls(
            found.step,
            max((one for one in steps if one < shown), default=None),
            min((one for one in steps if one > shown), default=None),
            max(steps, default=None),
            len(steps),
        )


def _why_none(job: JobView) -> str:
    """Why a run has no answers: which of the page's explanations holds."""
    if job.pruned_at:
        return "pruned"
    if job.state == "queued":
        return "queued"
    if not job.state.final:
        return "not yet"
    return "lost" if job.result.get("step") else "ended early"


def _reasons(found: SamplePage, asked: Asked) -> list[str]:
    """Those that a filter offers: the most frequent, and the one that is asked for."""
    named = list(found.reasons)[:_MOST_REASONS]
    return named if asked.reason in {None, *named} else [*named, str(asked.reason)]


def _hidden(asked: Asked, found: SamplePage) -> list[tuple[str, Any]]:
    """What the form of filters carries on: the split, the step if one was chosen, the narrowing."""
    kept = {"split": found.split, "step": asked.step, "id": asked.id, "changed": asked.changed}
    if asked.right is not None:
        kept["right"] = str(asked.right).lower()
    kept |= {name: "true" for name in ("truncated", "unparsed", "tied") if getattr(asked, name)}
    return [(name, value) for name, value in kept.items() if value is not None]


@router.get("/history")
def history(
    request: Request,
    job_id: JobId,
    database: DatabaseDep,
    *,
    id: Annotated[str, Query(max_length=1000)],  # noqa: A002 - the field's own name
    split: SplitName = Split.SELECT,
    before: Annotated[int | None, Query(ge=0, le=_NEVER_ASKED)] = None,
) -> HTMLResponse:
    """One prompt over the steps; a step that is written meanwhile comes along."""
    position = feed.last_change_id(database)
    job = jobs.get_job(database, job_id)
    check_split(job, split)
    found = find_history(job.run_dir, split, id, before=before)
    here = _Address(job_id, {"split": str(split), "id": id})
    context = {
        "position": position,
        "live": here("/history", before=before, part="live"),
        "job": job,
        "title": f"one prompt over the steps · {label(job)}",
        "found": found,
        "shown": [shown_of(job_id, one) for one in found.samples],
        "detects": any(one.detection or one.detail for one in found.samples),
        "here": here,
        "part_names": PART_NAMES,
        "asked": visible(id),
    }
    return page(request, "samples_history.html", context)


@router.get("/pictures/{name}")
def picture(job_id: JobId, name: str, database: DatabaseDep) -> FileResponse:
    """A picture that the engine kept beside the rollouts, by its own name alone."""
    path = picture_file(jobs.get_job(database, job_id).run_dir, name)
    if path is None:
        raise HTTPException(404, f"job {job_id} keeps no picture {name[:60]!r}")
    return FileResponse(path, media_type="image/jpeg")


@router.get("/{split}/{step}/{row}")
def whole_text(
    job_id: JobId,
    split: SplitName,
    step: Annotated[int, PathValue(ge=0, le=_NEVER_ASKED)],
    row: Annotated[int, PathValue(ge=0, le=_NEVER_ASKED)],
    database: DatabaseDep,
) -> PlainTextResponse:
    """One completion, whole and as it was written."""
    run_dir = jobs.get_job(database, job_id).run_dir
    path = rollout_files(run_dir).get(split, {}).get(step)
    found = None
    if path is not None:
        index = SHELF.index(path, split, step)
        index.look(BYTES_A_LOOK)
        found = index.sample(row) if row < len(index.facts) else None
    if found is None:
        raise HTTPException(404, f"job {job_id} has no row {row} in {split} of step {step}")
    return PlainTextResponse(found.text)


class _Address:
    """Links to this page that keep what was chosen."""

    def __init__(self, job_id: int, chosen: Mapping[str, Any]) -> None:
        self._path = f"/jobs/{job_id}/samples"
        self._chosen = chosen

    def __call__(self, path: str = "", /, **changes: Any) -> str:
        """The address with other values; None takes one away."""
        kept = {**self._chosen, **changes}
        query = urlencode({name: value for name, value in kept.items() if value is not None})
        return f"{self._path}{path}?{query}"


SPLIT_WORDS: Mapping[str, str] = {
    Split.POOL: "training prompts",
    Split.SELECT: "held-out rows that pick the checkpoint",
    Split.REPORT: "held-out rows that are scored once",
    OWN: "the run's own held-out rows",
}


def _splits(job: JobView, found: SamplePage) -> list[Choice]:
    """Those that have answers; of a bench that decides its name stands with both halves."""
    decider = next((line for line in benches_of({}, job.config) if line.decides), None)
    of = f" of {decider.label}" if decider is not None and decider.kind == "bench" else ""
    labels = {line.name: line.label for line in benches_of({}, job.config)}
    halves = {Split.SELECT: f"select{of}", Split.REPORT: f"report{of}", Split.POOL: "pool"}
    return [
        Choice(
            halves.get(Split(split), split) if split in set(Split) else labels.get(split, split),
            _Address(job.id, {"split": split})(),
            split == found.split,
            title=f"{SPLIT_WORDS.get(split, 'bench')}, {len(steps)} step{'s' * (len(steps) != 1)}",
        )
        for split, steps in found.splits.items()
    ]


def _sources(job: JobView, split: str | None) -> list[str]:
    """Of a mixture, where the rows of a split are of its sources and not of a bench."""
    found = parts(benches_of({}, job.config))
    return [line.name for line in found if split in {Split.POOL, line.split, _twin(line.split)}]


def _twin(split: str) -> str:
    """What picks and what is reported are halves of the same rows."""
    return Split.REPORT if split == Split.SELECT else split


def _conditions(asked: Asked, found: SamplePage) -> dict[str, Any]:
    """What links carry on: the conditions, the view, the split and the step shown."""
    given = asked.model_dump(mode="json", exclude_defaults=True, exclude={"after", "row"})
    chosen = {
        name: str(value).lower() if isinstance(value, bool) else value
        for name, value in given.items()
    }
    return chosen | {"split": found.split, "step": found.step}


def _asked(given: Mapping[str, str]) -> Asked:
    """A form sends what was left empty too. Raises ConfigError, or RequestValidationError."""
    filled = {name: value for name, value in given.items() if value.strip() and name != "part"}
    require_plain(Asked, filled)
    try:
        return Asked.model_validate(filled)
    except ValidationError as error:
        raise ConfigError(problems_of(error, Asked)) from None
