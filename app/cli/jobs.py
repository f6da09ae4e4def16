"""`cockpit jobs`, `show`, `logs`, `reindex`: look at the queue and at one job."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeGuard

import typer

from app.cli.numbers import job_number, within
from app.cli.output import note, plain, print_json, print_table
from app.cli.place import AsJson, DataDir, opened

if TYPE_CHECKING:
    from app.text.headline import Headline
    from worker.queue.states import State
    from worker.read.evaluations import Evaluation
    from worker.read.follow_ups import FollowUpView
    from worker.read.groups import Group
    from worker.read.jobs import AuditView, JobView
    from worker.read.scores.leaderboard import Leaderboard

JobId = Annotated[int, typer.Argument(parser=job_number, metavar="JOB", help="Number of the job.")]


def register(cli: typer.Typer) -> None:
    """Add the commands of this file."""
    for command in (jobs, show, logs, reindex):
        cli.command()(command)


def jobs(
    context: typer.Context,
    *,
    state: Annotated[str | None, typer.Option(help="Only jobs in this state.")] = None,
    limit: Annotated[
        int, typer.Option(parser=within(1, 500), metavar="NUMBER", help="How many.")
    ] = 50,
    before: Annotated[
        int | None,
        typer.Option(parser=job_number, metavar="JOB", help="Only jobs older than this one."),
    ] = None,
    tag: Annotated[str | None, typer.Option(help="Only jobs with this tag.")] = None,
    sweep: Annotated[
        int | None,
        typer.Option(parser=job_number, metavar="SWEEP", help="Only the jobs of this sweep."),
    ] = None,
    following: Annotated[
        bool, typer.Option("--next", help="Queued jobs, in the order in which they will run.")
    ] = False,
    as_json: AsJson = False,
    data_dir: DataDir = None,
) -> None:
    """List jobs, newest first."""
    from app.text.headline import Headline  # noqa: PLC0415 - keeps --help light
    from worker.read import jobs  # noqa: PLC0415 - keeps --help light

    _look_at_tag(tag)
    with opened(context, data_dir) as database:
        if following:
            found = jobs.next_jobs(database, limit=limit)
        else:
            found = jobs.list_jobs(
                database, before=before, limit=limit, state=_state(state), tag=tag, sweep_id=sweep
            )
        lease_s = database.settings.lease_s
    if as_json:
        print_json([job.model_dump(mode="json") for job in found])
    elif found:
        head = ("id", "state", "kind", "name", "step", "held-out", "verdict or reason")
        print_table(head, [_row(job, Headline.of(job), lease_s) for job in found])
    else:
        note(_nothing(state=state, before=before, tag=tag, sweep=sweep, following=following))


def show(
    context: typer.Context, *, job_id: JobId, as_json: AsJson = False, data_dir: DataDir = None
) -> None:
    """Show one job in full."""
    from app.text.headline import Headline  # noqa: PLC0415 - keeps --help light
    from worker.read import jobs  # noqa: PLC0415 - keeps --help light
    from worker.read.evaluations import evaluations_of  # noqa: PLC0415 - keeps --help light
    from worker.read.follow_ups import requant_of_job  # noqa: PLC0415 - keeps --help light
    from worker.read.groups import group_of  # noqa: PLC0415 - keeps --help light
    from worker.read.scores.leaderboard import scores_of_job  # noqa: PLC0415

    with opened(context, data_dir) as database:
        job = jobs.get_job(database, job_id)
        audit = jobs.audit(database, job_id)
        beside = _Beside(
            audit,
            group_of(database, job_id),
            requant_of_job(database, job),
            scores_of_job(database, job_id),
            evaluations_of(database, job_id),
        )
        lease_s = database.settings.lease_s
    if as_json:
        entries = [entry.model_dump(mode="json") for entry in audit]
        print_json(job.model_dump(mode="json") | _outcome(job) | {"audit": entries})
        return
    _print_job(job, Headline.of(job), beside, lease_s)


def logs(
    context: typer.Context,
    *,
    job_id: JobId,
    lines: Annotated[
        int,
        typer.Option("-n", "--lines", parser=within(0, 1000), metavar="NUMBER", help="How many."),
    ] = 50,
    as_json: AsJson = False,
    data_dir: DataDir = None,
) -> None:
    """Print the end of the newest attempt's engine log."""
    from app.web.log_reader import read_log  # noqa: PLC0415 - keeps --help light
    from engine.contract.run_dir import RunDir  # noqa: PLC0415 - keeps --help light
    from worker.read import jobs  # noqa: PLC0415 - keeps --help light

    with opened(context, data_dir) as database:
        job = jobs.get_job(database, job_id)
    page = read_log(job.run_dir, RunDir(job.run_dir).latest_attempt())
    if page is None:
        note(f"job {job_id} has no log yet: the engine writes one when it starts")
        return
    shown = [line.text for line in page.lines[-lines:]] if lines else []
    if as_json:
        print_json({"attempt": page.attempt, "path": str(page.path), "lines": shown})
    else:
        for line in shown:
            typer.echo(line)


