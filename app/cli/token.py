"""`cockpit token`: who may come in. A new token is shown once; only its hash is kept."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.enqueue import who
from app.cli.numbers import within
from app.cli.output import note, print_json, print_table
from app.cli.place import AsJson, DataDir, opened
from app.cli.sign_in import ScopeOption, scope_named

if TYPE_CHECKING:
    from worker.access import Credential

group = typer.Typer(
    help="Who may come in: tokens of programs, browsers that are signed in.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


def register(cli: typer.Typer) -> None:
    """Add the commands of this file."""
    cli.add_typer(group, name="token")


@group.command()
def new(
    context: typer.Context,
    *,
    scope: ScopeOption = "read",
    days: Annotated[
        int, typer.Option(parser=within(1, 3650), metavar="DAYS", help="How long it is good.")
    ] = 90,
    name: Annotated[str | None, typer.Option(help="What it is for, as the list shows it.")] = None,
    as_json: AsJson = False,
    data_dir: DataDir = None,
) -> None:
    """Make a bearer token for a program, and print it: it is shown this once."""
    from app.text import wording  # noqa: PLC0415 - keeps --help light
    from worker import access  # noqa: PLC0415 - keeps --help light

    wanted = scope_named(scope)
    with opened(context, data_dir) as database:
        secret, made = access.new_token(
            database, wanted, days=days, name=name, actor=who(), now=time.time()
        )
    if as_json:
        print_json({"token": secret, **made.model_dump(mode="json")})
    else:
        typer.echo(secret)
    note(
        f"token {made.id} ({made.scope}), good until {wording.clock(made.expires_at)}; shown this "
        "once: keep it in a file of mode 0600, and send it as Authorization: Bearer TOKEN"
    )


@group.command("list")
def list_(context: typer.Context, *, as_json: AsJson = False, data_dir: DataDir = None) -> None:
    """List tokens, browsers and open addresses, with their end and their last use."""
    from worker import access  # noqa: PLC0415 - keeps --help light

    with opened(context, data_dir) as database:
        found = access.credentials(database)
    if as_json:
        print_json([credential.model_dump(mode="json") for credential in found])
        return
    now = time.time()
    head = ("id", "what", "scope", "until", "last used", "made by", "name")
    print_table(head, [_row(credential, now) for credential in found])


@group.command()
def revoke(
    context: typer.Context,
    number: Annotated[int, typer.Argument(parser=within(1, 2**31 - 1), metavar="ID")],
    *,
    as_json: AsJson = False,
    data_dir: DataDir = None,
) -> None:
    """End a token, or a browser's sign-in, at once."""
    from worker import access  # noqa: PLC0415 - keeps --help light

    with opened(context, data_dir) as database:
        ended = access.revoke(database, number, now=time.time())
    if as_json:
        print_json(ended.model_dump(mode="json"))
    note(f"{ended.sort} {ended.id} opens nothing any more")


def _row(credential: Credential, now: float) -> tuple[str, ...]:
    from app.text import wording  # noqa: PLC0415 - keeps --help light

    used = credential.last_used_at
    return (
        str(credential.id),
        credential.sort,
        credential.scope,
        credential.over(now) or wording.clock(credential.expires_at),
        wording.clock(used) if used else "never",
        credential.created_by,
        credential.name,
    )
