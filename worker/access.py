"""Access: who may come in, and what they may do there. Bearer tokens of programs, sign-ins of
browsers, and one-time addresses that become such a sign-in.

Each is a secret of 256 random bits, of which only the SHA-256 is stored. One round is enough: slow
hashes (bcrypt, Argon2) protect what people choose and others can guess, and nobody goes through
2^256 values; so every request can be checked. The index finds the digest, whose time tells nothing
about a secret.

Knows no request and no cookie.
"""

from __future__ import annotations

import enum
import hashlib
import hmac
import secrets
from contextlib import suppress
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict
from sqlalchemy import ColumnElement, delete, insert, select, update

from engine.contract.errors import ConfigError, ConfigProblem, NightlaneError
from worker.db.connection import Database, DatabaseError
from worker.db.tables import door_token
from worker.queue.submission import checked_name

SECRET_BYTES = 32
PREFIX = "nlt_"
"""Of a token, so that a scanner for secrets finds one in a repository."""
ADDRESS_S = 15 * 60.0
"""How long a one-time address waits to be opened."""
BROWSER_DAYS = 30
TOKEN_DAYS = 90
MOST_DAYS = 3650
DAY_S = 86_400.0
_KEPT_S = 30 * DAY_S
"""How long the list still shows what is over."""
USED_S = 60.0
"""So exact is the last use: a write for every request would be dearer than the request."""
_BRIEF_S = 0.01
"""How long the last use waits for another writer: no request waits for it."""


class Scope(enum.StrEnum):
    """What a credential is good for; each scope includes the ones before it."""

    READ = "read"
    OPERATE = "operate"
    ADMIN = "admin"

    def includes(self, wanted: Scope) -> bool:
        """Whether who has this scope may do what `wanted` asks for."""
        order = list(Scope)
        return order.index(self) >= order.index(wanted)


class Sort(enum.StrEnum):
    """How a credential is presented; one is never taken for another."""

    TOKEN = "token"  # noqa: S105 - the word
    BROWSER = "browser"
    ADDRESS = "address"


class TokenNotFoundError(NightlaneError):
    """No token has this number."""

    exit_code = 3

    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__(f"no token {number}; the tokens there are: cockpit token list")


class Credential(BaseModel):
    """All that is known of a token, a sign-in or an address; the secret is not."""

    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)

    id: int
    sort: Sort
    scope: Scope
    name: str
    created_at: float
    created_by: str
    expires_at: float
    last_used_at: float | None
    """To the minute."""
    revoked_at: float | None

    def over(self, now: float) -> str | None:
        """Why it opens nothing any more; None while it does."""
        if self.revoked_at is not None:
            return "revoked"
        return "expired" if self.expires_at <= now else None


class Issued(NamedTuple):
    """A secret, which is shown once, and what stays of it."""

    secret: str
    credential: Credential


def new_token(
    db: Database,
    scope: Scope,
    *,
    actor: str,
    now: float,
    days: float = TOKEN_DAYS,
    name: str | None = None,
) -> Issued:
    """A bearer token for a program. Raises ConfigError, DatabaseError."""
    if not 0 < days <= MOST_DAYS:
        problem = ConfigProblem("days", days, f"is not in 0 to {MOST_DAYS}", "name fewer days")
        raise ConfigError([problem])
    try:
        named = checked_name(name) or ""
    except ValueError as error:
        problem_text, _, remedy = str(error).partition("; ")
        raise ConfigError([ConfigProblem("name", name, problem_text, remedy)]) from None
    lasts_s = days * DAY_S
    return _issue(db, Sort.TOKEN, scope, name=named, actor=actor, now=now, lasts_s=lasts_s)


def new_address(db: Database, scope: Scope, *, actor: str, now: float) -> Issued:
    """The secret part of an address that signs one browser in. Raises DatabaseError."""
    return _issue(db, Sort.ADDRESS, scope, name="", actor=actor, now=now, lasts_s=ADDRESS_S)


