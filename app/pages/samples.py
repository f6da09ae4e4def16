"""The samples page: what a run wrote, by step, split and fate, in groups and over the steps."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Path, Query, Request
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import FileResponse, HTMLResponse, PlainTextResponse

from app.charts.boxes import Drawing, drawing
from app.pages.run import Tab
from app.text.headline import label
from app.text.visible import Visible, visible
from app.web.dependencies import DatabaseDep, JobId
from app.web.plainly import require_plain
from app.web.templating import page
from engine.contract.errors import ConfigError
from engine.contract.problems import problems_of
from engine.contract.verifiers import verifier_names
from worker.read import feed, jobs
from worker.read.benches import OWN, benches_of, check_split, parts
from worker.read.jobs import JobView
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

_TOKENS_SHOWN = 200
_ANSWER_SHOWN = 400
_NEVER_ASKED = 10**12
"""More than any step or row has."""
PART_NAMES: Mapping[str, str] = {
    "answer": "What was answered",
    "b2": "What geometry is learnt on",
    "b3": "What text is learnt",
}


@dataclass(frozen=True)
class Shown:
    """One completion as the page shows it."""

    sample: Sample
    address: str
    """Of the whole text."""

    @cached_property
    def text(self) -> Visible:
        return visible(self.sample.text)

    @cached_property
    def prompt(self) -> Visible:
        return visible(self.sample.prompt or self.sample.id)

    @cached_property
    def answer(self) -> Visible:
        return visible(self.sample.answer or "–", _ANSWER_SHOWN)

    @cached_property
    def drawing(self) -> Drawing | None:
        return drawing(self.sample.detection) if self.sample.detection else None

    @cached_property
    def tokens(self) -> list[tuple[int, float | None]]:
        """(id, log-probability) of the first tokens."""
        pairs = itertools.zip_longest(self.sample.ids, self.sample.logprobs)
        return list(itertools.islice(pairs, _TOKENS_SHOWN))


@dataclass(frozen=True)
class Group:
    """Completions of one prompt that stand on this page."""

    shown: list[Shown]

    @property
    def first(self) -> Shown:
        return self.shown[0]


@router.get("")
def samples(request: Request, job_id: JobId, database: DatabaseDep) -> HTMLResponse:
    """The page, or with `?part=live` what changes on it; every filter stands in the address.

    Without a step in the address it follows the newest one, until the run is over.
    """
    # Read before the rest: what changes in between comes once more by the stream, never less.
    position = feed.last_change_id(database)
    job = jobs.get_job(database, job_id)
    wanted = _wanted(request.query_params)
    check_split(job, wanted.split)
    found = find_samples(job.run_dir, wanted)
    steps = found.splits.get(found.split, []) if found.split else []
    here = _Address(job_id, _conditions(wanted, found))
    after = wanted.after if wanted.after >= 0 else None
    context = {
        "position": position,
        "live": here(step=wanted.step, after=after, part="live"),
        "follows": wanted.step is None and not job.state.final,
        "job": job,
        "tabs": list(Tab),
        "title": f"samples · {label(job)}",
        "wanted": wanted,
        "found": found,
        "groups": _groups(job_id, found.samples),
        "splits": _splits(job, found),
        "sources": _sources(job, found.split),
        "steps": steps,
        "stride": min((b - a for a, b in itertools.pairwise(steps)), default=1),
        "earlier": max((one for one in steps if one < (found.step or 0)), default=None),
        "later": min((one for one in steps if one > (found.step or 0)), default=None),
        "here": here,
        "detects": any(one.detection or one.detail for one in found.samples),
        "part_names": PART_NAMES,
        "asked": visible(wanted.id or ""),
        "verifiers": verifier_names(),
        "own_verifier": job.config.get("verifier"),
    }
    return page(request, "samples.html", context)


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
    step: Annotated[int, Path(ge=0, le=_NEVER_ASKED)],
    row: Annotated[int, Path(ge=0, le=_NEVER_ASKED)],
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

    def __call__(self, view: str = "", **changes: Any) -> str:
        """The address with other values; None takes one away."""
        kept = {**self._chosen, **changes}
        query = urlencode({name: value for name, value in kept.items() if value is not None})
        return f"{self._path}{view}?{query}"


SPLIT_WORDS: Mapping[str, str] = {
    Split.POOL: "Pool: training prompts",
    Split.SELECT: "Select: pick the checkpoint",
    Split.REPORT: "Report: scored once",
    OWN: "Own held-out rows",
}


def _splits(job: JobView, found: SamplePage) -> list[tuple[str, str]]:
    """(name, words) of those that have completions; of a bench that decides its name with both."""
    decider = next((line for line in benches_of({}, job.config) if line.decides), None)
    of = f" of {decider.label}" if decider is not None and decider.kind == "bench" else ""
    words = {line.name: f"Bench: {line.label}" for line in benches_of({}, job.config)}
    words |= SPLIT_WORDS
    for name in (Split.SELECT, Split.REPORT):
        words[name] += of
    return [(split, words.get(split, f"Bench: {split}")) for split in found.splits]


def _sources(job: JobView, split: str | None) -> list[str]:
    """Of a mixture, where the rows of a split are of its sources and not of a bench."""
    found = parts(benches_of({}, job.config))
    return [line.name for line in found if split in {Split.POOL, line.split, _twin(line.split)}]


def _twin(split: str) -> str:
    """What picks and what is reported are halves of the same rows."""
    return Split.REPORT if split == Split.SELECT else split


def _conditions(wanted: Wanted, found: SamplePage) -> dict[str, Any]:
    """What links carry on: the conditions, the split and the step shown."""
    given = wanted.model_dump(mode="json", exclude_defaults=True, exclude={"after"})
    chosen = {name: "true" if value is True else value for name, value in given.items()}
    return chosen | {"split": found.split, "step": found.step}


def _wanted(given: Mapping[str, str]) -> Wanted:
    """A form sends what was left empty too. Raises ConfigError, or RequestValidationError."""
    asked = {name: value for name, value in given.items() if value.strip() and name != "part"}
    require_plain(Wanted, asked)
    try:
        return Wanted.model_validate(asked)
    except ValidationError as error:
        raise ConfigError(problems_of(error, Wanted)) from None


def _groups(job_id: int, found: Iterable[Sample]) -> list[Group]:
    """Neighbours that answer the same prompt."""
    return [
        Group([shown_of(job_id, one) for one in group])
        for _, group in itertools.groupby(found, key=lambda one: one.id)
    ]


def shown_of(job_id: int, one: Sample) -> Shown:
    """A job's completion, with the address of its whole text."""
    return Shown(one, f"/jobs/{job_id}/samples/{one.split}/{one.step}/{one.row}")
