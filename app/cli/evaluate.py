"""`cockpit eval`: the job that scores checkpoints on benches; or follow a run and score each."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from typer.core import TyperGroup

from app.cli.enqueue import read_config, who
from app.cli.evaluation_job import Ordered, order, place_of
from app.cli.numbers import amount, count, job_number, within
from app.cli.output import note, plain, print_json
from app.cli.place import AsJson, DataDir, opened
from engine.contract.errors import ConfigError, ConfigProblem

if TYPE_CHECKING:
    from worker.db.connection import Database
    from worker.read.evaluations import Score, Watching

_DEFAULT = "score"
_CONFIGS = (".yaml", ".yml")
_LOOK_S = 0.5
"""Seconds between two looks for a new score."""


class _Group(TyperGroup):
    """`cockpit eval 7` is short for `cockpit eval score 7`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        known = {*self.commands, *ctx.help_option_names}
        return super().parse_args(ctx, args if not args or args[0] in known else [_DEFAULT, *args])


group = typer.Typer(
    cls=_Group,
    help="Score checkpoints on benches: `cockpit eval CHECKPOINT... --bench NAME` is short for "
    "`cockpit eval score`.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


def register(cli: typer.Typer) -> None:
    """Add the commands of this file."""
    cli.add_typer(group, name="eval")


Benches = Annotated[
    list[str] | None,
    typer.Option(
        "--bench",
        "-b",
        metavar="NAME|FILE",
        help="A task (gsm8k_cot; harness:gsm8k_cot), a bench file (YAML), a data file, or run:7, "
        "the frozen rows of job 7. May come several times.",
    ),
]
Sources = Annotated[
    list[str] | None,
    typer.Option(
        "--source", metavar="FILE", help="The rows: one for all benches, or one for each."
    ),
]
Shots = Annotated[
    str | None, typer.Option(metavar="0,4,8", help="Worked examples; each number is scored.")
]
Limit = Annotated[
    int | None,
    typer.Option(parser=within(1), metavar="ROWS", help="Only the first so many rows of each."),
]
Verifier = Annotated[
    str | None, typer.Option(help="Who judges; else as the task says, or as the run was judged.")
]
Also = Annotated[
    str | None, typer.Option(metavar="A,B", help="Verifiers that judge the same answers too.")
]
Template = Annotated[str | None, typer.Option(help="A form of prompt by name.")]
Samples = Annotated[
    int | None,
    typer.Option("--samples", "-n", parser=within(1), metavar="NUMBER", help="Answers to a row."),
]
Temp = Annotated[
    float | None, typer.Option(parser=amount, metavar="NUMBER", help="Sampling temperature.")
]
MaxNewTokens = Annotated[
    int | None, typer.Option(parser=within(1), metavar="NUMBER", help="Longest completion.")
]
By = Annotated[
    str | None,
    typer.Option(metavar="COLUMN,...", help="Columns: the score is told for each value too."),
]


@group.command(_DEFAULT)
def score(
    context: typer.Context,
    *,
    checkpoints: Annotated[
        list[str],
        typer.Argument(
            metavar="CHECKPOINT...",
            help="Numbers of jobs (7: what it published, 7@20: its step 20, 7@all: every step), "
            "folders, hub ids; the first one is what the others are compared with. Or a YAML "
            "config of an eval_rerun.",
        ),
    ],
    bench: Benches = None,
    source: Sources = None,
    steps: Annotated[
        str | None,
        typer.Option(
            "--checkpoints", metavar="all|0,20,40", help="Steps of the run that is named."
        ),
    ] = None,
    shots: Shots = None,
    limit: Limit = None,
    verifier: Verifier = None,
    also: Also = None,
    template: Template = None,
    samples: Samples = None,
    temp: Temp = None,
    max_new_tokens: MaxNewTokens = None,
    by: By = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Another setting of eval_rerun."),
    ] = None,
    name: Annotated[str | None, typer.Option(help="What people call the job.")] = None,
    priority: Annotated[
        int, typer.Option(parser=count, metavar="NUMBER", help="Higher runs first: -100 to 100.")
    ] = 0,
    force: Annotated[
        bool, typer.Option("--force", help="Also when the same job has a result, waits or runs.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the resolved config; queue nothing.")
    ] = False,
    as_json: AsJson = False,
    data_dir: DataDir = None,
) -> None:
    """Score checkpoints on benches. Prints the id of the job.

    What is not said is as the task has it, or as the run of the first checkpoint asked.
    """
    said = _Said(shots, limit, verifier, also, template, samples, temp, max_new_tokens, by)
    with opened(context, data_dir) as database:
        if len(checkpoints) == 1 and checkpoints[0].endswith(_CONFIGS):
            raw = read_config(checkpoints[0])
            benches = [*raw.get("benches", ()), *said.benches(bench or (), source or ())]
            raw |= {"benches": benches} if benches else {}
        else:
            raw = _config(database, checkpoints, steps, said.benches(bench or (), source or ()))
        named = name or f"{', '.join(checkpoints)} on {', '.join(bench or ['its benches'])}"
        order(database, raw, Ordered(named, priority, force, dry_run, as_json, assignments or ()))


