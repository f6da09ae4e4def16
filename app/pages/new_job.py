"""New job: will it fit? A config as YAML, or as a form of its kind's schema; one behind both.

Whatever is typed becomes a submission on the one path that every door takes; what it would need,
cost and meet is shown before it is sent, and again at every change.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Annotated, Any

import anyio.to_thread
from fastapi import APIRouter, Query, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from app.forms.check_words import figures, judgement
from app.forms.forms import PREFIX, build, raw_config, retyped
from app.forms.job_check import Check, check
from app.forms.lines import at_lines
from app.forms.requests import BROWSER, form_fields
from app.forms.rows_view import RowsView, rows_view
from app.forms.schema import Setting, chosen, schema_of
from app.pages.new_job_parts import settings_of
from app.web.dependencies import DatabaseDep, DrainsDep
from app.web.shipped import Recipe, recipes
from app.web.starts import models_here, starts
from app.web.templating import page
from app.web.uploads import MAX_UPLOAD_BYTES
from engine.contract.documents import dump_yaml, parse_yaml, read_text
from engine.contract.errors import ConfigError, ConfigProblem
from engine.contract.kind import Kind
from engine.contract.problems import nearest, text_problems
from engine.contract.registry import get_kind, kinds, validate
from worker.db.connection import Database
from worker.queue import order, sweeps
from worker.queue.lookup import JobNotFoundError
from worker.queue.refusals import AlreadyTriedError
from worker.queue.submission import LARGEST_ID, Submission, submission
from worker.queue.submit import submit
from worker.read import jobs
from worker.read.jobs import JobView
from worker.report import choices
from worker.report.snapshot import report_of
from worker.report.standup import Report

router = APIRouter(prefix="/new", include_in_schema=False)

DEFAULT_KIND = "rl_run"
PLACE = ("name", "priority", "not_before", "tags", "seeds")
"""What is asked besides the config."""
YAML_EDITOR, FORM_EDITOR = "yaml", "form"


@router.get("")
def new_job(
    request: Request,
    database: DatabaseDep,
    *,
    kind: Annotated[str | None, Query(max_length=100)] = None,
    editor: Annotated[str, Query(alias="as", max_length=10)] = YAML_EDITOR,
    recipe: Annotated[str | None, Query(max_length=60)] = None,
    clone: Annotated[int | None, Query(ge=1, le=LARGEST_ID)] = None,
    proposal: Annotated[str | None, Query(max_length=60)] = None,
    date: datetime.date | None = None,
) -> HTMLResponse:
    """Empty, as a recipe says, as a job of before was, or as a report proposes."""
    typed: dict[str, str] = {}
    raw: dict[str, Any] = {}
    shipped = _recipe(recipe) if recipe is not None else None
    text = read_text(shipped.path) if shipped else None
    if shipped and text is not None:
        kind, raw = shipped.kind, parse_yaml(text)
        typed = {"name": shipped.name, "recipe": shipped.name}
    if proposal is not None and date is not None:
        found = choices.proposal_of(report_of(database, date, time.time()), proposal)
        typed = {"name": found.name or "", "proposal": proposal, "date": date.isoformat()}
        clone = found.job_id
        if found.kind is not None and found.config is not None:
            kind, raw = found.kind, _shortened(found.kind, found.config)
    if clone is not None and not raw:
        job = jobs.get_job(database, clone)
        kind, raw = job.kind, _shortened(job.kind, job.config)
        typed |= _placed(job)
    wanted = get_kind(kind or DEFAULT_KIND)
    if clone is not None:
        typed["clone"] = str(clone)
    answers = retyped(wanted, raw)
    if editor == YAML_EDITOR or answers.unshown:
        typed["yaml"] = _dumped(raw) if text is None else text
    else:
        typed |= answers.typed
    return _page(request, database, wanted, typed)


def _recipe(name: str) -> Recipe:
    """One that ships. Raises ConfigError."""
    known = {recipe.name: recipe for recipe in recipes()}
    if name not in known:
        remedy = nearest(name, known)
        raise ConfigError([ConfigProblem("recipe", name, "is not a recipe", remedy)])
    return known[name]


@router.post("")
async def create(request: Request, database: DatabaseDep, drains: DrainsDep) -> Response:
    """Enqueue and go to the run's page; or the form again, each problem at its line or field."""
    typed = await form_fields(request)
    kind = get_kind(typed.get("kind", ""))
    answer = await anyio.to_thread.run_sync(_create, request, database, kind, typed)
    if typed.get("do") == "run" and answer.status_code == HTTPStatus.SEE_OTHER:
        await anyio.to_thread.run_sync(drains.run_now)
    return answer


@router.post("/check")
async def check_typed(request: Request, database: DatabaseDep) -> HTMLResponse:
    """What is known about a job as it is typed so far, and each field's own problems."""
    typed = await form_fields(request)
    kind = get_kind(typed.get("kind", ""))
    return await anyio.to_thread.run_sync(_checked, request, database, kind, typed)


