"""Migrations: which versions of the schema there are, and the way to the newest. Knows no table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sqlalchemy import Connection


def migrations_dir() -> Path:
    """The migrations: inside the package when installed, beside it in a checkout."""
    package = Path(__file__).parent.parent
    installed = package / "migrations"
    return installed if installed.is_dir() else package.parent / "migrations"


def known_versions() -> Sequence[str]:
    """Versions of the schema, oldest first: the names of the migrations."""
    return sorted(path.stem for path in (migrations_dir() / "versions").glob("[0-9]*.py"))


def unknown_version(version: str) -> str:
    """What is wrong with a schema that this program does not know, and what to do."""
    first, newest = known_versions()[0], known_versions()[-1]
    number = version.partition("_")[0]
    if not number.isdecimal():
        return f"has schema {version!r}, which is none of Nightlane's; use another copy"
    if number > newest:
        return f"has schema {version}, newer than this program knows ({newest}); update Nightlane"
    return (
        f"has schema {version}, from before the first release ({first}), which nothing brings "
        "forward; export what you need with the Nightlane that wrote it, and begin in a new data "
        "directory: set NIGHTLANE_DATA_DIR"
    )


def upgrade(conn: Connection) -> None:
    """Alembic, on our connection: schema and version change in one transaction."""
    from alembic import command  # noqa: PLC0415 - 0.4 s that only a migration pays
    from alembic.config import Config  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(migrations_dir()).replace("%", "%%"))
    config.attributes["connection"] = conn
    command.upgrade(config, "head")