@group.command()
def watch(
    context: typer.Context,
    *,
    job_id: Annotated[
        int,
        typer.Argument(
            metavar="JOB", parser=job_number, help="A run that is queued, running or over."
        ),
    ],
    bench: Benches = None,
    source: Sources = None,
    every: Annotated[
        int,
        typer.Option(
            parser=within(1),
            metavar="STEPS",
            help="Only steps that are a multiple of it, and the last and the published one.",
        ),
    ] = 1,
    shots: Shots = None,
    limit: Limit = None,
    verifier: Verifier = None,
    also: Also = None,
    template: Template = None,
    samples: Samples = None,
    temp: Temp = None,
    max_new_tokens: MaxNewTokens = None,
    by: By = None,
    priority: Annotated[
        int | None,
        typer.Option(parser=count, metavar="NUMBER", help="Of its jobs; else behind all others."),
    ] = None,
    detach: Annotated[
        bool, typer.Option("--detach", help="Only begin it; print no scores.")
    ] = False,
    stop: Annotated[
        bool, typer.Option("--stop", help="Score no more of its checkpoints; end no job.")
    ] = False,
    as_json: AsJson = False,
    data_dir: DataDir = None,
) -> None:
    """Score each checkpoint of a run as it appears, the baseline first, and print the scores.

    A drain makes and runs the jobs; they go on without this terminal. Without --bench the scores
    of the benches that the run is watched for already are printed.
    """
    from worker.queue import evaluations  # noqa: PLC0415 - keeps --help light
    from worker.read.jobs import get_job  # noqa: PLC0415

    said = _Said(shots, limit, verifier, also, template, samples, temp, max_new_tokens, by)
    with opened(context, data_dir) as database:
        if stop:
            evaluations.stop_watching(database, job_id, actor=who())
            note(f"checkpoints of job {job_id} are scored no more")
            return
        if bench:
            raw: dict[str, Any] = {"benches": said.benches(bench, source or ()), "every": every}
            raw |= {} if priority is None else {"priority": priority}
            evaluations.watch(database, job_id, raw, actor=who())
            if get_job(database, job_id).state.final:  # else whoever looks for work makes the job
                evaluations.queue_evaluations(database, actor=who())
        if not detach:
            _follow(database, job_id, as_json=as_json)


class _Said(NamedTuple):
    """The options that every bench takes."""

    shots: str | None
    limit: int | None
    verifier: str | None
    also: str | None
    template: str | None
    samples: int | None
    temp: float | None
    max_new_tokens: int | None
    by: str | None

    def benches(self, names: Sequence[str], sources: Sequence[str]) -> list[dict[str, Any]]:
        """Benches as a config has them. Raises ConfigError."""
        found = [_bench(name) for name in names]
        lacking = [one for one in found if "run" not in one and "source" not in one]
        if len(sources) not in {0, 1, len(lacking)}:
            problem = f"is given {len(sources)} times, and {len(lacking)} benches take one"
            remedy = "give one for all of them, or one for each, in their order"
            raise ConfigError([ConfigProblem("--source", sources[-1], problem, remedy)])
        for one, source in zip(lacking, [*sources] * len(lacking), strict=False):
            one["source"] = source
        return [self._told(one) for one in found]

    def _told(self, bench: dict[str, Any]) -> dict[str, Any]:
        """Rows of a run are asked as the run did."""
        asked = {
            "shots": None if self.shots is None else [count(one) for one in self.shots.split(",")],
            "limit": self.limit,
            "verifier": self.verifier,
            "template": self.template,
            "samples": self.samples,
            "temp": self.temp,
            "max_new_tokens": self.max_new_tokens,
        }
        judged = {"also": _words(self.also), "by": _words(self.by)}
        said = judged if "run" in bench else asked | judged
        return bench | {setting: value for setting, value in said.items() if value is not None}


