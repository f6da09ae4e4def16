"""`cockpit kinds`: the kinds of job, and every setting of one."""

from __future__ import annotations

import textwrap
from typing import Annotated

import typer

from app.cli.output import print_json
from app.cli.place import AsJson


def register(cli: typer.Typer) -> None:
    """Add the commands of this file."""
    cli.command()(kinds)


def kinds(
    kind: Annotated[str | None, typer.Argument(help="Show the settings of this kind.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the kinds of job, or explain every setting of one."""
    from engine.contract.registry import get_kind  # noqa: PLC0415 - keeps --help light
    from engine.contract.registry import kinds as registered  # noqa: PLC0415 - keeps --help light

    if kind is not None:
        _explain(get_kind(kind).config.model_json_schema(), as_json=as_json)
    elif as_json:
        print_json([{"name": k.name, "summary": k.summary} for k in registered().values()])
    else:
        for known in registered().values():
            typer.echo(f"{known.name:<14}{known.summary}")


def _explain(schema: dict[str, object], *, as_json: bool) -> None:
    from app.forms.schema import flattened  # noqa: PLC0415 - keeps --help light
    from app.text.wording import setting  # noqa: PLC0415 - keeps --help light

    if as_json:
        print_json(schema)
        return
    for leaf in flattened(schema):
        kind = " | ".join(leaf.choices) or leaf.type
        default = "required" if leaf.required else f"default {setting(leaf.default)}"
        facts = ", ".join(filter(None, (kind, leaf.limits, default)))
        typer.echo(f"{leaf.name}  ({facts})\n{textwrap.indent(leaf.help, '    ')}")