def reindex(
    context: typer.Context, *, job_id: JobId, as_json: AsJson = False, data_dir: DataDir = None
) -> None:
    """Rebuild a job's result, metrics and scores from its event file."""
    from worker.attempt.reindex import reindex as rebuild  # noqa: PLC0415 - keeps --help light

    with opened(context, data_dir) as database:
        done = rebuild(database, job_id)
    if as_json:
        print_json(done._asdict())
    else:
        outcome = "the result changed" if done.changed else "the result is as it was"
        typer.echo(f"job {job_id}: {done.events} events, {done.metrics} values; {outcome}")


def _state(name: str | None) -> State | None:
    from engine.contract.errors import ConfigError, ConfigProblem  # noqa: PLC0415
    from worker.queue.states import State  # noqa: PLC0415 - keeps --help light

    if name is None:
        return None
    try:
        return State(name)
    except ValueError:
        known = f"known: {', '.join(State)}"
        raise ConfigError([ConfigProblem("--state", name, "is no state", known)]) from None


def _look_at_tag(tag: str | None) -> None:
    from engine.contract.errors import ConfigError, ConfigProblem  # noqa: PLC0415
    from worker.queue.submission import checked_tags  # noqa: PLC0415 - keeps --help light

    try:
        checked_tags([] if tag is None else [tag])
    except ValueError as error:
        problem, _, remedy = str(error).partition("; ")
        raise ConfigError([ConfigProblem("--tag", None, problem, remedy)]) from None


def _nothing(*, following: bool, **filters: str | int | None) -> str:
    """Why a list is empty, and what to do."""
    if following:
        return "no job is queued; queue one with: cockpit enqueue rl_run FILE"
    given = " ".join(f"--{name} {value}" for name, value in filters.items() if value is not None)
    if given:
        return f"no job here is like that: {plain(given)}; list them all with: cockpit jobs"
    return "no job here; queue one with: cockpit enqueue rl_run FILE"


def _silent_s(job: JobView, lease_s: float) -> float | None:
    """For how long nobody looked after a running job; None while its supervisor is heard."""
    from worker.queue.states import State  # noqa: PLC0415 - keeps --help light

    if job.state is not State.RUNNING or job.heartbeat_at is None:
        return None
    silent_s = time.time() - job.heartbeat_at
    return silent_s if silent_s > lease_s else None


def _no_event(headline: Headline) -> str | None:
    from app.text import wording  # noqa: PLC0415 - keeps --help light

    since = headline.silent_since
    return None if since is None else f"SILENT: no event since {wording.clock(since)}"


