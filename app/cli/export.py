"""`cockpit export-sft`: a run's right and well-formed completions as training data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.numbers import job_number, within
from app.cli.output import alone, note, print_json
from app.cli.place import AsJson, DataDir, opened
from engine.contract.errors import ConfigError, ConfigProblem

if TYPE_CHECKING:
    from worker.read.jobs import JobView


def register(cli: typer.Typer) -> None:
    """Add the commands of this file."""
    cli.command("export-sft")(export_sft)


def export_sft(
    context: typer.Context,
    *,
    job_id: Annotated[
        int, typer.Argument(parser=job_number, metavar="JOB", help="Number of the job.")
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The JSONL file to write; - is standard output.")
    ],
    per_prompt: Annotated[
        int,
        typer.Option(
            parser=within(1), metavar="NUMBER", help="At most so many completions of one question."
        ),
    ] = 4,
    since_step: Annotated[
        int,
        typer.Option(
            parser=within(0), metavar="STEP", help="Only what this step and later ones sampled."
        ),
    ] = 0,
    as_json: AsJson = False,
    data_dir: DataDir = None,
) -> None:
    """Write completions that were right and well-formed to a file: data for fine-tuning.

    Each line is {"prompt", "completion", "id", "step"}. Held-out rows are never among them.
    """
    from engine.contract.outputs import is_standard_output  # noqa: PLC0415 - keeps --help light
    from engine.contract.run_dir import RunDir  # noqa: PLC0415 - keeps --help light
    from engine.contract.sft_export import sft_rows, write_sft  # noqa: PLC0415 - keeps --help light
    from worker.read import jobs  # noqa: PLC0415 - keeps --help light

    if as_json and is_standard_output(out):
        raise alone("--out", out)
    with opened(context, data_dir) as database:
        job = jobs.get_job(database, job_id)
    rows = sft_rows(
        RunDir(job.run_dir),
        success_threshold=job.config.get("success_threshold", 0.5),
        per_prompt=per_prompt,
        since_step=since_step,
    )
    try:
        count = write_sft(out, rows)
    except OSError as error:
        problem = f"cannot be written: {error.strerror}"
        raise ConfigError(
            [ConfigProblem("--out", str(out), problem, "name a file that can")]
        ) from None
    if as_json:
        print_json({"rows": count, "file": str(out) if count else None})
    if count:
        note(f"{count} rows in {'standard output' if is_standard_output(out) else out}")
    else:
        note(f"job {job_id} {_why_none(job)}; nothing written")


def _why_none(job: JobView) -> str:
    """Why a job has nothing to export: never, gone, not there yet, or sampled and never right."""
    from app.text import wording  # noqa: PLC0415 - keeps --help light

    if job.kind in {"stage2_ab", "rollout_matching_sft"}:
        return (
            f"is a {job.kind}: its rollouts are boxes that match more or less, and this kind has "
            "no completions to export"
        )
    if job.pruned_at is not None:
        return f"was pruned on {wording.minute(job.pruned_at)}: its rollouts were thrown away"
    if not job.attempt:
        return f"has not run yet (it is {job.state}), so it has no completions"
    return "has no completion that was right and well-formed"
