"""`cockpit demo`: the options of the demo; what it does stands in demo.py."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from app.cli.enqueue import assign
from app.cli.place import AsJson, DataDir, worker_settings


def register(cli: typer.Typer) -> None:
    """Add the commands of this file."""
    cli.command()(demo)


def demo(
    context: typer.Context,
    *,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of the board.")] = 8765,
    seed: Annotated[int | None, typer.Option(min=0, help="Another seed.")] = None,
    recipe: Annotated[Path | None, typer.Option(help="Another recipe than the demo's.")] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change one setting, e.g. lr=0."),
    ] = None,
    as_json: AsJson = False,
    data_dir: DataDir = None,
) -> None:
    """Train the embedded tiny model and show what it learnt."""
    from app.cli.demo import DemoOptions  # noqa: PLC0415 - keeps --help light
    from app.cli.demo import demo as show  # noqa: PLC0415 - keeps --help light

    overrides: dict[str, Any] = {}
    for assignment in assignments or ():
        assign(overrides, assignment)
    options = DemoOptions(port, seed, recipe, overrides, as_json)
    sys.exit(show(options, worker_settings(context, data_dir)))
