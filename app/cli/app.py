"""The command line, put together.

Importing this module must stay light: `cockpit --help` and `cockpit jobs` know neither the web
nor torch, so each command imports what it needs inside itself.
"""

from __future__ import annotations

import typer

from app.cli import (
    actions,
    autonomy,
    budget,
    compare,
    db,
    demo,
    doctor,
    drain,
    enqueue,
    evaluate,
    export,
    import_trl,
    jobs,
    kinds,
    leaderboard,
    merge,
    notify,
    passk,
    queue,
    report,
    rescore,
    run_export,
    serve,
    sign_in,
    stage2,
    token,
)
from app.cli.errors import reporting
from app.cli.output import show_what_can_be_shown
from app.cli.place import DataDir

_DOCUMENTATION = """The overnight cockpit for post-training on one box.

Data goes to standard output, messages to standard error. Exit codes: 0 done, 1 failed, 2 wrong
usage or config, 3 not found, 4 refused by policy (a lane that is held, an address that is not
loopback), 5 unreachable.
"""

cli = typer.Typer(
    name="cockpit",
    help=_DOCUMENTATION,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@cli.callback()
def cockpit(context: typer.Context, data_dir: DataDir = None) -> None:
    """Remember the place for the command behind it."""
    context.obj = data_dir


for group in (
    serve,
    sign_in,
    token,
    enqueue,
    evaluate,
    passk,
    jobs,
    compare,
    leaderboard,
    rescore,
    actions,
    queue,
    drain,
    autonomy,
    budget,
    report,
    merge,
    import_trl,
    run_export,
    export,
    notify,
    demo,
    kinds,
    db,
    doctor,
    stage2,
):
    group.register(cli)


def main() -> None:
    """The console script."""
    with reporting():
        show_what_can_be_shown()
        cli(prog_name="cockpit")
