"""`cockpit inspect-rollout`: what stage-2 makes of one rollout, token by token.

The engine looks at the rollout in a process of its own; this command hands on what it said.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from app.cli.place import AsJson
from app.text.exits import Exit
from engine.contract.errors import NightlaneError

INSPECT = (sys.executable, "-P", "-X", "utf8", "-m", "engine.stage2.inspect.inspect_rollout")


class RolloutFileError(NightlaneError):
    """A rollout file that cannot be inspected; the message says what to do."""

    exit_code = Exit.USAGE


def register(cli: typer.Typer) -> None:
    """Add the commands of this file."""
    cli.command("inspect-rollout")(inspect_rollout)


def inspect_rollout(
    file: Annotated[
        Path,
        typer.Argument(help="JSON with response_token_ids, objects, tokenizer; perhaps config."),
    ],
    *,
    tokenizer: Annotated[
        Path | None, typer.Option(help="A folder with tokenizer.json; else the file's own.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show each token's role and weight, each entry's match or reason of drop."""
    flags = ["--json"] if as_json else []
    if tokenizer is not None:
        flags.append(f"--tokenizer={tokenizer}")
    done = subprocess.run(
        [*INSPECT, *flags, "--", str(file)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    if done.returncode == Exit.USAGE:
        raise RolloutFileError(done.stderr.rstrip("\n"))
    typer.echo(done.stderr, err=True, nl=False)
    typer.echo(done.stdout, nl=False)
    if done.returncode:
        raise typer.Exit(Exit.FAILED)
