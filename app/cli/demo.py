"""`cockpit demo`: the whole way of one job, shown on this machine in a few minutes.

Starts the cockpit, sends `examples/demo.yaml` through REST like any user would, drains it in a
process of its own, and tells what came out. It trains nothing itself and decides nothing: kill
the web process and the run goes on, kill the drain and the next one finishes the job.
"""

from __future__ import annotations

import contextlib
import json
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.enqueue import assign, who
from app.cli.numbers import within
from app.cli.place import AsJson, DataDir, worker_settings
from app.cli.sign_in import invitation
from engine.contract.errors import ConfigError, ConfigProblem, NightlaneError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress
    from rich.table import Table

    from app.web.detached import Detached
    from worker.db.connection import Database
    from worker.read.jobs import JobView
    from worker.settings import WorkerSettings

NAME = "demo"
"""The job's name; an interrupted demo is found again by it."""
DRAINS = 4
"""A drain that dies is followed by another, so often at most."""


class DemoError(NightlaneError):
    """The demo could not be shown; the message says what to do."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def register(cli: typer.Typer) -> None:
    """Add the commands of this file."""
    cli.command()(demo)


def demo(
    context: typer.Context,
    *,
    port: Annotated[
        int, typer.Option(parser=within(1, 65535), metavar="PORT", help="Port of the board.")
    ] = 8765,
    seed: Annotated[
        int | None, typer.Option(parser=within(0), metavar="NUMBER", help="Another seed.")
    ] = None,
    recipe: Annotated[Path | None, typer.Option(help="Another recipe than the demo's.")] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change one setting, e.g. lr=0."),
    ] = None,
    as_json: AsJson = False,
    data_dir: DataDir = None,
) -> None:
    """Train the embedded tiny model and show what it learnt."""
    from rich.console import Console  # noqa: PLC0415 - keeps --help light

    from worker.db.connection import open_database  # noqa: PLC0415
    from worker.private import keep_private  # noqa: PLC0415 - keeps --help light

    settings = worker_settings(context, data_dir)
    config = _config(recipe, seed, assignments or ())
    say = Console(stderr=True, highlight=False)
    keep_private()
    with _terminate_is_interrupt(), open_database(settings) as database:
        _leave_other_jobs_alone(database, settings)
        with _Cockpit(settings, port, say) as cockpit:
            say.print(invitation(database, cockpit.url), soft_wrap=True, markup=False)
            job_id = _waiting_demo(database, config) or cockpit.send(config, database)
            url = f"{cockpit.url}/jobs/{job_id}"
            say.print(f"job {job_id}: [link={url}]{url}[/link]")
            job = _run(database, settings, job_id, cockpit, say)
            _show_result(job, url, as_json=as_json)
            if sys.stdout.isatty() and not as_json:
                say.print(f"the cockpit stays at {cockpit.url} until Ctrl-C")
                with contextlib.suppress(KeyboardInterrupt):
                    while True:
                        signal.pause()


def _leave_other_jobs_alone(database: Database, settings: WorkerSettings) -> None:
    """The demo's drain would run them first, and nobody asked for that."""
    from worker.read import jobs  # noqa: PLC0415

    others = [job for job in jobs.next_jobs(database) if job.name != NAME]
    if others:
        raise DemoError(
            f"{settings.data_dir} has queued jobs ({others[0].name}, job {others[0].id}, …) that "
            "the demo would start; show it elsewhere: cockpit demo --data-dir DIR",
            exit_code=4,
        )


def _config(recipe: Path | None, seed: int | None, assignments: Sequence[str]) -> dict[str, Any]:
    """The recipe's YAML with the command line's changes. Raises ConfigError."""
    from app.web.shipped import demo_recipe  # noqa: PLC0415 - keeps --help light
    from engine.contract.documents import MAX_CONFIG_BYTES, parse_yaml, read_text  # noqa: PLC0415

    path = recipe or demo_recipe()
    try:
        config = parse_yaml(read_text(path, MAX_CONFIG_BYTES))
    except OSError as error:
        problem = f"cannot be read: {error.strerror}"
        raise ConfigError(
            [ConfigProblem("recipe", str(path), problem, "name a readable YAML file")]
        ) from error
    if seed is not None:
        config["seed"] = seed
    changes: dict[str, Any] = {}
    for assignment in assignments:
        assign(changes, assignment)
    return config | changes


def _waiting_demo(database: Database, config: Mapping[str, Any]) -> int | None:
    """An interrupted demo of the same recipe that waits to be resumed."""
    from worker.read import jobs  # noqa: PLC0415

    for job in jobs.next_jobs(database):
        if job.name == NAME and job.attempt and _includes(job.config, config):
            return job.id
    return None