def _create(request: Request, database: Database, kind: Kind, typed: Mapping[str, str]) -> Response:
    wish = typed.get("do", "queue")
    if wish in {YAML_EDITOR, FORM_EDITOR}:
        return _switched(request, database, kind, typed, wish)
    if wish != "force" and (came := _came_of_proposal(database, typed)):
        return _page(request, database, kind, typed, tried=came, sent=True)
    try:
        wanted = _wanted(kind, typed, _original(database, typed), force=wish == "force")
        _require_something(wanted)
        return RedirectResponse(_enqueue(database, wanted, typed), HTTPStatus.SEE_OTHER)
    except ConfigError as error:
        return _page(request, database, kind, typed, error.problems, sent=True)
    except AlreadyTriedError as error:
        return _page(request, database, kind, typed, tried=str(error), sent=True)


def _require_something(wanted: Submission) -> None:
    """A document that says nothing queues nothing, though defaults may stand for all of it."""
    if wanted.config or wanted.sweep is not None:
        return
    validate(wanted.kind, {})  # what it lacks is said first
    remedy = "start from a recipe or a run, or name a model and rows"
    raise ConfigError([ConfigProblem("(config)", None, "is empty", remedy)])


def _enqueue(database: Database, wanted: Submission, typed: Mapping[str, str]) -> str:
    """Queue it, in front of the others where it is to run now; the address of what came of it."""
    if wanted.sweep is not None:
        made = sweeps.submit_sweep(database, wanted, actor=BROWSER).job_ids
        address = f"/queue#q-{made[0]}"
    else:
        made = [submit(database, wanted, actor=BROWSER).job_id]
        address = f"/jobs/{made[0]}"
    _remember_edit(database, typed, made[0])
    if typed.get("do") == "run":
        for number in reversed(made):
            order.move_to_top(database, number, actor=BROWSER)
    return address


def _remember_edit(database: Database, typed: Mapping[str, str], job_id: int) -> None:
    """The report's proposal that this job came from is answered by it."""
    if found := _proposed(database, typed):
        report, key = found
        choices.edited(database, report, key, job_id, actor=BROWSER)


def _proposed(database: Database, typed: Mapping[str, str]) -> tuple[Report, str] | None:
    """The report and the key of the proposal that the form began from.

    None also for hidden fields that were tampered with: the job itself can be queued.
    """
    key, day = typed.get("proposal"), typed.get("date")
    if not key or not day:
        return None
    try:
        report = report_of(database, datetime.date.fromisoformat(day), time.time())
        return report, choices.proposal_of(report, key).key
    except (ValueError, ConfigError, choices.NoProposalError):
        return None


def _came_of_proposal(database: Database, typed: Mapping[str, str]) -> str | None:
    """What another tab, or another person, has queued from the same proposal already."""
    found = _proposed(database, typed)
    if found is None:
        return None
    report, key = found
    last = choices.choices_of(database, report).get(key)
    if last is None or last.job_id is None:
        return None
    return (
        f"{last.actor} has answered this proposal of the report of {report.day} already: "
        f"job {last.job_id} came of it"
    )


def _switched(
    request: Request, database: Database, kind: Kind, typed: Mapping[str, str], to: str
) -> Response:
    """The other editor with the same values; the same one with the reason where that cannot be."""
    kept = {name: text for name, text in typed.items() if not name.startswith((PREFIX, "with:"))}
    kept.pop("do", None)
    if to == YAML_EDITOR:
        if "yaml" not in typed:
            kept["yaml"] = _dumped(raw_config(kind, typed))
        return _page(request, database, kind, kept)
    try:
        raw = parse_yaml(typed.get("yaml", ""))
    except ConfigError as error:
        return _page(request, database, kind, typed, error.problems, sent=True)
    answers = retyped(kind, raw)
    if answers.unshown:
        shown = ", ".join(answers.unshown[:5])
        remedy = "take it out to go on in the form, or stay with the YAML"
        problem = ConfigProblem(shown, None, "has no field in the form", remedy)
        return _page(request, database, kind, typed, [problem], sent=True)
    kept.pop("yaml", None)
    return _page(request, database, kind, {**kept, **answers.typed})


def _wanted(
    kind: Kind, typed: Mapping[str, str], original: JobView | None, *, force: bool = False
) -> Submission:
    """The one submission behind both editors. Raises ConfigError."""
    if unwritable := text_problems(dict(typed)):
        raise ConfigError(unwritable)
    raw = parse_yaml(typed["yaml"]) if "yaml" in typed else raw_config(kind, typed)
    place: dict[str, Any] = {
        name: typed[name].strip() for name in PLACE if typed.get(name, "").strip()
    }
    if "priority" in place:
        place["priority"] = _whole(place["priority"])
    if "tags" in place:
        place["tags"] = [tag.strip() for tag in place["tags"].split(",") if tag.strip()]
    if "seeds" in place:
        place["seeds"] = parse_yaml(f"seeds: [{place['seeds'].strip('[] ')}]")["seeds"]
    sweep = raw.pop("sweep") if "yaml" in typed and "sweep" in raw else None
    if original is not None and original.kind == kind.name:
        place["clone_of"] = original.id
    return submission({"kind": kind.name, "config": raw, "sweep": sweep, "force": force, **place})


