"""`cockpit passk`: queue the job that says how often a checkpoint solves each row of a source."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from app.cli.evaluation_job import Ordered, order, place_of
from app.cli.numbers import amount, count
from app.cli.output import note
from app.cli.place import AsJson, DataDir, opened


def register(cli: typer.Typer) -> None:
    """Add the commands of this file."""
    cli.command("passk")(passk)


def passk(
    context: typer.Context,
    *,
    checkpoint: Annotated[
        str,
        typer.Argument(
            help="Number of a job (what it published), a run's or checkpoint's folder, a model."
        ),
    ],
    source: Annotated[str, typer.Argument(help="The rows: a data file, or an embedded data set.")],
    samples: Annotated[
        int,
        typer.Option(
            "--samples", "-n", parser=count, metavar="NUMBER", help="Completions of a row."
        ),
    ] = 8,
    verifier: Annotated[
        str | None, typer.Option(help="Who judges; else as the run of the checkpoint.")
    ] = None,
    template: Annotated[
        str | None, typer.Option(help="A form of prompt by name; else as that run asked.")
    ] = None,
    keep: Annotated[
        tuple[float, float],
        typer.Option(metavar="LOW HIGH", help="Pass rates that stay, ends included."),
    ] = (0.1, 0.9),
    limit: Annotated[
        int | None, typer.Option(parser=count, metavar="ROWS", help="Only the first so many rows.")
    ] = None,
    temp: Annotated[
        float | None, typer.Option(parser=amount, metavar="NUMBER", help="Sampling temperature.")
    ] = None,
    max_new_tokens: Annotated[
        int | None, typer.Option(parser=count, metavar="NUMBER", help="Longest completion.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Also write the curriculum's file there.")
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Another setting of eval_rerun, e.g. data.prompt_field=question.",
        ),
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
    """Sample every row n times: pass@k, and a curriculum file of the rows worth training on.

    What is not said is as the run of the checkpoint has it. Prints the id of an eval_rerun job,
    whose folder then holds passk.jsonl (each row) and curriculum.txt (ids, from easy to hard).
    """
    from engine.contract.evaluate.of_run import as_its_run  # noqa: PLC0415 - keeps --help light

    with opened(context, data_dir) as database:
        base = place_of(database, checkpoint)
        raw = as_its_run(base, source, verifier=verifier)
        raw |= {"samples": samples, "keep": list(keep)}
        said: dict[str, Any] = {"temp": temp, "max_new_tokens": max_new_tokens}
        raw |= {setting: value for setting, value in said.items() if value is not None}
        if limit is not None:
            raw["data"]["limit"] = limit
        if out is not None:
            raw["curriculum_out"] = str(out.absolute())
        if template is not None:
            prompting = {**raw.get("prompting", {}), "template": template}
            prompting.pop("question_format", None)
            raw["prompting"] = prompting
        name = name or f"pass@k of {Path(source).name}"
        order(database, raw, Ordered(name, priority, force, dry_run, as_json, assignments or ()))
        if not dry_run and out is not None and out.exists():
            note(f"{out} is there and will be replaced when the job is done")