def _includes(resolved: Mapping[str, Any], given: Mapping[str, Any]) -> bool:
    """Whether every value that was given stands in the resolved config."""
    for key, value in given.items():
        there = resolved.get(key)
        if isinstance(value, dict) and isinstance(there, dict):
            if not _includes(there, value):
                return False
        elif there != value:
            return False
    return True


class _Cockpit:
    """The web process of the demo: started, watched, and ended with it."""

    def __init__(self, settings: WorkerSettings, port: int, say: Console) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self._settings = settings
        self._arguments = ["serve", "--port", str(port)]
        self._say = say
        self._process: Detached | None = None
        self._restarts = 0

    def __enter__(self) -> _Cockpit:
        self._start()
        self._say.print(f"cockpit: [link={self.url}]{self.url}[/link]")
        return self

    def __exit__(self, *_: object) -> None:
        if self._process:
            self._process.stop(patience_s=5)

    def _start(self) -> None:
        from app.web.detached import spawn_cockpit  # noqa: PLC0415

        self._process = spawn_cockpit(self._arguments, self._settings, "serve.log", bound=True)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise DemoError(self._process.last_line() or "the cockpit ended while starting")
            # It says its address once the port is its own: another program may answer there.
            if self.url in self._process.output() and self._answers():
                return
            time.sleep(0.1)
        raise DemoError(
            f"the cockpit did not answer within 60 s; see {self._process.log}", exit_code=5
        )

    def _answers(self) -> bool:
        import httpx  # noqa: PLC0415

        try:
            return httpx.get(f"{self.url}/readyz", trust_env=False).is_success
        except httpx.HTTPError:
            return False

    def look_after(self) -> None:
        """Start the pages again when the web process was killed; the run never needed them."""
        if not self._process or self._process.poll() is None or self._restarts >= DRAINS:
            return
        self._restarts += 1
        self._say.print("the web process ended; the run goes on, starting the pages again")
        with contextlib.suppress(DemoError):
            self._start()

    def send(self, config: Mapping[str, Any], database: Database) -> int:
        """POST the job. Raises ConfigError with what the cockpit found wrong."""
        import httpx  # noqa: PLC0415

        with _short_token(database) as token:
            answer = httpx.post(
                f"{self.url}/api/v1/jobs",
                json={"kind": "rl_run", "config": config, "name": NAME, "force": True},
                headers={"Authorization": f"Bearer {token}"},
                timeout=30,
                trust_env=False,
            )
        body = answer.json()
        if answer.status_code == httpx.codes.CREATED:
            return int(body["id"])
        if body.get("problems"):
            fields = ("field", "value", "problem", "remedy")
            raise ConfigError(
                [ConfigProblem(**{key: item[key] for key in fields}) for item in body["problems"]]
            )
        raise DemoError(f"the cockpit refused the job: {body.get('detail', answer.status_code)}")


@contextlib.contextmanager
def _short_token(database: Database) -> Iterator[str]:
    """A token for one request."""
    from worker import access  # noqa: PLC0415

    made = access.new_token(
        database, access.Scope.OPERATE, actor=who(), now=time.time(), days=1, name=NAME
    )
    try:
        yield made.secret
    finally:
        access.revoke(database, made.credential.id, now=time.time())


def _run(
    database: Database, settings: WorkerSettings, job_id: int, cockpit: _Cockpit, say: Console
) -> JobView:
    """Drain until the job is over, whatever is killed meanwhile."""
    from app.web.detached import spawn_cockpit  # noqa: PLC0415

    with _display(say) as show:
        for number in range(DRAINS):
            if number:
                say.print("the drain ended before its job; starting another, it resumes the run")
            drain = spawn_cockpit(["drain"], settings, "drain.log")
            try:
                job = _follow(database, job_id, drain, cockpit, show)
            except BaseException:
                if drain.poll() is None:
                    say.print("stopping: the engine writes a checkpoint …")
                drain.stop(patience_s=settings.abort_grace_s + 10)
                raise
            if job.state.final:
                return job
            if drain.poll() == 4:
                raise DemoError(drain.last_line(), exit_code=4)
    raise DemoError(f"{DRAINS} drains ended before job {job_id} was over; see {drain.log}")