def _row(job: JobView, headline: Headline, lease_s: float) -> tuple[str, ...]:
    from app.text import wording  # noqa: PLC0415 - keeps --help light

    if headline.before is not None:
        heldout = f"{wording.percent(headline.before)} → {wording.percent(headline.after)}"
    else:
        heldout = wording.percent(headline.heldout)
    said = (headline.verdict, headline.reason, headline.average_of)
    ending = "; ".join(filter(None, said)) or job.cause or "–"
    if job.waits_for:
        until = job.waits_for.next_eligible_at
        ending = job.waits_for.reason + (
            f" not before {wording.clock(until)}" if _comes(until) else ""
        )
    state = job.state if _silent_s(job, lease_s) is None else f"{job.state}, stale"
    if headline.silent_since is not None:
        state = f"{state}, silent"
    return (str(job.id), state, job.kind, job.name, headline.progress or "–", heldout, ending)


class _Beside(NamedTuple):
    """What other rows tell of a job."""

    audit: Sequence[AuditView]
    group: Group | None
    requant: FollowUpView | None
    scores: Leaderboard | None
    evaluations: Sequence[Evaluation]


def _outcome(job: JobView) -> dict[str, Any]:
    """What REST says beside the job itself."""
    from app.text.checkpoint import checkpoint_of  # noqa: PLC0415 - keeps --help light
    from app.text.outcome import outcome_of  # noqa: PLC0415

    kept = checkpoint_of(job)
    return {
        "outcome": outcome_of(job).as_dict(),
        "checkpoint": None if kept is None else kept.model_dump(mode="json"),
    }


def _print_job(job: JobView, headline: Headline, beside: _Beside, lease_s: float) -> None:
    from app.text import benches, scores, scoring, seeds, wording  # noqa: PLC0415 - keeps --help light
    from app.text.findings import alerts_of, in_words  # noqa: PLC0415 - keeps --help light
    from app.text.outcome import outcome_of  # noqa: PLC0415 - keeps --help light
    from app.text.passk import PassK  # noqa: PLC0415 - keeps --help light
    from app.text.requant import Quantized  # noqa: PLC0415 - keeps --help light
    from worker.read.benches import benches_of  # noqa: PLC0415 - keeps --help light

    lines = benches_of(job.result, job.config)
    outcome = outcome_of(job)
    typer.echo(plain(f"{outcome.glyph} {outcome.text}"))
    if outcome.then:
        typer.echo(plain(outcome.then))
    facts = [
        ("job", f"{job.id} ({job.kind})"),
        ("name", job.name),
        ("state", _state_in_words(job, lease_s)),
        ("ended by", " – ".join(filter(None, (job.cause, job.error)))),
        ("waits for", _waits_for(job)),
        ("not before", _not_before(job)),
        ("priority", str(job.priority) if job.priority else None),
        ("runs after", ", ".join(map(str, job.after))),
        # None where there is no such job; shown beside them, for it says what their end does.
        ("if one fails", job.if_parent_fails),
        ("tags", " ".join(job.tags)),
        ("sweep", None if job.sweep_id is None else f"{job.sweep_id} {_point(job)}"),
        ("began from", None if job.clone_of is None else f"job {job.clone_of}"),
        ("asked to stop", job.stop_requested),
        ("pruned", wording.clock(job.pruned_at) if job.pruned_at else None),
        ("silent", _no_event(headline)),
        ("phase", headline.phase if not job.state.final else None),
        ("step", headline.progress),
        ("of it", headline.part if not job.state.final else None),
        ("held-out", _heldout(headline)),
        ("verdict", "; ".join(filter(None, (headline.verdict, headline.reason)))),
        ("held-out is", headline.average_of),
        *(("seeds", said) for said in seeds.on_run(beside.group, job.id)),
        *(("look at", said) for said in benches.to_read(lines)),
        *(found.lines if (found := PassK.of(job)) else ()),
        *(scored.lines if (scored := scoring.Scoring.of(job, beside.scores)) else ()),
        *(("scored by", f"job {one.job_id}, {scoring.steps(one)}") for one in beside.evaluations),
        ("requant", None if beside.requant is None else beside.requant.words),
        *(made.lines if (made := Quantized.of(job)) else ()),
        *(("alert", in_words(alert)) for alert in alerts_of(job.result)),
        *_checkpoint(job, headline),
        ("time", wording.duration(headline.seconds) if headline.seconds is not None else None),
        ("memory", wording.gigabytes(headline.peak_gb) if headline.peak_gb else None),
        ("attempt", str(job.attempt) if job.attempt else None),
        ("run directory", str(job.run_dir)),
    ]
    for name, value in facts:
        if value:
            typer.echo(f"{name:<14}{plain(value)}")
    if any(line.verdict for line in lines):
        typer.echo("")
        print_table(*benches.text_table(lines))
        typer.echo(f"{benches.looked_at(lines)}\n")
    if beside.scores is not None:
        typer.echo("")
        print_table(*scores.text_table(beside.scores))
        typer.echo("")
    for entry in beside.audit:
        moved = f"{wording.clock(entry.at)}  {entry.to_state:<10}{plain(entry.why)}"
        typer.echo(f"{'':<14}{moved}  ({plain(entry.actor)})")