def enter(db: Database, secret: str, *, now: float, user_id: int | None = None) -> Issued | None:
    """The address's secret for a browser's, once; None for any that is over, used or unknown.

    From then on it counts from this user of the machine alone. One conditional UPDATE turns the
    address into the sign-in: of two that open it, one comes in. Raises DatabaseError.
    """
    mine = _new_secret(Sort.BROWSER)
    values = {
        "digest": digest_of(mine),
        "sort": Sort.BROWSER,
        "expires_at": now + BROWSER_DAYS * DAY_S,
        "last_used_at": now,
        "user_id": user_id,
    }
    valid = (
        door_token.c.digest == digest_of(secret),
        door_token.c.sort == Sort.ADDRESS,
        door_token.c.expires_at > now,
        door_token.c.revoked_at.is_(None),
    )
    with db.write_tx() as conn:
        row = conn.execute(
            update(door_token).where(*valid).values(values).returning(*door_token.c)
        ).first()
    return Issued(mine, _credential(row)) if row else None


def holder(
    db: Database, sort: Sort, secret: str, *, now: float, user_id: int | None = None
) -> Credential | None:
    """Whose secret this is; None where it opens nothing. Raises DatabaseError.

    `user_id`: who brings it, which counts for a browser.
    """
    digest = digest_of(secret)
    of_secret = (door_token.c.digest == digest, door_token.c.sort == sort)
    with db.read() as conn:
        row = conn.execute(select(door_token).where(*of_secret)).first()
    if row is None or not hmac.compare_digest(row.digest, digest):
        return None
    if sort is Sort.BROWSER and row.user_id != user_id:
        return None
    found = _credential(row)
    return None if found.over(now) else found


def note_use(db: Database, credential: Credential, *, now: float) -> None:
    """Remember that it was used. A busy or full database is left alone: nothing depends on it."""
    if now - (credential.last_used_at or 0.0) < USED_S:
        return
    mine = update(door_token).where(door_token.c.id == credential.id)
    with suppress(DatabaseError), db.write_tx(patience_s=_BRIEF_S) as conn:
        conn.execute(mine.values(last_used_at=now))


def revoke(db: Database, number: int, *, now: float) -> Credential:
    """From now on it opens nothing; one that was revoked stays so.

    Raises TokenNotFoundError, DatabaseError.
    """
    this = door_token.c.id == number
    with db.write_tx() as conn:
        conn.execute(
            update(door_token).where(this, door_token.c.revoked_at.is_(None)).values(revoked_at=now)
        )
        row = conn.execute(select(door_token).where(this)).first()
    if row is None:
        raise TokenNotFoundError(number)
    return _credential(row)


def credentials(db: Database) -> list[Credential]:
    """All that are remembered, the newest first. Raises DatabaseError."""
    return _found(db)


def a_browser_is_signed_in(db: Database, *, now: float) -> bool:
    """Whether some browser can come in. Raises DatabaseError."""
    found = _found(db, door_token.c.sort == Sort.BROWSER)
    return any(credential.over(now) is None for credential in found)


def _found(db: Database, *conditions: ColumnElement[bool]) -> list[Credential]:
    wanted = select(door_token).where(*conditions).order_by(door_token.c.id.desc())
    with db.read() as conn:
        return [_credential(row) for row in conn.execute(wanted)]


def _issue(
    db: Database, sort: Sort, scope: Scope, *, name: str, actor: str, now: float, lasts_s: float
) -> Issued:
    secret = _new_secret(sort)
    values = {
        "digest": digest_of(secret),
        "sort": sort,
        "scope": scope,
        "name": name,
        "created_at": now,
        "created_by": actor,
        "expires_at": now + lasts_s,
    }
    with db.write_tx() as conn:
        conn.execute(delete(door_token).where(door_token.c.expires_at < now - _KEPT_S))
        row = conn.execute(insert(door_token).values(values).returning(*door_token.c)).one()
    return Issued(secret, _credential(row))


def _new_secret(sort: Sort) -> str:
    return (PREFIX if sort is Sort.TOKEN else "") + secrets.token_urlsafe(SECRET_BYTES)


def digest_of(secret: str) -> str:
    """What is stored of a secret."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _credential(row: Any) -> Credential:
    return Credential.model_validate(row, from_attributes=True)