def _whole(text: str) -> int | str:
    try:
        return int(text)
    except ValueError:
        return text


def _looked(database: Database, kind: Kind, typed: Mapping[str, str]) -> Check:
    original = _original(database, typed)
    try:
        wanted = _wanted(kind, typed, original)
    except ConfigError as error:
        return Check(problems=error.problems)
    return check(database, wanted, original)


def _original(database: Database, typed: Mapping[str, str]) -> JobView | None:
    """The job that this one began from."""
    number = typed.get("clone", "")
    if not (number.isdecimal() and len(number) < 10):
        return None
    try:
        return jobs.get_job(database, int(number))
    except JobNotFoundError:
        return None


def _placed(job: JobView) -> dict[str, str]:
    """What a job had beside its settings; a start time is not asked for again."""
    had = {
        "name": "" if job.name == job.kind else job.name,
        "priority": str(job.priority or ""),
        "tags": ", ".join(job.tags),
    }
    return {name: text for name, text in had.items() if text}


def _shortened(kind: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """A resolved config without its defaults, where that stands for the same."""
    try:
        short = chosen(schema_of(get_kind(kind).config), config)
        same = validate(kind, short).model_dump(mode="json") == config
    except ConfigError:  # its data are gone, or the kind has changed: the page says so
        return dict(config)
    return short if same else dict(config)


def _dumped(raw: Mapping[str, Any]) -> str:
    return dump_yaml(dict(raw)) if raw else ""


def _checked(
    request: Request, database: Database, kind: Kind, typed: Mapping[str, str]
) -> HTMLResponse:
    """The panel, and the words beside each field that has an answer or had a problem."""
    found = _looked(database, kind, typed)
    form = build(kind, typed, found.wrong)
    told = set(typed.get("told", "").split())
    fields = [
        field
        for group in form.groups
        for field in group.fields
        if field.typed or field.problems or field.setting.name in told
    ]
    context = _context(kind, typed, form=form, found=found) | {"fields": fields, "oob": True}
    context["original"] = _original(database, typed)
    return page(request, "new_job_check.html", context)


def _page(
    request: Request,
    database: Database,
    kind: Kind,
    typed: Mapping[str, str],
    problems: Sequence[ConfigProblem] = (),
    *,
    tried: str | None = None,
    sent: bool = False,
) -> HTMLResponse:
    found = Check(problems=problems) if problems else _looked(database, kind, typed)
    context = _context(kind, typed, form=build(kind, typed, problems), found=found) | {
        "title": f"{'Problems · ' if problems else ''}New job",
        "kinds": list(kinds().values()),
        "starts": starts(database),
        "asked_first": _asked_first(kind),
        "models": models_here(database, kind),
        "most_upload": MAX_UPLOAD_BYTES,
        "problems": problems,
        "original": _original(database, typed),
        "oob": False,
        "fields": [],
        "refused": tried,
        "posted": request.method == "POST",
    }
    status = HTTPStatus.OK
    if sent and problems:
        status = HTTPStatus.UNPROCESSABLE_ENTITY
    elif tried:
        status = HTTPStatus.CONFLICT
    return page(request, "new_job.html", context, status=status)


def _asked_first(kind: Kind) -> list[Setting]:
    known = {setting.name: setting for setting in settings_of(kind)}
    return [known[name] for name in kind.asks_first if name in known]


def _rows(kind: Kind, typed: Mapping[str, str]) -> RowsView | None:
    try:
        raw = parse_yaml(typed["yaml"]) if "yaml" in typed else raw_config(kind, typed)
    except ConfigError:
        return None
    return rows_view(kind, raw)


def _context(kind: Kind, typed: Mapping[str, str], *, form: Any, found: Check) -> dict[str, Any]:
    by_field: dict[str, list[ConfigProblem]] = {}
    for problem in found.wrong:
        by_field.setdefault(problem.field.partition(".")[0], []).append(problem)
    return {
        "form": form,
        "kind": kind,
        "typed": typed,
        "check": found,
        "judged": judgement(found),
        "figures": list(figures(found)),
        "by_place": {name: by_field.get(name, []) for name in PLACE},
        "as_yaml": "yaml" in typed,
        "lines": at_lines(typed.get("yaml", ""), found.wrong),
        "rows": _rows(kind, typed),
        "told": " ".join(problem.field for problem in found.wrong),
    }