def _checkpoint(job: JobView, headline: Headline) -> Iterator[tuple[str, str]]:
    """The step that is published, or else picked so far; where it is, and what one does with it."""
    from app.text.checkpoint import checkpoint_of  # noqa: PLC0415 - keeps --help light

    kept, picked = checkpoint_of(job), headline.selected_step
    if picked is not None and (kept is None or kept.step != picked):
        yield "picked", f"step {picked} by held-out rows"
    if kept is not None:
        yield "published" if kept.published else "selected", f"{kept.what}: {kept.path}"
        yield from kept.commands.items()


def _state_in_words(job: JobView, lease_s: float) -> str:
    """Its state; of a job whose drain died also what takes it over, as the board says it."""
    from app.text import wording  # noqa: PLC0415 - keeps --help light

    silent_s = _silent_s(job, lease_s)
    if silent_s is None:
        return job.state
    silence = f"no heartbeat for {wording.duration(round(silent_s))}"
    return f"{job.state}, stale: {silence}; the next drain takes the job over: cockpit drain"


def _waits_for(job: JobView) -> str | None:
    from app.text import wording  # noqa: PLC0415 - keeps --help light

    if job.waits_for is None:
        return None
    until = job.waits_for.next_eligible_at
    when = f" (not before {wording.clock(until)})" if _comes(until) else ""
    return f"{job.waits_for.reason}: {job.waits_for.detail}{when}"


def _not_before(job: JobView) -> str | None:
    """The start time that a queued job has yet to wait for, unless it says so already."""
    from app.text import wording  # noqa: PLC0415 - keeps --help light

    if job.waits_for is None or not _comes(job.not_before):
        return None
    told = job.waits_for.next_eligible_at == job.not_before
    return None if told else wording.clock(job.not_before)


def _point(job: JobView) -> str:
    from worker.queue.sweeps import point_words  # noqa: PLC0415 - keeps --help light

    return point_words(job.sweep_point or {})


def _heldout(headline: Headline) -> str | None:
    from app.text import wording  # noqa: PLC0415 - keeps --help light

    if headline.before is None:
        return None if headline.heldout is None else wording.percent(headline.heldout)
    ends = f"{wording.percent(headline.before)} → {wording.percent(headline.after)}"
    lift = wording.interval(headline.lift_low, headline.lift_high)
    size = f"{ends} ({wording.points(headline.lift)}, 95 % interval {lift}"
    if headline.report_n:
        size += f", {wording.rows(headline.report_n, headline.different)}"
    if headline.at_least is not None:
        size += f"; at least {wording.points(headline.at_least)} on all held-out rows"
    return f"{size})"


def _comes(until: float | None) -> TypeGuard[float]:
    """Whether it is a moment that has not come yet."""
    return until is not None and until > time.time()
