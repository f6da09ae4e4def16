"""`cockpit import-trl`: a GRPO script, notebook or YAML file of TRL as a config of `rl_run`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from app.cli.output import note


def register(cli: typer.Typer) -> None:
    """Add the commands of this file."""
    cli.command("import-trl")(import_trl)


def import_trl(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="A Python script, a notebook, a YAML file, or verl's shell script."
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The YAML file to write; - is standard output.")
    ] = Path("-"),
) -> None:
    """Translate the settings of a GRPO run of TRL, Unsloth or verl; say what could not be carried.

    Nothing of the file is run. Look at the notes, then: cockpit enqueue rl_run FILE.
    """
    from app.forms.trl_import import imported  # noqa: PLC0415 - keeps --help light
    from app.forms.trl_values import said_by  # noqa: PLC0415
    from app.forms.verl_import import of_verl  # noqa: PLC0415
    from engine.contract.errors import ConfigError, ConfigProblem  # noqa: PLC0415
    from engine.contract.outputs import write_output  # noqa: PLC0415

    found = of_verl(file) if file.suffix == ".sh" else imported(said_by(file))
    try:
        write_output(out, [found.text])
    except OSError as error:
        problem = f"cannot be written: {error.strerror}"
        remedy = "name a file that can"
        raise ConfigError([ConfigProblem("--out", str(out), problem, remedy)]) from None
    for sentence in found.notes:
        note(sentence)