def _follow(
    database: Database, job_id: int, drain: Detached, cockpit: _Cockpit, show: _Show
) -> JobView:
    """Show progress until the drain has ended or the job is over."""
    from worker.read import jobs  # noqa: PLC0415

    while True:
        ended = drain.poll() is not None
        job = jobs.get_job(database, job_id)
        show(job)
        if ended or job.state.final:
            return job
        cockpit.look_after()
        time.sleep(0.2)


class _Show:
    """Progress on stderr: one live line on a terminal, else a line at each phase and gate."""

    def __init__(self, say: Console, bar: Progress | None) -> None:
        self._say = say
        self._bar = bar
        self._task = bar.add_task("waiting for the lane", total=None) if bar else None
        self._told: tuple[Any, ...] = ()

    def __call__(self, job: JobView) -> None:
        live = job.result
        step, steps = live.get("step") or 0, live.get("max_steps")
        line = _progress_line(job)
        if self._bar and self._task is not None:
            self._bar.update(self._task, description=line, completed=step, total=steps)
        else:
            key = (job.state, job.attempt, live.get("phase") == "warmup", live.get("last_heldout"))
            if key != self._told:
                self._told = key
                self._say.print(line, markup=False)


@contextlib.contextmanager
def _display(say: Console) -> Iterator[_Show]:
    if not say.is_terminal:
        yield _Show(say, None)
        return
    from rich.progress import BarColumn, Progress, TextColumn  # noqa: PLC0415

    columns = (BarColumn(bar_width=24), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=say, transient=True) as bar:
        yield _Show(say, bar)


def _progress_line(job: JobView) -> str:
    """`training step 12/60 · pool 0.71 · held-out 0.68 · 40 s left`."""
    from worker.estimate.time_left import left_s  # noqa: PLC0415

    live = job.result
    parts = [str(live.get("phase") or job.state)]
    if live.get("max_steps"):
        parts[0] += f" step {live.get('step') or 0}/{live['max_steps']}"
    for name, key in (("pool", "pool_score"), ("held-out", "last_heldout")):
        if live.get(key) is not None:
            parts.append(f"{name} {live[key]:.3f}")
    left = left_s(live, time.time())
    if left is not None and left > 0:
        parts.append(f"{left:.0f} s left")
    return " · ".join(parts)


def _show_result(job: JobView, url: str, *, as_json: bool) -> None:
    """The one screen at the end, or the one object. Raises DemoError for a job that failed."""
    from rich.console import Console  # noqa: PLC0415

    from worker.queue.states import State  # noqa: PLC0415

    if job.state is not State.SUCCEEDED:
        raise DemoError(f"job {job.id} {job.state}: {job.error or job.cause} ({job.run_dir})")
    if as_json:
        sys.stdout.write(json.dumps(summary(job, url)) + "\n")
    else:
        Console(highlight=False).print(screen(job, url))
    sys.stdout.flush()


def summary(job: JobView, url: str) -> dict[str, Any]:
    """What `--json` prints; scores are shares of solved questions on the `report` rows."""
    result = job.result
    keys = ("heldout_before", "heldout_after", "lift", "lift_ci95", "verdict", "steps")
    return {
        "job_id": job.id,
        **{key: result[key] for key in keys},
        "seconds": result["seconds"],
        "peak_gb": result["peak_gb"],
        "url": url,
    }


def screen(job: JobView, url: str) -> Table:
    """The same for people, with the time that the pages say and the engine's part of it."""
    from rich.table import Table  # noqa: PLC0415

    from app.text import wording  # noqa: PLC0415
    from app.text.headline import Headline  # noqa: PLC0415

    result = job.result
    lane, steps = (wording.duration(s) for s in (Headline.of(job).seconds, result["seconds"]))
    low, high = result["lift_ci95"] or (float("nan"),) * 2
    table = Table(show_header=False, title=f"job {job.id} · {result['verdict']}")
    rows = {
        "held-out": f"{result['heldout_before']:.3f} → {result['heldout_after']:.3f}"
        f"   lift {result['lift']:+.3f}, 95 % interval {low:+.3f} … {high:+.3f}"
        f"   (n = {result['report_n']}, scored once)",
        "steps": str(result["steps"]),
        "time": f"{lane} on the lane, {steps} of it in steps and gates",
        "peak memory": f"{result['peak_gb']:.2f} GB",
        "selected": f"checkpoint of step {result['selected_step']}, picked on held-out only",
        "run page": url,
    }
    for name, value in rows.items():
        table.add_row(name, value)
    return table


@contextlib.contextmanager
def _terminate_is_interrupt() -> Iterator[None]:
    """SIGTERM puts everything away exactly like Ctrl-C."""

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
