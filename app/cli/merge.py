"""`cockpit merge`: a run's checkpoint as one plain model folder.

The engine merges in a process of its own; this command hands on what it said.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from app.cli.output import note, print_json
from app.cli.place import AsJson, DataDir, opened
from app.text.exits import Exit
from engine.contract.errors import NightlaneError

EXPORT = (sys.executable, "-P", "-X", "utf8", "-m", "engine", "export")


class MergeError(NightlaneError):
    """A checkpoint that cannot be merged; the message says what to do."""

    def __init__(self, said: str, exit_code: Exit) -> None:
        super().__init__(said)
        self.exit_code = exit_code


def register(cli: typer.Typer) -> None:
    """Add the commands of this file."""
    cli.command()(merge)


def merge(
    context: typer.Context,
    *,
    named: Annotated[
        str, typer.Argument(metavar="JOB", help="A run: what it published; 7@20 for its step 20.")
    ],
    to: Annotated[Path, typer.Option("--to", metavar="DIR", help="A new or an empty folder.")],
    as_json: AsJson = False,
    data_dir: DataDir = None,
) -> None:
    """Write a run's checkpoint as one model folder, its adapter merged in; Transformers loads it.

    The folder is there whole or not at all. A checkpoint that is a whole model is copied.
    """
    from app.cli.checkpoints import checkpoint_named  # noqa: PLC0415 - keeps --help light
    from engine.contract.outputs import require_empty  # noqa: PLC0415 - keeps --help light

    target = to.expanduser().absolute()
    require_empty("--to", target)
    with opened(context, data_dir) as database:
        _, checkpoint = checkpoint_named(database, "JOB", named)
    done = subprocess.run(
        [*EXPORT, "--", str(checkpoint), str(target)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    if done.returncode == Exit.USAGE:
        raise MergeError(done.stderr.strip().splitlines()[-1], Exit.USAGE)
    if done.returncode:
        typer.echo(done.stderr, err=True, nl=False)
        raise MergeError(f"the merge failed; {target} was not written", Exit.FAILED)
    if as_json:
        print_json({"checkpoint": str(checkpoint), "folder": str(target)})
    else:
        typer.echo(target)
        note(f"merged {checkpoint}; load it with Transformers, or: vllm serve {target}")