def _words(text: str | None) -> list[str] | None:
    return None if text is None else [word.strip() for word in text.split(",")]


def _bench(name: str) -> dict[str, Any]:
    """A data file's name is one with a suffix that no bench file has."""
    if name.startswith("run:"):
        return {"run": name.removeprefix("run:")}
    if Path(name).suffix in _CONFIGS:
        return {"bench": name}
    if Path(name).suffix and Path(name).exists():
        return {"source": name}
    return {"task": name}


def _config(
    database: Database, named: Sequence[str], steps: str | None, benches: Sequence[Any]
) -> dict[str, Any]:
    """Of an eval_rerun."""
    from engine.contract.evaluate.of_run import as_asked  # noqa: PLC0415 - keeps --help light

    if not benches:
        remedy = "name a task, a bench file or run:JOB with --bench"
        raise ConfigError([ConfigProblem("--bench", None, "is missing", remedy)])
    first, _, at = named[0].partition("@")
    if len(named) == 1 and (at == "all" or steps):
        base = place_of(database, first)
        return as_asked(base, benches) | {"base": base, "checkpoints": _steps(steps or at)}
    if steps:
        problem = f"are steps of one run, and {len(named)} checkpoints are named"
        remedy = "name one run, or write 7@0 7@20"
        raise ConfigError([ConfigProblem("--checkpoints", steps, problem, remedy)])
    places = [place for one in named for place in _places(database, one)]
    return as_asked(places[0], benches) | {"base": places[0], "checkpoints": places}


def _steps(text: str) -> str | list[int]:
    return text if text == "all" else [count(one) for one in text.split(",")]


def _places(database: Database, named: str) -> Iterator[str]:
    """What `7`, `7@20`, `7@all` or a place stands for."""
    from engine.contract.run_dir import RunDir, complete_checkpoints  # noqa: PLC0415
    from worker.queue.places import place_of as step_of  # noqa: PLC0415

    job, _, at = named.partition("@")
    if at != "all" or Path(named).exists():
        yield place_of(database, str(step_of(named, database.settings.runs_dir)) if at else named)
        return
    found = complete_checkpoints(RunDir(Path(place_of(database, job))))
    yield from (str(folder) for _, folder in found)


# --- printing scores as they come ---


def _follow(database: Database, job_id: int, *, as_json: bool) -> None:
    """Until nothing is left to score, or somebody stops the command: the jobs go on."""
    from worker.read.evaluations import watching  # noqa: PLC0415 - keeps --help light

    told: set[str] = set()
    said = ""
    try:
        while True:
            now = watching(database, job_id)
            fresh = [one for one in now.scores if one.ref not in told]
            for one in fresh:
                _print_score(database, one, as_json=as_json)
            told |= {one.ref for one in fresh}
            if now.problems:
                remedy = "mend it, and name the bench again with --bench"
                raise ConfigError([ConfigProblem("--bench", None, now.problems[0], remedy)])
            if now.over:
                return
            if (wait := _what_it_waits_for(now)) != said:
                said = wait
                note(said)
            time.sleep(_LOOK_S)
    except KeyboardInterrupt:
        note(f"the scores go on; print them with: cockpit eval watch {job_id}")


def _print_score(database: Database, one: Score, *, as_json: bool) -> None:
    """With what it is against the baseline, row by row."""
    from app.text import scores  # noqa: PLC0415 - keeps --help light
    from worker.read.scores.pairs import compare_pairs, pair_ref  # noqa: PLC0415

    pair = None
    if one.before is not None:
        [pair] = compare_pairs(database, [pair_ref(one.before, one.ref)]).pairs
    if as_json:
        told = None if pair is None else pair.model_dump(mode="json", exclude={"before", "after"})
        print_json({"job_id": one.job_id, **one.said.model_dump(mode="json"), "change": told})
    else:
        typer.echo(plain(scores.line(one.said, pair)))


def _what_it_waits_for(now: Watching) -> str:
    going = next((one for one in now.jobs if not one.state.final), None)
    if going is None:
        return f"job {now.run_id} is {now.run_state}: a drain that looks for work scores it next"
    steps = ", ".join(map(str, going.steps))
    return f"job {going.job_id} is {going.state}: step {steps}"
